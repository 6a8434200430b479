"""The estimator `exchangeable`: what a random part of a benchmark says about the whole.

Items enter in the order in which the seed drew them (`estimators.benchmark_order`), never in that of
their answers: what is said rests on the told prefix, the items before the first that is not back. What
is said of this benchmark and what is said of ability on subjects like these are separate estimates.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.benchmark_bounds import (
    NOISE_SHARE,
    Line,
    SequenceKind,
    Terms,
    exact_shares,
    fixed_interval,
)
from estimators.benchmark_order import (
    Chances,
    Order,
    SampleDesign,
    allocation_of,
    draw_chances,
    item_orders,
)
from estimators.benchmark_outlook import NO_OUTLOOK, ability_outlook, outlook_of
from estimators.benchmark_words import LABELS, MISSING, NOTES, estimand, family
from estimators.beta_binomial import fit_beta_binomial
from estimators.beta_proxy import beta_proxy
from estimators.calibration import label_scores
from estimators.cells import Scoring
from estimators.exchangeable_config import ExchangeableConfig, LastLook, Target
from estimators.human_means import Labelled, human_mean
from estimators.intervals import Array, Interval
from estimators.macro_ability import MacroAbility, macro_ability
from estimators.subsample_bounds import items_for_half_width, subsample_half_width
from estimators.targets import Contrast
from estimators.unit_scores import Score, UnitScores, difference
from orchestrator.core.estimate import Estimate, Status, plain
from orchestrator.core.events import GLANCE
from orchestrator.core.ports import Plugin
from orchestrator.core.query import Kind, Missing, MissingReason, Role
from orchestrator.core.records import Record
from orchestrator.core.study import Study
from orchestrator.core.wire import Json

__all__ = [
    "PLUGIN",
    "Contrast",
    "Exchangeable",
    "ExchangeableConfig",
    "LastLook",
    "Target",
    "beta_proxy",
    "fit_beta_binomial",
    "fit_exchangeable",
    "items_for_half_width",
    "subsample_half_width",
]

# --- claims --------------------------------------------------------------------------------------


class _Claim(NamedTuple):
    """One number to be bounded: an arm's mean, or an arm's less a baseline's.

    An unpaired difference has two lines, each of half its error.
    """

    name: str
    lines: tuple[Line, ...]
    sides: tuple[tuple[int, ...], ...]
    """Of each line: the arm, or the two whose difference it takes."""
    alpha: float


class _Row(NamedTuple):
    """What is found of one claim."""

    value: float
    se: float
    lower: float
    upper: float
    n_items: int
    n_answers: int
    n_drawn: int
    population: int
    missing: int
    in_flight: int
    interim_lower: float | None
    interim_upper: float | None
    outlook: Json


# --- estimator -----------------------------------------------------------------------------------


class Exchangeable:
    """Bounds means over a benchmark by the items that are back, in the order of the draw.

    A unit's score is the mean of its judges' first `repeats` verdicts; others are not read. An item is told
    when each judge has answered or can't. A generation that failed is an item whose verdicts are
    missing. In flight is what is not told and stands in the order before an item that is; what was
    sent behind the last one that is back is not known here, and would say nothing.

    Parameters
    ----------
    orders : (n_arms, n_items) int64, in which each arm's items were drawn by somebody else, all arms
        alike with the paired design; None: those that the seed draws

    Raises
    ------
    ValueError
        The study has no score a unit, or weighs its items; an arm, a criterion or strata are lacking;
        or keys don't go together.
    """

    def __init__(
        self, config: ExchangeableConfig, study: Study, orders: Order | None = None
    ) -> None:
        if study.kind not in {Kind.CHECK, Kind.RATE}:
            raise ValueError(
                f"task.kind: exchangeable wants a score for each unit, not {study.kind}"
            )
        frame = study.frame
        if len(np.unique(frame.weight)) > 1:
            raise ValueError("data.weight: items of a benchmark count alike; strata weigh by macro")
        self._config, self._study = config, study
        self._design: SampleDesign = config.design or "simple"
        self._allocation = allocation_of(self._design, config.strata, study)
        self._scoring = Scoring(study, config.criterion)
        self._targets = config.targets or (
            ("macro",) if self._design == "macro" else ("benchmark",)
        )
        self._repeats = config.repeats or 1
        self._is_binary = self._scoring.is_boolean and len(study.panel) * self._repeats == 1
        self._is_watched = config.check == "anytime" or config.draw_by is not None
        self._is_drawn = orders is None
        if orders is None:
            orders = item_orders(study, self._design, self._allocation, config.draw_by)
        self._check()
        self._labels = label_scores(study, self._scoring)
        self.labelled: Labelled | None = None
        if self._labels is not None:
            self.labelled = Labelled(study, self._scoring, self._labels)
        self._chances: list[Chances] | None = None
        if config.draw_by is not None:
            drawn = draw_chances(study, orders, config.draw_by)
            self._chances = [*map(Chances, *(map(_array, each) for each in drawn))]
        # Python reads elements of its own arrays several times faster than numpy's.
        self._orders, self._places, self._strata = (
            [array("l", row.tolist()) for row in of]
            for of in (orders, np.argsort(orders, axis=1), frame.stratum[orders])
        )
        self._n_arms, self._n_items = frame.n_arms, frame.n_items
        self._last = [-1] * frame.n_arms
        self._units = UnitScores(study, self._scoring, config.missing, self._repeats)
        self._reasons: Counter[tuple[int, str]] = Counter()
        self._claims = self._all_claims()
        self._lines_of: list[list[tuple[Line, tuple[int, ...]]]] = [[] for _ in frame.arms]
        for claims in self._claims.values():
            for claim in claims:
                for line, sides in zip(claim.lines, claim.sides, strict=True):
                    for arm in sides:
                        self._lines_of[arm].append((line, sides))

    def update(self, record: Record) -> None:
        """Take in one told question."""
        query, outcome = record.query, record.outcome
        if self.labelled is not None:
            self.labelled.cells.add(record)
        if query.role is Role.SYSTEM:
            if isinstance(outcome, Missing):
                for unit in query.units:
                    self.lose(unit, outcome.reason)
        elif 0 <= query.replicate < self._repeats:
            if isinstance(outcome, Missing):
                for unit in query.units:
                    self.tell(unit, outcome.reason)
            else:
                for place, score in self._scoring.of_answer(query.units, outcome.observations):
                    self.tell(place, score)

    def tell(self, unit: int, score: float | MissingReason | None) -> None:
        """Take in a judge's score of a unit, from the scale's low end; else why there is none."""
        arm = unit % self._n_arms
        if score is None or isinstance(score, MissingReason):
            self._reasons[arm, "not_applicable" if score is None else score.value] += 1
            score = None
        self._units.tell(unit, score)
        self._advance(unit)

    def lose(self, unit: int, reason: MissingReason) -> None:
        """Take in that a system gave no answer to a unit's item."""
        self._reasons[unit % self._n_arms, f"system: {reason.value}"] += 1
        self._units.lose(unit)
        self._advance(unit)

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the difference if a contrast is asked for, the targets in turn, then all pairs."""
        found = tuple(self._estimates())
        if self.labelled is None:
            return found
        labels = {"labels": self.labelled.agreement(self._config.confidence)}
        return tuple(replace(e, diagnostics={**e.diagnostics, **labels}) for e in found)

    # --- design -----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Refuse what goes not together."""
        config, frame = self._config, self._study.frame
        if config.check == "group_sequential":
            raise ValueError("stop.check: exchangeable takes end or anytime")
        lacking = set(self._targets) - {"benchmark", "human"}
        if not frame.strata and lacking:
            raise ValueError(
                f"targets: {', '.join(sorted(lacking))} wants strata; data.strata names them"
            )
        if "ability" in self._targets and not self._is_binary:
            raise ValueError("targets: ability is a chance of yes; it wants one judge's yes or no")
        if config.draw_by is not None:
            self._check_draws(config)
        if "human" in self._targets and self._allocation is not None:
            raise ValueError("targets: human wants items drawn without strata")
        if "human" in self._targets and self._study.labels is None:
            raise ValueError("targets: human wants labels of people, and `labels` is missing")
        if (contrast := config.contrast) is not None:
            for name in (contrast.arm, contrast.baseline):
                if name not in frame.arms:
                    raise ValueError(f"contrast: no arm {name!r} among {', '.join(frame.arms)}")
            if contrast.arm == contrast.baseline:
                raise ValueError(f"contrast: {contrast.arm!r} is compared with itself")
            if contrast.paired and self._design != "paired":
                raise ValueError(
                    f"contrast.paired: arms of the {self._design} design have items of their own; use "
                    "the paired design"
                )
        self._check_watching()

    def _check_draws(self, config: ExchangeableConfig) -> None:
        """Refuse what wants items drawn alike."""
        if others := set(self._targets) - {"benchmark"}:
            raise ValueError(f"targets: {', '.join(sorted(others))} wants items drawn alike")
        if config.sequence != "betting":
            raise ValueError("sequence: items drawn by a column are bounded by betting alone")
        if config.last_look is not None:
            raise ValueError("last_look: a fixed look wants items drawn alike; leave out draw_by")

    def _check_watching(self) -> None:
        config = self._config
        by_turns = self._allocation == "equal"
        is_kept = self._allocation == "proportional" or ("macro" in self._targets and not by_turns)
        if not self._is_watched:
            if config.last_look is not None:
                raise ValueError("last_look: it is for runs that are watched; use check: anytime")
            return
        if config.model == "exchangeable":
            raise ValueError(
                "model: sequences hold for a fixed benchmark; use fixed, or check: end"
            )
        if config.sequence == "prior_posterior" and not self._is_binary:
            raise ValueError("sequence: prior_posterior wants one judge's yes or no; use betting")
        if is_kept and config.target_half_width is None:
            raise ValueError(
                "target_half_width: where strata don't take turns one by one, an interval is watched "
                "from the number on at which it has its target; so there must be one"
            )
        if is_kept and config.last_look is not None:
            raise ValueError("last_look: a look at the target's number is all that is taken here")

    def _terms(self, alpha: float, *, is_macro: bool = False, is_difference: bool = False) -> Terms:
        config, frame, scoring = self._config, self._study.frame, self._scoring
        n_strata = max(len(frame.strata), 1)
        sequence: SequenceKind | None = config.sequence if self._is_watched else None
        if is_difference and sequence == "prior_posterior":
            sequence = "betting"
        look = config.last_look
        return Terms(
            low=-scoring.span if is_difference else scoring.low,
            high=scoring.span if is_difference else scoring.high,
            sizes=np.bincount(frame.stratum, minlength=n_strata),
            weights=np.full(n_strata, 1 / n_strata) if is_macro else None,
            allocation=self._allocation,
            alpha=alpha,
            is_binary=self._is_binary and not is_difference,
            model=config.model,
            sequence=sequence,
            target=config.target_half_width,
            look_at=None if look is None else min(look.items, frame.n_items),
            look_share=0.0 if look is None else look.error,
            n_calls=self._n_calls(is_difference=is_difference)
            if config.judgment == "expected"
            else None,
            is_weighted=config.draw_by is not None,
            most=config.max_items,
        )

    def _n_calls(self, *, is_difference: bool) -> int:
        """Count the verdicts on one item; a difference is one of means with noise of their own.

        Its scale is twice as long, and the two noises make up half of what one of that scale would.
        """
        return len(self._study.panel) * self._repeats * (2 if is_difference else 1)

    def _all_claims(self) -> dict[str, list[_Claim]]:
        """Make all that is bounded, by the target of its estimate, in order."""
        config, arms = self._config, self._study.frame.arms
        alpha, is_macro = self._alpha, self._is_macro
        found: dict[str, list[_Claim]] = {}
        if (contrast := config.contrast) is not None:
            a, b = arms.index(contrast.arm), arms.index(contrast.baseline)
            found["difference"] = [
                self._of_pair(a, b, alpha, is_paired=contrast.paired, is_macro=is_macro)
            ]
        share = self._alpha_of_arms
        # Strata and ability read sums alone, whose line is that of the arms.
        means = [t for t in self._targets if t in {"benchmark", "macro"}] or ["benchmark"]
        for target in means:
            found["arms" if target == "benchmark" else "macro"] = [
                _Claim(
                    name,
                    (self._line((a,), self._terms(share, is_macro=target == "macro")),),
                    ((a,),),
                    share,
                )
                for a, name in enumerate(arms)
            ]
        if config.error_split == "pairs" and len(arms) > 1:
            pairs = [*combinations(range(len(arms)), 2)]
            is_paired = self._design == "paired"
            found["differences"] = [
                self._of_pair(a, b, alpha / len(pairs), is_paired=is_paired, is_macro=is_macro)
                for a, b in pairs
            ]
        return found

    @property
    def _is_macro(self) -> bool:
        """Whether differences are those of macro means."""
        return "macro" in self._targets and "benchmark" not in self._targets

    @property
    def _alpha(self) -> float:
        return round(1 - self._config.confidence, 15)

    @property
    def _alpha_of_arms(self) -> float:
        split = self._study.frame.n_arms if self._config.error_split == "arms" else 1
        return self._alpha / split

    def _of_pair(self, a: int, b: int, alpha: float, *, is_paired: bool, is_macro: bool) -> _Claim:
        arms = self._study.frame.arms
        name = f"{arms[a]} - {arms[b]}"
        if is_paired:
            terms = self._terms(alpha, is_macro=is_macro, is_difference=True)
            return _Claim(name, (self._line((a, b), terms),), ((a, b),), alpha)
        terms = self._terms(alpha / 2, is_macro=is_macro)
        if terms.target is not None:
            terms = replace(terms, target=terms.target / 2)
        lines = tuple(self._line((arm,), terms) for arm in (a, b))
        return _Claim(name, lines, ((a,), (b,)), alpha)

    def _line(self, sides: tuple[int, ...], terms: Terms) -> Line:
        chances = None if self._chances is None else self._chances[sides[0]]
        return Line(terms, self._strata[sides[0]], chances)

    # --- told prefix ------------------------------------------------------------------------------

    def _advance(self, unit: int) -> None:
        """Let each line of the unit's arm go on as far as all is told."""
        item, arm = divmod(unit, self._n_arms)
        if not self._units.is_told(unit):
            return
        place = self._places[arm][item]
        self._last[arm] = max(self._last[arm], place)
        for line, sides in self._lines_of[arm]:
            # Only the unit that a line waits for lets it go on.
            if line.n == place:
                self._go_on(line, sides)

    def _go_on(self, line: Line, sides: tuple[int, ...]) -> None:
        order = self._orders[sides[0]]
        while line.n < self._n_items:
            score = self._score(order[line.n], sides)
            if score is None:
                return
            line.update(score)

    def _score(self, item: int, sides: tuple[int, ...]) -> Score | None:
        first = self._units.get(item * self._n_arms + sides[0])
        if len(sides) == 1:
            return first
        return difference(first, self._units.get(item * self._n_arms + sides[1]))

    def _ahead(self, line: Line, sides: tuple[int, ...]) -> list[Score | None]:
        """Give the scores at the places behind the told prefix, up to the last that is back."""
        last = max(self._last[arm] for arm in sides)
        order = self._orders[sides[0]][line.n : last + 1]
        return [self._score(item, sides) for item in order]

    # --- estimates --------------------------------------------------------------------------------

    def _estimates(self) -> Iterator[Estimate]:
        rows = {
            # What comes next is asked of estimates that looks hold.
            target: [self._row(claim, with_outlook=len(claims) <= GLANCE) for claim in claims]
            for target, claims in self._claims.items()
        }
        order: list[str] = ["difference"] if "difference" in self._claims else []
        order += ["arms" if target == "benchmark" else target for target in self._targets]
        order += ["differences"] if "differences" in self._claims else []
        of_arms = [row._replace(outlook=NO_OUTLOOK) for row in rows[self._of_arms]]
        for target in order:
            match target:
                case "strata":
                    yield self._of_strata()
                case "ability":
                    yield self._of_ability(of_arms)
                case "human":
                    yield self._of_people(of_arms)
                case _:
                    claims = self._claims[target]
                    methods = dict.fromkeys(self._method(claim) for claim in claims)
                    flags = {
                        "before_planned_number": any(
                            line.is_before_plan and row.n_drawn
                            for c, row in zip(claims, rows[target], strict=True)
                            for line in c.lines
                        ),
                        "target_out_of_reach": any(
                            map(self._is_out_of_reach, claims, rows[target])
                        ),
                        "target_below_noise": any(
                            line.terms.is_target_below_noise for c in claims for line in c.lines
                        ),
                    }
                    yield self._estimate(
                        target,
                        [claim.name for claim in claims],
                        rows[target],
                        interval=" + ".join(methods),
                        alphas=[claim.alpha for claim in claims],
                        is_watched=self._is_watched,
                        flags=[flag for flag, is_so in flags.items() if is_so],
                    )

    def _is_out_of_reach(self, claim: _Claim, row: _Row) -> bool:
        """Say whether missing verdicts alone keep a width above its target."""
        target = self._config.target_half_width
        if target is None or not all(line.is_kept for line in claim.lines):
            return False
        return row.missing > 0 and (row.upper - row.lower) / 2 > target

    def _method(self, claim: _Claim) -> str:
        terms = claim.lines[0].terms
        method = terms.method
        if terms.look_at is not None:
            method += f" and {terms.look_method} at {terms.look_at}"
        return method if len(claim.lines) == 1 else f"two intervals by {method}"

    def _row(self, claim: _Claim, *, with_outlook: bool = False) -> _Row:
        ahead = [self._ahead(*pair) for pair in zip(claim.lines, claim.sides, strict=True)]
        in_flight = sum(score is None for scores in ahead for score in scores)
        interim: tuple[float, float] | None = None
        if in_flight:
            found = [line.interim(more) for line, more in zip(claim.lines, ahead, strict=True)]
            known = [ends for ends in found if ends is not None]
            if len(known) == len(found):
                interim = _less(known)
        tallies = [line.tally for line in claim.lines]
        numbers, outlook = (math.nan,) * 4, NO_OUTLOOK
        is_known = all(tally.n_answered for tally in tallies)
        if is_known:
            intervals = [line.interval() for line in claim.lines]
            if with_outlook:
                outlook = outlook_of(claim.lines, intervals)
            ends = _less(intervals)
            values = [line.value for line in claim.lines]
            errors = [line.standard_error for line in claim.lines]
            value = values[0] if len(values) == 1 else values[0] - values[1]
            numbers = _numbers(value, math.hypot(*errors), ends)
        return _Row(
            *numbers,
            n_items=min(tally.n_answered for tally in tallies) if is_known else 0,
            n_answers=sum(tally.n_verdicts for tally in tallies) if is_known else 0,
            n_drawn=min(tally.n for tally in tallies),
            population=self._n_items,
            missing=sum(tally.n_missing for tally in tallies),
            in_flight=in_flight,
            interim_lower=None if interim is None else interim[0],
            interim_upper=None if interim is None else interim[1],
            outlook=outlook,
        )

    def _of_strata(self) -> Estimate:
        """Bound each stratum's mean by its own items, by a fixed look, each name by itself."""
        frame = self._study.frame
        alpha = self._alpha
        names, rows, methods = [], [], []
        for claim in self._claims[self._of_arms]:
            of_all, sizes = claim.lines[0].tally, claim.lines[0].terms.sizes
            alone = replace(
                claim.lines[0].terms, weights=None, allocation=None, sequence=None, target=None
            )
            exact: Interval | None = None
            if alone.is_exact:  # a search of all at once costs as much as that of one
                exact = exact_shares(of_all.ones, of_all.drawn, sizes, alpha)
            for s, stratum in enumerate(frame.strata):
                names.append(stratum if frame.n_arms == 1 else f"{claim.name}/{stratum}")
                tally, terms = of_all.of_stratum(s), replace(alone, sizes=sizes[s : s + 1])
                numbers = (math.nan,) * 4
                if tally.n_answered:
                    own = None if exact is None else Interval(exact.lower[s], exact.upper[s])
                    ends = _less([fixed_interval(tally, terms, alpha, own)])
                    numbers = _numbers(tally.value(terms), tally.standard_error(terms), ends)
                methods.append(terms.method)
                rows.append(
                    _Row(
                        *numbers,
                        n_items=tally.n_answered,
                        n_answers=tally.n_verdicts,
                        n_drawn=tally.n,
                        population=terms.n_items,
                        missing=tally.n_missing,
                        in_flight=0,
                        interim_lower=None,
                        interim_upper=None,
                        outlook=NO_OUTLOOK,
                    )
                )
        return self._estimate(
            "strata",
            names,
            rows,
            interval=methods[0],
            alphas=[alpha] * len(names),
            is_watched=False,
        )

    def _of_ability(self, of_arms: Sequence[_Row]) -> Estimate:
        """Bound ability on subjects like these by a macro mean, at a fixed look."""
        config, alpha = self._config, self._alpha_of_arms
        rows, flags, laws = [], set(), {}
        for claim, known in zip(self._claims[self._of_arms], of_arms, strict=True):
            row, tally = (
                known._replace(interim_lower=None, interim_upper=None),
                claim.lines[0].tally,
            )
            if row.n_items:
                fewest, rest = tally.ones
                least = most = self._ability(fewest, tally.drawn, alpha)
                if (rest != fewest).any():
                    most = self._ability(rest, tally.drawn, alpha)
                flags |= {*least.flags, *most.flags}
                laws[claim.name] = {
                    "sampling": least.sampling,
                    "mixture": least.mixture,
                    "statuses": [fit.status.value for fit in least.fits],
                    "icc": [plain(float(fit.icc)) for fit in least.fits],
                    "strata": int((tally.drawn > 0).sum()),
                }
                lower, upper = float(least.interval.lower), float(most.interval.upper)
                value = min(max((least.score + most.score) / 2, lower), upper)
                half = max(least.half_width, most.half_width)
                se = half / math.sqrt(2 * math.log(2 / alpha))
                outlook = ability_outlook(claim.lines[0], most, alpha)
                row = row._replace(value=value, se=se, lower=lower, upper=upper, outlook=outlook)
            rows.append(row)
        return self._estimate(
            "ability",
            self._study.frame.arms,
            rows,
            interval=f"sub-Gaussian, {config.mixture} mixture of strata",
            alphas=[alpha] * len(rows),
            is_watched=False,
            flags=flags,
            more={"laws": laws},
        )

    def _of_people(self, of_arms: Sequence[_Row]) -> Estimate:
        """Bound what people would say by their labels and the judge's scores, at a fixed look."""
        assert self._labels is not None
        alpha, rows, found, not_drawn = self._alpha_of_arms, [], [], []
        for arm, (claim, row) in enumerate(zip(self._claims[self._of_arms], of_arms, strict=True)):
            n_told = claim.lines[0].n
            # What people say is estimated once there are verdicts to correct.
            order = self._orders[arm][: n_told if row.n_items else 0]
            units = np.array(order, dtype=np.int64) * self._n_arms + arm
            mean = human_mean(
                self._labels[units],
                self._units.scores(units),
                self._n_items,
                alpha=alpha,
                scoring=self._scoring,
            )
            found.append(mean)
            value, se, lower, upper, _ = mean.bounded
            n_labels = mean.about["n_labels"]
            rows.append(
                row._replace(
                    value=value,
                    se=se or math.nan,
                    lower=lower,
                    upper=upper,
                    n_items=n_labels,
                    n_answers=0 if mean.flag else row.n_answers,
                    interim_lower=None,
                    interim_upper=None,
                )
            )
            given = int(np.count_nonzero(~np.isnan(self._labels[arm :: self._n_arms])))
            not_drawn.append(given - n_labels)
        return self._estimate(
            "human",
            self._study.frame.arms,
            rows,
            interval=" + ".join(dict.fromkeys(mean.method for mean in found)),
            alphas=[alpha] * len(rows),
            is_watched=False,
            flags={mean.flag for mean in found if mean.flag}
            | ({"labels_not_drawn"} if any(not_drawn) else set()),
            by_name={key: [mean.about[key] for mean in found] for key in found[0].about}
            | {"labels_not_drawn": not_drawn},
            more={"labels_are": LABELS},
        )

    def _ability(
        self, ones: NDArray[np.int64], drawn: NDArray[np.int64], alpha: float
    ) -> MacroAbility:
        """Bound ability by the strata that have answers."""
        is_there = drawn > 0
        return macro_ability(
            ones[is_there],
            drawn[is_there],
            domain=self._domains[is_there],
            delta=alpha,
            mixture=self._config.mixture,
        )

    @cached_property
    def _domains(self) -> NDArray[np.int64]:
        """Give each stratum's group, where each has one; else all have one law."""
        frame = self._study.frame
        pairs = np.unique(np.stack((frame.stratum, frame.group)), axis=1)
        is_nested = pairs.shape[1] == len(frame.strata)
        return pairs[1] if is_nested else np.zeros(len(frame.strata), dtype=np.int64)

    @property
    def _of_arms(self) -> str:
        """Name the claims of single arms, whose lines tell what all that is said of arms rests on."""
        return "arms" if "arms" in self._claims else "macro"

    def _estimate(
        self,
        target: str,
        names: Sequence[str],
        rows: Sequence[_Row],
        *,
        interval: str,
        alphas: Sequence[float],
        is_watched: bool,
        flags: Collection[str] = (),
        by_name: Mapping[str, Json] | None = None,
        more: Mapping[str, Json] | None = None,
    ) -> Estimate:
        config = self._config
        empty = [math.isnan(row.value) for row in rows]
        # An error of 0, with all items in, is left out; any other that is left out is not known.
        partly = [math.isnan(row.se) and row.n_drawn < row.population for row in rows]
        is_part = any(empty) or any(partly)
        status = Status.EMPTY if all(empty) else Status.PARTIAL if is_part else Status.OK
        columns = dict(zip(_Row._fields, map(list, zip(*rows, strict=True)), strict=True))
        is_split = target in _SPLIT and config.error_split == "arms" and len(names) > 1
        notable = {
            "missing_imputed": any(columns["missing"]) and config.missing == "impute",
            "missing_count_as_lowest": any(columns["missing"]) and config.missing == "lowest",
            "in_flight": any(columns["in_flight"]),
        }
        about = {key: columns[key] for key in _Row._fields[4:]} | {"alpha": list(alphas)}
        return Estimate(
            name=config.name,
            kind="exchangeable",
            target=target,
            estimand=estimand(target, self._study, config.judgment, is_macro=self._is_macro),
            names=tuple(names),
            value=tuple(columns["value"]),
            se=tuple(columns["se"]),
            lower=tuple(columns["lower"]),
            upper=tuple(columns["upper"]),
            level=config.confidence,
            interval=interval,
            watching_covered=is_watched,
            alpha_split="pairs" if target == "differences" else "arms" if is_split else "none",
            family=family(target, is_split=is_split),
            n_items=max(columns["n_items"]),
            n_answers=sum(columns["n_answers"]),
            status=status,
            flags=(*(flag for flag, is_so in notable.items() if is_so), *sorted(flags)),
            diagnostics=self._about(is_watched=is_watched)
            | {"by_name": about | dict(by_name or {})}
            | dict(more or {}),
        )

    def _about(self, *, is_watched: bool) -> dict[str, Json]:
        """Say what is settled beforehand and true of all names."""
        config, frame = self._config, self._study.frame
        look = config.last_look if is_watched else None
        reasons: dict[str, dict[str, Json]] = {arm: {} for arm in frame.arms}
        for (arm, reason), n in sorted(self._reasons.items()):
            reasons[frame.arms[arm]][reason] = n
        return {
            "population": frame.n_items,
            "strata": len(frame.strata),
            "design": self._design,
            "allocation": self._allocation,
            "seed": self._study.seeds.seed if self._is_drawn else None,
            "order": NOTES[self._is_drawn],
            "draw_by": config.draw_by,
            "judgment": config.judgment,
            "repeats": self._repeats,
            "model": config.model,
            "criterion": self._scoring.name,
            "error": {
                "alpha": self._alpha,
                "split": config.error_split,
                "last_look": 0.0 if look is None else look.error,
                "noise": NOISE_SHARE if is_watched and config.judgment == "expected" else 0.0,
            },
            "missing_policy": MISSING[config.missing],
            "missing_reasons": reasons,
        }


_SPLIT = ("arms", "macro", "ability", "human")
"""Targets whose names are the arms."""


def _array(numbers: Array) -> array[float]:
    """Copy numbers into an array of Python's own, whose elements it reads several times faster."""
    return array("d", numbers.tolist())


def _numbers(
    value: float, se: float, ends: tuple[float, float]
) -> tuple[float, float, float, float]:
    """Put a value within its interval; a standard error of 0, where all is known, is left out."""
    return min(max(value, ends[0]), ends[1]), se or math.nan, *ends


def _less(intervals: Sequence[Interval]) -> tuple[float, float]:
    """Give the one interval, or the first less the second."""
    lower, upper = (float(end) for end in intervals[0])
    for other in intervals[1:]:
        lower, upper = lower - float(other.upper), upper - float(other.lower)
    return lower, upper


PLUGIN = Plugin(config=ExchangeableConfig, build=Exchangeable, wants_panel=True)


def fit_exchangeable(
    config: ExchangeableConfig,
    study: Study,
    *,
    unit: NDArray[np.int64],
    judge: NDArray[np.int64],
    values: Array,
    missing: Sequence[MissingReason | None] | None = None,
    orders: Order | None = None,
) -> tuple[Estimate, ...]:
    """Fit all answers at once; equal to the last bit to `Exchangeable` told them in this order.

    Parameters
    ----------
    unit, judge : (n,) int64, indices as in the study, one entry an asked question; of a judge's
        entries on one unit the first `repeats` count
    values : (n, n_criteria) float64 on each criterion's scale, NaN where it does not apply
    missing : (n,) why there is no verdict, None where there is one; None: all have one
    orders : as in `Exchangeable`

    Raises
    ------
    ValueError
        As `Exchangeable`.
    """
    estimator = Exchangeable(config, study, orders)
    scores = Scoring(study, config.criterion).of_table(values)
    if estimator.labelled is not None:
        reasons = [None] * len(unit) if missing is None else missing
        estimator.labelled.cells.add_table(
            unit, judge, values, reasons, np.zeros(len(unit), dtype=np.bool_)
        )
    asked: Counter[tuple[int, int]] = Counter()
    for at, entry in enumerate(zip(unit.tolist(), judge.tolist(), strict=True)):
        asked[entry] += 1
        if asked[entry] > (config.repeats or 1):
            continue
        reason = None if missing is None else missing[at]
        score = None if np.isnan(scores[at]) else float(scores[at])
        estimator.tell(int(unit[at]), score if reason is None else reason)
    return estimator.estimate()
