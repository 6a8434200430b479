"""The command, from arguments to exit codes. Runs in process: nothing here needs the network."""

from __future__ import annotations

import io
import json
import re
import socket
import sqlite3
import sys
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator import cli, rundir
from orchestrator.core.errors import Overdraft
from orchestrator.core.events import Arrived, Asked, PriceChanged
from orchestrator.engine.ledger import Ledger
from orchestrator.store.sqlite import SqliteStore

ROOT = Path(__file__).parents[1]


TEXT = """\
version: 1
name: small
seed: 5
data: {path: items.csv, id: id, fields: {candidate: reply}}
judges:
  - name: acme
    adapter: mock
    params: {max_output_tokens: 2000}
    price_usd_per_1m: {input: 2.0, output: 10.0}
    mock: {sd: 0.5, tokens: {in: 1000, out: 300}}
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 0.10}
output: {dir: runs, formats: [html, md]}
"""


@pytest.fixture
def campaign(tmp_path):
    rows = "".join(f"i{n},reply {n}\n" for n in range(100))
    (tmp_path / "items.csv").write_text("id,reply\n" + rows, encoding="utf-8")
    path = tmp_path / "campaign.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def changed(campaign, old, new, count=1):
    text = campaign.read_text(encoding="utf-8")
    assert old in text
    campaign.write_text(text.replace(old, new, count), encoding="utf-8")
    return campaign


def the_run(tmp_path):
    (run,) = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    return run


def result(run):
    return json.loads((run / "result.json").read_text(encoding="utf-8"))


@contextmanager
def full_disk(at_commit=5):
    """Let the disk be full from one commit of the log on."""
    real, n = SqliteStore._commit, 0

    def fail(self, batch):
        nonlocal n
        n += 1
        if n >= at_commit:
            raise sqlite3.OperationalError("database or disk is full")
        real(self, batch)

    SqliteStore._commit = fail
    try:
        yield
    finally:
        SqliteStore._commit = real


def test_the_version_is_that_of_the_distribution(sortition, monkeypatch):
    """A variable of that name in the environment does not ask for it."""
    assert sortition("--version") == (0, f"sortition {version('sortition')}\n", "")
    monkeypatch.setenv("SORTITION_VERSION", "1")
    assert "uniform" in sortition("plugins")[1]


def test_the_question_before_a_resume_names_dollars(sortition, campaign, tmp_path, monkeypatch):
    """As the question before a run does."""
    sortition("run", campaign)
    monkeypatch.setattr(rundir, "is_real", lambda _: True)
    code, _, err = sortition("resume", the_run(tmp_path), "--budget-usd", "0.2", answers=["n"])
    assert code == 2
    assert "Proceed, spending at most $0.200000?" in err


# --- a run -------------------------------------------------------------------------------------


def test_a_campaign_runs_within_its_cap_and_says_so(sortition, campaign, tmp_path):
    """C01 from YAML: holds of $0.022, answers of $0.005, cap $0.10: 16 answers, $0.080000."""
    code, out, err = sortition("run", campaign)
    run = the_run(tmp_path)
    assert code == 0
    assert "next call needs $0.022, $0.020 left" in out
    assert result(run)["spend"]["settled_nano_usd"] == 80_000_000
    assert result(run)["counts"]["answered"] == 16
    assert "mock" in out
    assert "mock" in err
    for name in ("report.html", "report.md", "manifest.json", "config.resolved.yaml"):
        assert (run / name).exists()


@pytest.mark.parametrize(("formats", "name"), [("html, md", "html"), ("md", "md")])
def test_the_last_lines_name_the_report_that_is_there(sortition, campaign, tmp_path, formats, name):
    _, out, _ = sortition("run", campaign, "--set", f"output.formats=[{formats}]")
    path = the_run(tmp_path) / f"report.{name}"
    assert f"report  {path}" in out


def test_a_budget_that_ends_first_is_3_with_a_target_and_0_without(sortition, campaign, tmp_path):
    """C03: stopped by budget; the missed target is exit 3; no item is failed or scored 0."""
    code, out, _ = sortition("run", campaign, "--set", "stop={target_half_width: 0.01}")
    found = result(the_run(tmp_path))
    assert code == 3
    assert (found["state"], found["stop_reason"], found["exit_code"]) == ("stopped", "budget", 3)
    assert found["counts"]["missing"] == {}
    assert "not met" in out
    assert all(e["lower"][0] < e["value"][0] < e["upper"][0] for e in found["estimates"])


def test_a_target_that_is_reached_is_0_and_stops_early(sortition, campaign, tmp_path):
    """C41: target reached is exit 0, and money is left."""
    changed(campaign, "usd: 0.10", "usd: 5.00")
    code, _, _ = sortition("run", campaign, "--set", "stop={target_half_width: 0.5, every: 5}")
    found = result(the_run(tmp_path))
    assert code == 0
    assert (found["state"], found["stop_reason"]) == ("finished", "precision")
    assert found["counts"]["answered"] < 100
    assert found["counts"]["late"] == 0 or found["spend"]["settled_nano_usd"] > 0


def test_a_judge_that_refuses_the_key_leaves_nobody_and_is_4(sortition, campaign, tmp_path):
    """C41, C15: no judge left is exit 4; one request was made."""
    changed(campaign, "sd: 0.5", "sd: 0.5, faults: {'401': 1.0}")
    code, _, _ = sortition("run", campaign)
    found = result(the_run(tmp_path))
    assert code == 4
    assert (found["state"], found["stop_reason"]) == ("stopped", "judges_down")
    assert found["counts"]["missing"] == {"judge_down": 1}


def test_a_full_disk_is_5_and_a_resume_loses_only_what_was_under_way(sortition, campaign, tmp_path):
    """C52, C41: nothing is sent after the failed commit; exit 5; the run resumes."""
    with full_disk():
        code, _, err = sortition("run", campaign, "-j", "3")
    run = the_run(tmp_path)
    assert code == 5
    assert "disk is full" in err
    assert (result(run)["state"], result(run)["exit_code"]) == ("failed", 5)
    held = result(run)["spend"]["held_nano_usd"]
    code, _, _ = sortition("resume", run)
    assert code == 0
    assert result(run)["spend"]["uncertain_nano_usd"] <= held
    assert sortition("verify", run)[0] == 0


def test_a_mock_campaign_opens_no_connection(sortition, campaign, tmp_path, monkeypatch):
    """C57: `run --mock` with sockets blocked completes, and every output says mock."""
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("a connection"))
    changed(campaign, "adapter: mock", "adapter: openai\n    model: gpt-5")
    changed(campaign, "    price_usd_per_1m: {input: 2.0, output: 10.0}\n", "")
    code, out, err = sortition("run", campaign, "--mock", "--json")
    run = the_run(tmp_path)
    assert code == 0
    assert json.loads(out.splitlines()[-1])["mock"] is True
    assert result(run)["mock"] is True
    assert "mock" in err
    for name in ("report.html", "report.md"):
        assert "mock" in (run / name).read_text(encoding="utf-8")
    assert "mock" in sortition("status", run)[1]


def test_a_limit_takes_a_random_sample_of_the_items(sortition, campaign, tmp_path):
    sortition("run", campaign, "-n", "10", "--seed", "1")
    with rundir.reading(the_run(tmp_path)) as reader:
        units = {e.query.units[0] for *_, e, _ in reader.read() if isinstance(e, Asked)}
    assert len(units) == 10


def test_programs_read_json_on_standard_output_alone(sortition, campaign):
    code, out, _ = sortition("run", campaign, "--json")
    assert code == 0
    launch, done = map(json.loads, out.splitlines())
    assert (launch["record"], launch["cap_nano_usd"]) == ("launch", 100_000_000)
    assert (done["record"], done["state"]) == ("done", "stopped")


@pytest.mark.parametrize("display", ["plain", "log", "json", "none"])
def test_every_display_leaves_standard_output_to_the_result(sortition, campaign, display):
    _, out, err = sortition("run", campaign, "--display", display)
    assert "settled" in out
    assert ("Asked(" in err) == (display == "log")


def test_two_runs_of_a_seed_have_one_fingerprint_at_any_concurrency(sortition, campaign, tmp_path):
    """C40: equal at -j 1, 4, 64; another seed, another fingerprint."""
    prints = []
    for j, seed in ((1, 5), (4, 5), (64, 5), (4, 6)):
        run = tmp_path / f"r{j}-{seed}"
        sortition("run", campaign, "--run-dir", run, "-j", j, "--seed", seed)
        prints.append(result(run)["fingerprint"])
    assert prints[0] == prints[1] == prints[2] != prints[3]


# --- going on ----------------------------------------------------------------------------------


def test_a_raised_cap_goes_on_and_a_lower_one_is_refused(sortition, campaign, tmp_path):
    """C53: to $0.20 it continues; to $0.05 it is refused, exit 2, nothing written."""
    sortition("run", campaign)
    run = the_run(tmp_path)
    code, _, _ = sortition("resume", run, "--budget-usd", "0.20")
    assert code == 0
    assert result(run)["counts"]["answered"] == 36
    assert result(run)["spend"]["settled_nano_usd"] == 180_000_000
    before = (run / "run.db").read_bytes(), (run / "result.json").read_bytes()
    code, _, err = sortition("resume", run, "--budget-usd", "0.05")
    assert code == 2
    assert "$0.050000 is less than the $0.180000" in err
    assert before == ((run / "run.db").read_bytes(), (run / "result.json").read_bytes())
    assert sortition("verify", run)[0] == 0


def test_a_cap_below_what_is_held_is_refused_and_a_raised_one_holds_for_lost_attempts(
    sortition, campaign, tmp_path
):
    """After a crash the holds of what was asked count; money that was added pays for a retry."""
    with full_disk():
        assert sortition("run", campaign, "-j", "3")[0] == 5
    run = the_run(tmp_path)
    code, _, err = sortition("resume", run, "--budget-usd", "0.06")
    assert code == 2
    assert "has spent or holds" in err
    assert sortition("resume", run, "--budget-usd", "5")[0] == 0
    assert result(run)["counts"]["missing"] == {}
    assert result(run)["counts"]["answered"] == 100
    assert sortition("verify", run)[0] == 0


def test_a_finished_run_is_only_read_again(sortition, campaign, tmp_path):
    changed(campaign, "usd: 0.10", "usd: 5.00")
    sortition("run", campaign)
    run = the_run(tmp_path)
    campaign.unlink()
    before = result(run)
    code, _, _ = sortition("resume", run)
    assert code == 0
    assert result(run) == before


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("price_usd_per_1m", "model: other\n    price_usd_per_1m", "judges[0].model"),
        ("seed: 5", "seed: 6", "seed"),
        ("task: {kind: rate,", "task: {kind: rate, rubric: Rate it.,", "task.rubric"),
        ("max_repeats: 1", "max_repeats: 2", "policy.max_repeats"),
    ],
)
def test_a_changed_campaign_is_not_resumed(sortition, campaign, tmp_path, old, new, field):
    """C19a, b, d: refused, exit 2, the changed paths listed, nothing sent."""
    sortition("run", campaign)
    run = the_run(tmp_path)
    changed(campaign, old, new)
    for words in (("resume", run), ("run", campaign, "--run-dir", run)):
        code, _, err = sortition(*words)
        assert code == 2
        assert field in err


def test_a_changed_row_of_the_data_is_not_resumed(sortition, campaign, tmp_path):
    """C19c."""
    sortition("run", campaign)
    data = tmp_path / "items.csv"
    data.write_text(data.read_text(encoding="utf-8").replace("reply 7\n", "reply seven\n"))
    code, _, err = sortition("resume", the_run(tmp_path))
    assert code == 2
    assert "data.digest" in err


def test_concurrency_budget_and_prices_may_change(sortition, campaign, tmp_path):
    """C19e, f, g: accepted; a new price holds for new attempts, old costs stay."""
    sortition("run", campaign)
    run = the_run(tmp_path)
    changed(campaign, "usd: 0.10", "usd: 0.20")
    changed(campaign, "    mock:", "    limits: {concurrency: 2}\n    mock:")
    changed(campaign, "output: 10.0", "output: 20.0")
    code, _, _ = sortition("resume", run)
    assert code == 0
    with rundir.reading(run) as reader:
        events = [row.event for row in reader.read()]
    changes = [i for i, e in enumerate(events) if isinstance(e, PriceChanged)]
    assert len(changes) == 1
    costs = [
        (i < changes[0], e.outcome.cost) for i, e in enumerate(events) if isinstance(e, Arrived)
    ]
    assert {cost for before, cost in costs if before} == {5_000_000}
    assert {cost for before, cost in costs if not before} == {8_000_000}
    assert sortition("verify", run)[0] == 0


def test_the_newest_unfinished_run_is_resumed_by_default(sortition, campaign, tmp_path):
    code, _, err = sortition("resume")
    assert code == 2
    assert "no unfinished run in runs" in err


# --- looking at a run --------------------------------------------------------------------------


def test_a_run_is_shown_reported_exported_and_verified(sortition, campaign, tmp_path):
    sortition("run", campaign)
    run = the_run(tmp_path)
    assert "answers 16" in sortition("status", run)[1]
    assert json.loads(sortition("status", run, "--json")[1])["n_told"] == 16
    assert sortition("report", run, "-o", tmp_path / "r.md")[0] == 0
    assert "$0.08" in (tmp_path / "r.md").read_text(encoding="utf-8")
    code, out, _ = sortition(
        "export", run, "-o", tmp_path / "a.csv", "-o", tmp_path / "scores.jsonl"
    )
    assert code == 0
    assert "a.csv: 16 rows" in out
    code, out, _ = sortition("verify", run)
    assert code == 0
    assert "agrees" in out


@pytest.mark.parametrize(
    ("tamper", "word"),
    [
        (
            "UPDATE events SET body = replace(body, '\"value\":3.0', '\"value\":5.0')",
            "score or cost",
        ),
        ("UPDATE events SET body = replace(body, '\"cost\":5000000', '\"cost\":4000000')", "cost"),
        ("UPDATE events SET body = replace(body, '\"hold\":22000000', '\"hold\":2')", "ceiling"),
        ("UPDATE events SET seq = -seq WHERE seq IN (9, 10)", "rows"),
        (
            (
                "UPDATE events SET kind = (SELECT kind FROM events o WHERE o.seq = 31 - events.seq),"
                " body = (SELECT body FROM events o WHERE o.seq = 31 - events.seq)"
                " WHERE seq IN (15, 16)"
            ),
            "row 15",
        ),
        ("DELETE FROM events WHERE seq > 60", "the log ends at row 60"),
        ("UPDATE blobs SET data = CAST(replace(data, 'score', 'scare') AS BLOB)", "blob"),
    ],
)
def test_verify_names_what_was_tampered_with(sortition, campaign, tmp_path, tamper, word):
    """Score, cost, hold, rows, tail, blob: found and named; exit 1."""
    sortition("run", campaign)
    run = the_run(tmp_path)
    db = sqlite3.connect(run / "run.db")
    db.execute(tamper)
    db.commit()
    db.close()
    code, out, _ = sortition("verify", run)
    assert code == 1
    assert word in out


def test_verify_takes_the_newest_run(sortition, campaign):
    assert sortition("verify")[0] == 2
    sortition("run", campaign)
    code, out, _ = sortition("verify")
    assert (code, out) == (0, "every row, decision and number agrees\n")


def test_verify_compares_the_result_file_with_the_log(sortition, campaign, tmp_path):
    sortition("run", campaign)
    run = the_run(tmp_path)
    text = (run / "result.json").read_text(encoding="utf-8")
    (run / "result.json").write_text(re.sub(r'"answered": 16', '"answered": 17', text))
    code, out, _ = sortition("verify", run)
    assert code == 1
    assert "counts.answered is not what the log says" in out


@pytest.mark.parametrize("words", ["status", "report", "verify", "export -o a.csv", "resume"])
def test_a_damaged_log_is_5_for_whoever_reads_it(sortition, campaign, tmp_path, words):
    """One line and no traceback."""
    sortition("run", campaign)
    run = the_run(tmp_path)
    pages = (run / "run.db").read_bytes()
    (run / "run.db").write_bytes(pages[:4096] + b"\xff" * (len(pages) - 4096))
    command, *options = words.split()
    code, _, err = sortition(command, run, *options)
    assert code == 5
    assert "damaged" in err
    assert len(err.strip().splitlines()) == 1


# --- bad input ---------------------------------------------------------------------------------


def test_all_problems_of_a_file_are_named_at_once(sortition, campaign):
    """C25: one line a problem with file, line, path and a suggestion; exit 2; no traceback."""
    changed(campaign, "budget: {usd: 0.10}", "buget: {usd: 0.10}\nbudget: {usd: five}")
    changed(campaign, "kind: uniform", "kind: unifrom")
    code, out, err = sortition("validate", campaign)
    assert code == 2
    assert out == ""
    assert 'did you mean "budget"?' in err
    assert "budget.usd" in err
    assert 'did you mean "uniform"?' in err
    assert re.search(r"3 problems; nothing was sent$", err.strip())
    assert "Traceback" not in err
    assert all(
        re.match(r".*campaign\.yaml:\d+:\d+  ", line) for line in err.strip().splitlines()[:-1]
    )


@pytest.mark.parametrize("usd", ["0", "-1", "five"])
def test_a_budget_that_is_none_is_refused(sortition, campaign, usd):
    """C25: 0, -1, five."""
    changed(campaign, "usd: 0.10", f"usd: {usd}")
    code, _, err = sortition("run", campaign)
    assert code == 2
    assert "budget.usd" in err


def test_a_judge_without_a_price_is_refused_under_a_cap(sortition, campaign, tmp_path):
    """C06a, b: refused at load, exit 2, naming the judge; nothing is made."""
    changed(campaign, "    price_usd_per_1m: {input: 2.0, output: 10.0}\n", "")
    code, _, err = sortition("run", campaign)
    assert code == 2
    assert "acme" in err
    assert not (tmp_path / "runs").exists()
    changed(campaign, "    mock:", "    price_usd_per_1m: null\n    mock:")
    code, _, err = sortition("run", campaign)
    assert code == 2
    assert "judges[0].price_usd_per_1m" in err or "acme" in err


def test_a_free_judge_runs_without_a_cap_and_is_shown_as_free(sortition, campaign, tmp_path):
    """C06c: cost 0 shown as free; the cap on requests still works."""
    changed(campaign, "{input: 2.0, output: 10.0}", "free")
    changed(campaign, "budget: {usd: 0.10}", "budget: {max_requests: 7}")
    code, _, err = sortition("run", campaign)
    found = result(the_run(tmp_path))
    assert code == 0
    assert "free" in err
    assert found["spend"]["settled_nano_usd"] == 0
    assert found["counts"]["asked"] == 7
    assert found["stop_reason"] == "limit"


def test_a_price_per_token_is_warned_about(sortition, campaign):
    """C06e: written per token where per million is meant."""
    changed(campaign, "input: 2.0, output: 10.0", "input: 0.000002, output: 0.00001")
    code, _, err = sortition("validate", campaign)
    assert code == 0
    assert "looks like USD per token" in err


def test_a_budget_that_can_not_pay_one_call_is_refused_before_the_run(
    sortition, campaign, tmp_path
):
    changed(campaign, "usd: 0.10", "usd: 0.02")
    code, _, err = sortition("run", campaign)
    assert code == 2
    assert "$0.022" in err
    assert not (tmp_path / "runs").exists()


def test_bad_rows_are_named_with_row_and_line(sortition, campaign, tmp_path):
    """C24: duplicate id, missing field, empty candidate, all at once; a BOM is accepted."""
    rows = [f"i{n},reply {n}" for n in range(1, 21)]
    rows[16] = "i3,again"
    rows[8] = "i9,"
    text = "\ufeffid,reply\n" + "\n".join(rows) + "\n"
    (tmp_path / "items.csv").write_text(text, encoding="utf-8")
    code, _, err = sortition("validate", campaign)
    assert code == 2
    assert "items.csv:10" in err
    assert "items.csv:18" in err
    assert "2 problems; nothing was sent" in err


def test_a_place_that_is_taken_or_can_not_be_written_is_named(sortition, campaign, tmp_path):
    """No traceback: exit 2 where something else lies, 5 where the system refuses to write."""
    code, _, err = sortition("run", campaign, "--run-dir", tmp_path)
    assert code == 2
    assert "holds no run; choose another --run-dir" in err
    code, _, err = sortition("run", campaign, "--run-dir", tmp_path / "items.csv" / "run")
    assert code == 5
    assert "items.csv" in err
    sortition("run", campaign, "--run-dir", tmp_path / "run")
    code, _, err = sortition("report", tmp_path / "run", "-o", tmp_path / "no" / "report.html")
    assert code == 2
    assert "there is no folder" in err


def test_a_target_that_can_not_end_the_run_is_warned_about(sortition, campaign):
    stop = "stop={target_half_width: 1, min_items: 101}"
    code, _, err = sortition("validate", campaign, "--set", stop)
    assert code == 0
    assert "more than the 100 items" in err


def test_items_that_an_arm_lacks_are_told_before_the_run(sortition, campaign, tmp_path):
    """The join is inner; what falls out is said, not swallowed."""
    (tmp_path / "new.csv").write_text("id,reply\ni1,better\ni2,best\nx,odd\n", encoding="utf-8")
    changed(campaign, "path: items.csv", "arms: {old: items.csv, new: new.csv}")
    code, _, err = sortition("validate", campaign)
    assert code == 0
    assert '98 items of "old" are not in every arm' in err
    assert '1 items of "new"' in err


@pytest.mark.parametrize(
    ("row", "why"),
    [('{"id": "a", "reply": NaN}', "nan"), ('{"id": "a", "reply": "x", "reply": "y"}', "twice")],
)
def test_json_that_is_none_is_refused(sortition, campaign, tmp_path, row, why):
    (tmp_path / "items.jsonl").write_text(row + "\n", encoding="utf-8")
    changed(campaign, "items.csv", "items.jsonl")
    code, _, err = sortition("validate", campaign)
    assert code == 2
    assert "items.jsonl:1" in err
    assert why in err


def test_a_cap_for_a_run_that_has_nothing_to_do_is_not_swallowed(sortition, campaign, tmp_path):
    changed(campaign, "usd: 0.10", "usd: 5.00")
    sortition("run", campaign)
    run = the_run(tmp_path)
    code, _, err = sortition("resume", run, "--budget-usd", "9")
    assert code == 0
    assert "its cap is as before" in err
    code, _, err = sortition("resume", run, "--budget-usd", "five")
    assert code == 2
    assert "--budget-usd" in err


def test_an_output_that_can_not_be_written_is_refused_before_the_run(sortition, campaign, tmp_path):
    for name in ("answers.xlsx", "no/answers.csv"):
        code, _, err = sortition("run", campaign, "-o", tmp_path / name)
        assert code == 2
        assert name.split("/")[0] in err
    assert not (tmp_path / "runs").exists()


def test_a_judge_that_goes_down_is_part_of_the_answer(sortition, campaign, tmp_path):
    """No run without one of its judges is called complete."""
    changed(campaign, "usd: 0.10", "usd: 9")
    changed(
        campaign,
        "judges:\n",
        "judges:\n  - {name: gone, adapter: mock, price_usd_per_1m: free, "
        "mock: {faults: {'401': {after: 5}}}}\n",
    )
    code, out, _ = sortition("run", campaign)
    assert code == 0
    assert "The design is complete" not in out
    assert "gone went down after" in out


def test_a_password_in_a_url_reaches_no_file_of_the_run(sortition, campaign, tmp_path):
    """C32 for URLs that were set over the file."""
    url = "judges.acme.base_url=https://me:CANARY@host/v1"
    sortition("run", campaign, "--set", url)
    run = the_run(tmp_path)
    assert not [path for path in run.iterdir() if b"CANARY" in path.read_bytes()]


def test_what_comes_later_validates_and_is_named(sortition, campaign):
    """A file for what is planned is valid; validate says what `run` will refuse."""
    changed(campaign, "formats: [html, md]", "formats: [html, junit]")
    code, out, err = sortition("validate", campaign)
    assert code == 0
    assert "valid, but it can't be run yet" in out
    assert "junit is planned and not built yet" in err
    assert "output.formats" in err


def test_an_output_that_can_not_be_made_is_refused_before_the_run(sortition, campaign, tmp_path):
    changed(campaign, "formats: [html, md]", "formats: [html, junit]")
    code, _, err = sortition("run", campaign)
    assert code == 2
    assert "junit is planned" in err
    assert not (tmp_path / "runs").exists()


def test_a_log_whose_tail_is_gone_is_not_resumed(sortition, campaign, tmp_path):
    """A resume would otherwise ask, and pay for, what was asked before."""
    sortition("run", campaign)
    run = the_run(tmp_path)
    db = sqlite3.connect(run / "run.db")
    db.execute("DELETE FROM events WHERE seq > 40")
    db.commit()
    db.close()
    code, _, err = sortition("resume", run)
    assert code == 5
    assert "the log ends at row 40" in err


def test_a_run_directory_may_be_renamed(sortition, campaign, tmp_path):
    sortition("run", campaign)
    run = the_run(tmp_path)
    moved = run.rename(tmp_path / "moved")
    assert sortition("verify", moved)[0] == 0


def test_a_precision_target_has_the_level_of_its_interval(sortition, campaign):
    stop = "stop={target_half_width: 1, confidence: 0.9}"
    code, _, err = sortition("validate", campaign, "--set", stop)
    assert code == 2
    assert "stop.confidence" in err


def test_what_no_estimate_can_watch_is_refused_by_name(sortition, campaign):
    stop = "stop={target_half_width: 1, check: anytime}"
    code, _, err = sortition("run", campaign, "--set", stop, "--set", "policy.kind=uniform")
    assert code in {0, 3}
    each = "estimate=[{name: scores, kind: score_means, per: unit}]"
    code, _, err = sortition("run", campaign, "--set", stop, "--set", each)
    assert code == 2
    assert "scores of units have no sequence that holds anytime" in err


def test_no_name_or_text_breaks_a_run_or_a_console(sortition, campaign, tmp_path, monkeypatch):
    """C23: any script, U+2028, a lone surrogate, a console that knows none of it."""
    rows = [
        {"id": "größe", "reply": "Größe ✓ 漢字 🏳️\u200d🌈"},
        {"id": "sep", "reply": "a\u2028b"},
        {"id": "half", "reply": "x\ud800y"},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "items.jsonl").write_text(text, encoding="utf-8")
    changed(campaign, "items.csv", "items.jsonl")
    changed(campaign, "name: acme", "name: 裁判")
    changed(campaign, "name: small", 'name: "größe: 漢字 / a*b?"')
    code, _, _ = sortition("run", campaign)
    run = the_run(tmp_path)
    assert code == 0
    assert re.fullmatch(r"[\w-]+", run.name, re.ASCII)
    out = tmp_path / "answers.jsonl"
    sortition("export", run, "-o", out)
    lines = out.read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["item"] for line in lines} == {"größe", "sep", "half"}
    console = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", console)
    monkeypatch.setattr(sys, "argv", ["sortition", "status", str(run)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    assert not exit_.value.code
    console.flush()
    assert b"answers 3" in console.buffer.getvalue()


def test_a_bug_in_the_ledger_is_not_swallowed(campaign, monkeypatch):
    """An Overdraft is ours: it is never caught on the way, and shows its traceback."""
    monkeypatch.chdir(campaign.parent)
    monkeypatch.setattr(Ledger, "lacking", lambda self, *wanted: None)
    monkeypatch.setattr(sys, "argv", ["sortition", "run", str(campaign)])
    with pytest.raises(Overdraft, match="do not fit campaign"):
        cli.main()


def test_every_shipped_campaign_validates(sortition):
    for file in sorted((ROOT / "configs").glob("*.yaml")):
        assert sortition("validate", file)[0] == 0, file


def test_the_schema_is_printed_for_editors(sortition):
    code, out, _ = sortition("validate", "--schema")
    assert code == 0
    assert "properties" in json.loads(out)


def test_real_scores_replay_to_the_published_figures(sortition, shared_data, tmp_path):
    """Means and repeat variances of five judges on recorded ratings agree with the statistics of
    the set, on a part of the repeats that CI has time for."""
    file = ROOT / "benchmarks" / "real_scores.yaml"
    data = shared_data / "rb2_scores"
    words = ["--set", f"data.path={data}/items.csv", "--set", "policy.max_repeats=1"]
    for judge in (
        "gpt-5.4",
        "gpt-5.4-mini",
        "gpt-5.4-nano",
        "claude-sonnet-4.6",
        "claude-haiku-4.5",
    ):
        words += ["--set", f"judges.{judge}.recorded.path={data}/ratings.csv.gz"]
    run = tmp_path / "run"
    code, _, _ = sortition("run", file, "--run-dir", run, "-n", "1000", "--display", "none", *words)
    assert code == 0
    found = result(run)
    by_judge = dict(
        zip(found["estimates"][0]["names"], found["estimates"][0]["value"], strict=True)
    )
    published = {
        "claude-haiku-4.5": 4.572,
        "claude-sonnet-4.6": 4.429,
        "gpt-5.4": 4.630,
        "gpt-5.4-mini": 4.760,
        "gpt-5.4-nano": 5.139,
    }
    half = found["estimates"][0]["upper"][0] - found["estimates"][0]["value"][0]
    assert all(abs(by_judge[name] - mean) < 2 * half for name, mean in published.items())
    calls = {name: at["settled_nano_usd"] for name, at in found["spend"]["by_judge"].items()}
    assert calls["gpt-5.4-nano"] % 281_000 == 0
