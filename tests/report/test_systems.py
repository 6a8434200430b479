"""Systems under test beside judges: what each was asked, what failed where, and what it cost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from orchestrator.core.events import JudgeDown, JudgeUp
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Origin
from orchestrator.report import html, markdown, panel, result, screen, wording
from orchestrator.report.summary import summarise

SYSTEMS = [{"name": n, "adapter": "mock", "model": f"{n}-9"} for n in ("m1", "m2")]


@pytest.fixture
def run(log, make):
    """Two systems, two judges: an answer judged, one decided by a key, one that never came."""
    log.opened(arms=("m1", "m2"), systems=SYSTEMS, kind="check")
    log.generated(0, unit=0, system=2, cost=3_000_000, served_model="m1-9b")
    log.judged(1, 4.0, unit=0, cost=5_000_000)
    log.generated(2, unit=1, system=3, cost=4_000_000)
    log.judged(3, 2.0, unit=1, cost=0, hold=0, origin=Origin.KEY)
    log.asked_for(4, make.lost("refused", cost=2_000_000, detail="no"), unit=2, system=2)
    log.missed(5, "no_answer", unit=2)
    log.missed(6, "parse_failure", unit=0, judge=1, cost=1_000_000)
    return log


def document(data):
    return json.loads(json.dumps(result.document(data), allow_nan=False))


def test_each_is_counted_by_itself(run):
    """A system's questions are its own, and a judge's those of the judge."""
    data = summarise(run.rows)
    m1, m2 = data.systems
    large, small = data.judges
    assert (m1.name, m1.model, m1.asked, m1.answered) == ("m1", "m1-9", 2, 1)
    assert m1.missing == {"refused": 1}
    assert m1.charge.settled == 5_000_000
    assert m1.served_models == {"m1-9b": 1}
    assert (m2.asked, m2.answered, m2.missing) == (1, 1, {})
    assert (large.asked, large.answered, large.keyed) == (3, 2, 1)
    assert large.missing == {"no_answer": 1}
    assert large.n_idle == 1
    assert small.missing == {"parse_failure": 1}
    assert large.per_answer == 5_000_000


def test_no_generation_enters_what_verdicts_say(run):
    """Arms, units, scores and agreement are of verdicts alone."""
    data = summarise(run.rows)
    assert [(arm.answered, arm.n_lost) for arm in data.arms] == [(1, 2), (1, 0)]
    assert data.n_units_answered == 2
    assert [s.n for judge in data.judges for s in judge.scores] == [1, 0]
    assert all(system.scores == () for system in data.systems)


def test_what_the_key_decided_says_nothing_of_a_judge(log):
    """No constant, no agreement and no verdict of its own; arms have all verdicts."""
    log.opened(kind="check")
    for n in range(60):
        unit = n // 2
        log.judged(n, 1.0 + unit % 2, unit=unit, judge=n % 2, cost=0, hold=0, origin=Origin.KEY)
    log.judged(60, 4.0, unit=30)
    data = summarise(log.rows)
    assert data.agreement == ()
    assert [s.n for judge in data.judges for s in judge.scores] == [1, 0]
    assert data.arms[0].bounds[0].n == 61
    assert [row[0] for row in panel.said(data).rows] == ["large"]
    assert "What the key decided is no judge's own" in panel.said_note(data)
    assert "judges: 1 answer, 60 by the key, 0 missing" in screen.closing_lines(data)[-2]


def test_a_judge_that_a_key_leaves_nothing_but_wrong_answers_is_no_constant(log):
    """What is left to it may well be all alike."""
    log.opened(kind="check", judges=("j",))
    for n in range(30):
        log.judged(n, 1.0, unit=n)
    assert any("nearly a constant" in line for line in panel.doubts(summarise(log.rows)))
    log.judged(30, 5.0, unit=30, cost=0, hold=0, origin=Origin.KEY)
    assert panel.doubts(summarise(log.rows)) == []


def test_where_a_key_decides_all_no_table_says_what_judges_said(log):
    log.opened(kind="check", judges=("key",))
    log.judged(0, 1.0, cost=0, hold=0, origin=Origin.KEY).stop(StopReason.FINISHED)
    data = summarise(log.rows)
    assert panel.said(data).rows == ()
    assert "| judge | criterion |" not in markdown.render(data)
    assert "What they said" not in html.render(data)


def test_failures_and_money_stand_apart_by_role(run):
    """What systems failed in is no failure of a judge, and each role has its money."""
    found = document(summarise(run.rows))
    assert found["counts"]["by_role"] == {
        "judge": {"asked": 4, "answered": 2, "missing": {"parse_failure": 1, "no_answer": 1}},
        "system": {"asked": 3, "answered": 2, "missing": {"refused": 1}},
    }
    assert found["counts"]["asked"] == 7
    spend = found["spend"]
    assert spend["by_system"]["m1"]["settled_nano_usd"] == 5_000_000
    assert spend["by_role"]["system"]["settled_nano_usd"] == 9_000_000
    assert spend["by_role"]["judge"]["settled_nano_usd"] == 6_000_000
    assert spend["by_purpose"]["generate"]["settled_nano_usd"] == 9_000_000
    parts = (*spend["by_judge"].values(), *spend["by_system"].values())
    assert sum(part["settled_nano_usd"] for part in parts) == spend["settled_nano_usd"]
    assert [one["name"] for one in found["systems"]] == ["m1", "m2"]
    assert "scores" not in found["systems"][0]


def test_the_report_tells_them_apart(run):
    """Page and Markdown have a table of systems, and say what had nothing to judge."""
    data = summarise(run.rows)
    grid = panel.systems(data)
    assert grid.rows[0][0] == "m1"
    assert grid.rows[0][-1] == "refused 1"
    judges = panel.judges(data)
    row = dict(zip(judges.head, judges.rows[0], strict=True))
    assert (row["missing"], row["nothing to judge"], row["by the key"]) == ("0", "1", "1")
    page, text = html.render(data), markdown.render(data)
    for shown in (page, text):
        assert "Systems under test" in shown
        assert "no answer of the system to judge 1" in shown
    assert "of these to systems under test 2 of 3 answered (refused 1)" in wording.fate(data)
    assert "of it for systems" in text


def test_the_closing_lines_count_them_apart(run):
    """A generation that failed is not counted twice over with the verdict that it cost."""
    said = " ".join(screen.closing_lines(summarise(run.rows)))
    assert "judges: 1 answer, 1 by the key, 2 missing; systems: 2 answers, 1 missing" in said


def test_a_run_without_systems_speaks_of_none(log):
    """Judges alone have no word of systems."""
    data = summarise(log.opened().judged(0, 4.0).rows)
    assert data.systems == ()
    assert "systems" not in markdown.render(data)
    assert "Systems under test" not in html.render(data)
    assert document(data)["systems"] == []


def test_an_outage_of_a_system_is_its_own(run):
    """Which one went down is told by its name; a run that lost a system is incomplete."""
    run.add(JudgeDown(judge=2, until=None, why="quota"))
    run.stop(StopReason.FINISHED)
    data = summarise(run.rows)
    assert data.systems[0].down == "quota"
    assert not any(judge.down for judge in data.judges)
    assert "m1 went down after 1 answer (quota)" in wording.ending(data)
    assert any(line.startswith("m1 took no more questions") for line in panel.outages(data))
    run.rows.pop()
    run.add(JudgeUp(judge=2))
    assert summarise(run.rows).systems[0].down == ""


def test_answers_alone_are_no_missing_verdicts(log):
    """A run that only asks systems says how many answers came."""
    log.opened(judges=(), systems=SYSTEMS, arms=("m1", "m2"), kind="generate", estimate=[])
    log.generated(0, system=0).generated(1, unit=1, system=1).stop(StopReason.FINISHED)
    data = summarise(log.rows)
    assert wording.answer(data) == "2 answers of 2 systems; none was judged."
    assert document(data)["exit_code"] == 0
    assert screen.closing_lines(data)
    html.render(data)
    markdown.render(data)


def test_no_verdict_is_no_answer_whatever_systems_said(run):
    """Where systems answered and no judge did, there is nothing to say."""
    rows = [row for row in run.rows if getattr(row.event, "q", 0) not in {1, 3}]
    run.rows = rows
    run.stop(StopReason.FINISHED)
    data = summarise(run.rows)
    assert data.counts.answered == 2
    assert data.counts.verdicts == 0
    assert document(data)["exit_code"] == 6
    assert "No question was answered" in wording.ending(data)


def test_prices_and_models_of_systems_are_told(run):
    """What is needed to repeat the run holds the systems too."""
    facts = wording.facts(summarise(run.rows))
    assert "m1: m1-9b" in facts["models served"]
    assert "m2: $2.00 in" in facts["prices"]


def test_calls_that_a_key_spared_take_no_time(run):
    """Mean time is of calls; a verdict by a key had none."""
    large = summarise(run.rows).judges[0]
    assert large.latency_s == pytest.approx(2.0)
    assert replace(large, keyed=0).per_answer == 2_500_000
