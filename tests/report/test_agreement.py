"""Agreement and repeats, against published tables and sums written out in full."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from orchestrator.report.agreement import Verdicts, alpha, intraclass, with_others

NA = math.nan
# Four observers and twelve units of [K11], with gaps.
RELIABILITY = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NA, NA, NA],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NA, 3],
        [NA, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NA],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NA],
    ]
)


def numbered(values):
    return np.arange(values.shape[1])


def in_full(values, metric):
    """Krippendorff's alpha by its definition: all pairs within units, all pairs of values."""
    units = [[x for x in column if not math.isnan(x)] for column in values.T]
    units = [unit for unit in units if len(unit) > 1]
    pooled = [x for unit in units for x in unit]

    def distance(a, b):
        match metric:
            case "nominal":
                return float(a != b)
            case "interval":
                return (a - b) ** 2
            case _:
                low, high = sorted((a, b))
                between = sum(low <= x <= high for x in pooled)
                return (between - (pooled.count(low) + pooled.count(high)) / 2) ** 2 * (a != b)

    n = len(pooled)
    within = sum(sum(distance(a, b) for a, b in permutations(u, 2)) / (len(u) - 1) for u in units)
    whole = sum(distance(a, b) for a, b in permutations(pooled, 2))
    return 1 - (within / n) / (whole / (n * (n - 1)))


@pytest.mark.parametrize(
    ("metric", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_is_that_of_the_published_table(metric, published):
    """[K11] section C; the second witness is the definition, summed over all pairs."""
    found = alpha(RELIABILITY, metric, numbered(RELIABILITY))
    assert round(found.value, 3) == published
    assert found.value == pytest.approx(in_full(RELIABILITY, metric), abs=1e-12)
    assert found.lower < found.value < found.upper <= 1


@given(
    st.integers(2, 4).flatmap(
        lambda k: st.lists(
            st.lists(st.sampled_from([1.0, 2.0, 5.0, NA]), min_size=k, max_size=k),
            min_size=3,
            max_size=8,
        )
    ),
    st.sampled_from(["nominal", "ordinal", "interval"]),
)
def test_alpha_is_its_definition(rows, metric):
    values = np.array(rows).T
    found = alpha(values, metric, numbered(values))
    pooled = {x for column in values.T for x in column if np.isfinite(column).sum() > 1}
    if len({x for x in pooled if not math.isnan(x)}) < 2:
        assert math.isnan(found.value)
    else:
        assert found.value == pytest.approx(in_full(values, metric), abs=1e-9)


def test_the_interval_is_the_jackknife_by_item():
    """Written out: alpha without each item in turn, two arms of an item going together."""
    rng = np.random.default_rng(5)
    values = rng.normal(size=(3, 20)) + rng.normal(size=20)
    item = np.arange(20) // 2
    without = np.array([in_full(values[:, item != i], "interval") for i in range(10)])
    se = math.sqrt(9 / 10 * ((without - without.mean()) ** 2).sum())
    found = alpha(values, "interval", item)
    assert (found.upper - found.lower) / 2 == pytest.approx(stdtrit(9, 0.975) * se)


def test_perfect_agreement_has_no_interval_of_zero_width():
    """C37: no interval has zero width; where nothing varies its ends are not known."""
    values = np.array([[1.0, 2, 3, 4, 5]] * 2)
    found = alpha(values, "interval", numbered(values))
    assert found.value == 1.0
    assert math.isnan(found.lower)


@pytest.mark.parametrize(
    "values", [np.ones((2, 9)), np.array([[1.0, NA], [NA, 2.0]]), np.empty((2, 0))]
)
def test_without_shared_or_differing_verdicts_alpha_is_not_known(values):
    assert math.isnan(alpha(values, "ordinal", numbered(values)).value)


def test_judges_that_draw_lots_have_an_interval_that_holds_zero():
    """Statistical: of 300 panels of lots about 95 % (binomial, four standard errors: 0.90)."""
    rng = np.random.default_rng(11)
    n_alpha = n_others = 0
    for _ in range(300):
        values = rng.integers(1, 6, (3, 50)).astype(float)
        found = alpha(values, "ordinal", numbered(values))
        n_alpha += found.lower <= 0 <= found.upper
        found, n = with_others(values, 0, numbered(values))
        n_others += found.lower <= 0 <= found.upper
        assert n == 50
    assert min(n_alpha, n_others) >= 0.90 * 300


def test_a_lenient_judge_agrees_with_the_others():
    """Its level takes nothing away: 2 cov/(sum of variances) by hand is 1, alpha is not."""
    values = np.array([[1.0, 2, 3, 4, 5, 3], [1.0, 2, 3, 4, 5, 4], [5.0, 6, 7, 8, 9, 7]])
    found, n = with_others(values, 2, numbered(values))
    x, y = values[2] - values[2].mean(), (values[0] + values[1]) / 2
    y = y - y.mean()
    assert found.value == pytest.approx(2 * (x @ y) / (x @ x + y @ y))
    assert (n, found.value > 0.95) == (6, True)
    assert alpha(values, "interval", numbered(values)).value < 0.3


def test_a_constant_judge_agrees_with_nobody():
    values = np.array([[1.0, 2, 3, 4], [3.0, 3, 3, 3]])
    found, _ = with_others(values, 1, numbered(values))
    assert found.value == pytest.approx(0)
    assert found.lower < 0 < found.upper


def test_a_judge_that_shares_no_unit_is_not_held_against_others():
    values = np.array([[1.0, 2, NA], [NA, NA, 3]])
    assert with_others(values, 0, numbered(values))[1] == 0


def told(rows):
    verdicts = Verdicts(len(rows))
    for unit, values in enumerate(rows):
        for value in values:
            verdicts.add(unit, float(value))
    return verdicts


def test_the_share_between_items_is_that_of_the_published_table():
    """[SF79] table 2: ICC(1, 1) is 0.17, its 95 % interval -0.13 to 0.72."""
    rows = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    variance, signal = told(rows).repeats()
    assert variance == pytest.approx(np.var(rows, axis=1, ddof=1).mean())
    assert [round(x, 2) for x in signal] == [0.17, -0.13, 0.72]


def test_without_repeats_nothing_is_known_of_them():
    variance, signal = told([[1], [2], [3]]).repeats()
    assert math.isnan(variance)
    assert math.isnan(signal.value)


def test_repeats_that_are_all_equal_have_no_interval():
    variance, signal = told([[1, 1], [4, 4], [2]]).repeats()
    assert (variance, signal.value) == (0.0, 1.0)
    assert math.isnan(signal.lower)


def test_unequal_numbers_of_repeats():
    """By hand: N = 5, k = 2, n0 = (5 - 13/5)/1, W = (0.5 + 2)/3, B = 2·(1.8)² + 3·(1.2)²."""
    variance, signal = told([[1, 2], [4, 4.5, 5]]).repeats()
    within = (0.5 + 0.5) / 3
    between = 2 * 1.8**2 + 3 * 1.2**2
    assert variance == pytest.approx(within)
    assert signal.value == pytest.approx((between - within) / (between + (2.4 - 1) * within))


def test_moments_of_repeats_are_those_of_numpy():
    rng = np.random.default_rng(3)
    rows = [rng.normal(3, 1, n) for n in (1, 4, 2)]
    verdicts = told([*rows, []])
    assert list(verdicts.n) == [1, 4, 2, 0]
    assert list(verdicts.firsts()[:3]) == [row[0] for row in rows]
    assert math.isnan(verdicts.firsts()[3])
    assert list(verdicts.mean)[:3] == pytest.approx([row.mean() for row in rows])
    assert list(verdicts.squares)[:3] == pytest.approx([np.var(row) * len(row) for row in rows])


def test_one_unit_says_nothing_of_items():
    assert math.isnan(intraclass(np.array([3.0]), np.array([2.0]), np.array([1.0]))[0])
