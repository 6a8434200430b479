"""Bounds for a benchmark's mean by the beginning of a random order: at a fixed look, or watched.

A `Line` takes scores in the order in which their items were drawn, each as a lowest and a highest
value that it can have. The two differ where a verdict is missing: the lower end then rests on the
lowest, the upper end on the highest. Whether a verdict is missing is taken to be the item's own doing,
so that lowest and highest are two populations, drawn in the same random order, between whose means the
unknown lies.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.benchmark_order import Allocation, Chances
from estimators.intervals import Array, Interval
from estimators.judge_repeats import (
    expected_interval,
    judge_half_width,
    noise_half_width,
    stratified_judge_half_width,
)
from estimators.macro_sequence import MacroSequence
from estimators.sequences_weighted import WeightedSequence
from estimators.sequences_wor import (
    MeanSequence,
    Plan,
    betting,
    empirical_bernstein,
    hoeffding,
    prior_posterior,
)
from estimators.subsample_bounds import (
    Model,
    hypergeometric_interval,
    stratified_half_width,
    subsample_half_width,
)
from estimators.unit_scores import Score
from estimators.weighted_draws import PlacedSequence, WeightedMean

SequenceKind = Literal["betting", "prior_posterior", "hoeffding", "empirical_bernstein"]

USUAL_SHARE = 0.05
"""Half-width, as a share of the scale, that a sequence is planned for where it must have a plan."""

NOISE_SHARE = 0.2
"""Part of the error that a sequence leaves to the judge's noise, where expected scores are meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is settled about a bound before the first score.

    Parameters
    ----------
    low, high : ends of the scale
    sizes : (S,) items of each stratum
    weights : (S,) of the strata's means; None: each item counts alike
    allocation : how strata take turns in the order; None: they don't
    alpha : two-sided error of everything that is said of this line
    is_binary : scores are ends of the scale; what lies between counts as either
    sequence : None: no watching
    target : half-width where the line is meant to end
    look_at, look_share : number of items at which a part of the error is spent on a fixed look
    n_calls : independent verdicts that an item's score is the mean of, where the mean of what the judge
        is expected to say is bounded; None: that of these verdicts
    is_weighted : items are drawn with chances of their own
    most : number of items with which the run ends at the latest, as was settled too
    """

    low: float
    high: float
    sizes: NDArray[np.int64]
    weights: Array | None
    allocation: Allocation | None
    alpha: float
    is_binary: bool
    model: Model
    sequence: SequenceKind | None
    target: float | None
    look_at: int | None = None
    look_share: float = 0.0
    n_calls: int | None = None
    is_weighted: bool = False
    most: int | None = None

    @property
    def span(self) -> float:
        """Length of the scale."""
        return self.high - self.low

    @property
    def n_items(self) -> int:
        """Items of the population."""
        return int(self.sizes.sum())

    @property
    def is_plain(self) -> bool:
        """Whether the order knows no strata and all items count alike."""
        return self.allocation is None and self.weights is None

    @property
    def shares(self) -> Array:
        """Weights of the strata's means, which sum to 1."""
        return self.sizes / self.sizes.sum() if self.weights is None else self.weights

    @property
    def is_exact(self) -> bool:
        """Whether a fixed look counts by the hypergeometric law.

        Not where the run stops at a width: this law's depends on the scores, so that the stop would.
        """
        is_counted = self.is_binary and self.is_plain and self.n_calls is None
        return is_counted and self.model == "fixed" and self.target is None

    @property
    def n_all_calls(self) -> float:
        """Count the verdicts on all items: as many as make as much noise where strata weigh."""
        return (self.n_calls or math.inf) / float(self.shares**2 @ (1 / self.sizes))

    @property
    def noise(self) -> float:
        """Half-width that the judge's noise adds to a sequence's, at its part of the error."""
        if self.n_calls is None:
            return 0.0
        return noise_half_width(1, self.n_all_calls, NOISE_SHARE * self.alpha, self.span)

    @property
    def of_these(self) -> Terms:
        """Terms for the mean of these verdicts, with what is left of error and target beside the noise."""
        if self.n_calls is None:
            return self
        target = None if self.target is None else self.target - self.noise
        return replace(
            self,
            n_calls=None,
            alpha=(1 - NOISE_SHARE) * self.alpha,
            target=target if target is not None and target > 0 else None,
        )

    @property
    def is_target_below_noise(self) -> bool:
        """Whether no number of items reaches the target, since the judge's noise alone is wider."""
        if self.n_calls is None or self.target is None:
            return False
        alone = noise_half_width(1, self.n_all_calls, self.alpha, self.span)
        return self.target <= (alone if self.sequence is None else self.noise)

    @property
    def monotone(self) -> SequenceKind:
        """Give a sequence whose ends move with each score in its own direction; its own if it can."""
        if self.sequence in {"prior_posterior", "hoeffding"}:
            return self.sequence
        return "prior_posterior" if self.is_binary else "hoeffding"

    @property
    def method(self) -> str:
        """Name how the interval is made."""
        if self.sequence is None:
            return self.look_method
        noise = "" if self.n_calls is None else " and Hoeffding for the judge's noise"
        if self.is_weighted:
            return f"weighted {self.sequence} sequence without replacement{noise}"
        if self.is_plain:
            return f"{self.sequence.replace('_', '-')} sequence without replacement{noise}"
        if self.allocation == "equal":
            return f"Hoeffding sequence over rounds of strata{noise}"
        return f"{self.of_these.look_method}, kept from its planned number on{noise}"

    @property
    def look_method(self) -> str:
        """Name how a fixed look is made."""
        if self.is_exact:
            return "hypergeometric"
        bound = "exchangeable" if self.model == "exchangeable" else "finite-population Hoeffding"
        noise = "" if self.n_calls is None else " with the judge's noise"
        return (bound if self.is_plain else f"stratified {bound}") + noise


# --- what was seen -------------------------------------------------------------------------------


class Tally:
    """Sums by stratum of the scores so far; of one stratum, by `of_stratum`."""

    def __init__(
        self,
        terms: Terms,
        counts: list[list[int]] | None = None,
        sums: list[list[float]] | None = None,
    ) -> None:
        self._terms, n_strata = terms, len(terms.sizes)
        self._low, self._high = terms.low, terms.high
        self._counts = counts or [[0] * n_strata for _ in range(7)]
        self._sums = sums or [[0.0] * n_strata for _ in range(4)]
        self.n = sum(self._counts[0])

    def add(self, stratum: int, score: Score) -> None:
        """Take in one item."""
        lowest, highest, value, n_verdicts, is_missing = score
        drawn, answered, known, verdicts, ones, most_ones, missing = self._counts
        self.n += 1
        drawn[stratum] += 1
        answered[stratum] += n_verdicts > 0
        verdicts[stratum] += n_verdicts
        missing[stratum] += is_missing
        ones[stratum] += lowest >= self._high
        most_ones[stratum] += highest > self._low
        sum_lowest, sum_highest, total, square = self._sums
        sum_lowest[stratum] += lowest
        sum_highest[stratum] += highest
        if not math.isnan(value):
            known[stratum] += 1
            total[stratum] += value
            square[stratum] += value * value

    def of_stratum(self, stratum: int) -> Tally:
        """Give the sums of one stratum."""
        counts = [[each[stratum]] for each in self._counts]
        return Tally(self._terms, counts, [[each[stratum]] for each in self._sums])

    @property
    def drawn(self) -> NDArray[np.int64]:
        """Items of each stratum so far."""
        return np.array(self._counts[0])

    @property
    def n_answered(self) -> int:
        """Number of items with a verdict."""
        return sum(self._counts[1])

    @property
    def n_missing(self) -> int:
        """Number of items that lack a verdict."""
        return sum(self._counts[6])

    @property
    def n_verdicts(self) -> int:
        """Number of verdicts."""
        return sum(self._counts[3])

    @property
    def ones(self) -> NDArray[np.int64]:
        """Count the scores at the high end, (2, S): of the lowest, and of all that may be there.

        What lies between the ends counts as low, and as high.
        """
        return np.array(self._counts[4:6])

    @property
    def sums(self) -> tuple[Array, Array]:
        """Sums by stratum, of the lowest and of the highest."""
        return np.array(self._sums[0]), np.array(self._sums[1])

    def value(self, terms: Terms) -> float:
        """Estimate the mean by what has a value; the middle of the scale stands for empty strata."""
        known, total, _ = self._values(terms)
        middle = np.full(len(known), (terms.low + terms.high) / 2)
        mean = np.divide(total, known, out=middle, where=known > 0)
        return float((np.ones(1) if terms.is_plain else terms.shares) @ mean)

    def standard_error(self, terms: Terms) -> float:
        """Estimate the value's standard error; 0 once every item is drawn, unless noise counts.

        The variance is drawn towards the largest there can be by one score, so that few equal scores
        don't say that there is none. It holds the noise, which drawing all items does not take away.
        """
        known, total, square = self._values(terms)
        sizes = np.array([terms.n_items]) if terms.is_plain else terms.sizes
        shares = np.ones(1) if terms.is_plain else terms.shares
        n = np.maximum(known, 1)
        variance = (terms.span**2 / 4 + np.maximum(square - total**2 / n, 0.0)) / (known + 1)
        unseen = np.maximum(1 - known / sizes, 0.0) if terms.n_calls is None else np.ones(len(n))
        return math.sqrt(float(shares**2 @ (variance * unseen / n)))

    def _values(self, terms: Terms) -> tuple[Array, Array, Array]:
        found = (self._counts[2], self._sums[2], self._sums[3])
        known, total, square = (np.array(each, dtype=np.float64) for each in found)
        if terms.is_plain:
            return known.sum(keepdims=True), total.sum(keepdims=True), square.sum(keepdims=True)
        return known, total, square


def sure_range(tally: Tally, terms: Terms) -> Interval:
    """Give where the mean lies whatever the unseen scores are."""
    share = terms.shares / terms.sizes
    unseen = terms.sizes - tally.drawn
    lowest, highest = tally.sums
    return Interval(share @ (lowest + unseen * terms.low), share @ (highest + unseen * terms.high))


# --- one look ------------------------------------------------------------------------------------


def exact_shares(
    ones: NDArray[np.int64], n: ArrayLike, population: ArrayLike, alpha: float
) -> Interval:
    """Bound shares of ones, whose number may be missing: (2, ...) as in `Tally.ones`, by one search."""
    lower, upper = hypergeometric_interval(ones, n, population, alpha)
    return Interval(lower[0], upper[1])


def fixed_interval(
    tally: Tally, terms: Terms, alpha: float, exact: Interval | None = None
) -> Interval:
    """Bound the mean at a number of items that was fixed beforehand, or by a width without data.

    Parameters
    ----------
    exact : what `exact_shares` says of this tally, where that is known; None: it is asked
    """
    if terms.is_exact:
        if exact is None:
            exact = exact_shares(tally.ones.sum(axis=1), tally.n, terms.n_items, alpha)
        lower, upper = exact
        if lower == upper and tally.n < terms.n_items:  # an item that is not seen is still open
            return sure_range(tally, terms)
        return Interval(terms.low + terms.span * lower, terms.low + terms.span * upper)
    half = _half_width(tally.drawn, terms, alpha)
    lower, upper = _centres(tally, terms)
    # What was said of all items says not what would be said again.
    scale = Interval(np.array(terms.low), np.array(terms.high))
    sure = sure_range(tally, terms) if terms.n_calls is None else scale
    lower, upper = lower - half, upper + half
    if terms.sequence is None and terms.target is not None and upper - lower > 2 * terms.target:
        # A run ends at the first width that is its target. A cut would let scores near an end of the
        # scale choose that number, so the interval is moved, with the width that it has anyway.
        up, down = np.maximum(sure.lower - lower, 0.0), np.maximum(upper - sure.upper, 0.0)
        lower, upper = lower - down, upper + up
    return _within(Interval(lower, upper), sure)


def _centres(tally: Tally, terms: Terms) -> Interval:
    """Give the estimates by lowest and by highest scores."""
    drawn = tally.drawn
    if terms.is_plain:
        n = max(tally.n, 1)
        return Interval(*(each.sum() / n for each in tally.sums))
    middle = np.full(len(drawn), (terms.low + terms.high) / 2)
    means = (np.divide(s, drawn, out=middle.copy(), where=drawn > 0) for s in tally.sums)
    return Interval(*(terms.shares @ mean for mean in means))


def _half_width(drawn: NDArray[np.int64], terms: Terms, alpha: float) -> float:
    n, m = int(drawn.sum()), terms.n_calls
    if m is not None and terms.is_plain:
        return judge_half_width(n, terms.n_items, m, alpha, terms.span, terms.model)
    if m is not None:
        return stratified_judge_half_width(
            drawn, terms.sizes, terms.shares, m, alpha, terms.span, terms.model
        )
    if terms.is_plain:
        return float(subsample_half_width(n, terms.n_items, alpha, terms.span, terms.model))
    return stratified_half_width(drawn, terms.sizes, terms.shares, alpha, terms.span, terms.model)


def _within(interval: Interval, sure: Interval) -> Interval:
    lower, upper = np.maximum(interval.lower, sure.lower), np.minimum(interval.upper, sure.upper)
    # Ends of two sequences may cross, in one of those runs that the error allows for.
    return Interval(lower, upper) if lower <= upper else sure


# --- all looks -----------------------------------------------------------------------------------


_Sequence = MeanSequence | MacroSequence | PlacedSequence


class _Sequences:
    """One sequence of the lowest scores and one of the highest; the same while they don't differ."""

    def __init__(self, sequence: _Sequence) -> None:
        self._lower = self._upper = sequence

    def update(self, stratum: int, score: Score) -> None:
        if self._lower is self._upper and score.lowest != score.highest:
            self._upper = deepcopy(self._lower)
        _step(self._lower, stratum, score.lowest)
        if self._lower is not self._upper:
            _step(self._upper, stratum, score.highest)

    def interval(self) -> Interval:
        return Interval(self._lower.interval().lower, self._upper.interval().upper)


def _step(sequence: _Sequence, stratum: int, score: float) -> None:
    if isinstance(sequence, MacroSequence):
        sequence.update(stratum, score)
    else:
        sequence.update(score)


class _Kept:
    """The width of a fixed look, kept from the first number of items on at which it is the target.

    Or from the largest number that there will be, if it is not the target before. The number depends on the order of strata alone, which knows no scores. Seen backwards, from all
    items to fewer, each stratum's mean of draws is a martingale, so that what bounds the moments of the
    error at that number bounds its largest value from there on. Before it nothing is said but the sure
    range. What missing verdicts leave open comes on top of the width, and no more items take it away.

    Source: Doob's inequality for reverse martingales, as in [BM15] Theorem 2.4; its sum over
    independent strata is ours.
    """

    def __init__(self, terms: Terms, tally: Tally) -> None:
        self._terms, self._tally = terms, tally
        self._strata = array("l")
        self._half: float | None = None

    def update(self, stratum: int, score: Score) -> None:  # noqa: ARG002 - the tally has the scores
        if self._half is None:
            self._strata.append(stratum)

    @property
    def has_width(self) -> bool:
        return self._half is not None

    @property
    def has_target(self) -> bool:
        target = self._terms.target
        return self._half is not None and target is not None and self._half <= target

    def interval(self) -> Interval:
        if self._half is None:
            self._half = self._at_planned()
        if self._half is None:
            return sure_range(self._tally, self._terms)
        lower, upper = _centres(self._tally, self._terms)
        return Interval(lower - self._half, upper + self._half)

    def _at_planned(self) -> float | None:
        """Find the half-width at the first number that has the target or is the last, once it is reached."""
        target, most = self._terms.target, self._terms.most
        strata = np.array(self._strata[:most], dtype=np.int64)
        few, enough = 0, len(strata)
        found = self._width(strata)
        if target is None or found > target:
            return found if enough == most and math.isfinite(found) else None
        while enough - few > 1:
            middle = (few + enough) // 2
            width = self._width(strata[:middle])
            if width <= target:
                enough, found = middle, width
            else:
                few = middle
        return found

    def _width(self, strata: NDArray[np.int64]) -> float:
        drawn = np.bincount(strata, minlength=len(self._terms.sizes))
        if not drawn.all():  # what has no draw has no martingale either
            return math.inf
        return _half_width(drawn, self._terms, self._terms.alpha)


def _plan(terms: Terms) -> Plan:
    return Plan(half_width=terms.target, most=terms.most)


def _sequence_of(terms: Terms, kind: SequenceKind, alpha: float) -> MeanSequence:
    level, low, high, plan = 1 - alpha, terms.low, terms.high, _plan(terms)
    match kind:
        case "prior_posterior":
            return prior_posterior(terms.n_items, level=level, low=low, high=high)
        case "betting":
            return betting(terms.n_items, level=level, low=low, high=high, plan=plan)
        case "hoeffding":
            return hoeffding(terms.n_items, level=level, low=low, high=high, plan=plan)
        case "empirical_bernstein":
            return empirical_bernstein(terms.n_items, level=level, low=low, high=high, plan=plan)


def _weighted(terms: Terms, alpha: float) -> WeightedSequence:
    return WeightedSequence(
        terms.n_items, level=1 - alpha, low=terms.low, high=terms.high, plan=_plan(terms)
    )


def rounds_in(n: NDArray[np.int64], sizes: NDArray[np.int64]) -> Array:
    """Give the rounds of strata in turn in which n items come in."""
    ends = np.concatenate(([0], np.unique(sizes)))
    items = np.minimum(ends[:, None], sizes).sum(axis=1)
    return np.interp(n, items, ends)


def _rounds(terms: Terms, alpha: float) -> MacroSequence:
    most: float | None = None
    if terms.most is not None:
        most = max(1.0, float(rounds_in(np.array(terms.most), terms.sizes)))
    plan = Plan(half_width=terms.target or USUAL_SHARE * terms.span, most=most)
    return MacroSequence(
        terms.sizes, plan, weights=terms.shares, level=1 - alpha, low=terms.low, high=terms.high
    )


# --- lines ---------------------------------------------------------------------------------------


class Line:
    """The told prefix of one random order, and what it proves.

    Where expected scores are meant, sequences bound the mean of these verdicts, as if all items had
    theirs already, and the judge's noise comes on top.

    Parameters
    ----------
    strata : (N,) stratum of each place of the order
    chances : of each place, (N,), where items are drawn with chances of their own

    Complexity: that of the sequence, an item.
    """

    def __init__(self, terms: Terms, strata: Sequence[int], chances: Chances | None = None) -> None:
        self.terms = terms
        self.tally = Tally(terms)
        self._strata = strata
        self._these = these = terms.of_these
        self._is_counted = terms.sequence == "prior_posterior"
        self._is_interim_counted = terms.is_plain and terms.monotone == "prior_posterior"
        alpha = these.alpha * (1 - terms.look_share)
        self._interim: _Sequences | None = None
        self._watch: _Sequences | _Kept | None = None
        self._mean: WeightedMean | None = None
        self._chances = chances
        if chances is not None:
            self._mean = WeightedMean(terms.n_items, terms.low, terms.high)
            self._watch = _Sequences(PlacedSequence(_weighted(these, alpha), chances))
        elif terms.is_plain:
            self._interim = _Sequences(_sequence_of(these, terms.monotone, alpha))
        elif terms.allocation == "equal":
            self._interim = _Sequences(_rounds(these, alpha))
        if self._watch is None and terms.sequence is not None:
            self._watch = self._interim or _Kept(these, self.tally)
            if terms.is_plain and terms.sequence != terms.monotone:
                self._watch = _Sequences(_sequence_of(these, terms.sequence, alpha))
        self._look: Interval | None = None

    @property
    def n(self) -> int:
        """Number of items taken in: the place of the next one."""
        return self.tally.n

    def update(self, score: Score) -> None:
        """Take in the item at the next place."""
        stratum = self._strata[self.tally.n]
        self.tally.add(stratum, score)
        if self._watch is not None:
            self._watch.update(stratum, _counted(score, self.terms) if self._is_counted else score)
        if self._interim is not None and self._interim is not self._watch:
            self._interim.update(stratum, self._for_interim(score))
        if self._mean is not None and self._chances is not None:
            self._mean.add(score.value, self._chances.own[self.tally.n - 1])
        if self.tally.n == self.terms.look_at:
            share = self._these.alpha * self.terms.look_share
            self._look = fixed_interval(self.tally, self._these, share)

    def interval(self) -> Interval:
        """Bound the mean by the told prefix."""
        if self._watch is None:
            return fixed_interval(self.tally, self.terms, self.terms.alpha)
        lower, upper = self._watch.interval()
        if self._look is not None:
            lower, upper = np.maximum(lower, self._look.lower), np.minimum(upper, self._look.upper)
        return self._meant(_within(Interval(lower, upper), sure_range(self.tally, self.terms)))

    @property
    def value(self) -> float:
        """The estimated mean; the middle of the scale stands for what is empty."""
        return self.tally.value(self.terms) if self._mean is None else self._mean.value

    @property
    def standard_error(self) -> float:
        """Its standard error; 0 once every item is drawn, unless the judge's noise counts."""
        if self._mean is None:
            return self.tally.standard_error(self.terms)
        at_most = self.terms.span / (2 * math.sqrt(self.terms.n_all_calls))
        return math.hypot(self._mean.standard_error, at_most)

    @property
    def is_kept(self) -> bool:
        """Whether the last interval's width no longer falls with more items."""
        return isinstance(self._watch, _Kept) and self._watch.has_target

    @property
    def is_before_plan(self) -> bool:
        """Whether the last interval is but the sure range, since its planned number is still to come."""
        return isinstance(self._watch, _Kept) and not self._watch.has_width

    def interim(self, more: Sequence[Score | None]) -> Interval | None:
        """Bound the mean by all that is back, wherever it stands; None where no way is known.

        What is under way counts as the lowest for the lower end and as the highest for the upper,
        which takes ends that move with each score in its own direction. It is a second statement,
        with the error of the first, for a look while the run goes on; nothing is decided by it.

        Parameters
        ----------
        more : scores at the places from `n` on, None where an item is under way
        """
        if self._interim is None:
            return None
        ahead = deepcopy(self._interim)
        is_open = Score(self.terms.low, self.terms.high, math.nan, 0)
        for place, score in enumerate(more, self.n):
            ahead.update(self._strata[place], self._for_interim(score or is_open))
        lower, upper = ahead.interval()
        found = Interval(lower, upper) if lower <= upper else sure_range(self.tally, self.terms)
        return self._meant(found)

    def _meant(self, of_these: Interval) -> Interval:
        """Turn bounds for these verdicts into bounds for what is meant."""
        terms = self.terms
        if terms.n_calls is None:
            return of_these
        error, ends = NOISE_SHARE * terms.alpha, {"low": terms.low, "high": terms.high}
        return expected_interval(of_these, 1, terms.n_all_calls, error, **ends)

    def _for_interim(self, score: Score) -> Score:
        return _counted(score, self.terms) if self._is_interim_counted else score


def _counted(score: Score, terms: Terms) -> Score:
    """Let what lies between the ends of the scale count as low, and as high."""
    low, high = terms.low, terms.high
    return score._replace(
        lowest=high if score.lowest >= high else low,
        highest=low if score.highest <= low else high,
    )
