"""Orders by a column: what chance each item had at its place."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from estimators.benchmark_order import draw_chances, item_orders
from orchestrator.core.seeds import Seeds
from orchestrator.testing.policies import small_study


def study(promise, *, n_arms=1, seed=0, **frame):
    promise = np.asarray(promise, dtype=float)
    of = small_study(n_items=len(promise) // n_arms, n_arms=n_arms, seed=seed, **frame)
    return replace(of, covariates={"promise": promise})


def chance_of(order, promise, *, floor=0.5):
    """The chance of a whole order, and each place's chance and least, by the rule as it is written."""
    left, product, rows = list(range(len(promise))), 1.0, []
    for item in order:
        total = sum(promise[i] for i in left)
        chances = {i: floor / len(left) + (1 - floor) * promise[i] / total for i in left}
        assert sum(chances.values()) == pytest.approx(1)
        rows.append((chances[item], min(chances.values())))
        product *= chances[item]
        left.remove(item)
    return product, rows


def test_orders_come_as_often_as_their_chances_say():
    """All 24 orders of four items, over many seeds."""
    promise, n_runs = [1.0, 2.0, 5.0, 0.1], 6000
    of = study(promise)
    seen = Counter(
        tuple(item_orders(replace(of, seeds=Seeds(s)), "simple", None, "promise")[0].tolist())
        for s in range(n_runs)
    )
    expected = {order: chance_of(order, promise)[0] for order in permutations(range(4))}
    assert sum(expected.values()) == pytest.approx(1)
    for order, chance in expected.items():
        error = np.sqrt(n_runs * chance * (1 - chance))
        assert abs(seen[order] - n_runs * chance) < 4 * error


def test_chances_are_those_of_what_is_left():
    """Written out item by item; none is below half of an even one."""
    rng = np.random.default_rng(1)
    promise = np.exp(3 * rng.normal(size=60))
    of = study(promise)
    orders = item_orders(of, "simple", None, "promise")
    found = draw_chances(of, orders, "promise")
    _, rows = chance_of(orders[0].tolist(), promise)
    assert np.stack((found.own[0], found.least[0]), axis=1) == pytest.approx(np.array(rows))
    assert (found.least[0] * np.arange(60, 0, -1) >= 0.5).all()
    assert found.own[0, -1] == found.least[0, -1] == 1.0


def test_promising_items_come_first():
    promise = np.where(np.arange(1000) % 2, 9.0, 1.0)
    order = item_orders(study(promise), "simple", None, "promise")[0]
    assert (order[:200] % 2).mean() == pytest.approx((0.5 + 0.9) / 2, abs=0.1)
    assert sorted(order) == [*range(1000)]


def test_numbers_of_any_size_can_be_drawn_by():
    """The largest and the smallest that there are, and their sums, lose nobody."""
    promise = np.array([1e308, 1e308, 5e-324, 1.0, 1e-300])
    of = study(promise)
    orders = item_orders(of, "simple", None, "promise")
    own, least = draw_chances(of, orders, "promise")
    assert sorted(orders[0]) == [*range(5)]
    assert np.isfinite(own).all()
    assert (least * np.arange(5, 0, -1) >= 0.5).all()


def test_paired_arms_have_one_order_and_others_their_own():
    promise = np.repeat(np.random.default_rng(2).random(30) + 0.1, 2)
    of = study(promise, n_arms=2)
    first, second = item_orders(of, "paired", None, "promise")
    assert (first == second).all()
    first, second = item_orders(of, "simple", None, "promise")
    assert (first != second).any()
    own, _ = draw_chances(of, np.stack((first, second)), "promise")
    assert own[0, 0] == pytest.approx(chance_of(first, promise[::2])[1][0][0])
    assert own[1, 0] == pytest.approx(chance_of(second, promise[::2])[1][0][0])


@pytest.mark.parametrize(
    ("design", "allocation", "promise", "message"),
    [
        ("stratified", "proportional", [1, 1, 1, 1], "draw_by: wants the design simple"),
        ("paired", "equal", [1, 1, 1, 1], "draw_by: wants the design simple"),
        ("paired", None, [1, 2, 1, 1], "draw_by: 'promise' differs between arms"),
        ("simple", None, [1, 0, 1, 1], "draw_by: 'promise' holds numbers that are not above 0"),
    ],
)
def test_what_can_not_be_drawn_by_is_refused(design, allocation, promise, message):
    with pytest.raises(ValueError, match=message):
        item_orders(study(promise, n_arms=2), design, allocation, "promise")


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="draw_by: the study has no numbers named 'x'"):
        item_orders(study([1, 1]), "simple", None, "x")
