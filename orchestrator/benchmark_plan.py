"""What `plan` says of a benchmark by method: items for ±t, what ±t costs, what $X buys.

A campaign whose primary estimate is `exchangeable` may bound what it is after in several ways, watched
or at a fixed number of items. Widths that don't look at scores are what they are; for all others the
scores are taken to be like those that the rehearsal's stand-ins gave, with standard deviations 0.7 to
1.4 times theirs for the range. Where expected scores are meant, the judge's noise comes on top.
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
from estimators.benchmark_order import (
    Allocation,
    Chances,
    SampleDesign,
    allocation_of,
    draw_chances,
    item_orders,
)
from estimators.cells import Scoring
from estimators.exchangeable import ExchangeableConfig
from estimators.judge_repeats import noise_half_width, stratified_judge_half_width
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
    subsample_half_width,
)
from orchestrator.core.query import Missing, Role
from orchestrator.core.records import Record
from orchestrator.core.stopping import StopRule
from orchestrator.core.study import Study
from orchestrator.report.planning import ByMethod, ForHalfWidth, ForMoney, MethodPlan, Range

FEWEST_SCORES = 20
"""Of an arm, from which its mean and standard deviation are taken."""

FACTORS = (0.7, 1.0, 1.4)
"""Every standard deviation may be so much smaller or larger than assumed."""

MOST_REPEATS = 12
"""Calls of each judge an item that are compared."""


class ScoreBook:
    """Takes note of what units score, in the place of an estimator that says nothing.

    Parameters
    ----------
    criterion, repeats : as of the estimate it stands beside
    """

    def __init__(self, study: Study, criterion: str | None, repeats: int = 1) -> None:
        self._scoring, self._n_arms = Scoring(study, criterion), study.frame.n_arms
        self._repeats, self._n_judges = repeats, len(study.panel)
        self._totals = array("d", [0.0]) * study.frame.n_units
        self._counts = array("l", [0]) * study.frame.n_units
        self._asked, self._missing = [0] * self._n_arms, [0] * self._n_arms
        n_last = study.frame.n_units * self._n_judges if repeats > 1 else 0
        self._last = array("d", [math.nan]) * n_last
        self._steps, self._n_steps = [0.0] * self._n_arms, [0] * self._n_arms

    def update(self, record: Record) -> None:
        """Take in one told question."""
        query, outcome = record.query, record.outcome
        if query.role is Role.SYSTEM or not 0 <= query.replicate < self._repeats:
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
                self._compare(unit, query.judge, score)

    def _compare(self, unit: int, judge: int, score: float) -> None:
        """Take note of how far a judge's call on a unit is from its last one."""
        if not self._last:
            return
        at, arm = unit * self._n_judges + judge, unit % self._n_arms
        step, self._last[at] = score - self._last[at], score
        if not math.isnan(step):
            self._steps[arm] += step**2
            self._n_steps[arm] += 1

    def estimate(self) -> tuple[()]:
        """Say nothing."""
        return ()

    def missing(self, arm: int) -> float:
        """Give the share of an arm's verdicts that are missing."""
        return self._missing[arm] / max(1, self._asked[arm])

    def noise(self, arm: int) -> float | None:
        """Give the variance of one call of each judge on an arm's item; None where none was repeated.

        Half of the mean square of the steps between a judge's calls, over the number of judges.
        """
        n = self._n_steps[arm]
        return self._steps[arm] / (2 * n * self._n_judges) if n >= FEWEST_SCORES else None

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
    """What an item is expected to cost, nano-USD: all arms together, by who is asked.

    Attributes
    ----------
    last : the worst case of a question, for which money must be left when it is asked
    systems : the numbers of those who are systems under test
    caps, role_caps : of each one's own; of roles
    """

    expected: Sequence[float]
    last: int
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
        """Say how many items money pays for, so that its last question's worst case fits too."""
        left = money - max(0.0, self.last - self.item)
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

    `missing` is the share of an arm's verdicts that are missing, or of the two arms of a difference
    together. `noise` is the variance of one call of each judge on an item, None where it isn't known.
    `arm` is the one whose scores they are, None where there is but one, or they are differences.
    """

    scores: Scores
    source: str
    arm: str | None = None
    missing: float = 0.0
    noise: float | None = None


def hardest(
    config: ExchangeableConfig,
    study: Study,
    stop: StopRule,
    found: Sequence[Assumed],
    *,
    half_width: float | None,
    n: int,
) -> Assumed:
    """Choose, of what arms are like, that with which the campaign's own method needs most items.

    Parameters
    ----------
    config : as in `by_method`
    found : one or more
    half_width, n : which it needs them for; without one, the widest at n items is chosen
    """
    # What lacks less and varies less than another needs no more.
    front = [
        a
        for k, a in enumerate(found)
        if not any(_is_beside(a, b, is_later=j < k) for j, b in enumerate(found) if j != k)
    ]
    if len(front) == 1:
        return front[0]
    own = _own_way(config, study, stop)

    def rank(assumed: Assumed) -> float:
        slack = open_half_width(config, study, assumed)
        if half_width is None:
            return own.half_width(n, assumed.scores) + slack
        left = half_width - slack
        if left <= own.noise:
            return study.frame.n_items + slack
        return own.items(left, assumed.scores)

    return max(front, key=rank)


def _is_beside(a: Assumed, b: Assumed, *, is_later: bool) -> bool:
    """Say whether one says nothing beside another: the later of two alike, or what has less of all."""
    if (a.scores.sd, a.missing) == (b.scores.sd, b.missing):
        return is_later
    return a.scores.sd <= b.scores.sd and a.missing <= b.missing


def open_half_width(config: ExchangeableConfig, study: Study, assumed: Assumed) -> float:
    """Say what missing verdicts add to a half-width: they may be anything, so each end moves by them."""
    if config.missing != "impute":
        return 0.0
    return assumed.missing * Scoring(study, config.criterion).span / 2


def likely_items(
    config: ExchangeableConfig, study: Study, stop: StopRule, assumed: Assumed, half_width: float
) -> int:
    """Say how many items a half-width takes by the campaign's own method; `config` as in `by_method`."""
    own, left = _own_way(config, study, stop), half_width - open_half_width(config, study, assumed)
    return own.items(left, assumed.scores) if left > own.noise else study.frame.n_items


def likely_half_widths(
    config: ExchangeableConfig, study: Study, stop: StopRule, assumed: Assumed, n: int
) -> list[float]:
    """Give the half-widths of n items by the campaign's own method, for each of `FACTORS`.

    What missing verdicts leave open is left out; `config` as in `by_method`.
    """
    own, claim = _own_way(config, study, stop), _claim(config, study, stop)
    likely = _likely(assumed.scores, is_binary=claim.terms.is_binary)
    return [own.half_width(n, scores) for scores in likely]


def _own_way(config: ExchangeableConfig, study: Study, stop: StopRule) -> Way:
    return next(way for way in _ways(_claim(config, study, stop), config) if way.is_own)


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
    likely = _likely(assumed.scores, is_binary=claim.terms.is_binary)
    most = min(most_items or study.frame.n_items, study.frame.n_items)
    slack = open_half_width(config, study, assumed)
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
        arm=assumed.arm,
        draw_by=config.draw_by,
        best_repeats=_best_repeats(config, study, stop, assumed, costs, half_widths[0])
        if half_widths
        else None,
        methods=methods,
    )


def _best_repeats(
    config: ExchangeableConfig,
    study: Study,
    stop: StopRule,
    assumed: Assumed,
    costs: Costs,
    half_width: float,
) -> int | None:
    """Say with how many calls of each judge an item a half-width costs least, by the own method.

    None where calls are not taken to be noise, or none was repeated, so that noise isn't known.
    """
    if config.judgment != "expected" or assumed.noise is None:
        return None
    now, left = config.repeats or 1, half_width - open_half_width(config, study, assumed)
    scores, noise = assumed.scores, assumed.noise
    between = max(scores.sd**2 - noise / now, 0.0)

    def price(m: int) -> float:
        own = _own_way(config.model_copy(update={"repeats": m}), study, stop)
        if left <= own.noise:
            return math.inf
        like = _spread(scores._replace(sd=math.sqrt(between + noise / m)), 1.0)
        each = costs.of_role(Role.SYSTEM) + costs.of_role(Role.JUDGE) * m / now
        return own.items(left, like) * each

    prices = {m: price(m) for m in range(1, MOST_REPEATS + 1)}
    best = min(prices, key=prices.__getitem__)
    return best if math.isfinite(prices[best]) and prices[best] else None


def _for_half_width(
    way: Way, half_width: float, slack: float, likely: Sequence[Scores], costs: Costs
) -> ForHalfWidth:
    if half_width - slack <= way.noise:
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


def _for_money(way: Way, money: int, n: int, slack: float, likely: Sequence[Scores]) -> ForMoney:
    found = [way.half_width(n, scores) + slack for scores in likely]
    return ForMoney(
        money=money,
        items=n,
        half_width=Range(low=min(found), expected=found[1], high=max(found)),
    )


def _likely(scores: Scores, *, is_binary: bool) -> list[Scores]:
    return [_spread(scores, factor, is_binary=is_binary) for factor in FACTORS]


def _spread(scores: Scores, factor: float, *, is_binary: bool = False) -> Scores:
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
    chances : of each place, where items are drawn with chances of their own
    """

    target: str
    terms: Terms
    alpha: float
    chances: Chances | None
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
    is_watched = config.check == "anytime" or config.draw_by is not None
    sequence: SequenceKind | None = config.sequence if is_watched else None
    n_calls, chances = len(study.panel) * (config.repeats or 1), _chances(config, study)
    n_strata = max(len(frame.strata), 1)
    terms = Terms(
        low=scoring.low,
        high=scoring.high,
        sizes=np.bincount(frame.stratum, minlength=n_strata),
        weights=None,
        allocation=allocation_of(design, config.strata, study),
        alpha=alpha,
        is_binary=scoring.is_boolean and n_calls == 1,
        model=config.model,
        sequence=sequence,
        target=config.target_half_width,
        n_calls=n_calls if config.judgment == "expected" else None,
        is_weighted=chances is not None,
    )
    by_strata = replace(terms, weights=np.full(n_strata, 1 / n_strata))
    if not reads_difference(config, stop):
        share = alpha / frame.n_arms if config.error_split == "arms" else alpha
        is_macro = next((t for t in targets if t in {"benchmark", "macro"}), "") == "macro"
        own = by_strata if is_macro else terms
        name = "macro" if is_macro else "arms"
        return _Claim(name, replace(own, alpha=share), share, chances)
    own = by_strata if "macro" in targets and "benchmark" not in targets else terms
    if not is_paired(config, stop):
        return _Claim("difference", replace(own, alpha=alpha / 2), alpha, chances, 2)
    both = replace(
        own,
        low=-scoring.span,
        high=scoring.span,
        is_binary=False,
        sequence="betting" if sequence == "prior_posterior" else sequence,
        # On twice the scale, two means with noise of their own make half of what one would.
        n_calls=None if own.n_calls is None else 2 * own.n_calls,
    )
    return _Claim("difference", both, alpha, chances)


def _chances(config: ExchangeableConfig, study: Study) -> Chances | None:
    """Give the chances of the first arm's order; those of others are like them."""
    if config.draw_by is None:
        return None
    orders = item_orders(study, config.design or "simple", None, config.draw_by)
    return Chances(*(each[0] for each in draw_chances(study, orders, config.draw_by)))


# --- methods -------------------------------------------------------------------------------------


class Way(NamedTuple):
    """One method: how many items a half-width takes, and the half-width that items give.

    Attributes
    ----------
    noise : half-width that is left with all items; what is wanted must be more
    """

    name: str
    is_own: bool
    is_watched: bool
    items: Callable[[float, Scores], int]
    half_width: Callable[[int, Scores], float]
    noise: float = 0.0


def _ways(claim: _Claim, config: ExchangeableConfig) -> Iterator[Way]:
    terms = claim.terms
    look = config.last_look if terms.sequence is not None else None
    watched = terms.of_these.alpha * (1.0 if look is None else 1.0 - look.error)
    if claim.chances is not None:
        ways = iter([_sequence("betting", terms, watched, claim.chances)])
    elif terms.is_plain:
        ways = _plain_ways(terms, watched)
    else:
        ways = _ways_by_strata(terms, watched)
    for way in ways:
        yield way if claim.n_lines == 1 else _of_two(way)


def _of_two(way: Way) -> Way:
    """Let an unpaired difference have two lines, each with half of its width."""
    return way._replace(
        name=f"two intervals by {way.name}",
        items=lambda t, scores: way.items(t / 2, scores),
        half_width=lambda n, scores: 2 * way.half_width(n, scores),
        noise=2 * way.noise,
    )


def _beside_noise(way: Way, terms: Terms) -> Way:
    """Let what bounds these verdicts bound expected scores: the judge's noise is added."""
    noise = terms.noise
    return way._replace(
        items=lambda t, scores: way.items(t - noise, scores),
        half_width=lambda n, scores: min(way.half_width(n, scores) + noise, terms.span / 2),
        noise=noise,
    )


def _plain_ways(terms: Terms, watched: float) -> Iterator[Way]:
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


def _sequence(
    kind: SequenceKind, terms: Terms, alpha: float, chances: Chances | None = None
) -> Way:
    n_items = terms.n_items
    way = Way(
        name=replace(terms, sequence=kind).method,
        is_own=kind == terms.sequence,
        is_watched=True,
        items=lambda t, scores: items_for_sequence(
            kind, t, n_items, alpha=alpha, scores=scores, chances=chances
        ),
        half_width=lambda n, scores: sequence_half_width(
            kind, n, n_items, alpha=alpha, scores=scores, chances=chances
        ),
    )
    return _beside_noise(way, terms)


_AND_NOISE = " and Hoeffding for the judge's noise"


def _hypergeometric(terms: Terms) -> Way:
    span, n_items, alpha = terms.span, terms.n_items, terms.of_these.alpha

    def share(scores: Scores) -> float:
        return (scores.mean - scores.low) / span

    def half_width(n: int, scores: Scores) -> float:
        lower, upper = hypergeometric_interval(round(share(scores) * n), n, n_items, alpha)
        return span * float(upper - lower) / 2

    def items(t: float, scores: Scores) -> int:
        # Where a bound without data has the width, this one has it.
        most = int(items_for_half_width(t, n_items, alpha, span))
        return _first(most, lambda n: half_width(n, scores) <= t)

    way = Way(
        name="hypergeometric" + ("" if terms.n_calls is None else _AND_NOISE),
        is_own=terms.sequence is None and terms.is_exact,
        is_watched=False,
        items=items,
        half_width=half_width,
    )
    return _beside_noise(way, terms)


def _without_data(model: Model, terms: Terms) -> Way:
    span, n_items, alpha = terms.span, terms.n_items, terms.alpha
    is_own = terms.sequence is None and not terms.is_exact and model == terms.model
    noise = _noise_of_look(terms)

    def items(t: float, _: Scores) -> int:
        by_draws = math.sqrt(t**2 - noise**2)
        return int(items_for_half_width(by_draws, n_items, alpha, span, model))

    return Way(
        name=_look(terms, model),
        is_own=is_own,
        is_watched=False,
        items=items,
        half_width=lambda n, _: math.hypot(
            float(subsample_half_width(n, n_items, alpha, span, model)), noise
        ),
        noise=noise,
    )


def _noise_of_look(terms: Terms) -> float:
    """Give the half-width that is left of a fixed look at all items."""
    return noise_half_width(1, terms.n_all_calls, terms.alpha, terms.span)


def _look(terms: Terms, model: Model) -> str:
    """Name a fixed look that reads no scores."""
    return replace(terms, model=model, is_binary=False).look_method


def _empirical_bernstein(terms: Terms) -> Way:
    n_items, alpha, span = terms.n_items, terms.of_these.alpha, terms.span

    def half_width(n: int, scores: Scores) -> float:
        return float(empirical_bernstein_half_width(scores.sd, n, n_items, alpha, span))

    way = Way(
        name="empirical Bernstein-Serfling" + ("" if terms.n_calls is None else _AND_NOISE),
        is_own=False,
        is_watched=False,
        items=lambda t, scores: _first(n_items, lambda n: half_width(n, scores) <= t),
        half_width=half_width,
    )
    return _beside_noise(way, terms)


def _ways_by_strata(terms: Terms, watched: float) -> Iterator[Way]:
    if terms.allocation == "equal":
        yield _rounds(terms, watched)
    else:
        yield _kept(terms)
    for model in ("fixed", "exchangeable"):
        yield _stratified(model, terms)


def _rounds(terms: Terms, alpha: float) -> Way:
    sizes, shares = terms.sizes, terms.shares
    way = Way(
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
    return _beside_noise(way, terms)


def _kept(terms: Terms) -> Way:
    """Bound by each stratum's draws from the planned number on, at each look."""
    of_look, these = _stratified("fixed", terms.of_these), terms.of_these

    def half_width(n: int, scores: Scores) -> float:
        # Before each stratum has a draw nothing is kept.
        is_begun = _drawn(n, these.sizes, these.allocation).all()
        return of_look.half_width(n, scores) if is_begun else these.span / 2

    way = of_look._replace(
        name=replace(terms, sequence="betting", model="fixed").method,
        is_own=terms.sequence is not None,
        is_watched=True,
        items=lambda t, scores: _first(these.n_items, lambda n: half_width(n, scores) <= t),
        half_width=half_width,
    )
    return _beside_noise(way, terms)


def _stratified(model: Model, terms: Terms) -> Way:
    """Bound by each stratum's draws, at one number of items."""
    repeats = terms.n_calls or math.inf

    def half_width(n: int) -> float:
        drawn = _drawn(n, terms.sizes, terms.allocation)
        return stratified_judge_half_width(
            drawn, terms.sizes, terms.shares, repeats, terms.alpha, terms.span, model
        )

    return Way(
        name=_look(terms, model),
        is_own=terms.sequence is None and model == terms.model,
        is_watched=False,
        items=lambda t, _: _first(terms.n_items, lambda n: half_width(n) <= t),
        half_width=lambda n, _: half_width(n),
        noise=_noise_of_look(terms),
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
