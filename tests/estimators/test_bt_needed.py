"""How many more comparisons: against the fit that has them, and against chance."""

import numpy as np
import pytest
from scipy.special import expit

from estimators.bt_inference import AtEnd, Watched, gaps, proved, watched
from estimators.bt_needed import needed_of_design, needed_of_pair

THETA = np.array([0.9, 0.5, 0.2, -1.6])
PAIRS = np.triu_indices(4, 1)


def information(counts):
    """Information of comparisons of each pair, (P,)."""
    x = np.zeros((len(counts), 4))
    x[range(len(counts)), PAIRS[0]], x[range(len(counts)), PAIRS[1]] = 1, -1
    p = expit(THETA[PAIRS[0]] - THETA[PAIRS[1]])
    return (x.T * (counts * p * (1 - p))) @ x


def cov_of(counts):
    return np.linalg.pinv(information(counts), rcond=1e-10)


SO_FAR = np.array([40.0, 30.0, 20.0, 60.0, 10.0, 25.0])
BOUNDS = [AtEnd(1.96), AtEnd(3.2), watched(6, planned_gap=0.3)]


def z_of(found, a, b):
    return abs(found.est[a, b]) / found.se[a, b]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("chance", [0.5, 0.8])
def test_a_pair_asked_so_often_is_just_proved(bound, chance):
    """With so many more, |gap| is beyond bound + z errors, and with one fewer it is not."""
    found = gaps(THETA, cov_of(SO_FAR))
    needed = needed_of_pair(THETA, found, bound, chance=chance)
    above = proved(found, bound)
    z = {0.5: 0.0, 0.8: 0.8416}[chance]
    assert (needed[above | above.T] == 0).all()
    assert needed == pytest.approx(needed.T, nan_ok=True)
    for k, (a, b) in enumerate(zip(*PAIRS, strict=True)):
        if needed[a, b] == 0:
            continue
        for n, is_proved in ((needed[a, b], True), (needed[a, b] - 1, False)):
            then = gaps(THETA, cov_of(SO_FAR + n * (np.arange(6) == k)))
            margin = z_of(then, a, b) - float(bound.of(then.se[a, b])) - z
            assert (margin >= -1e-7) == is_proved


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("shares", [None, [3.0, 1.0, 1.0, 0.5, 2.0, 1.0]])
def test_a_design_asked_so_often_has_just_proved_each_gap(bound, shares):
    design = None
    share = np.ones(6) if shares is None else np.array(shares)
    if shares is not None:
        design = np.zeros((4, 4))
        design[PAIRS] = share
        design += design.T
    cov = cov_of(SO_FAR)
    found = gaps(THETA, cov)
    needed = needed_of_design(THETA, cov, found, bound, design=design, chance=0.5)
    above = proved(found, bound)
    assert ((needed == 0) == (above | above.T)).all()
    for a, b in zip(*PAIRS, strict=True):
        for n, is_proved in ((needed[a, b], True), (needed[a, b] - 1, False)):
            if n > 0:
                then = gaps(THETA, cov_of(SO_FAR + n * share / share.sum()))
                margin = z_of(then, a, b) - float(bound.of(then.se[a, b]))
                assert (margin >= -1e-7) == is_proved


def test_aiming_at_a_pair_needs_fewer_than_a_uniform_design():
    cov = cov_of(SO_FAR)
    found = gaps(THETA, cov)
    aimed = needed_of_pair(THETA, found, AtEnd(3.0))
    spread = needed_of_design(THETA, cov, found, AtEnd(3.0))
    is_open = spread > 0
    assert is_open.sum() >= 4
    assert (aimed[is_open] < spread[is_open]).all()


def test_the_chance_is_how_often_it_is_enough():
    """4,000 estimates after so many more, drawn around the gap: 80 % of them are proved."""
    found = gaps(THETA, cov_of(SO_FAR))
    n = needed_of_pair(THETA, found, AtEnd(1.96), chance=0.8)[1, 2]
    se = gaps(THETA, cov_of(SO_FAR + n * (np.arange(6) == 3))).se[1, 2]
    drawn = np.random.default_rng(1).normal(0.3, se, 4000)
    assert np.mean(drawn > 1.96 * se) == pytest.approx(0.8, abs=0.02)


def test_what_no_number_proves_is_infinite_and_what_is_undefined_stays_so():
    theta = np.array([0.0, 0.0, 1.0, 0.5])
    found = gaps(theta, cov_of(SO_FAR), np.array([0, 0, 0, 1]))
    for needed in (
        needed_of_pair(theta, found, AtEnd(1.96)),
        needed_of_design(theta, cov_of(SO_FAR), found, AtEnd(1.96)),
    ):
        assert needed[0, 1] == np.inf
        assert np.isnan(needed[3]).all()
        assert np.isnan(np.diag(needed)).all()
        assert np.isfinite(needed[0, 2])
    # A design that never compares what is needed does not prove it either.
    lonely = np.zeros((4, 4))
    lonely[2, 3] = lonely[3, 2] = 1.0
    cov = cov_of(SO_FAR)
    found = gaps(THETA, cov)
    needed = needed_of_design(THETA, cov, found, Watched(0.99, 50.0), design=lonely)
    assert needed[0, 1] == np.inf
