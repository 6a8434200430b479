"""Judges and campaigns for servers that others wrote, which listen on the loopback.

What such a server is made of stands in a folder of the environment that `make servers` fills.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import anyio
import pytest

from orchestrator.core.errors import JudgeError
from orchestrator.core.events import LOST, Arrived, Asked, Forfeited, Reasked
from orchestrator.core.ids import JudgeIx
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.query import Judged, Missing
from orchestrator.core.wire import Route
from orchestrator.registry import find
from orchestrator.store.sqlite import SqliteReader
from orchestrator.testing.live import STUDY, asked

HOME = Path(sys.prefix) / "servers"
KEY = "PEER_API_KEY"
N_ITEMS = 6


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A provider as a campaign names it."""

    adapter: str
    model: str = "some-model"
    route: Route = Route.SCHEMA
    own: dict[str, str] = field(default_factory=dict)


PEERS = {
    "chat": Peer(adapter="openai", model="gpt-4o-mini"),
    "responses": Peer(adapter="openai", model="gpt-4o-mini", own={"api": "responses"}),
    # No server here follows Anthropic's `output_config`; all of them take a forced tool.
    "anthropic": Peer(adapter="anthropic", model="claude-haiku-4-5", route=Route.TOOL),
    "google": Peer(adapter="google", model="gemini-2.5-flash"),
    "compatible": Peer(adapter="compatible"),
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Let connections go to the loopback alone, and past the proxies of this machine."""
    connect = socket.socket.connect

    def on_loopback(self, address):
        assert address[0] in ("127.0.0.1", "::1"), f"a test opened a connection to {address}"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", on_loopback)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def peer(request):
    """The provider that a test is about."""
    return PEERS[request.param]


@pytest.fixture
def send(peer, base_url):
    """Make one attempt at the provider's judge; gives the reply or the error."""

    def attempt(**changes):
        setting = JudgeSetting(
            name="jury",
            judge=JudgeIx(0),
            study=STUDY,
            max_output_tok=400,
            model=peer.model,
            base_url=base_url,
            api_key="a key",
            route=peer.route,
        )
        plugin = find("judges", peer.adapter)
        judge = plugin.build(plugin.config(**peer.own), replace(setting, **changes))

        async def once():
            try:
                return await judge.send(asked("rate", "x"))
            except JudgeError as error:
                return error
            finally:
                await judge.aclose()

        return anyio.run(once)

    return attempt


@pytest.fixture
def campaign(peer, base_url, sortition, tmp_path, monkeypatch):
    """Run a small campaign at the provider; gives the exit code, the result and the log.

    `judge` are keys of the judge besides those that name the provider.
    """
    monkeypatch.setenv(KEY, "a key")
    file, run = tmp_path / "campaign.yaml", tmp_path / "run"

    def whole(*, n_items=N_ITEMS, **judge):
        items = "\n".join(f"i{n},text {n}" for n in range(n_items))
        (tmp_path / "items.csv").write_text(f"id,reply\n{items}\n", encoding="utf-8")
        jury = {
            "name": "jury",
            "adapter": peer.adapter,
            "model": peer.model,
            "base_url": base_url,
            "api_key_env": KEY,
            **({peer.adapter: peer.own} if peer.own else {}),
            "params": {"max_output_tokens": 50},
            "price_usd_per_1m": {"input": 2.0, "output": 10.0},
            "limits": {"concurrency": 1},
            **judge,
        }
        written = {
            "version": 1,
            "name": "peer",
            "seed": 3,
            "data": {"path": "items.csv", "id": "id", "fields": {"candidate": "reply"}},
            "judges": [jury],
            "task": {
                "kind": "rate",
                "scale": {"type": "integer", "min": 1, "max": 5},
                "output": {"route": str(peer.route)},
            },
            "policy": {"kind": "uniform", "max_repeats": 1},
            "budget": {"usd": 5.0},
        }
        file.write_text(json.dumps(written), encoding="utf-8")  # JSON is YAML
        code, _, err = sortition("run", file, "--run-dir", run, "-y", "--display", "none")
        assert (run / "result.json").exists(), err
        result = json.loads((run / "result.json").read_text(encoding="utf-8"))
        return code, result, log_of(run)

    return whole


def log_of(run):
    reader = SqliteReader(run)
    found = [row.event for row in reader.read()]
    reader.close()
    return found


@pytest.fixture(scope="session")
def log():
    """Read the events of a run."""
    return log_of


@pytest.fixture(scope="session")
def balances():
    """Add up a run's money from its attempts: (settled, uncertain, held) after each event.

    An attempt series has the cost of its outcome; what a crash or the stop cut off costs its hold.
    """

    def added(events):
        settled = uncertain = 0
        held = {}
        for event in events:
            match event:
                case Asked(q=q, hold=hold):
                    held[q] = hold
                case Reasked(q=q, hold=hold, ended=ended):
                    uncertain += held[q] if ended == LOST else 0
                    held[q] = hold
                case Forfeited(q=q):
                    uncertain += held.pop(q)
                case Arrived(q=q, outcome=Judged(cost=cost)):
                    settled += cost
                    del held[q]
                case Arrived(q=q, outcome=Missing() as outcome):
                    settled += outcome.cost
                    uncertain += outcome.uncertain
                    del held[q]
                case _:
                    pass
            yield settled, uncertain, sum(held.values())

    return lambda events: list(added(events))


# --- servers in processes of their own ----------------------------------------------------------


@pytest.fixture(scope="session")
def node():
    """Start a program of node, in the folder of what it needs; gives the address that it prints."""

    @contextmanager
    def started(needs, *command):
        if shutil.which("node") is None:
            pytest.skip("node is not installed")
        if not (HOME / needs).exists():
            pytest.skip(f"{needs} is not in {HOME}: make servers puts it there")
        process = subprocess.Popen(
            ["node", *map(str, command)], cwd=HOME, stdout=subprocess.PIPE, text=True
        )
        try:
            said = ""
            while "http://" not in said:
                said = process.stdout.readline()
                assert said, f"it ended with {process.wait()}"
            yield said[said.index("http://") :].strip()
        finally:
            process.terminate()
            process.communicate()

    return started


@pytest.fixture(scope="session")
def gemma(node):
    """The address of a server that runs a real model."""
    program = Path(__file__).with_name("nlc_server.mjs")
    HOME.mkdir(exist_ok=True)
    # Modules are looked for beside the program.
    with node("model.gguf", shutil.copy(program, HOME), "model.gguf") as url:
        yield url


@dataclass(frozen=True)
class Aimock:
    """The server of @copilotkit/aimock, by its control interface."""

    url: str

    def say(self, **response):
        """Answer every request so."""
        self.tell("POST", "fixtures", {"fixtures": [{"match": {}, "response": response}]})

    def chaos(self, **rates):
        """Break this share of the replies."""
        self.tell("POST", "chaos", rates)

    def reset(self):
        """Forget all requests, answers and chaos."""
        self.tell("POST", "reset")
        self.tell("DELETE", "chaos")

    @property
    def requests(self):
        """All requests that came, each with what was answered."""
        return self.tell("GET", "journal")

    def tell(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urlopen(HttpRequest(f"{self.url}/__aimock/{path}", data, method=method)) as reply:
            return json.load(reply)


@pytest.fixture(scope="session")
def aimock_server(node, tmp_path_factory):
    nothing = tmp_path_factory.mktemp("aimock") / "nothing.json"
    nothing.write_text('{"fixtures": []}', encoding="utf-8")
    program = "node_modules/@copilotkit/aimock/dist/cli.js"
    with node(program, program, "-p", 0, "-f", nothing) as url:
        yield Aimock(url)


@pytest.fixture
def aimock(aimock_server):
    """The server without requests, answers and chaos of earlier tests."""
    aimock_server.reset()
    return aimock_server
