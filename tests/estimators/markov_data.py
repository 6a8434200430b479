"""Judges with memory and their ratings, as the published simulations draw them."""

import csv

import numpy as np
from scipy.special import ndtri

from estimators.batches import Sequences
from estimators.markov_judge import MarkovJudge, simulate

GOLD = {
    "d1_v6_n18": 1,
    "d2_v30_n60": 1,
    "d5_sigma0": 1,
    "d7_williams_odd": 1,
    "d8_missing_partial": 1,
    "d9_lag3": 3,
}
"""Sets with values by lme4, and the depth of memory fitted to them."""

D3 = {
    "seed": 300,
    "theta": np.r_[
        [-0.922, -0.4033, -0.1084, 0.1165, 0.3076, 0.4801, 0.6424, 0.8, 0.9576, 1.1199],
        [1.2924, 1.4835, 1.7084, 2.0033, 2.522, -0.1566, 0.1315, 0.2954, 0.4203, 0.5265],
        [0.6223, 0.7124, 0.8, 0.8876, 0.9777, 1.0735, 1.1797, 1.3046, 1.4685, 1.7566],
    ],
    "lags": [-0.4],
    "starts": [0.6],
    "sigma": 1.08,
    "n": 160,
}
D6 = {
    "seed": 600,
    "theta": np.r_[
        [-0.6, -0.3818, -0.1636, 0.0545, 0.2727, 0.4909, 0.7091, 0.9273, 1.1455, 1.3636],
        [1.5818, 1.8],
    ],
    "lags": [-1.5],
    "starts": [0.8],
    "sigma": 1.0,
    "n": 60,
}
"""Sets d3 and d6: their files are not at hand, but their generator is, bit for bit."""


def judge(theta, lags=(-0.6,), starts=(0.5,), sigma=0.8):
    return MarkovJudge(
        theta=np.asarray(theta, dtype=float),
        lags=np.asarray(lags, dtype=float),
        starts=np.asarray(starts, dtype=float),
        sigma=sigma,
    )


def sequences_of(order, state):
    """Put orders and states together, with items and batches named by number."""
    return Sequences(
        items=tuple(range(order.shape[1])),
        batches=tuple(range(len(order))),
        order=order,
        state=state,
    )


def shuffled(of, n, rng):
    """Draw a judge's ratings of `n` batches in shuffled orders."""
    order = np.argsort(rng.random((1, n, of.theta.shape[-1])), axis=-1)[0]
    return sequences_of(order, simulate(of, order, rng))


def drawn(settings):
    """Draw a set from its seed."""
    of = judge(settings["theta"], settings["lags"], settings["starts"], settings["sigma"])
    return shuffled(of, settings["n"], np.random.default_rng(settings["seed"]))


def ratings_of(source):
    """Give back (batch, slot, item, y)."""
    return [
        (batch, slot, source.items[item], int(state))
        for batch, items, states in zip(source.batches, source.order, source.state, strict=True)
        for slot, (item, state) in enumerate(zip(items, states, strict=True))
    ]


def zgrid(n):
    z = ndtri((np.arange(n) + 0.5) / n)
    return (z - z.mean()) / z.std()


def two_groups(mean, first, second, gap=0.0, v=30):
    """Qualities of two groups of v/2 items with these spreads."""
    half = zgrid(v // 2)
    return np.r_[mean + gap + first * half, mean + second * half]


def read(folder, name):
    """Read a gold set's ratings."""
    with (folder / "markov_glmm" / f"{name}.csv").open(encoding="utf-8") as file:
        return [
            (
                int(row["batch"]),
                int(row["slot"]),
                int(row["item"]),
                int(row["y"]) if row["y"] else None,
            )
            for row in csv.DictReader(file)
        ]


def halves(v):
    """Weights of the mean of the first half of the items less that of the rest."""
    first = v // 2
    return np.r_[np.full(first, 1 / first), np.full(v - first, -1 / (v - first))]
