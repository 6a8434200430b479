"""Fan-out: the same numbers wherever they are computed."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.experiments import est_ivwe
from orchestrator.experiments.fanout import InProcess, fan_out, open_executor

SMALL = est_ivwe.Study(
    prices=("inv_sd",), sweeps=(8,), norms=(2.0,), n_items=30, n_judges=3, n_reps=3
)


def test_a_study_is_the_same_on_any_executor():
    """In this process, on threads, on other processes: equal to the last bit."""
    here = est_ivwe.run(SMALL, InProcess())
    with ThreadPoolExecutor(2) as threads:
        assert est_ivwe.run(SMALL, threads) == here
    with open_executor(1) as one, open_executor(2) as processes:
        assert fan_out(_process, [0], one) == [os.getpid()]
        assert os.getpid() not in fan_out(_process, [0, 1], processes)
        assert est_ivwe.run(SMALL, processes) == here


def _process(_task):
    return os.getpid()


def test_a_replicate_does_not_depend_on_others():
    """Computed alone, or after others in another order, it gives the same errors."""
    (cell,) = SMALL.settings
    tasks = [est_ivwe.Task(SMALL, cell, rep) for rep in range(3)]
    forward, backward = (fan_out(est_ivwe.replicate, t, InProcess()) for t in (tasks, tasks[::-1]))
    assert np.array_equal(forward, backward[::-1])
    assert not np.array_equal(forward[0], forward[1])


def test_results_are_in_the_order_of_tasks_and_progress_counts_all():
    told = []
    with ThreadPoolExecutor(3) as threads:
        found = fan_out(abs, [-3, -1, -2], threads, lambda done, n: told.append((done, n)))
    assert found == [3, 1, 2]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_error_ends_it_and_is_the_one_that_was_raised():
    for executor in (InProcess(), ThreadPoolExecutor(1)):
        with executor, pytest.raises(ZeroDivisionError):
            fan_out(lambda x: 1 / x, [1, 0, 2], executor)


def test_dask_is_asked_for_its_executor(monkeypatch):
    """`--dask ADDRESS` computes through `Client.get_executor()` and closes the client."""
    events = []

    class Client:
        def __init__(self, address, timeout):
            events.append(("open", address))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            events.append(("close",))

        def get_executor(self):
            return ThreadPoolExecutor(1)

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    with open_executor(dask="tcp://scheduler:8786") as executor:
        assert fan_out(abs, [-1], executor) == [1]
    assert events == [("open", "tcp://scheduler:8786"), ("close",)]


def test_without_dask_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'sortition\[dask\]'"),
        open_executor(dask="x"),
    ):
        pass


def test_a_silent_scheduler_is_named(monkeypatch):
    def refuse(address, timeout):
        raise OSError("timed out")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=refuse))
    with pytest.raises(ConfigError, match="tcp://nowhere:1"), open_executor(dask="tcp://nowhere:1"):
        pass
