"""Many independent computations, here, on several processes, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from typing import Any, TypeVar

from orchestrator.core.errors import ConfigError

Task = TypeVar("Task")
Found = TypeVar("Found")
Progress = Callable[[int, int], None]
"""Is told how many tasks are done, of how many."""


def silent(_done: int, _of: int) -> None:
    """Report progress to nobody."""


class InProcess(Executor):
    """Computes at once, in the calling thread; what goes wrong is raised there."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function; give its result in a future that is done."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def open_executor(workers: int = 1, dask: str | None = None) -> Iterator[Executor]:
    """Open what computes: this process, so many others, or the Dask cluster at an address.

    Raises
    ------
    ConfigError
        Dask is not installed, or does not answer at that address.
    """
    if dask is not None:
        with _dask_client(dask) as client:
            yield client.get_executor()
    elif workers > 1:
        # Fresh processes: a fork of a process that has threads can hang.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        yield InProcess()


def _dask_client(address: str) -> Any:
    try:
        from distributed import Client  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigError("--dask needs Dask: pip install 'sortition[dask]'") from exc
    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError) as exc:
        raise ConfigError(f"--dask {address}: no scheduler answers there: {exc}") from exc


def fan_out(
    function: Callable[[Task], Found],
    tasks: Sequence[Task],
    executor: Executor,
    progress: Progress = silent,
) -> list[Found]:
    """Compute the function of every task; results are in the order of the tasks.

    A task holds the seed of all that is drawn in it, so the numbers depend neither on the executor
    nor on what is computed beside or before it. The first error ends it all.
    """
    n_done = count(1)
    futures: list[Future[Found]] = []
    try:
        for task in tasks:
            future = executor.submit(function, task)
            future.add_done_callback(lambda _: progress(next(n_done), len(tasks)))
            futures.append(future)
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
