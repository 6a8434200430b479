"""The bars of order effects, with fixed seeds: measured beside what others print.

Bands hold three Monte-Carlo errors already. `published` is [LD26], `reference` another program.
"""

import numpy as np
import pytest

from orchestrator.experiments import order_groups, order_leaderboard, predictive_check
from orchestrator.experiments.fanout import open_executor
from orchestrator.experiments.figures import written
from orchestrator.experiments.order_groups import LOOKS, Study


@pytest.fixture(scope="module")
def executor():
    """Two processes; the matrices are small, so that threads over one of them only cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        with open_executor(2) as processes:
            yield processes


@pytest.fixture
def table(measured):
    """Index figures by what and batches, and write down those that others have, or that are named."""

    def index(figures, bar, *also):
        for name, what in dict.fromkeys((each.table, each.what) for each in figures):
            row = [each for each in figures if (each.table, each.what) == (name, what)]
            others = {
                whose: ", ".join(getattr(each, whose) or "-" for each in row)
                for whose in ("published", "reference")
                if any(getattr(each, whose) for each in row)
            }
            if others or what in also:
                beside = "; ".join(f"{whose} {found}" for whose, found in others.items())
                batches = ", ".join(str(each.n) for each in row)
                title = f"{bar} {name}: {what}, N = {batches}" + (f" ({beside})" if beside else "")
                measured(title, ", ".join(map(written, row)))
        return {(each.what, each.n): each.value for each in figures}

    return index


def within(value, low, high):
    assert low <= value <= high


def test_the_fit_keeps_its_error_rate_where_averaging_does_not(executor, table):
    """Bar D1 in short: 100 replicates."""
    study = Study(looks=(30, 150), resamples=0, n_reps=100)
    found = table(order_groups.error_rates(study, order_groups.run(study, executor)), "D1 short")
    assert found["GLMM Wald rejects, %", 30] <= 12
    assert found["GLMM Wald rejects, %", 150] <= 12
    assert found["naive rejects, %", 150] >= 40


def test_williams_gains_where_slots_differ_and_nowhere_else(executor, table):
    """Bar D3: the share of 100,000 replicates in which averaging puts the best of six first."""
    figures = order_leaderboard.run(order_leaderboard.Study(n_fits=0), executor)
    gains = [figure for figure in figures if figure.what == "naive gain, points"]
    for world in ("flat", "uneven"):
        title = order_leaderboard.WORLDS[world][0]
        own = table([each for each in gains if each.table.endswith(title)], "D3")
        for n in (6, 12, 18):
            gain = own["naive gain, points", n]
            assert gain > 0.6 if world == "uneven" else abs(gain) < 0.8


def test_williams_takes_the_order_out_of_the_variance(executor, table):
    """Bar D3: variance of a difference of equal items, Williams to shuffled, 20,000 replicates."""
    figures = order_leaderboard.order_variance(20_000, 5, executor)
    for title, low, high in (
        ("two of six equal items, slots alike", 0.98, 1.02),
        ("two of six equal items, slots differ", 0.82, 0.89),
    ):
        own = table([each for each in figures if each.table == title], "D3", "williams / shuffle")
        # The exact ratio is what the simulated one tends to; it must lie in the band itself.
        within(own["williams / shuffle", 6], low, high)
        simulated = next(
            each
            for each in figures
            if each.table == title and each.what == "williams / shuffle, simulated"
        )
        within(simulated.value, low - 3 * simulated.se, high + 3 * simulated.se)


# --- in full -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def null(executor):
    """The reference program's replicates: seeds 11 and 12, 500 of each."""
    studies = [Study(n_reps=500, seed=seed) for seed in (11, 12)]
    parts = [order_groups.run(study, executor) for study in studies]
    seen = order_groups.Seen(*(np.concatenate(pair) for pair in zip(*parts, strict=True)))
    return Study(n_reps=1000), seen


@pytest.mark.slow
def test_error_rates_without_a_difference(null, table):
    """Bar D1: 1,000 replicates."""
    study, seen = null
    found = table(order_groups.error_rates(study, seen), "D1")
    rejects = [found["naive rejects, %", n] for n in LOOKS]
    within(rejects[0], 12, 22)
    within(rejects[-1], 49, 62)
    assert np.all(np.diff(rejects) > 0)
    assert found["naive picks A, %", 150] >= 94
    for n in LOOKS:
        within(found["GLMM Wald rejects, %", n], 2.5, 8)
    assert abs(found["GLMM contrast, logits", 30]) < 0.05
    assert abs(found["GLMM contrast, logits", 150]) < 0.02
    for n in LOOKS[1:]:
        within(found["GLMM SE / SD", n], 0.9, 1.1)


@pytest.mark.slow
def test_looking_along_the_way_needs_its_bounds(null, table):
    """Bar D5: the same replicates, at five looks."""
    found = table(order_groups.peeking(*null), "D5", "GLMM, O'Brien-Fleming, cut early, %")
    within(found["GLMM, O'Brien-Fleming, %", 150], 2, 7)
    within(found["GLMM, 1.96 at each look, %", 150], 10, 19)
    assert found["GLMM, confidence sequence, %", 150] <= 3
    assert found["GLMM, O'Brien-Fleming, cut early, %", 150] <= 5 + 3 * 0.69
    assert found["naive, O'Brien-Fleming, %", 150] > 40


@pytest.mark.slow
def test_power_where_groups_differ(executor, table):
    """Bar D2: 300 replicates, and how the three tests compare."""
    study = Study(world="gap", n_reps=300, seed=21)
    found = table(order_groups.error_rates(study, order_groups.run(study, executor)), "D2")
    assert found["GLMM picks A, %", 30] >= 98
    assert found["GLMM Wald rejects, %", 90] >= 99
    powers = [
        found[f"{method} rejects, %", 30] for method in ("naive", "GLMM Wald", "GLMM bootstrap")
    ]
    assert max(powers) - min(powers) <= 8
    for power in powers:
        within(power, 70, 90)


@pytest.mark.slow
def test_deep_memory(executor, table):
    """Bar D4: 500 replicates of a judge that remembers three verdicts, fits of one lag and of three."""
    study = Study(world="deep_memory", lags=(1, 3), n_reps=500, seed=31)
    lag3 = "lag-3 GLMM Wald rejects, %"
    found = table(order_groups.error_rates(study, order_groups.run(study, executor)), "D4", lag3)
    within(found["naive rejects, %", 150], 60, 76)
    for n in LOOKS:
        within(found["lag-1 GLMM Wald rejects, %", n], 2.5, 8.5)
        within(found[lag3, n], 2.5, 8.5)


@pytest.mark.slow
def test_a_panel_drawn_anew_wants_the_test_over_items(executor, table):
    """C39 for claims about items like these: 1,000 replicates, at fixed ends and along the way."""
    study = Study(inference="items", n_reps=1000)
    seen = order_groups.run(study, executor)
    wald, welch = "GLMM Wald rejects, %", "GLMM Welch rejects, %"
    found = table(order_groups.error_rates(study, seen), "A/A,", wald, welch)
    for n in LOOKS:
        assert found[welch, n] <= 5 + 3 * 0.69
    assert found[wald, 60] > 30
    plan, cut = "GLMM, O'Brien-Fleming, %", "GLMM, O'Brien-Fleming, cut early, %"
    watched = table(order_groups.peeking(study, seen), "A/A,", plan, cut)
    assert watched[plan, 150] <= 5 + 3 * 0.69
    assert watched[cut, 150] <= 5 + 3 * 0.69


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_items", "design", "n_reps"), [(6, "shuffle", 500), (30, "williams", 500)], ids=str
)
def test_other_pools_and_orders_keep_the_error_rate(n_items, design, n_reps, executor, table):
    """The null with a small pool, and in Williams blocks."""
    study = Study(n_items=n_items, design=design, n_reps=n_reps)
    wald, naive = "GLMM Wald rejects, %", "naive rejects, %"
    found = table(
        order_groups.error_rates(study, order_groups.run(study, executor)), "D1", wald, naive
    )
    for n in LOOKS[1:]:
        within(found[wald, n], 2, 8.5)


@pytest.mark.slow
def test_fits_of_leaderboards_find_their_maximum(executor, table):
    """300 replicates of a cell; the reference program's fits all converge."""
    study = order_leaderboard.Study(n_reps=1000, n_fits=300)
    figures = order_leaderboard.run(study, executor)
    table([each for each in figures if each.what.startswith("lag")], "leaderboard")
    assert not [each.what for each in figures if "without a maximum" in each.what]


@pytest.mark.slow
def test_a_right_model_is_covered_by_propagated_bounds(executor, table):
    """Bar D6: 40 data sets."""
    found = table(predictive_check.run(40, 200, 7, executor), "D6")
    for part in ("joint", "entropy"):
        within(found[f"{part}, propagated, %", 80], 87, 99)
        assert found[f"{part}, frozen, %", 80] < found[f"{part}, propagated, %", 80]
