"""Designs and ratings of replicates, beside a plain loop and the numbers of a program by others."""

import random  # noqa: TID251  # the plain loop draws with it
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.experiments import ordering
from orchestrator.experiments.ordering import (
    deep_memory,
    flat,
    gap,
    group_differences,
    in_chunks,
    naive_means,
    naive_z,
    normal_grid,
    null,
    orders,
    simulate,
    slot_profile,
    top_share,
    uneven,
)
from policies.layouts.balance import verify

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "ordering.py"


def drawn(world, layout="shuffle", *, seed=0, **sizes):
    return simulate(world, layout, rng=np.random.default_rng(seed), **sizes)


# Worlds


def test_panels_have_the_stated_moments():
    """Within a group exactly the stated mean and SD, and no skew."""
    for world, spread, difference in ((null(), (1.2, 0.4), 0.0), (gap(), (0.8, 0.8), 0.45)):
        first, second = world.theta[: world.n_first], world.theta[world.n_first :]
        assert (len(first), len(second)) == (15, 15)
        assert (first.std(), second.std()) == pytest.approx(spread)
        assert second.mean() == pytest.approx(-0.65)
        assert first.mean() - second.mean() == pytest.approx(difference)
    assert (normal_grid(15) ** 3).mean() == pytest.approx(0, abs=1e-12)
    assert deep_memory(6).n_first == 3
    assert (deep_memory().theta == null().theta).all()


@pytest.mark.parametrize(
    ("world", "profile"),
    [
        (flat(), (0.543, 0.551, 0.548, 0.551, 0.549, 0.549)),
        (uneven(), (0.807, 0.256, 0.386, 0.357, 0.362, 0.361)),
    ],
    ids=["flat", "uneven"],
)
def test_equal_items_are_accepted_by_slot_as_expected(world, profile):
    equal = replace(world, theta=np.full(6, world.theta.mean()))
    ratings = drawn(equal, n_batches=20, n_replicates=10_000)
    tolerance = 4 * 0.5 / np.sqrt(200_000) + 0.0005  # of sampling, and of the last digit
    assert slot_profile(ratings).mean(axis=0) == pytest.approx(profile, abs=tolerance)


# Designs


def test_each_replicate_has_whole_williams_blocks_and_a_shuffled_rest():
    rows = orders("williams", 6, 14, 50, np.random.default_rng(0))
    assert rows.shape == (50, 14, 6)
    for replicate in rows:
        assert verify(replicate[:6]).is_even
        assert verify(replicate[6:12]).is_even
    assert (np.sort(rows, axis=-1) == np.arange(6)).all()
    assert len({replicate.tobytes() for replicate in rows}) == 50
    assert len(np.unique(rows[:, 12:].reshape(-1, 6), axis=0)) > 80


def test_an_odd_number_of_items_needs_two_rows_an_item():
    rows = orders("williams", 5, 12, 3, np.random.default_rng(0))
    for replicate in rows:
        assert verify(replicate[:10]).is_even


def test_fixed_designs_show_one_order():
    assert (orders("fixed", 5, 4, 3, np.random.default_rng(0)) == np.arange(5)).all()


# Ratings


@pytest.mark.parametrize("name", ["null", "deep_memory", "uneven"])
def test_a_plain_loop_draws_alike(name):
    """Shares by slot, by item and of equal neighbours agree within four standard errors."""
    plainly = runpy.run_path(str(BENCHMARK))["plainly"]
    world = getattr(ordering, name)() if name == "uneven" else getattr(ordering, name)(6)
    n_plain, n_batches = 150, 20
    rng = random.Random(1)
    loop = [
        statistics(np.array(plainly(world, n_batches, rng)).transpose(2, 0, 1))
        for _ in range(n_plain)
    ]
    ratings = drawn(world, n_batches=n_batches, n_replicates=2000)
    ours = [statistics(pair) for pair in zip(ratings.order, ratings.accepted, strict=True)]
    loop, ours = np.array(loop), np.array(ours)
    se = np.sqrt(loop.var(axis=0) / n_plain + ours.var(axis=0) / len(ours))
    assert (np.abs(loop.mean(axis=0) - ours.mean(axis=0)) < 4 * se).all()


def statistics(replicate):
    """Give the shares of a replicate: by slot, by item, of like verdicts one to three slots apart."""
    order, accepted = replicate
    by_item = [accepted[order == item].mean() for item in range(order.shape[-1])]
    alike = [(accepted[:, k:] == accepted[:, :-k]).mean() for k in (1, 2, 3)]
    return [*accepted.mean(axis=0), *by_item, *alike]


def test_means_and_differences_are_those_of_a_plain_loop():
    ratings = drawn(null(6), n_batches=7, n_replicates=3)
    means, differences = naive_means(ratings), group_differences(ratings, 3)
    for r in range(3):
        order, accepted = ratings.order[r], ratings.accepted[r]
        for item in range(6):
            assert means[r, item] == pytest.approx(accepted[order == item].mean())
        for t in range(7):
            is_first = order[t] < 3
            difference = accepted[t][is_first].mean() - accepted[t][~is_first].mean()
            assert differences[r, t] == pytest.approx(difference)
        z = differences[r].mean() / (differences[r].std(ddof=1) / np.sqrt(7))
        assert naive_z(differences)[r] == pytest.approx(z)


def test_without_spread_there_is_no_z():
    assert np.isnan(naive_z(np.array([[0.5, 0.5, 0.5]]))).all()


def test_ties_for_the_top_are_drawn_by_lot():
    means = np.array([[0.5, 0.5, 0.2], [0.5, 0.6, 0.6], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert top_share(means, 0).tolist() == [0.5, 0.0, 1.0, pytest.approx(1 / 3)]


def test_a_look_is_a_prefix():
    ratings = drawn(null(6), n_batches=9, n_replicates=2)
    look = ratings.first(4)
    assert (look.order == ratings.order[:, :4]).all()
    assert (look.accepted == ratings.accepted[:, :4]).all()


def test_chunks_are_all_replicates():
    sizes = [
        len(part.order)
        for part in in_chunks(
            null(6),
            "shuffle",
            n_batches=2,
            n_replicates=11,
            rng=np.random.default_rng(0),
            chunk=4,
        )
    ]
    assert sizes == [4, 4, 3]


# What another program found


TOP_ONE = {
    ("flat", 6): (31.64, 31.87),
    ("uneven", 6): (29.71, 30.91),
    ("uneven", 12): (35.97, 37.74),
    ("uneven", 18): (40.70, 42.97),
}
"""Share of replicates in which averaging puts the best of six items first, percent, of 100,000:
shuffled, Williams."""


@pytest.mark.parametrize(("name", "n_batches"), TOP_ONE, ids=str)
def test_williams_helps_averaging_where_slots_differ(name, n_batches):
    """The other program's shares to the last digit: the same generator, the same draws."""
    world = getattr(ordering, name)()
    found = []
    for layout in ("shuffle", "williams"):
        rng = np.random.default_rng([5, n_batches, layout == "williams"])
        parts = in_chunks(world, layout, n_batches=n_batches, n_replicates=100_000, rng=rng)
        found.append(100 * np.mean([top_share(naive_means(part), 0).mean() for part in parts]))
    assert tuple(found) == pytest.approx(TOP_ONE[name, n_batches], abs=0.005)
    if name == "uneven":
        assert found[1] - found[0] > 0.6


@pytest.mark.parametrize(
    ("world", "low", "high"), [(flat(), 0.98, 1.02), (uneven(), 0.82, 0.89)], ids=["flat", "uneven"]
)
def test_williams_takes_the_order_out_of_a_difference(world, low, high):
    """Variance of a difference of two equal items, Williams to shuffled, after one block."""
    equal = replace(world, theta=np.full(6, world.theta.mean()))
    variances = []
    for layout in ("shuffle", "williams"):
        means = naive_means(drawn(equal, layout, seed=5, n_batches=6, n_replicates=60_000))
        variances.append((means[:, 0] - means[:, 1]).var())
    assert low < variances[1] / variances[0] < high


def test_averaging_takes_unequal_spread_for_a_difference():
    """The other program's shares of 1,000 replicates that find a difference where there is none."""
    looks = (30, 60, 90, 120, 150)
    z = []
    for seed in (11, 12):
        for replicate in range(500):
            rng = np.random.default_rng([seed, replicate])
            differences = group_differences(simulate(null(), "shuffle", n_batches=150, rng=rng), 15)
            z.append([naive_z(differences[:, :n])[0] for n in looks])
    z = np.array(z)
    assert (100 * (np.abs(z) > 1.96).mean(axis=0)).round(1).tolist() == [
        16.6,
        26.1,
        35.2,
        44.9,
        55.9,
    ]
    assert (100 * (z > 0).mean(axis=0)).round(1).tolist() == [78.6, 89.3, 94.4, 96.1, 97.2]
