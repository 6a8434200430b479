"""What all tests share: no keys, no network, virtual time, and the recorded data if it is there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import trio.testing

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in list(os.environ):
        if name.endswith("_API_KEY") or name.startswith("SORTITION_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SORTITION_DISABLE_DOTENV", "1")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(self, address):
        raise AssertionError(f"a test opened a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.fixture(params=["trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
def virtual_time():
    """Options that let anyio.run jump to the next deadline instead of waiting for it."""
    return {
        "backend": "trio",
        "backend_options": {"clock": trio.testing.MockClock(autojump_threshold=0)},
    }


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded judge data."""
    return _shared("data")


@pytest.fixture(scope="session")
def shared_examples() -> Path:
    """The folder of canonical campaign files."""
    return _shared("design/examples")


def _shared(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"no {name} beside the checkout")
    return folder
