"""Estimates what the columns of a table of verdicts allow: `sortition estimate DATA`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from estimators.bt_ties import Ties
from estimators.score_means import Contrast, ScoreMeansConfig, fit_score_means
from orchestrator import suspicious
from orchestrator.core.errors import ConfigError, Problem
from orchestrator.core.estimate import Estimate
from orchestrator.core.frame import Frame
from orchestrator.core.money import FREE
from orchestrator.core.query import Kind
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Panelist, Study
from orchestrator.planned import PLANNED
from orchestrator.ratings import PARTS, Ratings, Sort, read_ratings
from orchestrator.report import wording as words
from orchestrator.report.assessment import (
    Assessment,
    Assumption,
    Compared,
    CriterionResult,
    Naive,
    Suspicion,
    Use,
)
from orchestrator.report.wording import plural
from orchestrator.sequences import PARTS as SEQUENCE_PARTS
from orchestrator.sequences import YES_NO, estimates_of, naive_of, read_sequence
from orchestrator.suspicious import Part
from orchestrator.tables import Columns, Problems, read_columns
from orchestrator.votes import PARTS as VOTE_PARTS
from orchestrator.votes import PREFERENCE, USUAL_ITEMS, Votes, read_votes
from orchestrator.votes import estimates_of as votes_estimates
from orchestrator.votes import naive_of as votes_naive
from orchestrator.wording import did_you_mean, seen

RATED, IN_SEQUENCE = "score_means", "markov_glmm"
IN_PAIRS, BY_CATEGORY = "bradley_terry", "bt_tensor"
"""The kinds of estimate that can be made of a table so far, the first one preferred."""
BUILT = (RATED, IN_SEQUENCE, IN_PAIRS, BY_CATEGORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted of a table.

    Parameters
    ----------
    kind : None: whatever the columns allow
    names : part to the column that holds it; an empty name leaves the part out
    scales : criterion to its ends; the key None is for all that are not named
    contrast : `ARM:BASELINE`, a paired difference
    confidence, per, population, target : as in `ScoreMeansConfig`
    accept_from : of verdicts in sequence, the lowest number that is a yes; None: they are yes or no
    ties : of comparisons, what a tie counts as
    """

    kind: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    scales: Mapping[str | None, tuple[float, float]] = field(default_factory=dict)
    confidence: float = 0.95
    contrast: str | None = None
    per: Literal["arm", "unit", "judge"] = "arm"
    population: Literal["these_items", "items_like_these"] = "items_like_these"
    target: Literal["panel", "common", "population"] | None = None
    accept_from: float | None = None
    ties: Ties = Ties.HALF


def assess(path: Path, request: Request) -> Assessment:
    """Read a table, estimate what its columns allow, and say what is suspicious.

    Raises
    ------
    ConfigError
        With every problem of the table and of the request, each with its line; or what is asked
        for is not built.
    """
    _check_kind(request.kind)
    problems = Problems()
    known = {name for part, others in _OTHER_NAMES.items() for name in (part, *others)}
    wanted = known | set(filter(None, request.names.values()))
    table = read_columns(path, str(path), sorted(wanted), problems)
    if not problems.listed() and not (table and table.n_rows):
        problems.add("no rows", Problem(file=str(path), message="no rows"))
    if table is None or not table.n_rows:
        raise _refusal(problems)
    parts = _parts(table, request.names, problems)
    uses = tuple(_uses(parts, table, path))
    allowed = [use.kind for use in uses if use.is_built]
    kind = request.kind or (allowed[0] if allowed else None)
    is_built = kind in allowed
    if (request.kind is not None and not is_built) or not uses:
        nearest = IN_PAIRS if _is_nearly_votes(parts) else RATED
        _want(request.kind or nearest, table, parts, problems)
    if problems.listed() and not is_built:
        raise _refusal(problems)
    if is_built:
        reads = _PARTS[kind]
        parts = {part: column for part, column in parts.items() if part in reads}
    assessment = Assessment(
        file=str(path),
        n_rows=table.n_rows,
        columns=parts,
        unused=tuple(name for name in table.names if name not in parts.values()),
        uses=uses,
        counts={},
        assumptions=(),
        results=(),
        suspicions=(),
        cost=None,
        next_command=_next_command(path, request),
    )
    if not is_built:
        return assessment
    if kind == IN_SEQUENCE:
        return _in_sequence(assessment, table, request, problems)
    if kind in {IN_PAIRS, BY_CATEGORY}:
        return _in_pairs(assessment, table, request, problems)
    ratings = read_ratings(table, parts, problems)
    return _assessed(assessment, ratings, request, problems)


def votes_in(path: Path, names: Mapping[str, str]) -> Votes:
    """Read a table of votes.

    Parameters
    ----------
    names : part to the column that holds it; an empty name leaves the part out

    Raises
    ------
    ConfigError
        With every problem of the table, each with its line.
    """
    problems = Problems()
    known = {name for part, others in VOTE_PARTS.items() for name in (part, *others)}
    table = read_columns(
        path, str(path), sorted(known | set(filter(None, names.values()))), problems
    )
    if table is None or not table.n_rows:
        if not problems.listed():
            problems.add("no rows", Problem(file=str(path), message="no rows"))
        raise _refusal(problems)
    parts = {p: c for p, c in _parts(table, names, problems).items() if p in VOTE_PARTS}
    _want(IN_PAIRS, table, parts, problems)
    if problems.listed():
        raise _refusal(problems)
    votes = read_votes(table, parts, problems)
    if problems.listed():
        raise _refusal(problems)
    return votes


def _check_kind(kind: str | None) -> None:
    planned = PLANNED["estimators"]
    if kind in planned:
        raise ConfigError(f"--kind {kind}: estimating it from a table is planned and not built yet")
    if kind not in {None, *BUILT}:
        hint = did_you_mean(str(kind), (*BUILT, *planned))
        raise ConfigError(f"--kind: no kind of estimate is named {seen(kind)}{hint}")


def _refusal(problems: Problems) -> ConfigError:
    listed = problems.listed()
    end = f"{plural(len(listed), 'problem')}; nothing was estimated"
    return ConfigError("\n".join((*map(str, listed), end)))


# --- what the columns allow ----------------------------------------------------------------------


class _Form(NamedTuple):
    """A table that can be read: the parts it must have, and what can be estimated from it."""

    table: str
    needs: tuple[str, ...]
    kind: str
    advice: str = ""


_FORMS = (
    _Form("ratings", ("item_id", "score"), RATED),
    _Form("comparisons", ("left", "right", "winner"), IN_PAIRS),
    _Form("comparisons by category", ("left", "right", "winner", "category"), BY_CATEGORY),
    _Form("verdicts in sequence", ("batch_id", "position", "item_id", "y"), IN_SEQUENCE),
    _Form(
        "right and wrong answers",
        ("item_id", "correct"),
        "exchangeable",
        "--map score=correct reads them as ratings",
    ),
)
_PARTS: Mapping[str | None, Mapping[str, tuple[str, ...]]] = {
    RATED: PARTS,
    IN_SEQUENCE: SEQUENCE_PARTS,
    IN_PAIRS: VOTE_PARTS,
    BY_CATEGORY: VOTE_PARTS,
}
_ONE_HOT = ("winner_model_a", "winner_model_b", "winner_tie")
"""Columns in which some arenas say by 1 and 0 who won."""
_OTHER_NAMES = {**PARTS, **SEQUENCE_PARTS, **VOTE_PARTS}
_KNOWN = tuple(dict.fromkeys((*_OTHER_NAMES, *(part for form in _FORMS for part in form.needs))))


def _parts(table: Columns, names: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Find the column of each part: the one that the user names, else the one called so."""
    columns = list(table.names)
    for part, column in names.items():
        if part not in _KNOWN:
            message = f"no part is named {seen(part)}{did_you_mean(part, _KNOWN)}"
            problems.add("names", Problem(path="--map", message=message))
        elif column and column not in columns:
            message = f"{table.file} has no column {seen(column)}{did_you_mean(column, columns)}"
            problems.add("names", Problem(path=f"--map {part}", message=message))
    free = [column for column in columns if column not in names.values()]
    found = {}
    for part in _KNOWN:
        if part in names:
            if names[part] in columns:
                found[part] = names[part]
        elif own := [name for name in (part, *_OTHER_NAMES.get(part, ())) if name in free]:
            found[part] = own[0]
    return found


def _uses(parts: Mapping[str, str], table: Columns, path: Path) -> Iterator[Use]:
    """List what the columns can be read as."""
    fitting = [form for form in _FORMS if set(form.needs) <= parts.keys()]
    for form in fitting:
        yield Use(form.kind, form.table, form.kind in BUILT, form.advice)
    if not fitting and not _is_nearly_votes(parts) and (n := _n_systems(path, table)) > 1:
        yield Use("exchangeable", f"right and wrong answers of {n} systems", is_built=False)


def _is_nearly_votes(parts: Mapping[str, str]) -> bool:
    """Say whether a table is of comparisons, though one of what they need may lack."""
    return len(parts.keys() & {"left", "right", "winner"}) > 1


def _n_systems(path: Path, table: Columns) -> int:
    """Count the columns of a matrix of systems: those that hold nothing but 0 and 1."""
    # Only a table that is nothing else is read whole, for that.
    whole = read_columns(path, table.file, list(table.names), Problems())
    columns = () if whole is None else whole.columns.values()
    return sum({str(v) for v in c.values} - {"", "None"} == {"0", "1"} for c in columns)


def _want(kind: str, table: Columns, parts: Mapping[str, str], problems: Problems) -> None:
    """Say which parts the table lacks for a kind of estimate."""
    part_of = {column: part for part, column in parts.items()}
    for part in next(form.needs for form in _FORMS if form.kind == kind):
        if part not in parts:
            hint = did_you_mean(part, table.names)
            state = "no column has this name"
            taken = [name for name in (part, *_OTHER_NAMES.get(part, ())) if name in part_of]
            if taken:
                state, hint = f"its column {taken[0]} is read as {part_of[taken[0]]}", ""
            elif part == "winner" and set(table.names) >= set(_ONE_HOT):
                hint = (
                    f"; {', '.join(_ONE_HOT)} say it in three: write one column winner that holds model_a, "
                    "model_b or tie, whichever of the three is 1"
                )
            message = f"{state}; --map {part}=COLUMN names one{hint}"
            problems.add("no such column", Problem(file=table.file, path=part, message=message))


# --- estimates -----------------------------------------------------------------------------------


def _assessed(
    assessment: Assessment, ratings: Ratings, request: Request, problems: Problems
) -> Assessment:
    """Complete an assessment by what the ratings say."""
    arms, criteria = ratings.arm.names, ratings.criterion.names
    contrast = _contrast(request.contrast, ratings, problems)
    if request.accept_from is not None:
        message = f"{RATED} reads scores as they are; wants --kind {IN_SEQUENCE}"
        problems.add("option", Problem(path="--accept-from", message=message))
    _refuse_choices(RATED, ("--ties",), request, problems)
    for name in request.scales:
        if name is not None and name not in criteria:
            message = f"no criterion is named {seen(name)}{did_you_mean(name, criteria)}"
            problems.add("no criterion", Problem(path="--scale", message=message))
    scales = [_scale(ratings, c, request, problems) for c in range(len(criteria))]
    if not scales:
        problems.add("no scores", Problem(file=assessment.file, message="no row has a score"))
    if problems.listed():
        raise _refusal(problems)
    results, suspicions = [], list(suspicious.of_table(ratings))
    for c, (scale, _, is_seen) in enumerate(scales):
        part = Part.of(ratings, c)
        estimates = _estimates(
            ratings, part, Criterion(name=criteria[c], scale=scale), contrast, request
        )
        compared = tuple(Compared(e, _naive(part, e, contrast, arms)) for e in estimates)
        results.append(CriterionResult(criterion=criteria[c], scale=scale, compared=compared))
        head = f"{criteria[c]}: " if len(criteria) > 1 else ""
        suspicions += (
            Suspicion(flag, head + message)
            for flag, message in suspicious.of_criterion(
                ratings, part, estimates, is_scale_seen=is_seen
            )
        )
    return replace(
        assessment,
        counts={
            "items": len(ratings.item.names),
            "arms": len(arms),
            "judges": len(ratings.judge.names),
            "criteria": len(criteria),
            "missing": int((ratings.sort == Sort.MISSING).sum()),
        },
        assumptions=tuple(_assumptions(ratings, scales)),
        results=tuple(results),
        suspicions=tuple(suspicions),
        cost=ratings.cost,
        next_command=_next_command(assessment.file, request, arms),
    )


def _in_sequence(
    assessment: Assessment, table: Columns, request: Request, problems: Problems
) -> Assessment:
    """Complete an assessment by what verdicts in sequence say."""
    line = request.accept_from
    found = read_sequence(table, assessment.columns, problems, accept_from=line)
    contrast: tuple[str, str] | None = None
    labels: Sequence[str] = ()
    if not problems.listed():  # what a row names is known then
        labels = () if found.sides is None else found.sides.names
        if request.contrast is not None:
            contrast = _sides_of(request.contrast, labels, problems)
    _refuse_choices(IN_SEQUENCE, ("--per", "--target", "--scale", "--ties"), request, problems)
    if problems.listed():
        raise _refusal(problems)
    name = assessment.columns["y"]
    estimates = estimates_of(
        found,
        name=name,
        confidence=request.confidence,
        contrast=contrast,
        inference="items" if request.population == "items_like_these" else "panel",
    )
    compared = tuple(Compared(e, naive_of(found, e, contrast)) for e in estimates)
    ratings = found.ratings
    return replace(
        assessment,
        counts={
            "items": len(found.units.names),
            "batches": sum(1 for _ in found.batches()),
            "judges": len(ratings.judge.names),
            "missing": int((ratings.sort == Sort.MISSING).sum()),
        },
        assumptions=(
            Assumption("within a batch only the order of positions counts", "column position"),
            Assumption("a judge remembers the verdict before, and no more", "lags: 1"),
            *([] if line is None else [Assumption(f"from {line:g} up is a yes", "--accept-from")]),
        ),
        results=(CriterionResult(criterion=name, scale=YES_NO, compared=compared),),
        suspicions=(*suspicious.of_cells(ratings), *suspicious.of_batches(found, estimates)),
        next_command=_next_command(assessment.file, request, labels),
    )


def _in_pairs(
    assessment: Assessment, table: Columns, request: Request, problems: Problems
) -> Assessment:
    """Complete an assessment by what comparisons say."""
    votes = read_votes(table, assessment.columns, problems)
    contrast = None
    if request.contrast is not None and not problems.listed():
        contrast = _sides_of(request.contrast, votes.models, problems)
    by_category = request.kind == BY_CATEGORY
    choices = ["--per", "--target", "--scale", "--population", "--accept-from"]
    choices += ["--ties"] if by_category else []
    _refuse_choices(request.kind or IN_PAIRS, choices, request, problems)
    if problems.listed():
        raise _refusal(problems)
    results, suspicions = [], list(suspicious.of_votes(votes))
    for c, name in enumerate(votes.criteria):
        estimates = votes_estimates(
            votes,
            c,
            by_category=by_category,
            confidence=request.confidence,
            contrast=contrast,
            ties=request.ties,
        )
        compared = tuple(Compared(e, votes_naive(votes, c, e, contrast)) for e in estimates)
        results.append(CriterionResult(criterion=name, scale=PREFERENCE, compared=compared))
        head = f"{name}: " if len(votes.criteria) > 1 else ""
        flags = dict.fromkeys(flag for estimate in estimates for flag in estimate.flags)
        suspicions += (Suspicion(flag, head + words.flag(flag)) for flag in flags)
    if not by_category:
        suspicions += suspicious.of_board(votes)
    assumptions = [
        Assumption("the left model was shown first", f"column {assessment.columns['left']}"),
        Assumption(_TIED[request.ties], "--ties"),
    ]
    if not votes.has_items:
        usual = [
            f"; --map item_id={name} takes that" for name in USUAL_ITEMS if name in table.names
        ]
        source = f"no column item_id{''.join(usual[:1])}"
        assumptions.append(Assumption("each row is about another item", source))
    return replace(
        assessment,
        counts={
            "models": len(votes.models),
            "items": len(votes.items) if votes.has_items else 0,
            "judges": len(votes.judges),
            "criteria": len(votes.criteria),
            "missing": votes.n_missing,
        },
        assumptions=tuple(assumptions),
        results=tuple(results),
        suspicions=tuple(suspicions),
        cost=votes.cost,
        next_command=_next_command(assessment.file, request, votes.models),
    )


_TIED: Mapping[Ties, str] = {
    Ties.HALF: "a tie is half a win",
    Ties.DROP: "ties are left out",
    Ties.DAVIDSON: "ties are modelled, by Davidson",
    Ties.RAO_KUPPER: "ties are modelled, by Rao and Kupper",
}


def _refuse_choices(
    kind: str, options: Sequence[str], request: Request, problems: Problems
) -> None:
    """Add a problem for each option that is given and means nothing to a kind of estimate."""
    usual = Request()
    given = {
        "--per": request.per != usual.per,
        "--target": request.target is not None,
        "--scale": bool(request.scales),
        "--population": request.population != usual.population,
        "--accept-from": request.accept_from is not None,
        "--ties": request.ties != usual.ties,
    }
    for option in options:
        if given[option]:
            problems.add("option", Problem(path=option, message=f"{kind} has no such choice"))


def _sides_of(text: str, names: Sequence[str], problems: Problems) -> tuple[str, str] | None:
    """Read SIDE:BASELINE, two arms or groups; names may have colons themselves."""
    splits = [(text[:at], text[at + 1 :]) for at, char in enumerate(text) if char == ":"]
    for side, baseline in splits:
        if side in names and baseline in names and side != baseline:
            return side, baseline
    if len(names) < 2:
        message = "wants two arms or groups, and the table names no two: --map group=COLUMN"
    else:
        some = ", ".join(names[:_SOME]) + (", ..." if len(names) > _SOME else "")
        message = f"wants ARM:BASELINE, two of {some}, not {seen(text)}"
    problems.add("contrast", Problem(path="--contrast", message=message))
    return None


_SOME = 10


def _contrast(text: str | None, ratings: Ratings, problems: Problems) -> Contrast | None:
    """Read ARM:BASELINE; names may have colons themselves. Arms that share no item aren't paired."""
    if text is None:
        return None
    arms = ratings.arm.names
    splits = [(text[:at], text[at + 1 :]) for at, char in enumerate(text) if char == ":"]
    for arm, baseline in splits:
        if arm in arms and baseline in arms and arm != baseline:
            of = (ratings.item.codes[ratings.arm.codes == arms.index(a)] for a in (arm, baseline))
            is_paired = bool(np.intersect1d(*of).size)
            return Contrast(arm=arm, baseline=baseline, paired=is_paired)
    unknown = [name for name in splits[0] if name not in arms] if splits else []
    if len(arms) < 2:
        message = "wants two arms, and the table names no two: --map arm=COLUMN"
    elif unknown:
        message = f"no arm is named {seen(unknown[0])}{did_you_mean(unknown[0], arms)}"
    else:
        message = f"wants ARM:BASELINE, two of {', '.join(arms)}, not {seen(text)}"
    problems.add("contrast", Problem(path="--contrast", message=message))
    return None


class _ScaleFound(NamedTuple):
    """A scale, where it comes from, and whether its ends are merely those of the scores."""

    scale: Scale
    source: str
    is_seen: bool = False


_UNKNOWN = _ScaleFound(YES_NO, "")
"""What stands for a scale where there is a problem."""


def _scale(ratings: Ratings, criterion: int, request: Request, problems: Problems) -> _ScaleFound:
    """Find a criterion's scale; scores that are not on it are problems, each by itself."""
    name, column = ratings.criterion.names[criterion], ratings.columns["score"]
    rows = ratings.rows_of(criterion) & ~np.isnan(ratings.score)
    given = request.scales.get(name, request.scales.get(None))

    def complain(kind: str, message: str) -> None:
        problems.add(kind, Problem(file=ratings.table.file, path=column, message=message))

    if not rows.any():
        complain("no scores", f"no row has a score of {seen(name)}")
        return _UNKNOWN
    scores = ratings.score[rows]
    low, high = given or (float(scores.min()), float(scores.max()))
    is_word = rows & (ratings.sort == Sort.BOOLEAN)
    is_mixed = is_word.any() and (rows & ~is_word).any()
    is_off = rows & ((ratings.score < low) | (ratings.score > high))
    for row in np.flatnonzero(is_word & is_mixed).tolist():
        message = f"true or false, where other scores of {seen(name)} are numbers"
        problems.add("mixed types", ratings.table.row(row).problem(column, message))
    for row in np.flatnonzero(is_off).tolist():
        message = f"wants a number from {low:g} to {high:g}, not {ratings.score[row]:g}"
        problems.add("off the scale", ratings.table.row(row).problem(column, message))
    is_whole = bool((np.append(scores, (low, high)) % 1 == 0).all())
    kind = ScaleType.INTEGER if is_whole else ScaleType.FLOAT
    if given:
        is_yes_no = is_whole and given == (0, 1)
        return _ScaleFound(YES_NO if is_yes_no else Scale(type=kind, low=low, high=high), "--scale")
    if low >= 0 and high <= 1:
        source = (
            f"all scores {'are 0 or 1' if is_whole else 'lie there'}; --scale MIN:MAX changes it"
        )
        return _ScaleFound(YES_NO if is_whole else Scale(type=ScaleType.FLOAT), source)
    if low == high:
        complain("constant", f"every score is {low:g}, so no scale is seen; wants --scale MIN:MAX")
        return _UNKNOWN
    source = "the range seen, and no interval goes beyond it; --scale MIN:MAX gives the real one"
    return _ScaleFound(Scale(type=kind, low=low, high=high), source, is_seen=True)


MOST_CELLS = 10_000_000
"""Judges times units that are held in memory at once: five sums a cell, 0.4 GB."""


def _estimates(
    ratings: Ratings, part: Part, criterion: Criterion, contrast: Contrast | None, request: Request
) -> tuple[Estimate, ...]:
    """Estimate one criterion.

    Raises
    ------
    ConfigError
        The estimator refuses the request, or the table has too many cells.
    """
    arms, items, judges = ratings.arm.names, part.items.tolist(), part.judges.tolist()
    if len(judges) * len(items) * len(arms) > MOST_CELLS:
        raise ConfigError(
            f"{len(judges):,} judges times {len(items) * len(arms):,} units is more than "
            f"{MOST_CELLS:,}; split the table, or take all rows as one judge's by --map judge="
        )

    def of_items(labels: Sequence[str] | None) -> list[str] | None:
        return None if labels is None else [labels[i] for i in items]

    study = Study(
        kind=Kind.RATE,
        frame=Frame.of(
            [ratings.item.names[i] for i in items],
            arms,
            cluster=of_items(ratings.cluster),
            stratum=of_items(ratings.stratum),
            group=of_items(ratings.group),
            weight=ratings.weight[part.items].tolist(),
        ),
        panel=tuple(Panelist(name=ratings.judge.names[j], card=FREE) for j in judges),
        criteria=(criterion,),
        seeds=Seeds(0),
    )
    config = ScoreMeansConfig(
        name=criterion.name,
        kind="score_means",
        per=request.per,
        contrast=contrast,
        population=request.population,
        confidence=request.confidence,
        target=request.target,
    )
    try:
        return fit_score_means(
            config,
            study,
            unit=part.item * len(arms) + part.arm,
            judge=part.judge,
            values=part.score[:, None],
            missing=part.reasons.tolist(),
        )
    except ValueError as exc:
        raise ConfigError(f"{RATED} can't estimate this: {exc}") from exc


def _naive(part: Part, estimate: Estimate, contrast: Contrast | None, arms: Sequence[str]) -> Naive:
    """Take every row as an independent item: the mean ± z sd/√rows, along the estimate's names."""
    match estimate.target:
        case "units":
            group, n_groups = part.item * len(arms) + part.arm, len(part.items) * len(arms)
        case "judges":
            group, n_groups = part.judge, len(part.judges)
        case _:
            group, n_groups = part.arm, len(arms)
    is_scored = ~np.isnan(part.score)
    group, score = group[is_scored], part.score[is_scored]
    n = np.bincount(group, minlength=n_groups)
    mean, variance = np.full(n_groups, np.nan), np.full(n_groups, np.nan)
    np.divide(np.bincount(group, score, n_groups), n, out=mean, where=n > 0)
    square = np.bincount(group, (score - mean[group]) ** 2, n_groups)
    np.divide(square, n * (n - 1), out=variance, where=n > 1)
    if estimate.target == "difference" and contrast is not None:
        both = [arms.index(contrast.arm), arms.index(contrast.baseline)]
        n, variance = n[both].sum(keepdims=True), variance[both].sum(keepdims=True)
        mean = -np.diff(mean[both])
    half = NormalDist().inv_cdf((1 + estimate.level) / 2) * np.sqrt(variance)
    return Naive(
        n_rows=tuple(n.tolist()),
        value=tuple(mean.tolist()),
        lower=tuple((mean - half).tolist()),
        upper=tuple((mean + half).tolist()),
    )


def _assumptions(ratings: Ratings, scales: Sequence[_ScaleFound]) -> Iterator[Assumption]:
    alike: dict[tuple[str, str], list[str]] = {}
    for name, (scale, source, _) in zip(ratings.criterion.names, scales, strict=True):
        kind = "whole numbers" if scale.type is ScaleType.INTEGER else "numbers"
        is_yes_no = scale.type is ScaleType.BOOLEAN
        form = "yes (1) or no (0)" if is_yes_no else f"{kind} from {scale.low:g} to {scale.high:g}"
        alike.setdefault((form, source), []).append(name)
    for (form, source), names in alike.items():
        yield Assumption(f"{', '.join(names)}: {form}", source)
    if "judge" not in ratings.columns:
        yield Assumption("all rows are one judge's", "no column judge")
    if ratings.replicate is None:
        question = ratings.questions()
        if n := len(question) - int(question.max()) - 1:
            what = (
                f"{plural(n, 'row')} with the key of an earlier one, taken as repeats in file order"
            )
            yield Assumption(what, "no column replicate")
    if ratings.cluster is None:
        yield Assumption("items are independent of each other", "no column cluster")
    if ratings.propensity_use:
        yield Assumption(ratings.propensity_use, f"column {ratings.columns['propensity']}")


def _next_command(path: Path | str, request: Request, arms: Sequence[str] = ()) -> str:
    """Say what to type next: the difference of two arms, or else a campaign of one's own."""
    if len(arms) < 2 or request.contrast is not None:
        return "sortition init"
    names = (f"--map={part}={column}" for part, column in request.names.items())
    scales = (
        f"--scale={'' if name is None else f'{name}='}{low:g}:{high:g}"
        for name, (low, high) in request.scales.items()
    )
    kind = () if request.kind is None else (f"--kind={request.kind}",)
    line = () if request.accept_from is None else (f"--accept-from={request.accept_from:g}",)
    contrast = f"--contrast={arms[1]}:{arms[0]}"
    words = ("sortition", "estimate", str(path), *kind, *names, *scales, *line, contrast)
    return shlex.join(words)
