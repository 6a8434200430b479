"""Error rates, power and coverage on simulated truth, in the settings that were published.

Each replicate has a seed of its own; bands hold three Monte-Carlo standard errors. The short version
runs always, the full one with the slow tests.
"""

import math

import numpy as np
import pytest

from estimators.batches import laid_out
from estimators.confidence_sequences import sequence_bound
from estimators.group_sequential import bounds
from estimators.markov_fit import Penalty, maximise
from estimators.markov_inference import Inference, group_contrast
from estimators.markov_judge import simulate
from estimators.markov_model import fit_sequences
from estimators.markov_naive import naive_contrast
from estimators.markov_prediction import predictive_check
from tests.estimators.markov_data import halves, judge, shuffled, two_groups

A, B = list(range(15)), list(range(15, 30))
EQUAL = judge(two_groups(-0.65, 1.2, 0.4))
"""Equal mean quality, unequal spread."""

GAP = judge(two_groups(-0.65, 0.8, 0.8, gap=0.45))
DEEP = judge(two_groups(-0.65, 1.2, 0.4), [-0.5, -0.3, -0.4])
SQUARE = (np.array([0, 1, 5, 2, 4, 3]) + np.arange(6)[:, None]) % 6


def replicates(of, seed, n_runs, looks):
    """Naive and fitted z of nested looks: two arrays (runs, looks), and the contrasts."""
    naive, fitted, estimates = (np.empty((n_runs, len(looks))) for _ in range(3))
    weights = halves(30)
    for run in range(n_runs):
        source = shuffled(of, max(looks), np.random.default_rng([seed, run]))
        for at, n in enumerate(looks):
            part = source.take(np.arange(n))
            naive[run, at] = naive_contrast(part, A, B).z
            top = maximise(laid_out(part, 1), quadrature=7, penalty=Penalty())
            estimates[run, at] = weights @ top.psi[:30]
            fitted[run, at] = estimates[run, at] / math.sqrt(
                weights @ top.covariance[:30, :30] @ weights
            )
    return naive, fitted, estimates


def rejects(z):
    return (np.abs(z) > 1.96).mean(axis=0)


def shown(shares):
    return ", ".join(f"{share:.3f}" for share in shares)


def test_equal_groups_of_unequal_spread_in_short():
    """D1 in short: the fit keeps its error rate, raw means lose it the more, the more one asks."""
    naive, fitted, _ = replicates(EQUAL, 11, 100, (30, 150))
    assert (rejects(fitted) <= 0.12).all()
    assert rejects(naive)[1] >= 0.40


@pytest.mark.slow
def test_equal_groups_of_unequal_spread(measured):
    """D1 and D5: rates at fixed ends, and at any of five looks."""
    looks = (30, 60, 90, 120, 150)
    naive, fitted, estimates = replicates(EQUAL, 11, 500, looks)
    measured(
        "D1: Wald at N = 30 ... 150 in [.025, .08]; naive at 30 in [.12, .22], at 150 in [.49, .62]",
        f"{shown(rejects(fitted))}; {shown(rejects(naive))}",
    )
    assert ((rejects(fitted) >= 0.025) & (rejects(fitted) <= 0.08)).all()
    assert 0.12 <= rejects(naive)[0] <= 0.22
    assert 0.49 <= rejects(naive)[-1] <= 0.62
    assert (naive[:, -1] > 0).mean() >= 0.94
    mean = np.abs(estimates.mean(axis=0))
    assert mean[0] < 0.05
    assert mean[-1] < 0.02

    z = np.abs(fitted)
    planned = (z > bounds([n / 150 for n in looks])).any(axis=1).mean()
    peeking = (z > 1.96).any(axis=1).mean()
    sequence = (z > [sequence_bound(n, 0.95, 60) for n in looks]).any(axis=1).mean()
    measured(
        "D5: any look: planned bounds in [.02, .07], 1.96 in [.10, .19], sequence <= .03",
        shown((planned, peeking, sequence)),
    )
    assert 0.02 <= planned <= 0.07
    assert 0.10 <= peeking <= 0.19
    assert sequence <= 0.03


@pytest.mark.slow
def test_a_true_gap_is_found(measured):
    """D2: .45 logits: the sign is right from 30 batches on, and the power is 99 % at 90."""
    _, fitted, estimates = replicates(GAP, 21, 300, (30, 90))
    measured("D2: power at N = 30, 90, the latter >= .99", shown(rejects(fitted)))
    assert (estimates[:, 0] > 0).mean() >= 0.98
    assert rejects(fitted)[1] >= 0.99


@pytest.mark.slow
def test_a_deeper_memory_than_fitted_leaves_the_contrast_alone(measured):
    """D4: a judge that remembers three slots, fitted with one."""
    naive, fitted, _ = replicates(DEEP, 31, 500, (30, 90, 150))
    measured(
        "D4: Wald of a lag-1 fit in [.025, .085]; naive at 150 in [.60, .76]",
        f"{shown(rejects(fitted))}; {shown(rejects(naive))}",
    )
    assert ((rejects(fitted) >= 0.025) & (rejects(fitted) <= 0.085)).all()
    assert 0.60 <= rejects(naive)[-1] <= 0.76


def leaders(of, n, design, rng, n_runs):
    """Share of runs in which the best item has the most accepted verdicts; ties count in part."""
    blocks = n // 6
    if design == "shuffle":
        order = np.argsort(rng.random((n_runs, n, 6)), axis=-1)
    else:
        names = np.argsort(rng.random((n_runs * blocks, 6)), axis=-1)
        rows = SQUARE[np.argsort(rng.random((n_runs * blocks, 6)), axis=-1)]
        order = names[np.arange(len(names))[:, None, None], rows].reshape(n_runs, n, 6)
    state = simulate(of, order, rng)
    y = np.zeros(order.shape)
    np.put_along_axis(y, order, state.astype(float), axis=-1)
    total = y.sum(axis=1)
    is_top = total == total.max(axis=1, keepdims=True)
    first = is_top[:, 0] / is_top.sum(axis=1)
    return first.mean(), total[:, 0] - total[:, 1]


@pytest.mark.parametrize(
    ("base", "beta", "gamma", "low", "high"),
    [(0.3, -0.3, -0.18, 0.98, 1.02), (-0.3, -1.2, 1.8, 0.82, 0.89)],
    ids=["flat", "uneven"],
)
def test_balanced_orders_take_variance_away_where_positions_differ(base, beta, gamma, low, high):
    """D3: variance of the difference of two of six equal items in six batches, by design."""
    of = judge(np.full(6, base + 1 / 12), [beta], [gamma], 0.7)
    spread = {}
    for design in ("shuffle", "williams"):
        _, difference = leaders(of, 6, design, np.random.default_rng([5, 6]), 40_000)
        spread[design] = difference.var()
    assert low <= spread["williams"] / spread["shuffle"] <= high


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 12, 18])
def test_balanced_orders_find_the_best_item_more_often(n, measured):
    """D3: 1.2, 1.8, 2.3 points in the uneven setting, none in the flat one."""
    base = np.array([0.55, 0.25, 0.1, 0.0, -0.1, -0.3])
    gains = {}
    for name, (level, beta, gamma) in {
        "flat": (0.3, -0.3, -0.18),
        "uneven": (-0.3, -1.2, 1.8),
    }.items():
        of = judge(level + base, [beta], [gamma], 0.7)
        found = [
            leaders(of, n, design, np.random.default_rng([5, n, at]), 20_000)[0]
            for design in ("shuffle", "williams")
            for at in range(5)
        ]
        gains[name] = 100 * (np.mean(found[5:]) - np.mean(found[:5]))
    measured(
        f"D3: points gained by balance at N = {n}: uneven > .6, flat within .8",
        f"{gains['uneven']:.2f}, {gains['flat']:.2f}",
    )
    assert gains["uneven"] > 0.6
    assert abs(gains["flat"]) < 0.8


@pytest.mark.slow
def test_predictive_bounds_cover_only_with_the_estimates_error(measured):
    """D6: of a right model, 80 batches to fit and 80 held out; frozen bounds are too narrow."""
    of = judge(two_groups(0.8, 0.9, 0.5), [-0.4], [0.6], 1.08)
    inside = {True: [], False: []}
    for run in range(40):
        source = shuffled(of, 160, np.random.default_rng([71, run]))
        fit = fit_sequences(source.take(np.arange(80)))
        test = source.take(np.arange(80, 160))
        for propagate in (True, False):
            found = predictive_check(
                fit, test, np.random.default_rng([72, run]), propagate=propagate, copies=200
            )
            parts = (found.joint, found.entropy)
            inside[propagate].append([np.mean([one.is_inside for one in part]) for part in parts])
    cover, frozen = (np.mean(inside[key], axis=0) for key in (True, False))
    measured(
        "D6: coverage of transition terms and entropies in [.87, .99]; frozen",
        f"{shown(cover)}; {shown(frozen)}",
    )
    assert ((cover >= 0.87) & (cover <= 0.99)).all()
    assert (frozen < cover).all()


@pytest.mark.slow
def test_claims_about_items_like_these_need_the_items_spread(measured):
    """Items drawn anew in each run: Wald's test of the panel rejects half the time, Welch's does
    not."""
    rejected = {Inference.PANEL: [], Inference.ITEMS: []}
    for run in range(300):
        rng = np.random.default_rng([81, run])
        theta = np.r_[-0.65 + 1.2 * rng.normal(size=15), -0.65 + 0.4 * rng.normal(size=15)]
        fit = fit_sequences(shuffled(judge(theta), 60, rng), quadrature=7)
        for inference, found in rejected.items():
            found.append(group_contrast(fit, A, B, inference).p < 0.05)
    panel, items = (float(np.mean(found)) for found in rejected.values())
    measured("A/A with fresh items, N = 60: Wald > .4, Welch <= .05 + 3 SE", shown((panel, items)))
    assert panel > 0.4
    assert items <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
