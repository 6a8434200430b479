"""Estimates what the columns of a table of verdicts allow: `sortition estimate DATA`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Literal, NamedTuple, get_args

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
from orchestrator.correctness import (
    CRITERION,
    TARGETS,
    Correctness,
    Design,
    ErrorSplit,
    Wanted,
    not_verdicts,
    read_correctness,
    strata_of,
    targets_of,
    verdicts_of,
)
from orchestrator.correctness import PARTS as CORRECT_PARTS
from orchestrator.correctness import estimates_of as correctness_estimates
from orchestrator.correctness import naive_of as correctness_naive
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
OF_BENCHMARK = "exchangeable"
KINDS = (RATED, IN_SEQUENCE, IN_PAIRS, BY_CATEGORY, OF_BENCHMARK)
"""The kinds of estimate that can be made of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted of a table.

    Parameters
    ----------
    kind : None: whatever the columns allow
    names : part to the column that holds it; an empty name leaves the part out
    scales : criterion to its ends; the key None is for all that are not named
    contrast : `ARM:BASELINE`, a paired difference
    confidence, per, population : as in `ScoreMeansConfig`
    targets : what the judges measure, one as in `ScoreMeansConfig`; or of right and wrong answers
        what they are to say, several as in `ExchangeableConfig`
    accept_from : of verdicts in sequence, the lowest number that is a yes; None: they are yes or no
    ties : of comparisons, what a tie counts as
    of : of right and wrong answers, stratum to the number of its items in the benchmark; the key None
        is for the whole
    design, error_split : of right and wrong answers, as in `Wanted`
    """

    kind: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    scales: Mapping[str | None, tuple[float, float]] = field(default_factory=dict)
    confidence: float = 0.95
    contrast: str | None = None
    per: Literal["arm", "unit", "judge"] = "arm"
    population: Literal["these_items", "items_like_these"] = "items_like_these"
    targets: tuple[str, ...] = ()
    accept_from: float | None = None
    ties: Ties = Ties.HALF
    of: Mapping[str | None, int] = field(default_factory=dict)
    design: Design = "simple"
    error_split: ErrorSplit = "arms"


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
    wanted = _NAMES | set(filter(None, request.names.values()))
    table = read_columns(path, str(path), sorted(wanted), problems)
    if not problems.listed() and not (table and table.n_rows):
        problems.add("no rows", Problem(file=str(path), message="no rows"))
    if table is None or not table.n_rows:
        raise _refusal(problems)
    _refuse_names(table, request.names, problems)
    whole, verdicts, broken = _verdicts(path, table, request)
    uses = tuple(_uses(table, request, verdicts))
    kind = request.kind or (uses[0].kind if uses else None)
    if kind not in {use.kind for use in uses}:
        for problem in broken:
            problems.add("no verdict", problem)
        if not broken:
            kind = kind or (IN_PAIRS if _is_nearly_votes(table, request.names) else RATED)
            _want(kind, table, request.names, problems)
        raise _refusal(problems)
    assert kind is not None
    parts = _parts(table, request.names, _PARTS[kind])
    is_matrix = kind == OF_BENCHMARK and "correct" not in parts
    if is_matrix:
        of_no_use = ("missing", *(("stratum", "group", "stratum_size") if "arm" in parts else ()))
        parts = {part: column for part, column in parts.items() if part not in of_no_use}
    read = {*parts.values(), *(verdicts if is_matrix else ())}
    assessment = Assessment(
        file=str(path),
        n_rows=table.n_rows,
        columns=parts,
        unused=tuple(name for name in table.names if name not in read),
        uses=uses,
        counts={},
        assumptions=(),
        results=(),
        suspicions=(),
        cost=None,
        next_command=_next_command(path, request),
    )
    match kind:
        case "markov_glmm":
            return _in_sequence(assessment, table, request, problems)
        case "bradley_terry" | "bt_tensor":
            return _in_pairs(assessment, table, request, problems)
        case "exchangeable":
            return _of_benchmark(
                assessment,
                whole if is_matrix else table,
                request,
                problems,
                verdicts=verdicts if is_matrix else (),
                broken=broken if is_matrix else (),
            )
        case _:
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
    _refuse_names(table, names, problems)
    parts = _parts(table, names, VOTE_PARTS)
    _want(IN_PAIRS, table, names, problems)
    if problems.listed():
        raise _refusal(problems)
    votes = read_votes(table, parts, problems)
    if problems.listed():
        raise _refusal(problems)
    return votes


def _check_kind(kind: str | None) -> None:
    if kind not in {None, *KINDS}:
        hint = did_you_mean(str(kind), KINDS)
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


_FORMS = (
    _Form("ratings", ("item_id", "score"), RATED),
    _Form("comparisons", ("left", "right", "winner"), IN_PAIRS),
    _Form("comparisons by category", ("left", "right", "winner", "category"), BY_CATEGORY),
    _Form("verdicts in sequence", ("batch_id", "position", "item_id", "y"), IN_SEQUENCE),
    _Form("right and wrong answers", ("item_id", "correct"), OF_BENCHMARK),
)
"""The first one that fits is preferred."""
_PARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    RATED: PARTS,
    IN_SEQUENCE: SEQUENCE_PARTS,
    IN_PAIRS: VOTE_PARTS,
    BY_CATEGORY: VOTE_PARTS,
    OF_BENCHMARK: CORRECT_PARTS,
}
_ONE_HOT = ("winner_model_a", "winner_model_b", "winner_tie")
"""Columns in which some arenas say by 1 and 0 who won."""
_KNOWN = tuple(dict.fromkeys(part for parts in _PARTS.values() for part in parts))
_NAMES = {name for parts in _PARTS.values() for part in parts for name in (part, *parts[part])}
"""All names that columns of parts go by."""


def _refuse_names(table: Columns, names: Mapping[str, str], problems: Problems) -> None:
    """Add a problem for each name that the user gives and nothing has."""
    columns = list(table.names)
    for part, column in names.items():
        if part not in _KNOWN:
            message = f"no part is named {seen(part)}{did_you_mean(part, _KNOWN)}"
            problems.add("names", Problem(path="--map", message=message))
        elif column and column not in columns:
            message = f"{table.file} has no column {seen(column)}{did_you_mean(column, columns)}"
            problems.add("names", Problem(path=f"--map {part}", message=message))


def _parts(
    table: Columns, names: Mapping[str, str], known: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Find the column of each part: the one that the user names, else the one called so."""
    columns = list(table.names)
    free = [column for column in columns if column not in names.values()]
    found = {}
    for part, others in known.items():
        if part in names:
            if names[part] in columns:
                found[part] = names[part]
        elif own := [name for name in (part, *others) if name in free]:
            found[part] = own[0]
    return found


def _uses(table: Columns, request: Request, verdicts: Sequence[str]) -> Iterator[Use]:
    """List what the columns can be read as."""
    names = request.names
    for form in _FORMS:
        if set(form.needs) <= _parts(table, names, _PARTS[form.kind]).keys():
            yield Use(form.kind, form.table)
    # A lone column of 1 and 0 may be anything, but beside an item it is what a system answered.
    parts = _parts(table, names, CORRECT_PARTS)
    is_sure = len(verdicts) > 1 or "item_id" in parts or request.kind == OF_BENCHMARK
    if verdicts and is_sure and not _is_nearly_votes(table, names):
        what = ("to", "item") if "arm" in parts else ("of", "system")
        said = f"{what[0]} {plural(len(verdicts), what[1])}"
        yield Use(OF_BENCHMARK, f"right and wrong answers {said}")


def _is_nearly_votes(table: Columns, names: Mapping[str, str]) -> bool:
    """Say whether a table is of comparisons, though one of what they need may lack."""
    return len(_parts(table, names, VOTE_PARTS).keys() & {"left", "right", "winner"}) > 1


def _verdicts(
    path: Path, table: Columns, request: Request
) -> tuple[Columns, list[str], list[Problem]]:
    """List a matrix's columns of verdicts, if the table may be one; then all columns are read.

    And what keeps other columns from being some.
    """
    others = (form for form in _FORMS if form.kind != OF_BENCHMARK)
    is_other = any(
        set(form.needs) <= _parts(table, request.names, _PARTS[form.kind]).keys() for form in others
    )
    parts = _parts(table, request.names, CORRECT_PARTS)
    is_long = not parts.keys().isdisjoint(("correct", "judge", "replicate"))
    is_long |= {"item_id", "arm"} <= parts.keys()
    if is_long or (request.kind != OF_BENCHMARK and (request.kind or is_other)):
        return table, [], []
    # Only a table that is nothing else is read whole, for that.
    whole = read_columns(path, table.file, list(table.names), Problems()) or table
    taken = [*parts.values()]
    is_votes = _is_nearly_votes(table, request.names)
    return whole, verdicts_of(whole, taken), [] if is_votes else not_verdicts(whole, taken)


def _want(kind: str, table: Columns, names: Mapping[str, str], problems: Problems) -> None:
    """Say which parts the table lacks for a kind of estimate."""
    known = _PARTS[kind]
    parts = _parts(table, names, known)
    part_of = {column: part for part, column in ({**names, **parts}).items()}
    for part in next(form.needs for form in _FORMS if form.kind == kind):
        if part not in parts:
            hint = did_you_mean(part, table.names)
            state = "no column has this name"
            taken = [name for name in (part, *known[part]) if name in part_of]
            if taken:
                state, hint = f"its column {taken[0]} is read as {part_of[taken[0]]}", ""
            elif part == "winner" and set(table.names) >= set(_ONE_HOT):
                hint = (
                    f"; {', '.join(_ONE_HOT)} say it in three: write one column winner that holds model_a, "
                    "model_b or tie, whichever of the three is 1"
                )
            elif part == "correct":
                hint += "; nor does any column hold 1 and 0 alone, as that of a system would"
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
    _refuse_choices(RATED, ("--ties", *_OF_BENCHMARK_ALONE), request, problems)
    target = _judged(request.targets, problems)
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
            ratings, part, Criterion(name=criteria[c], scale=scale), contrast, request, target
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
    _refuse_choices(
        IN_SEQUENCE,
        ("--per", "--target", "--scale", "--ties", *_OF_BENCHMARK_ALONE),
        request,
        problems,
    )
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
    choices += [*_OF_BENCHMARK_ALONE, *(["--ties"] if by_category else [])]
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


def _of_benchmark(
    assessment: Assessment,
    table: Columns,
    request: Request,
    problems: Problems,
    *,
    verdicts: Sequence[str],
    broken: Sequence[Problem],
) -> Assessment:
    """Complete an assessment by what right and wrong answers say of the whole benchmark."""
    answers = read_correctness(
        table,
        assessment.columns,
        problems,
        verdicts=verdicts,
        scales=request.scales,
        of=request.of,
    )
    _refuse_choices(
        OF_BENCHMARK, ("--per", "--population", "--accept-from", "--ties"), request, problems
    )
    wanted = _wanted(answers, request, problems)
    if answers is None or problems.listed():
        raise _refusal(problems)
    estimates, by_stratum = correctness_estimates(answers, wanted)
    result = CriterionResult(
        criterion=CRITERION,
        scale=answers.scale,
        compared=tuple(
            Compared(e, correctness_naive(answers, e, wanted.contrast)) for e in estimates
        ),
        strata=strata_of(answers, by_stratum),
    )
    return replace(
        assessment,
        counts={
            "items": len(answers.items),
            "systems": len(answers.systems),
            "strata": len(answers.strata),
            "judges": len(answers.judges),
            "missing": answers.n_missing,
        },
        assumptions=tuple(_taken_for_granted(answers, wanted)),
        results=(result,),
        suspicions=(
            *suspicious.of_columns_left_out(broken),
            *suspicious.of_correctness(answers, estimates),
        ),
        cost=answers.cost,
        next_command=_next_command(assessment.file, request, answers.systems),
    )


def _wanted(answers: Correctness | None, request: Request, problems: Problems) -> Wanted:
    """Read what is to be estimated; what can't be is a problem."""
    targets = tuple(target for target in TARGETS if target in request.targets)
    for word in request.targets:
        if word not in TARGETS:
            message = f"no target is named {seen(word)}{did_you_mean(word, TARGETS)}"
            problems.add("target", Problem(path="--target", message=message))
    contrast = None
    if answers is not None:
        if request.contrast is not None:
            contrast = _sides_of(request.contrast, answers.systems, problems)
        choices = {f"--target {target}": target != "benchmark" for target in targets}
        choices["--design stratified"] = request.design == "stratified"
        for choice in (choice for choice, wants_strata in choices.items() if wants_strata):
            message = ""
            if not answers.strata:
                message = "wants strata: --map stratum=COLUMN"
            elif answers.sizes is None and choice != "--target ability":
                message = "wants to know how large strata are: --of STRATUM=N for each"
            elif choice == "--target ability" and not answers.is_yes_no:
                message = "is a chance of yes; it wants one judge's right or wrong"
            if message:
                problems.add("choice", Problem(path=choice, message=message))
    return Wanted(
        confidence=request.confidence,
        targets=targets or None,
        contrast=contrast,
        error_split=request.error_split,
        design=request.design,
    )


def _taken_for_granted(answers: Correctness, wanted: Wanted) -> Iterator[Assumption]:
    n, population = len(answers.items), answers.population
    if answers.is_whole:
        yield Assumption(
            f"the {plural(n, 'item')} here are the whole benchmark, so its mean is no estimate",
            "--of N says that they are a part of N",
        )
        if not answers.asked.all():
            yield Assumption(
                "of a system without a row on some items, those that it has are a random part, their "
                "number fixed beforehand",
                "no row: not asked; an empty cell was asked and gave nothing",
            )
    elif n < population:
        where = " within each stratum" if wanted.design == "stratified" else ""
        yield Assumption(
            f"the {plural(n, 'item')} here are a random part of the benchmark's {population:,}{where}, "
            "their number fixed beforehand: not those that finished first, nor a chosen lot",
            f"--of, --design {wanted.design}",
        )
    low, high = answers.scale.low, answers.scale.high
    is_yes_no = answers.scale.type is ScaleType.BOOLEAN
    form = "right (1) or wrong (0)" if is_yes_no else f"scores from {low:g} to {high:g}"
    yield Assumption(form, answers.scale_source)
    if answers.n_missing:
        yield Assumption(
            f"an item without a verdict counts as {low:g} for the lower end and as {high:g} for the "
            "upper; it is not left out",
            "an empty cell was asked and gave nothing",
        )
    if "ability" in targets_of(answers, wanted):
        yield Assumption(
            "the strata are draws from a population of subjects like them, for ability alone",
            "--target ability",
        )
    if answers.n_shared_ids:
        ids = plural(answers.n_shared_ids, "id")
        what = f"items are numbered within strata: {ids} of several strata are an item in each"
        yield Assumption(what, f"column {answers.columns['item_id']}")
    if "correct" not in answers.columns and "arm" in answers.columns:
        yield Assumption("each column is an item", f"column {answers.columns['arm']} names systems")
    elif "item_id" not in answers.columns:
        yield Assumption("each row is an item", "no column item_id")


_Judged = Literal["panel", "common", "population"]


def _judged(targets: Sequence[str], problems: Problems) -> _Judged | None:
    """Read what judges of ratings measure."""
    match targets:
        case ():
            return None
        case ("panel" | "common" | "population" as target,):
            return target
        case _:
            message = f"wants one of {', '.join(get_args(_Judged))}, not {', '.join(targets)}"
            problems.add("target", Problem(path="--target", message=message))
            return None


_OF_BENCHMARK_ALONE = ("--of", "--design", "--error-split")


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
        "--target": bool(request.targets),
        "--scale": bool(request.scales),
        "--population": request.population != usual.population,
        "--accept-from": request.accept_from is not None,
        "--ties": request.ties != usual.ties,
        "--of": bool(request.of),
        "--design": request.design != usual.design,
        "--error-split": request.error_split != usual.error_split,
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
    ratings: Ratings,
    part: Part,
    criterion: Criterion,
    contrast: Contrast | None,
    request: Request,
    target: _Judged | None,
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
        target=target,
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
    sizes = (f"--of={'' if name is None else f'{name}='}{n}" for name, n in request.of.items())
    target = (f"--target={','.join(request.targets)}",) if request.targets else ()
    usual = Request()
    design = () if request.design == usual.design else (f"--design={request.design}",)
    line = () if request.accept_from is None else (f"--accept-from={request.accept_from:g}",)
    contrast = f"--contrast={arms[1]}:{arms[0]}"
    words = (
        "sortition",
        "estimate",
        str(path),
        *kind,
        *names,
        *scales,
        *sizes,
        *target,
        *design,
        *line,
        contrast,
    )
    return shlex.join(words)
