"""Two-phase means: unbiased whatever the helpers, as precise as the formula, honest about it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from estimators.intervals import FEW, cluster_mean
from estimators.regression import two_phase_mean

LEVEL = 0.95


def fit(anchor, helpers, weight=None, cluster=None, **options):
    anchor, helpers = np.asarray(anchor, float), np.asarray(helpers, float)
    n = len(anchor)
    helpers = helpers.reshape(n, -1)
    weight = np.ones(n) if weight is None else np.asarray(weight, float)
    cluster = np.arange(n) if cluster is None else np.asarray(cluster)
    return two_phase_mean(anchor, helpers, weight, cluster, **options)


def anchored(y, places):
    """Keep the anchor's values at these places alone."""
    kept = np.full(len(y), np.nan)
    kept[places] = y[places]
    return kept


def covers(found, truth):
    half = stdtrit(found.df, (1 + LEVEL) / 2) * np.sqrt(found.variance)
    return abs(found.value - truth) <= half


# --- the value ---------------------------------------------------------------------------------


def test_it_is_unbiased_over_all_ways_to_draw_the_parts():
    """Eight of nine items are anchored in two folds: over all ways to deal them the mean is exact.

    Slopes that are fitted to the items they correct would miss it, and do.
    """
    rng = np.random.default_rng(0)
    y = rng.exponential(size=9)
    h = np.exp(y) + rng.normal(size=9)
    values, leaky = [], []
    for first in combinations(range(9), 4):
        for second in combinations([i for i in range(9) if i not in first], 4):
            (last,) = set(range(9)) - {*first, *second}
            # Clusters are dealt to the folds in turn.
            order = [*(i for pair in zip(first, second, strict=True) for i in pair), last]
            found = fit(anchored(y[order], range(8)), h[order], folds=2)
            values.append(found.value)
            slope = np.polyfit(h[order[:8]], y[order[:8]], 1)[0]
            leaky.append(y[order[:8]].mean() - slope * (h[order[:8]].mean() - h.mean()))
    assert len(values) == 630
    assert np.std(values) > 0.01
    assert np.mean(values) == pytest.approx(y.mean(), abs=1e-10)
    assert abs(np.mean(leaky) - y.mean()) > 1e-4


def by_the_book(y, h, n, folds):
    """Mean of the predictions over all, plus mean of what they leave over the first n."""
    h = h - h.mean(axis=0)
    fold = np.arange(n) % folds
    left, predictions = np.empty(n), 0
    for k in range(folds):
        train = np.flatnonzero(fold != k)
        x = np.column_stack((np.ones(len(train)), h[train]))
        b = np.linalg.lstsq(x, y[train], rcond=None)[0]
        m, rest = h.shape[1], y[train] - x @ b
        explained = ((x @ b - y[train].mean()) ** 2).sum()
        f_statistic = (explained / m) / ((rest**2).sum() / (len(train) - m - 1))
        slopes = b[1:] * max(0, 1 - 1 / f_statistic)
        mine = np.flatnonzero(fold == k)
        left[mine] = y[mine] - h[mine] @ slopes
        predictions = predictions + h @ slopes * len(mine) / n
    f_own = y[:n] - left
    rest = predictions[n:]
    k = (len(h) - n) / len(h)
    value = left.mean() + (n * f_own.mean() + len(rest) * rest.mean()) / len(h)
    variance = np.var(y[:n] - k * f_own, ddof=1) / n + k**2 * np.var(rest, ddof=1) / len(rest)
    return value, variance


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(16, 60),
    more=st.integers(2, 200),
    m=st.integers(1, 3),
    folds=st.integers(2, 7),
)
@settings(max_examples=25)
def test_it_agrees_with_the_formula_written_out(seed, n, more, m, folds):
    """A second route to value and variance: plain least squares, fold by fold, with intercepts."""
    rng = np.random.default_rng(seed)
    h = rng.normal(3, 2, (n + more, m))
    y = h @ rng.normal(size=m) + rng.normal(size=n + more)
    found = fit(anchored(y, range(n)), h, folds=folds)
    value, variance = by_the_book(y, h, n, folds)
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.variance == pytest.approx(variance, rel=1e-9)


@given(
    seed=st.integers(0, 10**6),
    shift=st.floats(-100, 100),
    scale=st.floats(0.1, 10),
    n_missing=st.integers(0, 20),
)
@settings(max_examples=25)
def test_the_helpers_scale_does_not_matter(seed, shift, scale, n_missing):
    """Helpers may be biased and use the scale otherwise; what is shifted in the anchor shifts."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=120)
    h = y[:, None] + rng.normal(size=(120, 2))
    h.ravel()[rng.permutation(240)[:n_missing]] = np.nan
    one = fit(anchored(y, range(40)), h)
    other = fit(anchored(y + 5, range(40)), shift - scale * h)
    assert other.value == pytest.approx(one.value + 5, abs=1e-7)
    assert other.variance == pytest.approx(one.variance, rel=1e-6)
    assert other.slopes == pytest.approx(-one.slopes / scale, rel=1e-5, abs=1e-9)


def test_without_something_to_gain_it_is_the_anchor_alone():
    """No helper, no item beyond the anchored ones, or helpers of these alone: equal to the bit."""
    rng = np.random.default_rng(1)
    y, h = rng.normal(size=80), rng.normal(size=(80, 2))
    weight, cluster = rng.uniform(1, 2, 80), np.arange(80) // 2
    alone = cluster_mean(y, weight, cluster)
    twice = np.concatenate((y, np.full(80, np.nan)))
    pilot = np.concatenate((h, np.full((80, 2), np.nan)))
    for found in (
        two_phase_mean(y, h, weight, cluster),
        two_phase_mean(y, np.empty((80, 0)), weight, cluster),
        two_phase_mean(twice, pilot, np.tile(weight, 2), np.concatenate((cluster, cluster + 40))),
    ):
        assert (found.value, found.variance, found.df) == (alone.mean, alone.variance, alone.df)
        assert not found.uses_helpers
        assert found.n_items == found.n_anchored == 80


def test_a_helper_of_the_pilot_alone_changes_nothing():
    """One that was tried and not chosen stands beside the chosen one without harm."""
    rng = np.random.default_rng(2)
    y = rng.normal(size=400)
    chosen = y + rng.normal(size=400)
    tried = np.where(np.arange(400) < 60, y + 0.1 * rng.normal(size=400), np.nan)
    places = [*range(60), *range(60, 400, 5)]
    one = fit(anchored(y, places), chosen)
    both = fit(anchored(y, places), np.column_stack((chosen, tried)))
    assert both.value == pytest.approx(one.value, abs=1e-12)
    assert both.variance == pytest.approx(one.variance, rel=1e-12)
    assert both.slopes[1] == 0


def test_what_says_nothing_new_does_no_harm():
    """A copy of a helper and a constant one leave value and variance as they are, nearly."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=300)
    h = y + rng.normal(size=300)
    one = fit(anchored(y, range(100)), h)
    more = fit(anchored(y, range(100)), np.column_stack((h, h, np.full(300, 7.0))))
    assert more.value == pytest.approx(one.value, abs=1e-9)
    assert more.variance == pytest.approx(one.variance, rel=1e-9)


def test_an_item_that_nobody_rated_is_passed_over():
    rng = np.random.default_rng(4)
    y = rng.normal(size=90)
    h = y + rng.normal(size=90)
    h[80:] = np.nan
    found = fit(anchored(y, range(40)), h)
    assert found.value == fit(anchored(y, range(40))[:80], h[:80]).value
    assert (found.n_items, found.n_anchored) == (80, 40)


def test_weights_are_copies():
    """An item of weight 2 counts as two of weight 1 in its cluster."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=200)
    h = y + rng.normal(size=200)
    weight = rng.integers(1, 4, 200)
    copies = np.repeat(np.arange(200), weight)
    one = fit(anchored(y, range(60)), h, weight)
    many = fit(anchored(y, range(60))[copies], h[copies], cluster=copies)
    assert many.value == pytest.approx(one.value, abs=1e-12)
    assert many.variance == pytest.approx(one.variance, rel=1e-12)
    assert many.df == pytest.approx(one.df)


def test_no_anchored_item_is_an_error():
    with pytest.raises(ValueError, match="the anchor rated none"):
        fit([np.nan] * 3, [1, 2, 3])


def test_few_anchored_clusters_are_said_to_be_thin():
    """Below 20 clusters that carry weight the caller takes the anchor's own mean and its interval."""
    rng = np.random.default_rng(6)
    y = rng.normal(size=200)
    h = y + rng.normal(size=200)
    assert fit(anchored(y, range(FEW - 1)), h).is_thin(10)
    assert not fit(anchored(y, range(FEW)), h).is_thin(10)
    heavy = np.where(np.arange(200) == 0, 1000.0, 1.0)
    assert fit(anchored(y, range(60)), h, heavy).is_thin(10)
    assert fit(anchored(np.ones(200), range(60)), h).is_thin(10)
    assert fit(anchored(y, range(60)), y).is_thin(10) is False


# --- its variance ------------------------------------------------------------------------------


def simulate(draw, n_runs, seed=0):
    """Draw and fit; give errors, variances, the anchor's own variances, and coverage."""
    rng = np.random.default_rng(seed)
    found = [(draw(rng)) for _ in range(n_runs)]
    errors = np.array([f.value - truth for f, truth in found])
    hits = np.array([covers(f, truth) for f, truth in found])
    variances = np.array([f.variance for f, _ in found])
    alone = np.array([f.alone.variance for f, _ in found])
    return errors, variances, alone, hits.mean()


def normal(n, n_items, rho):
    def draw(rng):
        y = rng.normal(size=n_items)
        h = rho * y + np.sqrt(1 - rho**2) * rng.normal(size=n_items)
        return fit(anchored(y, range(n)), h), 0.0

    return draw


SIZES = [400, pytest.param(4000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("n_runs", SIZES)
@pytest.mark.parametrize(("n", "n_items", "rho"), [(60, 600, 0.8), (100, 400, 0.5), (60, 80, 0.9)])
def test_the_variance_is_that_of_two_phase_regression(n, n_items, rho, n_runs, measured):
    """Bivariate normal scores: S² ((1 - R²)/n + R²/n'), in the errors and in what is reported."""
    errors, variances, _, _ = simulate(normal(n, n_items, rho), n_runs)
    theory = (1 - rho**2) / n + rho**2 / n_items
    # Slopes are estimated, which the formula leaves out: a part of 1/n.
    slack = 1.5 / n + 4 * np.sqrt(2 / n_runs)
    assert np.var(errors) == pytest.approx(theory, rel=slack)
    assert np.mean(variances) == pytest.approx(theory, rel=1.5 / n + 4 * 0.3 / np.sqrt(n_runs))
    measured(
        f"two-phase mean: variance over theory, n {n} of {n_items}, R {rho}, {n_runs} runs",
        f"{np.var(errors) / theory:.3f} ± {np.sqrt(2 / n_runs):.3f}",
    )


def helpless(rng):
    """Three helpers that say nothing."""
    y = rng.normal(size=200)
    return fit(anchored(y, range(30)), rng.normal(size=(200, 3))), 0.0


@pytest.mark.parametrize("n_runs", SIZES)
def test_helpers_that_say_nothing_cost_little(n_runs, measured):
    """The shrinkage keeps the loss against the anchor alone within a few per cent at 30 items."""
    errors, variances, alone, _ = simulate(helpless, n_runs)
    ratio = np.mean(errors**2) * 30
    measured(f"two-phase mean: three useless helpers, n 30, {n_runs} runs", f"{ratio:.3f}")
    assert ratio < 1.08 + 4 * np.sqrt(2 / n_runs)
    assert np.mean(variances) < 1.1 * np.mean(alone)


def in_clusters(rng):
    """Clusters of four items; the anchored items are drawn across them."""
    y = 0.7 * np.repeat(rng.normal(size=150), 4) + 0.7 * rng.normal(size=600)
    h = y + 0.7 * rng.normal(size=600)
    places = rng.permutation(600)[:120]
    return fit(anchored(y, places), h, cluster=np.arange(600) // 4), 0.0


def few_heavy_clusters_outside(rng):
    """The items without an anchor stand in a few large clusters of unequal weight."""
    cluster = np.concatenate((np.arange(80), 80 + np.repeat(np.arange(6), 50)))
    y = 0.7 * rng.normal(size=86)[cluster] + 0.7 * rng.normal(size=380)
    weight = np.where(cluster < 83, 1.0, 2.0)
    return fit(anchored(y, range(80)), y + 0.5 * rng.normal(size=380), weight, cluster), 0.0


def several_helpers(rng):
    y = rng.normal(size=300)
    h = y[:, None] * [0.8, 0.5, 0.0] + rng.normal(size=(300, 3)) * [0.6, 0.9, 1]
    return fit(anchored(y, range(30)), h), 0.0


def a_helper_lost_on_the_way(rng):
    """A pilot in which all is anchored, then one in five; the first helper ends after half."""
    y = rng.normal(size=500)
    h = y[:, None] + rng.normal(size=(500, 2)) * [0.5, 0.8]
    h[250:, 0] = np.nan
    return fit(anchored(y, [*range(60), *range(60, 500, 5)]), h), 0.0


def helpers_that_refuse_bad_answers(rng):
    """A helper gives no verdict on two in three of the worst items: no item is lost for it."""
    y = rng.normal(size=500)
    h = y + 0.5 * rng.normal(size=500)
    h[(y < -0.8) & (rng.random(500) < 0.67)] = np.nan
    return fit(anchored(y, range(100)), h), 0.0


CASES = [
    normal(20, 200, 0.8),
    normal(60, 600, 0.8),
    in_clusters,
    few_heavy_clusters_outside,
    several_helpers,
    a_helper_lost_on_the_way,
    helpers_that_refuse_bad_answers,
]


@pytest.mark.parametrize("n_runs", SIZES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__qualname__.split(".")[0])
def test_intervals_hold_and_values_are_unbiased(case, n_runs, measured):
    """Bias within 4 and coverage within 3 Monte-Carlo errors; variances are those of the errors."""
    errors, variances, _, hits = simulate(case, n_runs, seed=1)
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(n_runs)
    name = case.__qualname__.split(".")[0]
    measured(f"two-phase mean: coverage {LEVEL}, {name}, {n_runs} runs", f"{hits:.4f}")
    assert hits >= LEVEL - 3 * np.sqrt(LEVEL * (1 - LEVEL) / n_runs) - 0.005
    assert np.mean(variances) == pytest.approx(np.var(errors), rel=0.06 + 4 * np.sqrt(2 / n_runs))


def test_leaving_out_the_helpers_part_would_be_found():
    """The control: the residuals' variance alone, as if the helpers' mean were known, covers too
    seldom where few items are added."""
    rng = np.random.default_rng(3)
    draw, hits = normal(60, 120, 0.9), 0
    for _ in range(400):
        found, truth = draw(rng)
        r2 = 0.81
        half = 1.96 * np.sqrt(found.alone.variance * (1 - r2))
        hits += abs(found.value - truth) <= half
    assert hits / 400 < 0.85


def test_dropping_items_that_a_helper_refuses_would_be_found():
    """The control: the mean over what helpers answer is another one."""
    rng = np.random.default_rng(4)
    means = []
    for _ in range(200):
        y = rng.normal(size=500)
        kept = (y > -0.8) | (rng.random(500) > 0.67)
        means.append(y[:100][kept[:100]].mean())
    assert np.mean(means) > 0.1


def test_the_order_of_items_matters_only_through_the_folds():
    """Value and variance follow from cluster numbers, not from the order of the arrays."""
    rng = np.random.default_rng(7)
    y = rng.normal(size=60)
    h, cluster = y + rng.normal(size=60), np.arange(60) // 2
    anchor = anchored(y, range(0, 60, 3))
    one = fit(anchor, h, cluster=cluster)
    for order in (range(59, -1, -1), rng.permutation(60)):
        places = list(order)
        other = fit(anchor[places], h[places], cluster=cluster[places])
        assert other.value == pytest.approx(one.value, abs=1e-12)
        assert other.variance == pytest.approx(one.variance, rel=1e-12)
