"""What all tests share: no keys, no network, virtual time, and the recorded data if it is there."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command does, before NumPy is imported

import pytest
import trio.testing

from orchestrator import cli

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


@pytest.fixture
def sortition(monkeypatch, capsys, tmp_path):
    """Run the command in an empty folder; gives exit code, output and chatter.

    `answers` are lines that a user types at a terminal; without them there is none.
    """
    monkeypatch.chdir(tmp_path)

    def run(*words, answers=None):
        terminal = io.StringIO("".join(f"{answer}\n" for answer in answers or ()))
        monkeypatch.setattr(terminal, "isatty", lambda: answers is not None)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys, "argv", ["sortition", *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    return run


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded judge data."""
    return _shared("data")


@pytest.fixture(scope="session")
def shared_examples() -> Path:
    """The folder of canonical campaign files."""
    return _shared("design/examples")


@pytest.fixture(scope="session")
def shared_gold() -> Path:
    """The folder of values that independent programs computed."""
    return _shared("gold")


@pytest.fixture(scope="session")
def shared_tools() -> Path:
    """The folder of small programs to compare with."""
    return _shared("tools")


def _shared(name: str) -> Path:
    if not SHARED.is_dir():
        pytest.skip("the recorded data are not beside this checkout")
    folder = SHARED / name
    # Where the folder is there, a test that needs it must run: a skip would hide that.
    assert folder.is_dir(), f"{folder} is missing"
    return folder


@pytest.fixture
def measured(request):
    """Write down a figure for docs/measured.md; `make slow` says where."""

    def write(bar: str, figure: str) -> None:
        path = os.environ.get("MEASURED")
        if path:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"bar": bar, "figure": figure}) + "\n")

    return write
