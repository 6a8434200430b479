"""What a live judge's call costs in CPU: each adapter beside a bare loop over the same client.

One run, one server process on loopback that answers at once after 50 ms, 2,000 calls at a concurrency
of 100. Bars: the adapter without an SDK costs at most 1.5 times a bare httpx2 loop; connections split
over clients of 25 cost less than one pool of 400 at 400 under way. CPU times of this process alone;
read the ratios.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import httpx2
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from judges import live
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.query import Kind, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Request, Text
from orchestrator.registry import find
from orchestrator.testing.live import STUDY

LATENCY_S = 0.05
N_CALLS = 2_000
VERDICT = '{"score": 4}'
REPLIES = {
    "chat": {
        "id": "r",
        "model": "m",
        "choices": [
            {"finish_reason": "stop", "message": {"role": "assistant", "content": VERDICT}}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 8, "total_tokens": 108},
    },
    "messages": {
        "id": "r",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": VERDICT}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 8},
    },
    "generate": {
        "responseId": "r",
        "modelVersion": "m",
        "candidates": [{"content": {"parts": [{"text": VERDICT}]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 100,
            "candidatesTokenCount": 8,
            "totalTokenCount": 108,
        },
    },
}


async def _answer(stream: SocketStream) -> None:
    incoming = BufferedByteReceiveStream(stream)
    async with stream:
        while True:
            try:
                head = (
                    (await incoming.receive_until(b"\r\n\r\n", 1 << 16)).decode("latin-1").lower()
                )
            except (anyio.IncompleteRead, anyio.BrokenResourceError):
                return
            await incoming.receive_exactly(int(head.partition("content-length:")[2].split()[0]))
            path = head.split(" ", 2)[1]
            kind = "messages" if "messages" in path else "generate" if ":gen" in path else "chat"
            body = json.dumps(REPLIES[kind]).encode()
            await anyio.sleep(LATENCY_S)
            told = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            await stream.send(b"HTTP/1.1 200 OK\r\n" + told.encode() + body)


def serve(port: multiprocessing.SimpleQueue[int]) -> None:
    """Answer for ever; say at which port."""

    async def main() -> None:
        listener = await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=0, backlog=1000
        )
        port.put(listener.extra(SocketAttribute.local_port))
        await listener.serve(_answer)

    anyio.run(main)


def request() -> Request:
    """Give a question of the usual size."""
    parts = (Text(text="Judge the material. " * 20), Text(text="An answer. " * 40))
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 1, "maximum": 5}},
        "required": ["score"],
        "additionalProperties": False,
    }
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    return Request(
        query=query, attempt=FIRST_ATTEMPT, parts=parts, max_output_tok=100, schema=schema
    )


async def cpu_ms(call: Callable[[], Awaitable[object]], in_flight: int) -> float:
    """Make the calls and give the CPU of one, milliseconds; the first ones are not counted."""

    async def worker(n: int) -> None:
        for _ in range(n):
            await call()

    for n_each in (2, N_CALLS // in_flight):
        began = time.process_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(in_flight):
                tasks.start_soon(worker, n_each)
    return 1000 * (time.process_time() - began) / (in_flight * n_each)


async def bare(url: str, in_flight: int) -> float:
    """Measure the client alone, over as many pools as adapters have."""
    n_pools = -(-in_flight // live.MAX_CONNECTIONS)
    limits = httpx2.Limits(max_connections=live.MAX_CONNECTIONS, max_keepalive_connections=25)
    pools = [httpx2.AsyncClient(limits=limits, timeout=60) for _ in range(n_pools)]
    body = {"model": "m", "messages": [{"role": "user", "content": "An answer. " * 80}]}
    turn = 0

    async def call() -> object:
        nonlocal turn
        turn += 1
        reply = await pools[turn % n_pools].post(f"{url}/chat/completions", json=body)
        return reply.json()

    figure = await cpu_ms(call, in_flight)
    for pool in pools:
        await pool.aclose()
    return figure


async def through(adapter: str, url: str, in_flight: int) -> float:
    """Measure an adapter."""
    plugin = find("judges", adapter)
    setting = JudgeSetting(
        name="j",
        judge=0,
        study=STUDY,
        max_output_tok=100,
        model="m",
        base_url=url if adapter in {"compatible", "openai"} else url.removesuffix("/v1"),
        api_key="k",
        concurrency=in_flight,
    )
    judge, asked = plugin.build(plugin.config(), setting), request()
    figure = await cpu_ms(lambda: judge.send(asked), in_flight)
    await judge.aclose()
    return figure


def main() -> None:
    """Print the table; with MEASURED, append it for `benchmarks/measured.py`."""
    port: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
    server = multiprocessing.Process(target=serve, args=(port,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}/v1"
    rows = []
    for in_flight in (100, 400):
        base = anyio.run(bare, url, in_flight)
        print(f"{in_flight} in flight: bare httpx2 {base:.2f} ms a call")
        for adapter in ("compatible", "openai", "anthropic", "google"):
            figure = anyio.run(through, adapter, url, in_flight)
            ratio = figure / base
            print(f"  {adapter:11s} {figure:.2f} ms   {ratio:.2f} of it")
            if adapter == "compatible":
                bar = f"{adapter} at {in_flight} in flight: <= 1.5 x bare httpx2"
                rows.append({"bar": bar, "figure": f"{ratio:.2f}"})
        live.MAX_CONNECTIONS, split = 10_000, live.MAX_CONNECTIONS
        one = anyio.run(through, "compatible", url, in_flight)
        live.MAX_CONNECTIONS = split
        print(f"  compatible, one pool: {one:.2f} ms   {one / base:.2f} of it")
    server.terminate()
    if (path := os.environ.get("MEASURED")) is not None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
