"""Ask and tell: a campaign in the user's own loop is a run like any other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judges.bounds import MESSAGE_TOK
from judges.own_loop import OwnLoopJudge
from orchestrator import Campaign, Usage, resume, rundir
from orchestrator.core.errors import (
    BadRequest,
    ConfigError,
    IdentityChanged,
    InvalidCampaign,
    RateLimited,
    StorageFailed,
)
from orchestrator.core.events import Arrived, Asked, JudgeDown, Late, Looked, Reasked, Sent, Told
from orchestrator.core.money import PriceCard
from orchestrator.core.query import Judged, Kind, Missing, MissingReason, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Request
from orchestrator.store.sqlite import SqliteStore
from orchestrator.verification import check

TEXT = """\
version: 1
name: mine
seed: 3
data: {path: items.csv, fields: {candidate: reply}}
judges:
  - name: big
    adapter: openai
    model: some-model
    price_usd_per_1m: {input: 1.0, output: 4.0}
  - name: small
    adapter: compatible
    model: another
    base_url: http://localhost:8080/v1
    price_usd_per_1m: {input: 0.1, output: 0.4}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 1}
output: {formats: [md]}
"""
USAGE = Usage(input_tok=100, output_tok=10)


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"i{n},reply {n}\n" for n in range(6))
    (tmp_path / "items.csv").write_text("id,reply\n" + rows, encoding="utf-8")
    (tmp_path / "campaign.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def campaign(folder, **overrides):
    return Campaign.from_yaml(folder / "campaign.yaml", overrides)


def events(run):
    with rundir.reading(run) as reader:
        return [row.event for row in reader.read()]


def carry_out(run, answer, n=4, usage=USAGE):
    while questions := run.ask(n):
        for q in questions:
            run.tell(q.id, answer(q), usage)
    return run.close()


def number(q):
    return 1 + int(q.item[1:]) % 5


# --- the same run ------------------------------------------------------------------------------


def test_a_loop_carries_a_campaign_out(folder):
    """Questions say all that a call needs; the result is that of a run."""
    with campaign(folder).own_loop(folder / "run") as run:
        (first,) = run.ask()
        assert (first.judge, first.model, first.attempt) == ("big", "some-model", 1)
        assert first.arm == ""
        assert f"reply {first.item[1:]}\n" in first.prompt
        assert first.schema["required"] == ["score"]
        assert first.max_output_tok == 400
        assert run.untold == (first.id,)
        assert isinstance(run.tell(first.id, 4, USAGE), Judged)
        result = carry_out(run, number)
        assert run.is_over
    assert (result.state, result.stop_reason, result.exit_code) == ("finished", "finished", 0)
    assert result.document["counts"]["answered"] == 12
    assert result.spend["settled_nano_usd"] == 6 * (140_000 + 14_000)
    assert result.document["money"] == "real"
    assert (folder / "run" / "report.md").exists()
    assert list(check(folder / "run")) == []


MOCK = Path(__file__).parents[1] / "configs" / "quickstart.yaml"


def decisions(run):
    log = events(run)
    looks = [event for event in log if isinstance(event, Looked)]
    return [event.query for event in log if isinstance(event, Asked)], looks[-1].estimates


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of mock judges, and what they answer."""
    folder = tmp_path_factory.mktemp("whole")
    wanted = Campaign.from_yaml(
        MOCK, {"policy.max_repeats": 1, "policy.window": 7, "stop": {}, "budget.usd": 9}, limit=6
    )
    wanted.run(folder / "run")
    adapters = [judge.adapter for judge in wanted.build().crew.judges]
    return wanted, adapters, decisions(folder / "run")


@settings(max_examples=5, deadline=None)
@given(n=st.sampled_from([1, 5, 1000]), order=st.randoms(use_true_random=False))
def test_decisions_are_those_of_a_run_however_one_asks_and_tells(whole, tmp_path_factory, n, order):
    """C40: how many questions one takes and in which order one tells them can't change a decision."""
    wanted, adapters, expected = whole
    folder = tmp_path_factory.mktemp("own")
    with wanted.own_loop(folder / "run") as run:
        held = []
        while questions := [*run.ask(n), *held]:
            order.shuffle(questions)
            half = len(questions) // 2
            held = questions[:half]
            for q in questions[half:]:
                answer_as(run, q, adapters)
    assert decisions(folder / "run") == expected


def answer_as(run, q, adapters):
    """Answer as the mock judge of the run does; what costs nothing is tried again at once."""
    reply = None
    for number in range(q.attempt, 4):
        attempt = replace(q.request.attempt, number=number)
        try:
            adapters[q.request.query.judge].send(replace(q.request, attempt=attempt)).send(None)
        except StopIteration as done:
            reply = done.value
            break
        except RateLimited:
            continue
    if reply is None:
        run.tell_missing(q.id, "rate_limited")
    elif reply.finish == "stop":
        run.tell(q.id, reply.text, reply.usage)
    else:
        run.tell_missing(q.id, {"length": "truncated"}.get(reply.finish, reply.finish), reply.usage)


PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "ask-and-tell.md"


def test_the_page_shows_a_loop_that_runs(tmp_path, monkeypatch):
    """The campaign and the loop that the page prints, with a client of one's own."""
    blocks = re.findall(
        r"^```\w+ ?(\S*)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    for name, text in blocks:
        if name:
            Path(name).write_text(text, encoding="utf-8")

    class Client:
        def call(self, prompt, *, schema, max_tokens):
            assert "reply" in prompt or "[candidate]" in prompt
            assert (schema["required"], max_tokens) == (["score"], 400)
            return SimpleNamespace(text='{"score": 4}', n_in=300, n_out=12)

    (loop,) = [text for name, text in blocks if "own_loop" in text]
    scope = {"my_client": Client()}
    exec(compile(loop, "page", "exec"), scope)
    assert scope["result"].document["counts"]["answered"] == 3
    assert list(check(tmp_path / "runs" / "by-hand")) == []


def test_several_threads_may_tell(folder):
    """Calls wait for each other, so a pool of threads can work through the questions."""
    with (
        campaign(folder).own_loop(folder / "run") as run,
        ThreadPoolExecutor(max_workers=8) as threads,
    ):
        while questions := run.ask(12):
            list(threads.map(lambda q: run.tell(q.id, number(q), USAGE), questions))
    assert run.close().document["counts"]["answered"] == 12
    assert list(check(folder / "run")) == []


def test_a_loop_works_inside_a_running_event_loop(folder):
    """A notebook has a loop of its own."""

    async def notebook():
        with campaign(folder).own_loop(folder / "run") as run:
            return carry_out(run, number)

    assert anyio.run(notebook).state == "finished"


# --- money -------------------------------------------------------------------------------------


def test_a_hold_is_durable_before_a_question_is_handed_out(folder):
    """Whatever the loop does with a question, its worst case stands in the log already."""
    with campaign(folder).own_loop(folder / "run") as run:
        questions = run.ask(3)
        log = events(folder / "run")
        asked = {event.q: event.hold for event in log if isinstance(event, Asked)}
        sent = [event.q for event in log if isinstance(event, Sent)]
        assert [asked[q.id] for q in questions] == [q.hold for q in questions]
        assert sent == [q.id for q in questions]
        progress = rundir.progress(folder / "run")
        assert progress.held == sum(asked.values())
        assert progress.in_flight == 3
        assert [judge.in_flight for judge in progress.judges] == [2, 1]


def test_the_hold_is_the_prompt_in_bytes_and_the_output_limit(folder):
    """No adapter is needed to bound a call: no text has more tokens than bytes."""
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        n_bytes = len(q.prompt.encode()) - 1  # the line end between the two parts is ours
        n_schema = len(json.dumps(q.schema))
        assert q.hold == (n_bytes + n_schema + 3 * MESSAGE_TOK) * 1000 + 400 * 4000


def test_judges_of_a_loop_are_never_sent_anything_by_us(anyio_backend):
    judge, query = OwnLoopJudge(), Query(kind=Kind.RATE, judge=0, units=(0,))
    request = Request(query=query, attempt=FIRST_ATTEMPT, parts=(), max_output_tok=1, schema={})

    async def main():
        with pytest.raises(BadRequest):
            await judge.send(request)
        await judge.aclose()

    anyio.run(main)
    assert judge.ceiling(request, PriceCard(per_call=5000)) == 5


def test_without_usage_the_hold_is_charged(folder):
    """C11: what the provider did not count is taken at its worst case, and flagged."""
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        outcome = run.tell(q.id, 3)
        assert outcome.cost == q.hold
        assert outcome.flags == ("usage_missing",)
        carry_out(run, number, usage=None)
    assert list(check(folder / "run")) == []


def test_free_judges_cost_nothing_without_usage(folder):
    free = {"judges.big.price_usd_per_1m": "free", "judges.small.price_usd_per_1m": "free"}
    with campaign(folder, **free).own_loop(folder / "run") as run:
        (q,) = run.ask()
        outcome = run.tell(q.id, 3)
        assert (q.hold, outcome.cost, outcome.flags) == (0, 0, ())


def test_the_cap_holds_whatever_is_told(folder):
    """The run ends by budget, and what was spent never passes the cap."""
    with campaign(folder, **{"budget.usd": 0.01}).own_loop(folder / "run") as run:
        while questions := run.ask(3):
            for q in questions:
                run.tell(q.id, 3)
                progress = run.progress
                assert progress.settled + progress.held + progress.uncertain <= 10_000_000
    result = run.close()
    assert result.stop_reason == "budget"
    assert list(check(folder / "run")) == []


def test_a_bill_above_the_hold_is_booked_and_widens_later_holds(folder):
    """What the loop adds to a request is not in the bound; the books stay right."""
    # A window of one judge's two questions, so that later ones are held later.
    with campaign(folder, **{"policy.window": 2}).own_loop(folder / "run") as run:
        first, other = run.ask(2)
        dear = Usage(input_tok=5000)
        assert run.tell(first.id, 3, dear).cost == 5_000_000 > first.hold
        run.tell(other.id, 3, USAGE)
        third = next(q for q in run.ask(2) if q.judge == "big")
        assert third.hold == first.hold + (5_000_000 - first.hold)
        run.tell(third.id, 3, USAGE)
    assert list(check(folder / "run")) == []


# --- verdicts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "value"),
    [(4, 4.0), (4.0, 4.0), (np.int64(4), 4.0), ({"score": 4}, 4.0), ('{"score": 4}', 4.0)],
)
def test_a_verdict_is_a_number_a_mapping_or_a_text(folder, verdict, value):
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        (observation,) = run.tell(q.id, verdict, USAGE, served_model="m-1").observations
        assert observation.value == value
    assert any(
        isinstance(event, Arrived) and event.outcome.served_model == "m-1"
        for event in events(folder / "run")
    )


@pytest.mark.parametrize("verdict", [6, 3.5, float("nan"), {"other": 3}, "I'd say 4", ""])
def test_what_is_no_verdict_is_missing_and_charged(folder, verdict):
    """C28: never guessed, clamped or zero."""
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        outcome = run.tell(q.id, verdict, USAGE)
        assert isinstance(outcome, Missing)
        assert outcome.cost == 140_000
    assert list(check(folder / "run")) == []


def test_several_criteria_want_a_value_each(folder):
    scale = {"type": "boolean"}
    criteria = [{"name": "true", "scale": scale}, {"name": "kind", "scale": scale}]
    overrides = {"task": {"kind": "rate", "criteria": criteria, "allow_na": True}}
    with campaign(folder, **overrides).own_loop(folder / "run") as run:
        (q,) = run.ask()
        with pytest.raises(ConfigError, match="true, kind"):
            run.tell(q.id, 1)
        told = run.tell(q.id, {"true": 1, "kind": None}, USAGE)
        assert [o.value for o in told.observations] == [1.0, None]
    assert list(check(folder / "run")) == []


# --- missing verdicts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "paid", "uncertain"),
    [
        ("refused", True, False),
        ("parse_failure", True, False),
        ("timeout", False, True),
        ("server_error", False, True),
        ("rate_limited", False, False),
        ("bad_request", False, False),
    ],
)
def test_a_missing_verdict_is_charged_as_its_reason_has_it(folder, reason, paid, uncertain):
    """What may have been billed is uncertain, what was is charged, what was not is free."""
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        outcome = run.tell_missing(q.id, reason, detail="said so")
        assert outcome.reason == reason
        assert (outcome.cost, outcome.uncertain) == (q.hold * paid, q.hold * uncertain)
        if reason != "timeout":
            carry_out(run, number)
    assert list(check(folder / "run")) == []


def test_who_knows_better_says_whether_it_was_billed(folder):
    with campaign(folder).own_loop(folder / "run") as run:
        a, b, c = run.ask(3)
        assert run.tell_missing(a.id, "timeout", billing="no").uncertain == 0
        assert run.tell_missing(b.id, MissingReason.TIMEOUT, USAGE).cost == 14_000
        with pytest.raises(ConfigError, match="usage is charged"):
            run.tell_missing(c.id, "timeout", USAGE, billing="no")
    assert list(check(folder / "run")) == []


def test_a_call_that_may_have_been_billed_comes_again(folder):
    """As in a run: with a new hold, at the end of the order, until attempts are used up."""
    with campaign(folder, **{"judge_defaults.max_attempts": 2}).own_loop(folder / "run") as run:
        (q,) = run.ask()
        run.tell_missing(q.id, "connection_lost")
        *_, again = run.ask(100)
        assert (again.id, again.attempt, again.hold) == (q.id, 2, q.hold)
        assert isinstance(run.tell_missing(q.id, "connection_lost"), Missing)
        for other in run.untold:
            run.tell(other, 3, USAGE)
        assert run.is_over
    assert len([event for event in events(folder / "run") if isinstance(event, Reasked)]) == 1
    assert list(check(folder / "run")) == []


def test_a_truncated_reply_comes_again_with_twice_the_output(folder):
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        run.tell_missing(q.id, "truncated", Usage(input_tok=100, output_tok=400))
        (again,) = [r for r in run.ask(100) if r.id == q.id]
        assert again.max_output_tok == 2 * q.max_output_tok
        run.tell(again.id, 3, USAGE)
    assert list(check(folder / "run")) == []


def test_a_judge_that_is_down_is_asked_no_more(folder):
    """Its other questions come back to the policy; the run ends with the judges that are left."""
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        run.tell_missing(q.id, "judge_down", detail="no key")
        while questions := run.ask(5):
            for other in questions:
                assert other.judge == "small"
                run.tell(other.id, 3, USAGE)
    (down,) = [event for event in events(folder / "run") if isinstance(event, JudgeDown)]
    assert down.why == "no key"
    assert list(check(folder / "run")) == []


@pytest.mark.parametrize("reason", ["tired", "exhausted", "no_money_for_retry"])
def test_reasons_that_a_loop_can_not_give_are_refused(folder, reason):
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        with pytest.raises(ConfigError, match="reasons are refused"):
            run.tell_missing(q.id, reason)
        assert run.untold == (q.id,)


# --- resume ------------------------------------------------------------------------------------


def test_what_is_untold_is_uncertain_when_the_loop_is_opened_again(folder):
    """C18: it may have been billed; it is asked again in its old place, at a new hold."""
    with campaign(folder).own_loop(folder / "run") as run:
        first, second = run.ask(2)
        run.tell(second.id, 4, USAGE)
    assert run.close().state == "interrupted"
    assert run.close().exit_code == 130
    with campaign(folder).own_loop(folder / "run") as run:
        assert run.progress.uncertain == first.hold
        (again,) = run.ask()
        assert (again.id, again.attempt) == (first.id, 2)
        run.tell(again.id, 3, USAGE)
        result = carry_out(run, number)
    assert result.state == "finished"
    assert result.spend["uncertain_nano_usd"] == first.hold
    assert list(check(folder / "run")) == []


KILLED = """\
import os, sys
from pathlib import Path
from orchestrator import Campaign, Usage
run = Campaign.from_yaml(Path(sys.argv[1]) / "campaign.yaml").own_loop(Path(sys.argv[1]) / "run")
first, *rest = run.ask(3)
run.tell(first.id, 4, Usage(input_tok=100, output_tok=10))
os._exit(9)
"""


def test_a_killed_loop_goes_on(folder):
    """C18: a kill forgets nothing that was held or told."""
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=root, check=False)
    assert done.returncode == 9
    with campaign(folder).own_loop(folder / "run") as run:
        assert run.progress.n_told == 1
        assert run.progress.uncertain > 0
        assert carry_out(run, number).document["counts"]["answered"] == 12
    assert list(check(folder / "run")) == []


def test_a_complete_run_is_only_read_again(folder):
    with campaign(folder).own_loop(folder / "run") as run:
        carry_out(run, number)
    with campaign(folder).own_loop(folder / "run") as run:
        assert run.is_over
        assert run.ask(5) == []
    assert run.close().state == "finished"
    assert resume(folder / "run").state == "finished"


def test_only_a_loop_goes_on_with_what_a_loop_began(folder):
    """The command can't call these judges, and holds of a run are other ones."""
    with campaign(folder).own_loop(folder / "run") as run:
        run.ask()
    with pytest.raises(ConfigError, match="own_loop"):
        resume(folder / "run")
    mock = Campaign.from_yaml(folder / "campaign.yaml", mock=True)
    with pytest.raises(IdentityChanged, match="own_loop"):
        mock.run(folder / "run")
    with pytest.raises(InvalidCampaign, match="OPENAI_API_KEY is not set"):
        campaign(folder).run(folder / "other")


# --- ends --------------------------------------------------------------------------------------


def test_what_is_told_after_the_stop_is_charged_and_not_counted(folder):
    """The target was reached while calls were under way."""
    overrides = {"stop": {"target_half_width": 4.0, "every": 2, "min_items": 2}}
    with campaign(folder, **overrides).own_loop(folder / "run") as run:
        questions = run.ask(8)
        for q in questions[:6]:
            if not run.is_over:
                run.tell(q.id, number(q), USAGE)
        assert run.is_over
        left = run.untold
        assert left
        assert run.ask(8) == []
        run.tell(left[0], 3, USAGE)
    result = run.close()
    assert result.stop_reason == "precision"
    assert result.document["counts"]["late"] == 1
    assert list(check(folder / "run")) == []


def test_time_that_is_up_ends_the_asking(folder):
    """What was handed out is still told and counted."""
    with campaign(folder, **{"budget.wall_clock": "10s", "policy.window": 3}).own_loop(
        folder / "run"
    ) as run:
        questions = run.ask(3)
        run._began_s -= 11
        for q in questions:
            run.tell(q.id, 3, USAGE)
        assert run.ask(3) == []
    assert run.close().stop_reason == "deadline"
    assert list(check(folder / "run")) == []


def test_a_full_disk_ends_the_loop(folder, monkeypatch):
    """C52: nothing is handed out that is not durable; the run says failed and goes on later."""
    run = campaign(folder).own_loop(folder / "run")
    (q,) = run.ask()

    def full(self, batch):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "_commit", full)
        with pytest.raises(StorageFailed), run:
            run.tell(q.id, 3, USAGE)
    with pytest.raises(StorageFailed):
        run.close()
    with pytest.raises(ConfigError, match="closed"):
        run.ask()
    document = json.loads((folder / "run" / "result.json").read_text(encoding="utf-8"))
    assert document["state"] == "failed"
    with campaign(folder).own_loop(folder / "run") as again:
        assert carry_out(again, number).state == "finished"


def test_misuse_is_an_error_that_changes_nothing(folder):
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        with pytest.raises(ConfigError, match="not under way"):
            run.tell(q.id + 1, 3)
        with pytest.raises(ConfigError, match="above 0"):
            run.ask(0)
        run.tell(q.id, 3, USAGE)
        with pytest.raises(ConfigError, match="told already"):
            run.tell(q.id, 3, USAGE)
        (told,) = [event for event in events(folder / "run") if isinstance(event, Told)]
        assert told.q == q.id
    assert not any(isinstance(event, Late) for event in events(folder / "run"))


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tok=-(10**9)),
        Usage(input_tok=1.5),
        Usage(output_tok=float("nan")),
        Usage(output_tok=True),
        {"input_tok": 3},
        "7",
    ],
)
def test_no_usage_makes_money_go_backwards(folder, usage):
    """Tokens are whole numbers from 0 up; anything else changes nothing."""
    with campaign(folder).own_loop(folder / "run") as run:
        (q,) = run.ask()
        with pytest.raises(ConfigError, match="whole numbers from 0 up"):
            run.tell(q.id, 3, usage)
        with pytest.raises(ConfigError, match="whole numbers from 0 up"):
            run.tell_missing(q.id, "refused", usage)
        run.tell(q.id, 3, USAGE)
    assert list(check(folder / "run")) == []


def test_a_loop_that_can_not_begin_leaves_no_lock(folder):
    with campaign(folder).own_loop(folder / "run"):
        pass
    with (
        pytest.raises(IdentityChanged, match="changed: seed"),
        campaign(folder, seed=4).own_loop(folder / "run"),
    ):
        pass
    with campaign(folder).own_loop(folder / "run") as run:
        assert run.estimates[0].status == "empty"
