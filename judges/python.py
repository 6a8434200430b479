"""A judge that is a Python function of the user's own."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from pkgutil import resolve_name
from threading import Thread
from typing import Any

import anyio
from anyio.lowlevel import current_token
from pydantic import BaseModel, ConfigDict, Field

from judges.bounds import input_bound
from judges.live import Message, count, invalid, messages, normalised, word
from judges.rubrics.fence import well_formed
from orchestrator.core.errors import BadRequest, JudgeError
from orchestrator.core.money import Nano, PriceCard, ceiling_cost
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.wire import Billing, Finish, Image, Json, Reply, Request, Text, Usage

COUNTS = ("input", "cached_input", "cache_write_5m", "cache_write_1h", "output")
"""What `usage` may count, in tokens: the classes of `price_usd_per_1m`, disjoint as there."""

_BESIDES = frozenset({"usage", "model", "finish", "request_id"})


class PythonConfig(BaseModel):
    """The key `python` of a judge.

    `call` names the function as `package.module:function`. The module must be importable:
    installed, or in a folder on `PYTHONPATH`. With `usd_per_call` a call costs that, and the
    function need not count tokens.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    call: str
    usd_per_call: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)


class PythonJudge:
    """Asks a function or coroutine function of the user's own.

    It is called as ``call(messages, schema=..., max_output_tokens=...)``: `messages` is a list of
    ``{"role": ..., "content": ...}`` with the stable prefix first, a content that holds pictures as
    a list of `Text` and `Image`; `schema` is the JSON Schema of the verdict, empty for a system under test. It returns the reply's
    text, or a mapping with

    - `text` : the reply
    - `usage` : tokens by class, ``{"input": 812, "output": 40}``; also `cached_input`,
      `cache_write_5m` and `cache_write_1h`, which `input` excludes. Without it, and without
      `usd_per_call`, the whole hold is charged
    - `model` : who answered
    - `finish` : `stop`, or else `length`, `refused`, `blocked` or `empty`
    - `request_id` : the provider's own name of the call

    The hold is a bound of the messages and the schema as input, and `max_output_tokens` of output:
    it is the function's duty to pass that limit on and to make one call. A function that is no
    coroutine function runs in a thread of its own, which a timeout leaves behind. A `JudgeError`
    that it raises counts as it stands; after any other error the call may have been billed.

    Raises
    ------
    InvalidCampaign
        The function can't be imported.
    """

    def __init__(self, config: PythonConfig, setting: JudgeSetting) -> None:
        self._call = _resolved(config.call, setting.name)
        self._name = config.call
        self._counts_tokens = config.usd_per_call is None

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Bound one call: all bytes as input tokens, and output up to the limit."""
        return ceiling_cost(input_bound(request), request.max_output_tok, card)

    async def send(self, request: Request) -> Reply:
        """Call the function once."""
        try:
            said = await self._said(request)
        except JudgeError:
            raise
        except (Exception, SystemExit) as exc:  # noqa: BLE001  # the user's code may raise anything
            failure = JudgeError(f"{self._name} raised {_described(exc)}")
        else:
            return self._reply(said)
        # Raised from outside the handler: the words of what caused it may quote an item or a key.
        raise failure

    async def aclose(self) -> None:
        """Close nothing: what the function opened is its own."""

    async def _said(self, request: Request) -> Any:
        said = [{"role": m.role, "content": _content(m)} for m in messages(request)]
        asked = {"schema": request.schema, "max_output_tokens": request.max_output_tok}
        if inspect.iscoroutinefunction(self._call):
            return await self._call(said, **asked)
        result = await _in_thread(lambda: self._call(said, **asked))
        return await result if inspect.isawaitable(result) else result

    def _reply(self, said: Any) -> Reply:
        match {"text": said} if isinstance(said, str) else said:
            case {"text": str() as text, **rest} if rest.keys() <= _BESIDES:
                pass
            case _:
                raise self._misshapen(said)
        ended: Any = rest.get("finish") or (Finish.STOP if text.strip() else Finish.EMPTY)
        try:
            finish = Finish(ended)
        except ValueError:
            raise self._misshapen(said) from None
        usage, flags = normalised(read_usage, rest.get("usage"), text=text)
        if rest.get("usage") is None and not self._counts_tokens:
            usage = Usage()
        return Reply(
            text=well_formed(text),
            finish=finish,
            usage=usage,
            served_model=word(str(rest.get("model") or "")),
            request_id=word(str(rest.get("request_id") or "")),
            flags=flags,
        )

    def _misshapen(self, said: object) -> BadRequest:
        # The work is done, and the same question would be answered in the same form again.
        return BadRequest(
            f"{self._name} returned {type(said).__name__}; wants a text, or a mapping with text "
            f"and at most {', '.join(sorted(_BESIDES))}",
            billing=Billing.YES,
        )


def read_usage(usage: Json) -> Usage:
    """Read the tokens that a function counted.

    Raises
    ------
    ValueError
        It counts a class that there is not, or what is no number of tokens.
    """
    if not isinstance(usage, Mapping) or usage.keys() - {*COUNTS}:
        raise ValueError(f"wants {', '.join(COUNTS)}")
    return Usage(**{f"{name}_tok": count(usage, name) for name in COUNTS})


def _content(message: Message) -> str | list[Text | Image]:
    return list(message.content) if message.text is None else message.text


def _resolved(call: str, judge: str) -> Callable[..., Any]:
    if call.count(":") != 1:
        raise invalid(judge, "python.call", f"wants package.module:function, not {call!r}")
    try:
        function = resolve_name(call)
    except Exception as exc:  # importing runs the user's code
        what = f"{call} can't be imported ({type(exc).__name__}: {exc})"
        hint = "; is its folder on PYTHONPATH?" if isinstance(exc, ImportError) else ""
        raise invalid(judge, "python.call", what + hint) from exc
    if not callable(function):
        raise invalid(judge, "python.call", f"{call} is no function")
    called: Callable[..., Any] = function
    return called


def _described(exc: BaseException) -> str:
    """Name an error and its place: its own words may quote an item or a key."""
    frames = traceback.extract_tb(exc.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(exc).__name__}{place}"


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a thread that a cancelled task leaves behind and the process never joins.

    A thread of a pool would keep the process from ending while the function hangs.
    """
    loop, ended = current_token(), anyio.Event()
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except (Exception, SystemExit) as exc:  # noqa: BLE001  # raised where it is waited for
            result.set_exception(exc)
        finally:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                anyio.from_thread.run_sync(ended.set, token=loop)

    Thread(target=run, daemon=True, name="sortition-python-judge").start()
    await ended.wait()
    return result.result()


PLUGIN = Plugin(config=PythonConfig, build=PythonJudge)
