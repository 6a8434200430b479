"""A small HTTP server on the loopback that says what a test tells it to, faults included.

It writes bytes by itself, so that it can break a reply anywhere, and counts requests where they
arrive: what a client believes to have sent is not what counts.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


class Fault(Enum):
    """How a reply goes wrong below HTTP."""

    SILENT = "silent"
    """The request is read and never answered."""
    DROPPED = "dropped"
    """The connection is closed without a byte of a reply."""
    CUT = "cut"
    """The connection is closed in the middle of the body that was announced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """One reply: a body of bytes, or of anything else as JSON, after a delay in seconds."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request as it came in; names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path, without query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The query."""
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> Any:
        """The body as JSON; it must be UTF-8."""
        return json.loads(self.body.decode())


class ScriptedServer:
    """Answers the n-th request with the n-th reply of its script, and then with the last again.

    `seen` holds all requests in order of their arrival. Replies close the connection unless
    `keeps_alive`; with `tls` the server speaks https.
    """

    def __init__(
        self,
        script: Sequence[Say] = (),
        *,
        keeps_alive: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script = list(script)
        self.seen: list[Seen] = []
        self.n_connections = 0
        self._keeps_alive = keeps_alive
        self._tls = tls
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def n_requests(self) -> int:
        """How many requests have arrived."""
        return len(self.seen)

    def say(self, *script: Say) -> None:
        """Begin another script with the next request, and forget the requests so far."""
        with self._lock:
            self.script = list(script)
            self.seen.clear()

    def close(self) -> None:
        """End all connections and threads."""
        self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        # A client that leaves, or that does not trust us, ends its connection and nothing else.
        with suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                with self._lock:
                    self.n_connections += 1
                    self._open.add(connection)
                while (seen := _request(stream)) is not None:
                    self._answer(connection, self._next(seen))
                    if not self._keeps_alive:
                        break
        with self._lock:
            self._open.discard(connection)

    def _next(self, seen: Seen) -> Say:
        with self._lock:
            self.seen.append(seen)
            return self.script[min(len(self.seen), len(self.script)) - 1] if self.script else Say()

    def _answer(self, connection: socket.socket, say: Say) -> None:
        if say.delay_s:
            self._closing.wait(say.delay_s)
        if say.fault is Fault.SILENT:
            self._closing.wait()
        if say.fault in (Fault.SILENT, Fault.DROPPED):
            raise ConnectionAbortedError
        body = say.body if isinstance(say.body, bytes) else json.dumps(say.body).encode()
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "keep-alive" if self._keeps_alive else "close",
            **say.headers,
        }
        try:
            phrase = HTTPStatus(say.status).phrase
        except ValueError:
            phrase = "Unassigned"
        head = f"HTTP/1.1 {say.status} {phrase}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if say.fault is Fault.CUT:
            connection.sendall(head.encode() + b"\r\n" + body[: len(body) // 2])
            raise ConnectionAbortedError
        connection.sendall(head.encode() + b"\r\n" + body)


def _request(stream: Any) -> Seen | None:
    line = stream.readline()
    if not line:
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", "0"))
    body = stream.read(length)
    if len(body) < length:
        return None  # the client left before it had asked
    return Seen(method=method, target=target, headers=headers, body=body)
