"""The status lines: narrow, plain, and never silent about why nothing moves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.events import JudgeDown, LimitReached
from orchestrator.core.ids import JudgeIx
from orchestrator.engine.fold import State
from orchestrator.report.screen import (
    WIDTH,
    JudgeProgress,
    Progress,
    one_line,
    status_lines,
    why_waiting,
)
from orchestrator.report.wording import columns
from orchestrator.session import Session, clock_time
from orchestrator.testing.fakes import FakeAdapter, Script, fake_crew

WAITS = "429: waiting 6.2 s (server asked 6)"
RUN = Progress(
    name="summary-quality",
    run="20261130-091200-summary-quality-k3f9",
    n_asked=3_190,
    n_told=3_120,
    n_open=70,
    in_flight=42,
    settled=2_490_000_000,
    held=93_000_000,
    uncertain=18_000_000,
    cap=20_000_000_000,
    missing={"refused": 8, "truncated": 12, "parse_failure": 14, "timeout": 6},
    judges=(
        JudgeProgress(name="large", asked=142, answered=141, in_flight=6, limit=16),
        JudgeProgress(name="small", asked=2_190, answered=2_160, limit=40, waiting=WAITS),
    ),
    headline="Difference: new - old 0.42 [0.24, 0.60]",
    half_width=0.131,
    target=0.1,
    elapsed_s=702.0,
)


def test_the_status_of_a_run():
    assert status_lines(RUN) == [
        "summary-quality  running  20261130-091200-summary-quality-k3f9  00:11:42",
        (
            "spend  $2.490 settled + $0.093 held + $0.018 uncertain of $20.00  "
            "[##--------------]  13.0%"
        ),
        "target half-width 0.1   now 0.131   Difference: new - old 0.42 [0.24, 0.60]",
        "answers 3,080   cached 0   asked 3,190   open 70   missing 40",
        "missing 1.3%: refused 8  truncated 12  parse_failure 14  timeout 6",
        "waiting  42 answers under way; small 429: waiting 6.2 s (server asked 6)",
        "judge      asked   answered  in flight  limit  state",
        "large        142        141          6     16  ok",
        "small      2,190      2,160          0     40  429: waiting 6.2 s (server asked 6)",
    ]


def test_answers_of_systems_are_counted_apart_from_verdicts():
    """What a system did not answer is no missing verdict twice over."""
    run = Progress(
        n_asked=9,
        n_told=5,
        missing={"no_answer": 1},
        n_generated=3,
        lost={"refused": 1},
        judges=(JudgeProgress(name="j", asked=5), JudgeProgress(name="m", is_system=True)),
    )
    assert (
        "verdicts 4, missing 1   answers of systems 3, missing 1   cached 0   asked 9   open 0"
    ) in status_lines(run)
    assert any(line.startswith("judge or system ") for line in status_lines(run))
    assert "4 verdicts, 1 missing; 3 answers of systems, 1 missing" in one_line(run)
    assert Progress.from_json(run.to_json()) == run
    alone = Progress(n_told=2, judges=(JudgeProgress(name="m", is_system=True),))
    assert any(line.startswith("answers 2 ") for line in status_lines(alone))
    assert any(line.startswith("system ") for line in status_lines(alone))


def test_a_judge_that_waits_is_what_the_run_waits_for():
    """Why nothing moves is said on every display, of each judge."""
    down = JudgeProgress(name="mid", state="down: 401", waiting="down until 12:31:05: overloaded")
    run = replace(RUN, in_flight=0, judges=(RUN.judges[1], down))
    reason = f"small {WAITS}; mid down until 12:31:05: overloaded"
    assert why_waiting(run) == reason
    assert f"waiting  {reason}" in status_lines(run)
    assert f"waiting: {reason}" in one_line(run)
    assert why_waiting(replace(run, state="finished")) == ""
    assert why_waiting(replace(run, waiting="draining")) == f"draining; {reason}"


def test_cached_answers_are_counted_on_every_display():
    run = replace(RUN, n_cached=12)
    assert "answers 3,080   cached 12   asked" in "\n".join(status_lines(run))
    assert "3,080 answers (12 cached), 40 missing" in one_line(run)


def test_one_line_says_the_same_shortly():
    line = one_line(RUN)
    for fact in (
        "3,080 answers",
        "40 missing",
        "$2.490",
        "$20.00",
        "0.131",
        "42 answers under way",
    ):
        assert fact in line
    assert "\n" not in line


def test_a_mock_run_says_so_on_every_display():
    """C57: every output carries the word mock, however long the names are."""
    run = replace(RUN, mock=True, name="x" * 300, run="y" * 300)
    assert "mock" in status_lines(run)[0]
    assert "mock" in one_line(run)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "42 answers under way"),
        ({"in_flight": 1}, "1 answer under way"),
        ({"in_flight": 0}, "70 questions held, none with a judge yet"),
        ({"in_flight": 0, "n_open": 0}, "nothing is outstanding"),
        ({"waiting": "all judges are down until 12:00"}, "all judges are down until 12:00"),
        ({"state": "paused"}, "paused by the user; 42 answers under way"),
        ({"state": "finished"}, ""),
    ],
)
def test_it_always_says_why_it_waits(changes, reason):
    run = replace(RUN, judges=RUN.judges[:1], **changes)
    assert why_waiting(run).startswith(reason)
    assert reason in one_line(run)
    assert any(line == f"waiting  {why_waiting(run)}" for line in status_lines(run)) is bool(reason)


def test_what_holds_the_run_up_is_said_before_the_counts(tmp_path):
    state = State(fake_crew([FakeAdapter(lambda _: Script())] * 2))
    session = Session(
        directory=tmp_path, blueprint=SimpleNamespace(name="n", is_mock=True), about={}
    )
    state.apply(state.crew.opened)
    assert why_waiting(session.progress(state)).startswith("nothing is outstanding")
    state.apply(JudgeDown(judge=JudgeIx(0), until=1e9, why="HTTP 429: quota"))
    assert why_waiting(session.progress(state)) == (
        f"waiting for judge0 (HTTP 429: quota) until {clock_time(1e9)}"
    )
    assert why_waiting(session.progress(state, under_way=(0, 2))) == "2 answers under way"
    state.apply(LimitReached(which="user"))
    stopping = "stopping: calls under way are received, nothing more is sent"
    assert why_waiting(session.progress(state)) == stopping
    session.is_interrupted = True
    assert why_waiting(session.progress(state)).startswith("interrupted: ")


def test_without_a_cap_the_spend_stands_alone():
    assert status_lines(Progress(settled=5_000_000))[1] == (
        "spend  $0.005 settled + $0.000 held + $0.000 uncertain, no cap"
    )


def test_a_terminal_sees_no_escape():
    """C48: names and states of foreign origin cannot steer the terminal."""
    evil = "\x1b]0;owned\x07\r\nok"
    judges = (JudgeProgress(name=evil, state=evil), JudgeProgress(name=evil, waiting=evil))
    run = Progress(name=evil, run=evil, headline=evil, waiting=evil, judges=judges)
    assert why_waiting(run).isprintable()
    for line in [*status_lines(run), one_line(run)]:
        assert line.isprintable()


names = st.text(max_size=200)
counts = st.integers(0, 10**9)


@given(name=names, state=names, n=counts, money=st.integers(0, 10**18))
def test_no_line_is_wider_than_the_screen(name, state, n, money):
    """Wide and combining characters included."""
    judge = JudgeProgress(
        name=name, asked=n, answered=n, in_flight=n, state=state, limit=n, waiting=state
    )
    missing = dict.fromkeys("abcdefghijklmnop", n)
    run = Progress(
        name=name,
        run=name,
        n_asked=n,
        n_told=16 * n or 1,
        settled=money,
        held=money,
        uncertain=money,
        cap=money,
        missing=missing,
        judges=(judge,),
        headline=name,
        waiting=state,
    )
    for line in status_lines(run):
        assert columns(line) <= WIDTH


@given(
    st.builds(
        Progress,
        name=names,
        n_asked=counts,
        cap=st.none() | counts,
        missing=st.dictionaries(names, counts, max_size=3),
        half_width=st.none() | st.floats(0, 1),
        judges=st.tuples(st.builds(JudgeProgress, name=names, asked=counts)),
        mock=st.booleans(),
    )
)
def test_progress_survives_its_row(progress):
    """`status` reads what the run wrote."""
    assert Progress.from_json(progress.to_json()) == progress


def test_rows_of_other_versions_are_read_as_far_as_known():
    assert Progress.from_json(b'{"n_asked":3,"of_tomorrow":1}') == Progress(n_asked=3)
    with pytest.raises(ValueError, match="JSON"):
        Progress.from_json(b"no row")
