"""What of items, prompts and replies is kept, under each of the settings of `output.keep`."""

from __future__ import annotations

import json

import pytest

from orchestrator import Campaign, rundir
from orchestrator.core.events import Arrived, Freed, JudgeDown, Sent
from orchestrator.core.query import Judged, Missing
from orchestrator.testing.server import Say

ITEM = "The ITEM-CANARY said: no comment."
REASON = "The REASON-CANARY is convincing."
VERDICT = json.dumps({"score": 4, "reason": REASON})


def script(provider, *, item=ITEM):
    """Reply well, and in all the ways in which a reply or an error can quote what it was asked."""
    return [
        Say(body=provider.good(VERDICT)),
        Say(status=400, body=provider.error(f"can't read: {item}")),
        Say(status=400, body=item.encode()),
        Say(status=500, body=provider.error(item)),
        Say(status=429, body=provider.error(item), headers={"Retry-After": "0"}),
        Say(body=provider.good(VERDICT)),
        Say(status=503, body=provider.error(item), headers={"Retry-After": "0"}),
        Say(body=provider.refused(f"I won't judge this: {item}")),
        Say(body=provider.good(f"{item} deserves a 4")),
        Say(body=provider.good(f'{{"score": "{item}"}}')),
        Say(body=item.encode()),
        Say(body=json.dumps(item).encode()),
        Say(body=provider.good(VERDICT)),
        Say(status=401, body=provider.error(f"no key for: {item}")),
    ]


def events(run):
    with rundir.reading(run) as reader:
        return [row.event for row in reader.read()]


@pytest.mark.parametrize(("prompts", "replies"), [("none", "none"), ("hash", "parsed")])
def test_no_word_of_an_item_or_a_reply_is_kept(
    provider, serve, written, sortition, keys, left_over, holding, prompts, replies, tmp_path
):
    """Not in the log, the cache, reports, exports or on the screen; the verdicts are there.

    Whatever the provider does: answers, refuses, quotes what it was asked in an error, breaks off.
    """
    server = serve(*script(provider))
    written(
        [{"adapter": provider.adapter, "base_url": server.url, "max_attempts": 2}],
        texts=[f"{ITEM} {n}" for n in range(14)],
        cache={"dir": "kept"},
        output={
            "keep": {"prompts": prompts, "replies": replies},
            "formats": ["html", "md", "csv", "jsonl", "parquet"],
        },
    )
    shown = [
        sortition(*words)[1:]
        for words in (
            ["validate", "campaign.yaml"],
            ["plan", "campaign.yaml"],
            ["run", "campaign.yaml", "-y", "--run-dir", "run", "--display", "log", "-j", "1"],
            ["status", "run"],
            ["status", "run", "--json"],
            ["report", "run", "-o", "again.html"],
            ["export", "run", "-o", "again.csv", "-o", "again.parquet"],
            ["verify", "run"],
            ["resume", "run", "-y", "--json"],
            ["doctor", "campaign.yaml"],
        )
    ]
    assert shown[7][0] == "every row, decision and number agrees\n"
    found = left_over()
    assert {"run/run.db", "run/report.html", "run/answers.csv", "again.html"} <= found.keys()
    assert any(name.startswith("kept/") for name in found)
    found["shown"] = str(shown).encode()
    assert holding(found, "ITEM-CANARY", "REASON-CANARY") == set()

    log = events(tmp_path / "run")
    outcomes = [event.outcome for event in log if isinstance(event, Arrived)]
    verdicts = [o.observations[0].value for o in outcomes if isinstance(o, Judged)]
    assert len(verdicts) >= 3
    assert set(verdicts) == {4.0}
    assert any(isinstance(event, Freed) for event in log)
    assert any(isinstance(event, JudgeDown) for event in log)
    assert any(isinstance(o, Missing) and o.detail for o in outcomes)
    assert all(
        bool(event.prompt) is (prompts == "hash") for event in log if isinstance(event, Sent)
    )


@pytest.mark.parametrize("prompts", ["none", "hash", "full"])
@pytest.mark.parametrize("replies", ["none", "parsed", "full"])
def test_each_setting_keeps_what_it_says(
    providers, serve, written, sortition, left_over, prompts, replies, tmp_path
):
    """Prompts and replies as asked; a provider's words, which may quote both, only with both."""
    provider = providers["compatible"]
    server = serve(*script(provider, item="WORDS-CANARY"))
    written(
        [{"adapter": "compatible", "base_url": server.url}],
        texts=[f"{ITEM} {n}" for n in range(3)],
        output={"keep": {"prompts": prompts, "replies": replies}, "formats": ["md"]},
    )
    sortition("run", "campaign.yaml", "-y", "--run-dir", "run", "-j", "1")
    db = (tmp_path / "run" / "run.db").read_bytes()
    assert (b"ITEM-CANARY" in db) is (prompts == "full")
    assert (b"REASON-CANARY" in db) is (replies == "full")
    assert (b"WORDS-CANARY" in db) is (replies == "full" and prompts != "none")
    assert sortition("verify", "run")[0] == 0
    assert not any(b"ITEM-CANARY" in data for name, data in left_over().items() if "db" not in name)
    # To show the prompt is what it is for.
    assert "ITEM-CANARY" in sortition("preview", "campaign.yaml")[1]


ODD_JUDGE = """
calls = iter(range(100))

def judge(messages, *, schema, max_output_tokens):
    text = messages[-1]["content"]
    assert "ITEM-CANARY" in text
    match next(calls):
        case 0:
            raise ValueError(text)
        case 1:
            return [text]
        case 2:
            return {"text": text, "finish": text}
        case 3:
            return {"text": text}
        case 4:
            return {text: text}
        case _:
            return '{"score": 4, "reason": "REASON-CANARY"}'
"""


def test_what_a_function_of_ones_own_raises_is_not_quoted(
    written, sortition, left_over, holding, tmp_path, monkeypatch
):
    """Its errors and odd replies are named by type and line at most."""
    (tmp_path / "odd_judge.py").write_text(ODD_JUDGE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    written(
        [{"adapter": "python", "python": {"call": "odd_judge:judge"}}],
        texts=[f"{ITEM} {n}" for n in range(6)],
        output={"keep": {"prompts": "none", "replies": "none"}, "formats": ["html", "md"]},
    )
    shown = sortition("run", "campaign.yaml", "-y", "--run-dir", "run", "--display", "log")
    assert shown[0] == 0, shown
    log = events(tmp_path / "run")
    outcomes = [event.outcome for event in log if isinstance(event, Arrived)]
    assert sum(isinstance(outcome, Judged) for outcome in outcomes) >= 1
    assert sum(isinstance(outcome, Missing) for outcome in outcomes) >= 4
    found = left_over() | {"shown": str(shown).encode()}
    written_by_user = {name for name in found if "odd_judge" in name}
    found = {name: data for name, data in found.items() if name not in written_by_user}
    assert holding(found, "ITEM-CANARY", "REASON-CANARY") == set()


def test_what_a_loop_of_ones_own_tells_is_kept_like_a_providers_words(written, tmp_path):
    """A loop that tells `str(error)` may tell a prompt."""
    for keep, kept in (({"prompts": "none", "replies": "none"}, ""), ({}, f"bad: {ITEM}")):
        path = written([{"adapter": "python", "python": {"call": "a:b"}}], output={"keep": keep})
        with Campaign.from_yaml(path).own_loop(tmp_path / f"run{len(kept)}") as run:
            (question,) = run.ask(1)
            run.tell_missing(question.id, "judge_down", detail=f"bad: {ITEM}")
        log = events(tmp_path / f"run{len(kept)}")
        (said,) = [event.outcome.detail for event in log if isinstance(event, Arrived)]
        (why,) = [event.why for event in log if isinstance(event, JudgeDown)]
        assert (said, why) == (kept, kept or "told so")
