import functools
import subprocess
import sys
import threading
import time
from types import ModuleType

import anyio
import anyio.lowlevel
import pytest

from judges.bounds import input_bound
from judges.python import COUNTS, PythonConfig, PythonJudge
from orchestrator.core.errors import (
    BadRequest,
    InvalidCampaign,
    JudgeError,
    QuotaExhausted,
    RateLimited,
    TimedOut,
)
from orchestrator.core.money import FREE, PriceCard, cost
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.query import MissingReason
from orchestrator.core.wire import Billing, Chat, Finish, Image, Request, Text, Turn, Usage
from orchestrator.testing.adapters import AdapterContract
from orchestrator.testing.live import SCHEMA, STUDY, asked, posed

VERDICT = '{"score": 4}'


@pytest.fixture(autouse=True)
def own(monkeypatch):
    """A module of the user's own."""
    module = ModuleType("own_judges")
    monkeypatch.setitem(sys.modules, "own_judges", module)
    return module


def judge(call="own_judges:grade", **config):
    setting = JudgeSetting(name="jury", judge=0, study=STUDY, max_output_tok=400)
    return PythonJudge(PythonConfig(call=call, **config), setting)


def made_of(own, function, **config):
    own.grade = function
    return judge(**config)


def reply_of(own, said, **config):
    """What comes of a function that returns something."""
    return anyio.run(made_of(own, lambda *_, **__: said, **config).send, asked("rate", "x"))


def failure_of(own, function, **config):
    with pytest.raises(JudgeError) as failed:
        anyio.run(made_of(own, function, **config).send, asked("rate", "x"))
    return failed.value


def raising(error):
    def grade(*_, **__):
        raise error

    return grade


class TestContract(AdapterContract):
    @pytest.fixture
    def calls(self):
        return []

    @pytest.fixture
    def adapter(self, own, calls):
        async def grade(messages, *, schema, max_output_tokens):
            calls.append(messages)
            await anyio.lowlevel.checkpoint()
            return {"text": VERDICT, "usage": {"input": 20, "output": max_output_tokens}}

        return made_of(own, grade)

    @pytest.fixture
    def requests(self):
        return [asked("rate"), asked("rate", "x"), asked("rate this", "漢字 " * 50)]

    @pytest.fixture
    def attempts(self, calls):
        return lambda _: len(calls)

    @pytest.fixture
    def failing(self, own):
        return [
            made_of(own, raising(error))
            for error in (RateLimited(), TimedOut(), QuotaExhausted(), KeyError("x"), ValueError())
        ]

    @pytest.fixture
    def hanging(self, own):
        async def grade(messages, **_):
            await anyio.sleep_forever()

        return made_of(own, grade)


# What the function gets


def test_a_function_gets_the_request_and_nothing_else(own):
    """Messages with the stable prefix first, the schema of the verdict and the output limit."""
    got = []

    async def grade(*args, **kwargs):
        got.append((args, kwargs))
        return VERDICT

    anyio.run(made_of(own, grade).send, asked("rate", "item \ud800", max_output_tok=7))
    said = [{"role": "system", "content": "rate"}, {"role": "user", "content": "item \ufffd"}]
    assert got == [((said,), {"schema": SCHEMA, "max_output_tokens": 7})]


def test_pictures_and_conversations_reach_the_function(own):
    """A content with pictures is a list of parts, and a conversation keeps its roles."""
    got = []
    turns = (Turn(role="user", content="hi"), Turn(role="assistant", content="ho"))
    picture = Image(media_type="image/png", data=b"\x89")
    request = asked("rate", "x")
    request = Request(
        query=request.query,
        attempt=request.attempt,
        parts=(*request.parts, picture, Chat(turns=turns)),
        max_output_tok=400,
        schema=SCHEMA,
    )
    grade = lambda messages, **_: got.extend(messages) or VERDICT  # noqa: E731
    anyio.run(made_of(own, grade).send, request)
    assert got[1:] == [
        {"role": "user", "content": [Text(text="x"), picture]},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
    ]


def test_a_system_is_asked_as_anyone_would_ask_it(own):
    """It gets its prompt alone, a conversation by its roles; its answer comes back whole."""
    got = []
    answer = ' \n{"score": 4}\n</verdict> 42\n\n'

    def solve(messages, *, schema, max_output_tokens):
        got.append((messages, schema))
        return answer

    turns = (Turn(role="system", content="be brief"), Turn(role="user", content=" 2+2?\n"))
    for prompt, sent in ((turns[1].content, turns[1:]), (Chat(turns=turns), turns)):
        reply = anyio.run(made_of(own, solve).send, posed(prompt))
        assert (reply.text, reply.finish) == (answer, Finish.STOP)
        assert got.pop() == ([{"role": t.role, "content": t.content} for t in sent], {})


# How it is called


def test_a_plain_function_runs_beside_the_loop(own):
    """Calls that wait in a thread of their own wait at the same time."""
    gate = threading.Barrier(8, timeout=10)

    def grade(*_, **__):
        gate.wait()
        return VERDICT

    async def main():
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(adapter.send, asked("rate", "x"))

    adapter = made_of(own, grade)
    anyio.run(main)


class Grader:
    async def __call__(self, messages, **_):
        return VERDICT

    async def grade(self, messages, **_):
        return VERDICT

    def plain(self, messages, **_):
        return VERDICT


@pytest.mark.parametrize(
    "function",
    [
        Grader(),
        Grader().grade,
        Grader().plain,
        functools.partial(Grader.grade, Grader()),
        lambda messages, **_: Grader().grade(messages),
        lambda *_, **__: VERDICT,
    ],
)
def test_whatever_can_be_called_is_called(own, function):
    """Objects, methods, partial functions, and functions that return something to await."""
    adapter = made_of(own, function)
    assert anyio.run(adapter.send, asked("rate", "x")).text == VERDICT


def test_a_plain_function_is_left_behind_by_a_timeout(own):
    """Whoever waits is let go at once, and what the function says later is dropped."""
    gate = threading.Event()
    adapter = made_of(own, lambda *_, **__: gate.wait(10) and VERDICT)

    async def main():
        began = time.monotonic()
        with anyio.move_on_after(0.05) as scope:
            await adapter.send(asked("rate", "x"))
        gate.set()
        await anyio.sleep(0.05)
        return scope.cancelled_caught, time.monotonic() - began

    was_cancelled, took_s = anyio.run(main)
    assert was_cancelled
    assert took_s < 5


def test_a_function_that_never_returns_does_not_keep_the_process(tmp_path):
    """The process ends although the function hangs."""
    (tmp_path / "stuck.py").write_text(
        "import threading\ndef grade(*_, **__):\n    threading.Event().wait()\n"
    )
    program = (
        "import anyio\n"
        "from judges.python import PythonConfig, PythonJudge\n"
        "from orchestrator.core.ports import JudgeSetting\n"
        "from orchestrator.core.wire import Request, Attempt\n"
        "setting = JudgeSetting(name='j', judge=0, study=None, max_output_tok=1)\n"
        "judge = PythonJudge(PythonConfig(call='stuck:grade'), setting)\n"
        "request = Request(query=None, attempt=Attempt(), parts=(), max_output_tok=1, schema={})\n"
        "async def main():\n"
        "    with anyio.move_on_after(0.1):\n"
        "        await judge.send(request)\n"
        "anyio.run(main)\n"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20, env=environment)


# What it returns


def test_a_text_is_a_reply_whose_usage_nobody_counted(own):
    """C11: the whole hold is charged; unknown is not zero."""
    reply = reply_of(own, VERDICT)
    assert (reply.text, reply.finish, reply.usage, reply.flags) == (
        VERDICT,
        Finish.STOP,
        None,
        (),
    )


def test_a_mapping_says_who_answered_and_what_it_took(own):
    """All of it comes through."""
    said = {
        "text": VERDICT,
        "usage": dict.fromkeys(COUNTS, 3) | {"input": 7},
        "model": "acme-std",
        "request_id": "r1",
    }
    reply = reply_of(own, said)
    assert (reply.text, reply.finish) == (VERDICT, Finish.STOP)
    assert (reply.served_model, reply.request_id, reply.flags) == ("acme-std", "r1", ())
    assert reply.usage == Usage(
        input_tok=7,
        cached_input_tok=3,
        cache_write_5m_tok=3,
        cache_write_1h_tok=3,
        output_tok=3,
    )


def test_a_call_costs_its_tokens_at_the_judges_price(own):
    """2,000 x 2.00 + 8,000 x 0.20 + 500 x 10.00 USD per million."""
    card = PriceCard(input=2_000_000, cached_input=200_000, output=10_000_000)
    usage = {"input": 2_000, "cached_input": 8_000, "output": 500}
    assert cost(reply_of(own, {"text": "4", "usage": usage}).usage, card) == 10_600_000


def test_at_a_price_per_call_tokens_need_not_be_counted(own):
    """The call costs its price, counted or not."""
    card = PriceCard(per_call=2_000_000)
    for said in (VERDICT, {"text": VERDICT, "usage": {"input": 7, "output": 1}}):
        adapter = made_of(own, lambda *_, _said=said, **__: _said, usd_per_call="0.002")
        reply = anyio.run(adapter.send, asked("rate", "x"))
        assert cost(reply.usage, card) == adapter.ceiling(asked("rate", "x"), card) == 2_000


@pytest.mark.parametrize(
    "usage",
    [
        {"input": -1, "output": 1},
        {"input": 1.5, "output": 1},
        {"input": "1", "output": 1},
        {"input": True, "output": 1},
        {"input": 1},
        {"output": 1},
        {"input": 1, "output": 1, "reasoning": 1},
        {"prompt_tokens": 1, "completion_tokens": 1},
        7,
    ],
)
def test_a_usage_that_is_none_counts_as_missing(own, usage):
    """No bill is made of it, and the answer says so."""
    for config in ({}, {"usd_per_call": 1}):
        reply = reply_of(own, {"text": VERDICT, "usage": usage}, **config)
        assert (reply.text, reply.usage) == (VERDICT, None)
        assert reply.flags == ("usage_inconsistent",)


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ({"text": VERDICT, "finish": "length"}, Finish.LENGTH),
        ({"text": "no", "finish": "refused"}, Finish.REFUSED),
        ({"text": "", "finish": "blocked"}, Finish.BLOCKED),
        ({"text": " ", "finish": None}, Finish.EMPTY),
        ("", Finish.EMPTY),
    ],
)
def test_a_function_can_say_how_a_reply_ended(own, said, finish):
    """C27: a cut answer is no verdict; nothing at all is empty."""
    assert reply_of(own, said).finish is finish


@pytest.mark.parametrize(
    "said",
    [
        None,
        4,
        {"score": 4},
        {"text": None},
        {"text": VERDICT, "cost": 0.01},
        {"text": VERDICT, "finish": "done"},
        {"text": VERDICT, "finish": ["stop"]},
        [VERDICT],
    ],
)
def test_a_reply_of_no_form_was_paid_for(own, said):
    """The work is done, so the hold is charged, and it is not asked for again."""
    failure = failure_of(own, lambda *_, **__: said)
    assert (type(failure), failure.billing) == (BadRequest, Billing.YES)
    assert "own_judges:grade returned" in str(failure)
    assert VERDICT not in str(failure)


# What it raises


def test_an_error_of_ours_counts_as_it_stands(own):
    """A function can say itself that it has to wait, or that nothing was billed."""
    error = RateLimited("slower", retry_after_s=7.0)
    assert failure_of(own, raising(error)) is error


@pytest.mark.parametrize(
    "error", [KeyError("item text"), OSError("sk-CANARY"), TimeoutError(), StopIteration()]
)
@pytest.mark.parametrize("is_async", [False, True])
def test_after_any_other_error_the_call_may_have_been_billed(own, error, is_async):
    """Its name and place are said; its words, which may quote an item or a key, are not."""

    async def grade(*_, **__):
        raise error

    failure = failure_of(own, grade if is_async else raising(error))
    assert (type(failure), failure.billing) == (JudgeError, Billing.UNKNOWN)
    assert failure.reason is MissingReason.SERVER_ERROR
    assert failure.__cause__ is failure.__context__ is None
    assert "item text" not in str(failure)
    assert "CANARY" not in str(failure)
    assert ".py:" in str(failure)


def test_a_function_that_exits_ends_its_call_and_not_the_run(own):
    """Nobody waits for it for ever either."""

    async def grade(*_, **__):
        sys.exit(1)

    for function in (grade, lambda *_, **__: sys.exit(1)):
        assert failure_of(own, function).billing is Billing.UNKNOWN


# What it may cost


def test_the_ceiling_is_of_the_request_and_its_limit(own):
    """All bytes as input, and output up to the limit; nothing where it is free."""
    own.grade = len
    request = asked("rate", "漢字", max_output_tok=7)
    card = PriceCard(input=1_000, output=10_000)
    assert judge().ceiling(request, card) == input_bound(request) + 70
    assert judge().ceiling(request, FREE) == 0


# What is named


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("own_judges", "wants package.module:function"),
        ("own_judges:a:b", "wants package.module:function"),
        ("no_such_module:grade", "PYTHONPATH"),
        ("own_judges:no_such_function", "AttributeError"),
        ("own_judges:", "is no function"),
        ("own_judges:__name__", "is no function"),
        ("own judges:grade", "can't be imported"),
        (":", "can't be imported"),
    ],
)
def test_a_function_that_is_none_is_one_problem_of_the_campaign(call, said):
    """It is found before any call, and says where to look."""
    with pytest.raises(InvalidCampaign, match=said) as refused:
        judge(call)
    (problem,) = refused.value.problems
    assert problem.path == "judges.jury.python.call"


def test_a_module_that_fails_is_one_problem_of_the_campaign(tmp_path, monkeypatch):
    """Importing runs the user's code, which may fail in any way."""
    (tmp_path / "failing_judges.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidCampaign, match="ZeroDivisionError"):
        judge("failing_judges:grade")


def test_a_method_can_be_named(own):
    """What stands after the colon may have dots."""
    own.Grader = Grader()
    adapter = judge("own_judges:Grader.grade")
    assert anyio.run(adapter.send, asked("rate", "x")).text == VERDICT
