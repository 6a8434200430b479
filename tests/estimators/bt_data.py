"""Comparisons for the tests of strengths: gold sets, drawn ones, and a plain likelihood."""

import csv
import gzip
import json

import numpy as np
from scipy.special import expit

from estimators.bt_cells import index_names


def gold(folder, name):
    """Read a gold set: columns by name, and what is expected of it with models in order."""
    path = folder / "pairwise" / f"btl_{name}.csv"
    opened = gzip.open if not path.exists() else open
    with opened(
        path if path.exists() else path.with_suffix(".csv.gz"), "rt", encoding="utf-8"
    ) as f:
        rows = list(csv.DictReader(f))
    expected = json.loads((folder / "pairwise" / f"btl_{name}.json").read_text(encoding="utf-8"))
    (left, right), names = index_names([r["left"] for r in rows], [r["right"] for r in rows])
    assert list(names) == expected["names"]
    data = {key: [row[key] for row in rows] for key in rows[0]}
    data |= {"left": left, "right": right, "y": np.array([float(row["y"]) for row in rows])}
    return data, expected


def in_order(of, expected):
    """Lay values by name along the models."""
    return np.array([of[name] for name in expected["names"]])


def drawn(rng, n, m=5, *, gamma=0.3, tied=0.2, spread=0.7):
    """Comparisons of m models under half-win ties; the graph is connected for all but tiny n."""
    theta = rng.normal(0, spread, m)
    left = rng.integers(0, m, n)
    right = (left + rng.integers(1, m, n)) % m
    y = (rng.random(n) < expit(theta[left] - theta[right] + gamma)).astype(float)
    y[rng.random(n) < tied] = 0.5
    return left, right, y


def log_shares(rule, eta, tau):
    """ln P of right, tie and left, written out as the rule is defined."""
    if rule == "davidson":
        w = np.exp([-eta / 2, tau + 0 * eta, eta / 2])
        return np.log(w / w.sum(axis=0))
    nu = np.exp(tau)
    a, b = np.exp(eta / 2), np.exp(-eta / 2)
    tie = (nu**2 - 1) * a * b / ((a + nu * b) * (nu * a + b))
    return np.log([b / (b + nu * a), tie, a / (a + nu * b)])


def hessian(of, at, step=1e-4):
    """Second derivatives by central differences."""
    p = len(at)
    e = np.eye(p) * step
    return np.array(
        [
            [
                of(at + e[i] + e[j])
                - of(at + e[i] - e[j])
                - of(at - e[i] + e[j])
                + of(at - e[i] - e[j])
                for j in range(p)
            ]
            for i in range(p)
        ]
    ) / (4 * step**2)
