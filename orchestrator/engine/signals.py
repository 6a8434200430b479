"""SIGINT and SIGTERM: the first drains a run, the second cuts it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import anyio
from anyio.abc import TaskStatus


def can_listen() -> bool:
    """Whether this thread may take signals: only the main one can."""
    return threading.current_thread() is threading.main_thread()


async def listen(interrupt: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    """Call `interrupt` at each signal, until cancelled."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            interrupt()
