"""What `plan` says of a benchmark by method: items for ±t, what ±t costs, what $X buys.

A campaign whose primary estimate is `exchangeable` may bound what it is after in several ways, watched
or at a fixed number of items. Widths that don't look at scores are what they are; for all others the
scores are taken to be like those that the rehearsal's stand-ins gave, with standard deviations 0.7 to
1.4 times theirs for the range.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.benchmark_bounds import SequenceKind, Terms
from estimators.benchmark_order import Allocation, SampleDesign, allocation_of
from estimators.cells import Scoring
from estimators.exchangeable import ExchangeableConfig
from estimators.sequence_ends import (
    Scores,
    items_for_rounds,
    items_for_sequence,
    rounds_half_width,
    sequence_half_width,
)
from estimators.subsample_bounds import (
    Model,
    empirical_bernstein_half_width,
    hypergeometric_interval,
    items_for_half_width,
    stratified_half_width,
    subsample_half_width,
)
from orchestrator.core.query import Missing, Role
from orchestrator.core.records import Record
from orchestrator.core.stopping import StopRule
from orchestrator.core.study import Study
from orchestrator.report.planning import ByMethod, ForHalfWidth, ForMoney, MethodPlan, Range

FEWEST_SCORES = 20
"""Of an arm, from which its mean and standard deviation are taken."""


class ScoreBook:
    """Takes note of what units score, in the place of an estimator that says nothing.

    Parameters
    ----------
    criterion : as of the estimate it stands beside
    """

    def __init__(self, study: Study, criterion: str | None) -> None:
        self._scoring, self._n_arms = Scoring(study, criterion), study.frame.n_arms
        self._totals = array("d", [0.0]) * study.frame.n_units
        self._counts = array("l", [0]) * study.frame.n_units
        self._asked, self._missing = [0] * self._n_arms, [0] * self._n_arms

    def update(self, record: Record) -> None:
        """Take in one told question."""
        query, outcome = record.query, record.outcome
        if query.role is Role.SYSTEM or query.replicate:
            return
        found: Sequence[tuple[int, float | None]] = [(unit, None) for unit in query.units]
        if not isinstance(outcome, Missing):
            found = self._scoring.of_answer(query.units, outcome.observations)
        for unit, score in found:
            self._asked[unit % self._n_arms] += 1
            if score is None:
                self._missing[unit % self._n_arms] += 1
            else:
                self._totals[unit] += self._scoring.low + score
                self._counts[unit] += 1

    def estimate(self) -> tuple[()]:
        """Say nothing."""
        return ()

    def missing(self, arm: int) -> float:
        """Give the share of an arm's verdicts that are missing."""
        return self._missing[arm] / max(1, self._asked[arm])

    def scores(self, arm: int, baseline: int | None = None) -> Scores | None:
        """Give what an arm's scores are like, or the differences from a baseline's on the same items.

        None where there are too few of them.
        """
        counts = np.asarray(self._counts).reshape(-1, self._n_arms)
        with np.errstate(invalid="ignore"):  # what has no verdict has no score
            means = np.asarray(self._totals).reshape(counts.shape) / np.where(
                counts, counts, np.nan
            )
        found = means[:, arm] if baseline is None else means[:, arm] - means[:, baseline]
        found = found[~np.isnan(found)]
        if len(found) < FEWEST_SCORES:
            return None
        low, high = self._scoring.low, self._scoring.high
        ends = (low, high) if baseline is None else (low - high, high - low)
        return Scores(*ends, float(found.mean()), float(found.std()))


class Costs(NamedTuple):
    """What an item costs, nano-USD, expected and at most: all arms together, by who is asked.

    Attributes
    ----------
    systems : the numbers of those who are systems under test
    caps, role_caps : of each one's own; of roles
    """

    expected: Sequence[float]
    worst: Sequence[float]
    systems: range
    caps: Sequence[int | None]
    role_caps: Mapping[Role, int]

    @property
    def item(self) -> float:
        """All that an item costs."""
        return sum(self.expected)

    def of_role(self, role: Role) -> float:
        """Give a role's part."""
        return sum(
            x for k, x in enumerate(self.expected) if (k in self.systems) == (role is Role.SYSTEM)
        )

    def items(self, money: int, most: int) -> int:
        """Say how many items money pays for, so that the last one's worst case fits too."""
        left = money - (sum(self.worst) - self.item)
        rooms = [(left, self.item)]
        rooms += [(cap, self.of_role(role)) for role, cap in self.role_caps.items()]
        rooms += [
            (cap, x) for cap, x in zip(self.caps, self.expected, strict=True) if cap is not None
        ]
        n = min((max(0.0, room) / each for room, each in rooms if each), default=math.inf)
        return min(most, math.floor(n)) if math.isfinite(n) else most


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What scores are taken to be like, and where it comes from; see `report.planning.ByMethod`.

    `missing` is the share of verdicts that are missing: of the arm that lacks most, or of the two arms of
    a difference together.
    """

    scores: Scores
    source: str
    missing: float = 0.0


def by_method(
    config: ExchangeableConfig,
    study: Study,
    stop: StopRule,
    assumed: Assumed,
    costs: Costs,
    *,
    half_widths: Sequence[float],
    money: Sequence[int],
    most_items: int | None = None,
    factors: tuple[float, float, float] = (0.7, 1.0, 1.4),
) -> ByMethod:
    """Answer for each method: how many items a half-width takes, what it costs, what money buys.

    Parameters
    ----------
    config : with the policy's design and the stop rule's keys in place of what it left open
    stop : whether its target is for every arm
    half_widths, money : asked for; in units of the scores, nano-USD
    most_items : that the policy asks each arm about; None: all
    """
    claim = _claim(config, study, stop)
    likely = [
        _spread(assumed.scores, factor, is_binary=claim.terms.is_binary) for factor in factors
    ]
    most = min(most_items or study.frame.n_items, study.frame.n_items)
    # What is missing may be anything: each end moves by it.
    is_open = config.missing == "impute"
    slack = assumed.missing * Scoring(study, config.criterion).span / 2 if is_open else 0.0
    methods = tuple(
        MethodPlan(
            name=way.name,
            is_own=way.is_own,
            watching_covered=way.is_watched,
            for_half_width=tuple(
                _for_half_width(way, t, slack, likely, costs) for t in half_widths
            ),
            for_money=tuple(_for_money(way, x, costs.items(x, most), slack, likely) for x in money),
        )
        for way in _ways(claim, config)
    )
    return ByMethod(
        estimate=config.name,
        target=claim.target,
        population=study.frame.n_items,
        n_arms=study.frame.n_arms,
        level=config.confidence,
        alpha=claim.alpha,
        item=round(costs.item),
        by_role={role: round(costs.of_role(role)) for role in (Role.SYSTEM, Role.JUDGE)},
        mean=assumed.scores.mean,
        sd=Range(low=likely[0].sd, expected=likely[1].sd, high=likely[-1].sd),
        missing=assumed.missing,
        source=assumed.source,
        methods=methods,
    )


def _for_half_width(
    way: _Way, half_width: float, slack: float, likely: Sequence[Scores], costs: Costs
) -> ForHalfWidth:
    if half_width <= slack:
        return ForHalfWidth(half_width=half_width, items=None, spend=None)
    found = [way.items(half_width - slack, scores) for scores in likely]
    items = Range(low=min(found), expected=found[1], high=max(found))
    return ForHalfWidth(
        half_width=half_width,
        items=items,
        spend=Range(
            low=items.low * costs.item,
            expected=items.expected * costs.item,
            high=items.high * costs.item,
        ),
    )


def _for_money(way: _Way, money: int, n: int, slack: float, likely: Sequence[Scores]) -> ForMoney:
    found = [way.half_width(n, scores) + slack for scores in likely]
    return ForMoney(
        money=money,
        items=n,
        half_width=Range(low=min(found), expected=found[1], high=max(found)),
    )


def _spread(scores: Scores, factor: float, *, is_binary: bool) -> Scores:
    """Give scores of so many times the standard deviation, as far as their scale has room.

    Of yes or no the mean says it, so that moves to or from the middle.
    """
    low, high, mean, sd = scores
    if not is_binary:
        return scores._replace(sd=min(factor * sd, math.sqrt((mean - low) * (high - mean))))
    half = (high - low) / 2
    wanted = min(factor * math.sqrt((mean - low) * (high - mean)), half)
    off = math.copysign(math.sqrt(half**2 - wanted**2), mean - low - half)
    return scores._replace(mean=low + half + off, sd=wanted)


# --- what is bounded -----------------------------------------------------------------------------


class _Claim(NamedTuple):
    """What the primary estimate bounds: one line, or two whose widths add.

    Attributes
    ----------
    alpha : of the whole claim; that of a line stands in its terms
    """

    target: str
    terms: Terms
    alpha: float
    n_lines: int = 1


def is_answered(config: ExchangeableConfig) -> bool:
    """Say whether the primary estimate is of a kind that has answers by method."""
    return config.contrast is not None or (config.targets or ("benchmark",))[0] in {
        "benchmark",
        "macro",
    }


def reads_difference(config: ExchangeableConfig, stop: StopRule) -> bool:
    """Say whether a difference is what the target is for."""
    return config.contrast is not None and not stop.of_every_arm


def arms_of(config: ExchangeableConfig, study: Study, stop: StopRule) -> list[int]:
    """Give the arms that are bounded: all, or the two of the difference."""
    arms, contrast = study.frame.arms, config.contrast
    if contrast is None or not reads_difference(config, stop):
        return [*range(len(arms))]
    return [arms.index(contrast.arm), arms.index(contrast.baseline)]


def is_paired(config: ExchangeableConfig, stop: StopRule) -> bool:
    """Say whether that difference is taken item by item."""
    contrast = config.contrast
    return reads_difference(config, stop) and contrast is not None and contrast.paired


def _claim(config: ExchangeableConfig, study: Study, stop: StopRule) -> _Claim:
    design: SampleDesign = config.design or "simple"
    scoring, frame = Scoring(study, config.criterion), study.frame
    targets = config.targets or (("macro",) if design == "macro" else ("benchmark",))
    alpha = round(1 - config.confidence, 15)
    sequence: SequenceKind | None = config.sequence if config.check == "anytime" else None
    n_strata = max(len(frame.strata), 1)
    terms = Terms(
        low=scoring.low,
        high=scoring.high,
        sizes=np.bincount(frame.stratum, minlength=n_strata),
        weights=None,
        allocation=allocation_of(design, config.strata, study),
        alpha=alpha,
        is_binary=scoring.is_boolean and len(study.panel) == 1,
        model=config.model,
        sequence=sequence,
        target=config.target_half_width,
    )
    by_strata = replace(terms, weights=np.full(n_strata, 1 / n_strata))
    if not reads_difference(config, stop):
        share = alpha / frame.n_arms if config.error_split == "arms" else alpha
        is_macro = next((t for t in targets if t in {"benchmark", "macro"}), "") == "macro"
        own = by_strata if is_macro else terms
        return _Claim("macro" if is_macro else "arms", replace(own, alpha=share), share)
    own = by_strata if "macro" in targets and "benchmark" not in targets else terms
    if not is_paired(config, stop):
        return _Claim("difference", replace(own, alpha=alpha / 2), alpha, 2)
    both = replace(
        own,
        low=-scoring.span,
        high=scoring.span,
        is_binary=False,
        sequence="betting" if sequence == "prior_posterior" else sequence,
    )
    return _Claim("difference", both, alpha)


# --- methods -------------------------------------------------------------------------------------


class _Way(NamedTuple):
    """One method: how many items a half-width takes, and the half-width that items give."""

    name: str
    is_own: bool
    is_watched: bool
    items: Callable[[float, Scores], int]
    half_width: Callable[[int, Scores], float]


def _ways(claim: _Claim, config: ExchangeableConfig) -> Iterator[_Way]:
    terms = claim.terms
    look = config.last_look if terms.sequence is not None else None
    watched = terms.alpha * (1.0 if look is None else 1.0 - look.error)
    ways = _plain_ways(terms, watched) if terms.is_plain else _ways_by_strata(terms, watched)
    for way in ways:
        yield way if claim.n_lines == 1 else _of_two(way)


def _of_two(way: _Way) -> _Way:
    """Let an unpaired difference have two lines, each with half of its width."""
    return way._replace(
        name=f"two intervals by {way.name}",
        items=lambda t, scores: way.items(t / 2, scores),
        half_width=lambda n, scores: 2 * way.half_width(n, scores),
    )


def _plain_ways(terms: Terms, watched: float) -> Iterator[_Way]:
    kinds: dict[SequenceKind, None] = {"betting": None}
    if terms.is_binary:
        kinds["prior_posterior"] = None
    if terms.sequence is not None:
        kinds[terms.sequence] = None
    for kind in kinds:
        yield _sequence(kind, terms, watched)
    if terms.is_binary:
        yield _hypergeometric(terms)
    for model in ("fixed", "exchangeable"):
        yield _without_data(model, terms)
    if not terms.is_binary:
        yield _empirical_bernstein(terms)


def _sequence(kind: SequenceKind, terms: Terms, alpha: float) -> _Way:
    n_items = terms.n_items
    return _Way(
        name=replace(terms, sequence=kind).method,
        is_own=kind == terms.sequence,
        is_watched=True,
        items=lambda t, scores: items_for_sequence(kind, t, n_items, alpha=alpha, scores=scores),
        half_width=lambda n, scores: sequence_half_width(
            kind, n, n_items, alpha=alpha, scores=scores
        ),
    )


def _hypergeometric(terms: Terms) -> _Way:
    span, n_items, alpha = terms.span, terms.n_items, terms.alpha

    def share(scores: Scores) -> float:
        return (scores.mean - scores.low) / span

    def half_width(n: int, scores: Scores) -> float:
        lower, upper = hypergeometric_interval(round(share(scores) * n), n, n_items, alpha)
        return span * float(upper - lower) / 2

    def items(t: float, scores: Scores) -> int:
        # Where a bound without data has the width, this one has it.
        most = int(items_for_half_width(t, n_items, alpha, span))
        return _first(most, lambda n: half_width(n, scores) <= t)

    return _Way(
        name="hypergeometric",
        is_own=terms.sequence is None and terms.is_exact,
        is_watched=False,
        items=items,
        half_width=half_width,
    )


def _without_data(model: Model, terms: Terms) -> _Way:
    span, n_items, alpha = terms.span, terms.n_items, terms.alpha
    is_own = terms.sequence is None and not terms.is_exact and model == terms.model
    return _Way(
        name=_look(terms, model),
        is_own=is_own,
        is_watched=False,
        items=lambda t, _: int(items_for_half_width(t, n_items, alpha, span, model)),
        half_width=lambda n, _: float(subsample_half_width(n, n_items, alpha, span, model)),
    )


def _look(terms: Terms, model: Model) -> str:
    """Name a fixed look that reads no scores."""
    return replace(terms, model=model, is_binary=False).look_method


def _empirical_bernstein(terms: Terms) -> _Way:
    n_items, alpha, span = terms.n_items, terms.alpha, terms.span

    def half_width(n: int, scores: Scores) -> float:
        return float(empirical_bernstein_half_width(scores.sd, n, n_items, alpha, span))

    return _Way(
        name="empirical Bernstein-Serfling",
        is_own=False,
        is_watched=False,
        items=lambda t, scores: _first(n_items, lambda n: half_width(n, scores) <= t),
        half_width=half_width,
    )


def _ways_by_strata(terms: Terms, watched: float) -> Iterator[_Way]:
    if terms.allocation == "equal":
        yield _rounds(terms, watched)
    else:
        yield _stratified("fixed", terms, is_kept=True)
    for model in ("fixed", "exchangeable"):
        yield _stratified(model, terms, is_kept=False)


def _rounds(terms: Terms, alpha: float) -> _Way:
    sizes, shares = terms.sizes, terms.shares
    return _Way(
        name=replace(terms, sequence="hoeffding").method,
        is_own=terms.sequence is not None,
        is_watched=True,
        items=lambda t, scores: items_for_rounds(
            t, sizes, weights=shares, alpha=alpha, scores=scores
        ),
        half_width=lambda n, scores: rounds_half_width(
            n, sizes, weights=shares, alpha=alpha, scores=scores
        ),
    )


def _stratified(model: Model, terms: Terms, *, is_kept: bool) -> _Way:
    """Bound by each stratum's draws; `is_kept`: from the planned number on, at each look."""
    is_watched_run = terms.sequence is not None
    is_own = is_watched_run if is_kept else not is_watched_run and model == terms.model
    as_watched = replace(terms, sequence="betting", model=model)

    def half_width(n: int) -> float:
        drawn = _drawn(n, terms.sizes, terms.allocation)
        if is_kept and not drawn.all():  # before each stratum has a draw nothing is kept
            return terms.span / 2
        return stratified_half_width(
            drawn, terms.sizes, terms.shares, terms.alpha, terms.span, model
        )

    return _Way(
        name=as_watched.method if is_kept else _look(terms, model),
        is_own=is_own,
        is_watched=is_kept,
        items=lambda t, _: _first(terms.n_items, lambda n: half_width(n) <= t),
        half_width=lambda n, _: half_width(n),
    )


def _drawn(n: int, sizes: NDArray[np.int64], allocation: Allocation | None) -> NDArray[np.int64]:
    """Give the draws of each stratum among the first n, up to one item."""
    if allocation != "equal":
        drawn: NDArray[np.int64] = np.rint(n * sizes / sizes.sum()).astype(np.int64)
        return np.minimum(drawn, sizes)
    # One round less than the first that would take more.
    rounds = _first(int(sizes.max()) + 1, lambda r: int(np.minimum(sizes, r).sum()) > n) - 1
    drawn = np.minimum(sizes, rounds)
    open_ = np.flatnonzero(sizes > rounds)[: n - int(drawn.sum())]
    drawn[open_] += 1
    return drawn


def _first(most: int, is_enough: Callable[[int], bool]) -> int:
    """Give the least number from 1 to `most` that is enough; `most` where none is."""
    few, enough = 0, most
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if is_enough(middle) else (middle, enough)
    return enough
