"""Votes for tests of tensors: drawn from a truth of low rank, and the gold set of another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from estimators.tensor_functionals import gap, mean_score, score, win_probability

GOLD_FUNCTIONALS = {
    "gap(0,1,ctx0)": gap(0, 1, 0),
    "gap(2,4,ctx1)": gap(2, 4, 1),
    "score(0,ctx2)": score(0, 2),
    "score(3,mean)": mean_score(3, [1, 1, 1, 1]),
    "winprob(0,ctx0,all)": win_probability(0, 0, [1, 2, 3, 4, 5]),
    "winprob(2,ctx1,pool=[3,4])": win_probability(2, 1, [3, 4]),
}


class Rows(NamedTuple):
    left: np.ndarray
    right: np.ndarray
    context: np.ndarray
    outcome: np.ndarray


def gold(folder: Path):
    """Give the gold set's rows, folds and expected values."""
    place = folder / "pairwise" / "tensor_6x4_r2"
    d = np.genfromtxt(place.with_suffix(".csv"), delimiter=",", names=True)
    rows = Rows(*(d[name].astype(int) for name in ("a", "b", "ctx")), d["y"])
    return rows, d["fold"].astype(int), json.loads(place.with_suffix(".json").read_text())


def truth(shape, rank, rng, scale=1.0):
    """Draw a tensor of a rank, columns centred, with entries of about this size."""
    core = rng.standard_normal(rank)
    for m, (d, r) in enumerate(zip(shape, rank, strict=True)):
        factor = rng.standard_normal((d, r))
        core = np.moveaxis(np.tensordot(factor, core, axes=(1, m)), 0, m)
    core = core - core.mean(axis=0)
    return scale * core / core.std()


def drawn(tensor, n, rng, *, gamma=0.0, ties=0.0):
    """Draw comparisons of uniform pairs in uniform contexts."""
    m, k = len(tensor), tensor[0].size
    flat = tensor.reshape(m, k)
    left = rng.integers(m, size=n)
    right = (left + 1 + rng.integers(m - 1, size=n)) % m
    context = rng.integers(k, size=n)
    p = expit(flat[left, context] - flat[right, context] + gamma)
    y = (rng.random(n) < p).astype(float)
    y[rng.random(n) < ties] = 0.5
    return Rows(left, right, context, y)
