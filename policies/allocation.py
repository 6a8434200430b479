"""How many calls to spend on which item and judge: the oracle's answer, and whole calls.

An item's score has variance ``V_k = Σ_j v_kj / n_kj``, where n_kj calls of judge j on item k are
averaged. With the target `common`, the paper's, all judges have one mean, one judge serves an item,
and v_kj is that judge's variance σ²_kj; with `panel` the score is the weighted mean Σ_j ω_j μ_kj and
v_kj = ω_j² σ²_kj; with `population` judges are a sample of judges like them, and
``V_k = 1 / Σ_j n_kj / (n_kj η² + σ²_kj)``.

Sought are the counts of least l_p error ``(Σ_k V_k^{p/2})^{1/p}`` that a sum of money buys. With
a_k = (Σ_j sqrt(v_kj c_kj))² and q = p/(p + 2), item k gets the share a_k^q / Σ a^q of the money, and
the error is sqrt(A*_p / B) with A*_p = (Σ_k a_k^q)^{1/q}: arXiv 2605.23362 for `common`, where
a_k = min_j c_kj σ²_kj; the same algebra holds for `panel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orchestrator.core.errors import BudgetTooSmall

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Target = Literal["panel", "common", "population"]

TIED = 1e-12
"""Relative difference up to which two products c σ² are equal: the cheaper judge is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """What an oracle that knows the variances would buy.

    Parameters
    ----------
    judge : (K,) int64, who serves each item; -1 where several do
    share : (K,) part of the money that each item gets
    counts : (K, J) calls, not whole
    a : (K,) money times variance: what halving an item's variance costs
    objective : A*_p
    error_scale : (Σ V_k^{p/2})^{1/p} = sqrt(A*_p / budget)
    """

    judge: Counts
    share: Array
    counts: Array
    a: Array
    objective: float
    error_scale: float


def oracle_allocation(
    variance: ArrayLike,
    cost: ArrayLike,
    budget: float,
    p: float,
    target: Target = "common",
    weights: ArrayLike | None = None,
    *,
    interaction: float = 0.0,
) -> Allocation:
    """Split a budget over items and judges whose variances are known.

    Parameters
    ----------
    variance : (K, J), of one score of judge j on item k, >= 0
    cost : (J,) or (K, J), money of one call, > 0
    budget : money, > 0, in the unit of `cost`
    p : order of the norm, 1 to infinity
    weights : (J,) of the panel, >= 0, used in their proportions; None: equal
    interaction : η², variance between judges on one item; for `population` alone

    Raises
    ------
    ValueError
        Wrong shapes, or numbers outside these ranges.
    """
    given = _Given.read(variance, cost, p, target, weights, interaction)
    if not budget > 0:
        raise ValueError(f"budget: wants a positive number, not {budget!r}")
    k = np.arange(len(given.variance))
    # Without any noise judges are alike, and the population is what one of them says.
    if target == "population" and (given.variance.any() or given.interaction > 0):
        return _population(given, float(budget))
    if target == "panel":
        judge = np.full(len(k), -1) if given.variance.shape[1] > 1 else np.zeros(len(k), np.int64)
        a = np.sqrt(given.needs * given.cost).sum(axis=1) ** 2
        share, objective = shares(a, p)
        counts = _within(given, a, share * budget)
    else:
        judge = cheapest_precision(given.variance, given.cost)
        price = given.cost[judge] if given.cost.ndim == 1 else given.cost[k, judge]
        a = given.variance[k, judge] * price
        share, objective = shares(a, p)
        counts = np.zeros(given.variance.shape)
        counts[k, judge] = share * budget / price
    return Allocation(
        judge=judge,
        share=share,
        counts=counts,
        a=a,
        objective=objective,
        error_scale=float(np.sqrt(objective / budget)),
    )


def shares(a: Array, p: float) -> tuple[Array, float]:
    """Give each item's share of the money, and A*_p; all a = 0 gives equal shares and 0."""
    q = exponent(p)
    top = float(a.max())
    if top == 0:
        return np.full(len(a), 1 / len(a)), 0.0
    # Scaled to the largest, so that nothing under- or overflows.
    powers = a / top
    if q != 1:
        powers **= q
    total = powers.sum()
    return powers / total, float(top * total ** (1 / q))


def exponent(p: float) -> float:
    """Give q = p/(p + 2); 1 for the maximum norm."""
    return 1.0 if np.isinf(p) else p / (p + 2)


def cheapest_precision(variance: Array, cost: Array) -> Counts:
    """Choose each item's judge: least c σ², of equal ones the cheaper, then the first; (K,)."""
    # Judges as rows: reducing over the long axis is twice as fast.
    product = np.multiply(variance.T, cost[:, None] if cost.ndim == 1 else cost.T, order="C")
    is_best = product <= product.min(axis=0) * (1 + TIED)
    if cost.ndim == 1:
        by_price = np.argsort(cost, kind="stable")
        best: Counts = by_price[is_best[by_price].argmax(axis=0)]
        return best
    return np.asarray(np.where(is_best, cost.T, np.inf).argmin(axis=0), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Given:
    """A problem as asked; `needs` (K, J) are the v_kj, 0 for judges that an item does without."""

    variance: Array
    cost: Array
    p: float
    target: Target
    omega: Array
    interaction: float

    @classmethod
    def read(
        cls,
        variance: ArrayLike,
        cost: ArrayLike,
        p: float,
        target: Target,
        weights: ArrayLike | None,
        interaction: float,
    ) -> _Given:
        var, price = np.asarray(variance, dtype=float), np.asarray(cost, dtype=float)
        if var.ndim != 2 or not var.size:
            raise ValueError(f"variance: wants items by judges, not shape {var.shape}")
        n_judges = var.shape[1]
        if price.shape not in {(n_judges,), var.shape}:
            raise ValueError(f"cost: wants one a judge or one a cell, not shape {price.shape}")
        if not (np.isfinite(var).all() and var.min() >= 0):
            raise ValueError("variance: wants finite numbers from 0 up")
        if not (np.isfinite(price).all() and price.min() > 0):
            raise ValueError("cost: wants finite numbers above 0")
        if not p >= 1:
            raise ValueError(f"p: wants a number from 1 up, not {p!r}")
        if target not in {"panel", "common", "population"}:
            raise ValueError(f"target: wants panel, common or population, not {target!r}")
        if not (np.isfinite(interaction) and interaction >= 0):
            raise ValueError(f"interaction: wants a number from 0 up, not {interaction!r}")
        omega = np.ones(n_judges) if weights is None else np.asarray(weights, dtype=float)
        if omega.shape != (n_judges,) or not (omega.min() >= 0 and omega.sum() > 0):
            raise ValueError("weights: wants one a judge, from 0 up, not all 0")
        return cls(
            variance=var,
            cost=price,
            p=float(p),
            target=target,
            omega=omega / omega.sum(),
            interaction=float(interaction),
        )

    @property
    def needs(self) -> Array:
        needs: Array = self.omega**2 * self.variance
        return needs


def _within(given: _Given, a: Array, money: Array) -> Array:
    """Split each item's money over the panel: n_kj = money · sqrt(v_kj / c_kj) / sqrt(a_k)."""
    rate = np.sqrt(given.needs / given.cost)
    per_money: Array = money / np.sqrt(np.where(a > 0, a, 1))
    rate *= per_money[:, None]
    return rate


# --- judges as a sample ------------------------------------------------------------------------

_HALVINGS = 60


def _population(given: _Given, budget: float) -> Allocation:
    """Solve the population target by its conditions of first order.

    The precision P_k(n) = Σ_j n_j/(n_j η² + v_j) is concave. On an item where money buys precision
    at the rate λ_k, n_j = sqrt(v_j) (1/sqrt(λ_k c_j) - sqrt(v_j))₊ / η²; over items
    P_k^{-(p/2 + 1)} λ_k is the same (for the maximum norm P_k is). Both grow with λ_k, so both
    levels are found by bisection.
    """
    cost = np.broadcast_to(given.cost, given.variance.shape)
    # Nothing is free of noise, and no judge quite like another: keeps both divisions away from 0.
    scale = max(given.interaction, float(given.variance.max()), np.finfo(float).tiny)
    eta2 = max(given.interaction, 1e-9 * scale)
    sigma2 = np.maximum(given.variance, 1e-12 * scale)
    sigma = np.sqrt(sigma2)

    def counts_at(rate: Array) -> Array:
        root = 1 / np.sqrt(rate[:, None] * cost)
        n: Array = sigma * np.maximum(root - sigma, 0) / eta2
        return n

    def precision(n: Array) -> Array:
        return np.asarray((n / (n * eta2 + sigma2)).sum(axis=1))

    highest = np.log((1 / (sigma2 * cost)).max(axis=1))
    lowest = highest - 80

    def rates_at(level: float) -> Array:
        """Find each item's λ for the common level of the outer condition, in logs."""
        low, high = lowest.copy(), highest.copy()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            log_p = np.log(np.maximum(precision(counts_at(np.exp(middle))), 1e-300))
            excess = (
                -log_p - level if np.isinf(given.p) else middle - (given.p / 2 + 1) * log_p - level
            )
            low = np.where(excess < 0, middle, low)
            high = np.where(excess < 0, high, middle)
        return np.asarray(np.exp((low + high) / 2))

    span = (given.p if np.isfinite(given.p) else 1) * 400
    low, high = -span - 200.0, span + 200.0
    for _ in range(_HALVINGS + 20):
        level = (low + high) / 2
        spent = float((counts_at(rates_at(level)) * cost).sum())
        low, high = (level, high) if spent > budget else (low, level)
    counts = counts_at(rates_at(high))
    money = (counts * cost).sum(axis=1)
    counts *= budget / money.sum()
    error = error_of(1 / precision(counts), given.p)
    several = (counts > 0).sum(axis=1) > 1
    return Allocation(
        judge=np.where(several, -1, counts.argmax(axis=1)),
        share=money / money.sum(),
        counts=counts,
        a=money / money.sum() * budget / precision(counts),
        objective=error**2 * budget,
        error_scale=error,
    )


def error_of(variance: Array, p: float) -> float:
    """Give the l_p error scale (Σ V_k^{p/2})^{1/p} of items' variances."""
    top = float(variance.max())
    if top == 0 or np.isinf(p):
        return float(np.sqrt(top))
    return float(np.sqrt(top) * ((variance / top) ** (p / 2)).sum() ** (1 / p))


def item_variances(
    counts: Counts,
    variance: Array,
    target: Target,
    weights: ArrayLike | None = None,
    *,
    interaction: float = 0.0,
) -> Array:
    """Give the variances of items' scores for given counts, (K,); nan for an item without calls.

    With `common` the item's answers are averaged by the judges' precisions.
    """
    given = _Given.read(variance, np.ones(counts.shape), 2, target, weights, interaction)
    is_asked = counts > 0
    if target == "panel":
        parts = np.divide(given.needs, counts, out=np.zeros(counts.shape), where=is_asked)
        total = parts.sum(axis=1)
    else:
        eta2 = given.interaction if target == "population" else 0.0
        precision = _precision(counts, given.variance, eta2).sum(axis=1)
        total = np.divide(1, precision, out=np.zeros(len(counts)), where=precision > 0)
    return np.where(is_asked.any(axis=1), total, np.nan)


# --- whole calls -------------------------------------------------------------------------------


def integer_plan(
    variance: ArrayLike,
    cost: ArrayLike,
    budget: int,
    p: float,
    target: Target = "common",
    weights: ArrayLike | None = None,
    *,
    interaction: float = 0.0,
    at_least: Counts | None = None,
    at_most: Counts | None = None,
) -> Counts:
    """Buy whole calls, (K, J), whose cost never exceeds the budget.

    Every item gets at least one call, with `panel` one of every judge that has weight. Counts are
    those of `oracle_allocation` cut to their bounds and rounded down; what is left buys single
    calls, those first that lower the error most for their price. What stays unspent is less than
    the price of any call that would still lower it.

    Parameters
    ----------
    cost, budget : whole numbers of the smallest unit of money
    at_least, at_most : (K, J), bounds of the counts, as of calls that are made already; `at_least`
        wins where they cross

    Raises
    ------
    BudgetTooSmall
        The budget does not buy what every item must have; `sufficient` is what would.
    ValueError
        As `oracle_allocation`, or money that is not whole.
    """
    given = _Given.read(variance, cost, p, target, weights, interaction)
    whole = np.asarray(cost)
    if whole.dtype.kind not in "iu" or int(budget) != budget:
        raise ValueError("cost, budget: want whole numbers of the smallest unit of money")
    shape = given.variance.shape
    price = np.broadcast_to(whole.astype(np.int64), shape)
    counts = np.zeros(shape, np.int64) if at_least is None else at_least.astype(np.int64)
    most = _NO_BOUND if at_most is None else np.maximum(at_most, counts)
    most = np.broadcast_to(most, shape)
    cells = _cells(given, counts, most, price)
    needed = int((counts * price).sum() + ((cells.count - cells.of(counts)) * cells.price).sum())
    if needed > budget:
        raise BudgetTooSmall(
            f"every item needs a call: that costs {needed}, the budget is {budget}",
            sufficient=needed,
        )
    left = int(budget) - needed
    if cells.eta2 is None:
        # Of the maximum norm's best whole plan a real plan that leaves a call for every cell,
        # rounded down, is a part; one of all the money need not be.
        spare = int(cells.price.sum()) if np.isinf(given.p) else 0
        left -= _fill(cells, given.p, max(left - spare, 0))
    _spend_rest(cells, given.p, left)
    np.put_along_axis(counts, cells.judge, cells.count, axis=1)
    return counts


_NO_BOUND = np.iinfo(np.int64).max


@dataclass(slots=True, kw_only=True, eq=False)
class _Cells:
    """Counts while they grow, of the cells that may: (K, n), of the judges `judge`.

    `needs` are v_kj; for the population target σ²_kj, with `eta2`.
    """

    judge: Counts
    needs: Array
    eta2: float | None
    price: Counts
    most: Counts
    count: Counts

    def of(self, table: Counts) -> Counts:
        """Take these cells out of a (K, J) table."""
        return np.take_along_axis(table, self.judge, axis=1)

    def variance(self) -> Array:
        """Give the items' variances, (K,); 0 where nothing was asked, for nothing can be."""
        n = self.count
        if self.eta2 is None:
            parts = np.divide(self.needs, n, out=np.zeros(n.shape), where=n > 0)
            return np.asarray(parts.sum(axis=1))
        precision = _precision(n, self.needs, self.eta2).sum(axis=1)
        return np.asarray(np.divide(1, precision, out=np.zeros(len(n)), where=precision > 0))

    def variance_with_one_more(self, before: Array) -> Array:
        """Give the items' variances if one cell had one more call, (K, n)."""
        n = self.count
        if self.eta2 is None:
            gain = np.divide(self.needs, n * (n + 1.0), out=np.zeros(n.shape), where=n > 0)
            return np.asarray(before[:, None] - gain)
        more = _precision(n + 1, self.needs, self.eta2) - _precision(n, self.needs, self.eta2)
        worth = np.divide(1, before, out=np.zeros(len(n)), where=before > 0)[:, None] + more
        return np.divide(1, worth, out=np.zeros(n.shape), where=(before[:, None] > 0) & (worth > 0))


def _cells(given: _Given, least: Counts, most: Counts, price: Counts) -> _Cells:
    """Find the cells that may grow, each item's first calls made."""
    n_items, n_judges = given.variance.shape
    judge = np.broadcast_to(np.arange(n_judges), (n_items, n_judges))
    needs, eta2 = given.variance, None
    if given.target == "common":
        may_grow = most > least
        open_variance = needs if may_grow.all() else np.where(may_grow, needs, np.inf)
        judge = cheapest_precision(open_variance, given.cost)[:, None]
        needs = np.take_along_axis(needs, judge, axis=1)
    elif given.target == "panel":
        needs = given.needs
    else:
        eta2 = given.interaction
    cells = _Cells(
        judge=judge,
        needs=needs,
        eta2=eta2,
        price=np.take_along_axis(price, judge, axis=1),
        most=np.take_along_axis(most, judge, axis=1),
        count=np.take_along_axis(least, judge, axis=1),
    )
    must = np.ones(needs.shape, np.int64)
    if given.target == "panel":
        must[:, given.omega == 0] = 0
    elif eta2 is not None:
        must[:] = 0
        worth = np.where(cells.most > cells.count, (needs + eta2) * cells.price, np.inf)
        first = worth.argmin(axis=1)
        must[np.arange(n_items), first] = least.sum(axis=1) == 0
    cells.count = np.maximum(cells.count, np.minimum(must, cells.most))
    return cells


def _precision(n: Counts, sigma2: Array, eta2: float) -> Array:
    spread = n * eta2 + sigma2
    return np.asarray(np.divide(n, spread, out=np.where(n > 0, 1e300, 0.0), where=spread > 0))


def _fill(cells: _Cells, p: float, left: int) -> int:
    """Raise counts to the real plan's, rounded down; gives what that costs.

    A cell that the common level would push past a bound is pinned there, and the level found again
    for the rest: the side that is off by more money first, so that no pin has to be undone.
    """
    price, low, high = cells.price, cells.count, cells.most
    rate = _rates(cells.needs, price, p)
    budget = left + int((low * price).sum())
    count = low.copy()
    is_free = (rate > 0) & (low < high)
    while is_free.any():
        money = budget - int((count * price)[~is_free].sum())
        wanted = rate * (money / float((rate * price)[is_free].sum()))
        below, above = is_free & (wanted < low), is_free & (wanted > high)
        if not (below.any() or above.any()):
            # A count that is whole but for rounding is whole.
            count[is_free] = np.floor(wanted[is_free] * (1 + 1e-12)).astype(np.int64)
            break
        missing = float(((low - wanted) * price)[below].sum())
        over = float(((wanted - high) * price)[above].sum())
        pins, bound = (below, low) if missing >= over else (above, high)
        count[pins] = bound[pins]
        is_free &= ~pins
    count = np.clip(count, low, high)
    cost = int(((count - low) * price).sum())
    if cost > left:  # rounding up of whole counts went past the money
        return 0
    cells.count = count
    return cost


def _rates(needs: Array, price: Counts, p: float) -> Array:
    """Give the real plan's counts up to a factor: a_k^q sqrt(v_kj/c_kj) / sqrt(a_k)."""
    a = np.sqrt(needs * price).sum(axis=1) ** 2
    share, _ = shares(a, p)
    rate: Array = np.sqrt(needs / price) * (share / np.sqrt(np.where(a > 0, a, 1)))[:, None]
    return rate


def _spend_rest(cells: _Cells, p: float, left: int) -> None:
    """Spend what is left on single calls, those first that lower the error most for their price.

    In rounds of at most one call a cell, for the maximum norm one an item: sorting once a round
    costs less than a heap.
    """
    price, count, most = cells.price.ravel(), cells.count.ravel(), cells.most.ravel()
    n_columns = cells.count.shape[1]
    while left > 0:
        before = cells.variance()
        gain = _gains(before, cells.variance_with_one_more(before), p) / cells.price
        worth = gain.ravel()
        may = (worth > 0) & (price <= left) & (count < most)
        if np.isinf(p):
            best = np.where(may.reshape(gain.shape), gain, -1).argmax(axis=1)
            is_best = np.zeros_like(may)
            is_best[np.arange(len(best)) * n_columns + best] = True
            may &= is_best
            worth = np.repeat(before, n_columns)
        at = np.flatnonzero(may)
        if not len(at):
            return
        at = at[np.argsort(-worth[at], kind="stable")]
        if cells.eta2 is not None or np.isinf(p):
            # The order changes with every call: not more than the better half at a time.
            at = at[: max(1, len(at) // 2)]
        # While there is money for many such rounds, several calls at once.
        step = max(1, left // (_ROUNDS_AHEAD * int(price[at].sum())))
        more = np.minimum(step, most[at] - count[at])
        spent = np.cumsum(price[at] * more)
        n = int(np.searchsorted(spent, left, side="right"))
        count[at[:n]] += more[:n]
        cells.count = count.reshape(gain.shape)
        left -= int(spent[n - 1])


_ROUNDS_AHEAD = 16


def _gains(before: Array, after: Array, p: float) -> Array:
    """Give by how much one more call lowers Σ V^{p/2}, up to a factor; for the maximum norm V."""
    top = float(before.max())
    if top == 0:
        return np.zeros_like(after)
    if np.isinf(p):
        return np.asarray(before[:, None] - after)
    gains = (before[:, None] / top) ** (p / 2) - (np.maximum(after, 0) / top) ** (p / 2)
    return np.asarray(gains)


def judge_shares(money: Counts, names: Sequence[str]) -> dict[str, float]:
    """Give each judge's share of the money of a plan, (K, J)."""
    by_judge = money.sum(axis=0)
    return dict(zip(names, (by_judge / max(int(by_judge.sum()), 1)).tolist(), strict=True))
