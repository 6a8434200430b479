"""Commands besides `run`, at live judges."""

from __future__ import annotations

import json

import pytest

PROVIDERS = ["chat", "responses", "anthropic", "google", "compatible"]
each = pytest.mark.parametrize("speaks", [*PROVIDERS, "python"], indirect=True)
providers = pytest.mark.parametrize("speaks", PROVIDERS, indirect=True)


@each
def test_what_only_looks_sends_nothing(bench):
    """And wants no key."""
    bench.monkeypatch.delenv("LIVE_KEY")
    for command in ("plan", "validate", "preview"):
        code, out, err = bench.sortition(command, bench.file())
        assert code == 0, out + err
    assert bench.server.n_requests == 0


@each
def test_a_mock_run_of_live_judges_sends_nothing(bench):
    """C57: and wants no key."""
    bench.monkeypatch.delenv("LIVE_KEY")
    ran = bench.command(words=["--mock"])
    assert ran.code == 0, ran.err
    assert ran.result["mock"]
    assert bench.server.n_requests == 0


@each
def test_the_doctor_asks_each_judge_once(bench, kit):
    bench.server.answer = lambda seen, n: kit.Answer(text='{"score": 5}')
    file = bench.file(*(bench.judge(name) for name in ("one", "two")), n_items=40)
    code, out, err = bench.sortition("doctor", file)
    assert code == 0, out + err
    assert bench.server.n_requests == 2
    assert "acme-2026-01-01" in out
    assert "$0.0008" in out
    sent = json.dumps([seen.json for seen in bench.server.seen])
    assert "item-" not in sent


@providers
def test_the_doctor_quotes_the_provider(bench):
    """C15: in one request."""
    bench.server.answer = lambda seen, n: bench.server.refuse(401)
    code, out, err = bench.sortition("doctor", bench.file())
    assert code == 4, out + err
    assert bench.server.n_requests == 1
    assert "word of the provider" in out + err
    assert "Traceback" not in err


def test_what_is_all_remembered_needs_no_money(bench):
    """C58: a hit reserves nothing, so that a cap below one call is enough for a rerun."""
    kept = {"cache": {"dir": "kept"}}
    assert bench.command(n_items=3, **kept).code == 0
    ran = bench.command(n_items=3, budget={"usd": 0.000001}, **kept)
    assert bench.server.n_requests == 3
    assert ran.code == 0, ran.err
    assert ran.result["counts"]["cached"] == 3
