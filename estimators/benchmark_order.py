"""The random order in which a benchmark's items are drawn, fixed by the seed before the first answer.

The policy that asks and the estimator that reads share it. So the estimator knows each item's place
whatever order answers come back in, and what is still under way before an item that is back.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.intervals import Array
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study

SampleDesign = Literal["simple", "stratified", "macro", "paired"]
"""How items are drawn.

- `simple`: each arm's items alone, in an order of its own;
- `stratified`: the same, strata in turn by `Allocation`;
- `macro`: one item of each stratum after another, for a mean of strata's means;
- `paired`: one order for all arms, so that each item is asked of all; by `Allocation` if there is one.
"""

Allocation = Literal["proportional", "equal"]
"""Which strata a beginning of the order holds: in their proportions, or one item of each in turn."""

Order = NDArray[np.int64]

EVEN_SHARE = 0.5
"""Share of the draws by a column in which all items have the same chance after all."""


def allocation_of(
    design: SampleDesign, strata: Allocation | None, study: Study
) -> Allocation | None:
    """Say how strata take turns; None: items are drawn without a look at strata.

    Raises
    ------
    ValueError
        The design has no use for strata, or needs them and the study has none, or the two contradict
        each other.
    """
    if design == "simple":
        if strata is not None:
            raise ValueError("strata: the simple design draws without strata; use stratified")
        return None
    if design == "macro" and strata == "proportional":
        raise ValueError("strata: macro takes strata in turn; for their proportions use stratified")
    if design != "paired":
        strata = strata or ("equal" if design == "macro" else "proportional")
    if strata is not None and not study.frame.strata:
        raise ValueError(f"design: {design} by strata wants strata; data.strata names them")
    return strata


def item_orders(
    study: Study,
    design: SampleDesign,
    allocation: Allocation | None,
    draw_by: str | None = None,
) -> Order:
    """Draw each arm's order of all items, (n_arms, n_items).

    Within a stratum, and over all without one, every order is as likely as any other. `proportional`
    puts the k-th of a stratum's n items at (k + u)/n, with one uniform u for the stratum, so that its
    share of a beginning is never off by more than an item. With `draw_by` an item's chance of being
    the next is that of `draw_chances`.

    Draws from `stream(POLICY, arm)`; `paired` from that of the first arm alone.

    Parameters
    ----------
    draw_by : the covariate by whose numbers items are drawn; None: all alike

    Raises
    ------
    ValueError
        As `draw_chances`, or items are drawn by strata as well.
    """
    n_arms = study.frame.n_arms
    weight = None
    if draw_by is not None:
        if allocation is not None or design not in {"simple", "paired"}:
            raise ValueError(
                "draw_by: wants the design simple, or paired without strata; strata have an order of "
                "their own"
            )
        weight = _weights(study, draw_by)
        if design == "paired" and (weight != weight[:1]).any():
            raise ValueError(
                f"draw_by: {draw_by!r} differs between arms of an item, which paired draws together"
            )

    def order(arm: int) -> Order:
        return _order(study, arm, allocation) if weight is None else _race(study, arm, weight[arm])

    if design == "paired":
        return np.tile(order(0), (n_arms, 1))
    return np.stack([order(arm) for arm in range(n_arms)])


class Chances(NamedTuple):
    """Of each place of an order: the chance of the item there, and the least of all not yet drawn.

    (n_arms, n_items) each; of one arm (n_items,).
    """

    own: Array
    least: Array


def draw_chances(study: Study, orders: Order, draw_by: str) -> Chances:
    """Say with which chances the items of orders by a column were drawn, each among those then left.

    Half of its chance is in proportion to the column's number, half is the same for all that are left
    (`EVEN_SHARE`): so no item's chance is below half of 1/remaining, which bounds by such draws need
    to be narrow.

    Parameters
    ----------
    orders : (n_arms, n_items) from `item_orders`

    Raises
    ------
    ValueError
        The study has no such covariate, or a number is not above 0.
    """
    weight = np.take_along_axis(_weights(study, draw_by), orders, axis=1)[:, ::-1]
    left = np.arange(1, weight.shape[1] + 1)
    # Sums of what is left, from the end on: no digits are lost by subtraction.
    total, least = np.cumsum(weight, axis=1), np.minimum.accumulate(weight, axis=1)
    even = EVEN_SHARE / left
    chances = (even + (1 - EVEN_SHARE) * each / total for each in (weight, least))
    return Chances(*(np.ascontiguousarray(each[:, ::-1]) for each in chances))


def _weights(study: Study, draw_by: str) -> Array:
    """Give the numbers of a column, (n_arms, n_items); the largest is 1."""
    if draw_by not in study.covariates:
        raise ValueError(f"draw_by: the study has no numbers named {draw_by!r}")
    weight: Array = study.covariates[draw_by].reshape(-1, study.frame.n_arms).T
    if not (weight > 0).all():
        raise ValueError(f"draw_by: {draw_by!r} holds numbers that are not above 0")
    # What is a billion times smaller has its chance by the even half alone.
    return np.asarray(np.maximum(weight / weight.max(), 1e-9))


def _race(study: Study, arm: int, weight: Array) -> Order:
    """Let items arrive in two races and take, by a coin, the first that is left of one or the other.

    Times of arrival are exponential, with rates by weight in one race and 1 in the other. The first of
    those that are left is each of them with a chance in proportion to its rate, whatever was taken
    before: an exponential time has always as long to go.
    """
    rng, n_items = study.seeds.stream(Stream.POLICY, arm), len(weight)
    times = rng.exponential(size=(2, n_items))
    races = [iter(np.argsort(each).tolist()) for each in (times[0], times[1] / weight)]
    is_even = rng.random(n_items) < EVEN_SHARE
    is_left, order = [True] * n_items, []
    for race in np.where(is_even, 0, 1).tolist():
        item = next(item for item in races[race] if is_left[item])
        is_left[item] = False
        order.append(item)
    return np.array(order, dtype=np.int64)


def _order(study: Study, arm: int, allocation: Allocation | None) -> Order:
    rng = study.seeds.stream(Stream.POLICY, arm)
    shuffled: Order = rng.permutation(study.frame.n_items)
    if allocation is None:
        return shuffled
    stratum = study.frame.stratum[shuffled]
    sizes = np.bincount(stratum)
    offset = rng.random(len(sizes))[stratum]
    # Rank of each item within its stratum, in the shuffled order.
    grouped = np.argsort(stratum, kind="stable")
    rank = np.empty(len(shuffled), dtype=np.int64)
    rank[grouped] = np.arange(len(shuffled)) - (np.cumsum(sizes) - sizes)[stratum[grouped]]
    if allocation == "equal":
        return shuffled[np.lexsort((offset, rank))]
    return shuffled[np.argsort((rank + offset) / sizes[stratum], kind="stable")]
