"""What the graph of comparisons connects and what it bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.bt_graph import components


def reachable(edges):
    """Which nodes each reaches, by repeated squaring."""
    reach = edges + np.eye(len(edges)) > 0
    for _ in range(len(edges)):
        reach = reach @ reach
    return reach


@given(m=st.integers(1, 9), seed=st.integers(0, 9999), share=st.floats(0, 0.5))
def test_components_are_what_paths_say(m, seed, share):
    rng = np.random.default_rng(seed)
    beats = (rng.random((m, m)) < share) * (1 - np.eye(m))
    found = components(beats)
    together = reachable(beats + beats.T)
    both = reachable(beats) & reachable(beats).T
    assert ((found.weak[:, None] == found.weak) == together).all()
    assert ((found.strong[:, None] == found.strong) == both).all()
    assert found.n == found.weak.max() + 1
    assert found.n_strong == found.strong.max() + 1
    assert (found.size == together.sum(axis=1)).all()
    assert found.is_connected == (found.n == 1)
    assert found.is_separated == (found.n_strong > found.n)


def test_labels_follow_the_models():
    """The first model is in component 0, the first outside it in 1, and so on."""
    beats = np.zeros((5, 5))
    beats[4, 0] = beats[3, 1] = 1
    found = components(beats)
    assert found.weak.tolist() == [0, 1, 2, 1, 0]
    assert found.strong.tolist() == [0, 1, 2, 3, 4]


def test_no_models():
    found = components(np.zeros((0, 0)))
    assert (found.n, found.n_strong, len(found.size)) == (0, 0, 0)


def test_a_table_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="square"):
        components(np.zeros((2, 3)))
