"""Strengths by category as the sampler follows them: when they are fitted, and to the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.special import expit

from policies.pairing.categories import Categories

REPLAY = """
import hashlib
import numpy as np
from scipy.special import expit
from policies.pairing.categories import Categories
digest = hashlib.sha256()
for m, k, rank, n in ((30, 10, 2, 1200), (80, 4, 1, 1100)):
    rng = np.random.default_rng(0)
    theta = rng.normal(0, 0.8, (m, rank)) @ rng.normal(0, 0.8, (rank, k))
    state = Categories((m, k), rank)
    for i in range(n):
        a, b = rng.choice(m, 2, replace=False).tolist()
        c = int(rng.integers(k))
        state.launch(a, b, c)
        if i % 20:
            won = rng.random() < expit(theta[a, c] - theta[b, c])
            state.land(a, b, c, float(won))
    digest.update(state.gains().tobytes())
print(digest.hexdigest())
"""


def test_gains_have_the_same_bits_whatever_the_threads():
    """In processes of their own, at sizes where a product of all is split among threads."""
    root = Path(__file__).parents[3]
    said = {
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "4")
    }
    assert len(said) == 1


def test_the_first_fit_comes_with_ten_verdicts_a_parameter():
    """Five arms in four categories of rank one: seven parameters, and the order's advantage."""
    rng = np.random.default_rng(1)
    state = Categories((5, 4), 1)
    for n in range(80):
        assert state.gains() is None, n
        a, b = rng.choice(5, 2, replace=False).tolist()
        state.learn(a, b, n % 4, float(rng.random() < expit(b - a)))
    assert state.gains().shape == (4, 10)
