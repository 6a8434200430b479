"""The audit of a board, from a table and from a run: the same votes, the same findings."""

import json

import pytest

from orchestrator import Campaign
from orchestrator.auditing import audit_path
from orchestrator.core.errors import ConfigError
from orchestrator.estimating import Request, assess
from orchestrator.report import html, markdown
from orchestrator.report.export import export
from orchestrator.rundir import reading, summary

SCALE = {"type": "preference"}


@pytest.fixture
def run(tmp_path):
    """Run a campaign of comparisons with a judge that favours the first place."""

    def run(to="run", **sections):
        rows = [
            {"id": f"i{n}", "arm": arm, "a": f"answer {n}", "t": t}
            for n in range(40)
            for arm, t in (("x", 0.7), ("y", 0.0), ("z", -0.7))
        ]
        (tmp_path / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
        own = {"path": "d.jsonl", "arm": "arm", "fields": {"candidate": "a"}}
        document = {
            "version": 1,
            "name": "board",
            "seed": 3,
            "data": own | sections.pop("data", {}),
            "judges": [
                {
                    "name": "j",
                    "adapter": "mock",
                    "price_usd_per_1m": {"input": 1, "output": 4},
                    "mock": {"truth": "t", "order_effect": 0.3},
                }
            ],
            "task": {"kind": "compare", "criteria": [{"name": "overall", "scale": SCALE}]},
            "policy": {"kind": "uniform", "max_repeats": 1},
            "budget": {"usd": 5},
            "estimate": [{"name": "r", "kind": "bradley_terry", "criterion": "overall"}],
            "output": {"dir": "runs", "formats": []},
        }
        path = tmp_path / "c.yaml"
        path.write_text(json.dumps(document | sections), encoding="utf-8")
        return Campaign.from_yaml(path).run(tmp_path / to).directory

    return run


def test_a_run_and_its_export_have_the_same_findings(run, tmp_path):
    """Every check's effect, interval and verdict."""
    directory = run()
    with reading(directory) as reader:
        export(tmp_path / "answers.csv", reader.read(), reader.get_blob)
    (of_run,), (of_table,) = audit_path(directory), audit_path(tmp_path / "answers.csv")
    assert of_run.models == of_table.models == ("x", "y", "z")
    for one, other in zip(of_run.found["findings"], of_table.found["findings"], strict=True):
        for key in ("kind", "fires", "subject", "reason"):
            assert one[key] == other[key]
        for key in ("effect", "lower", "upper"):  # sums of the same numbers, in another order
            assert (one[key] is None) == (other[key] is None)
            assert one[key] is None or one[key] == pytest.approx(other[key], rel=1e-9, abs=1e-12)


def test_the_report_says_whether_the_board_is_sound(run):
    """120 comparisons in both orders leave neighbours open; what closes them has a price."""
    data = summary(run())
    (audit,) = data.audits
    fired = [row["kind"] for row in audit.found["findings"] if row["fires"]]
    assert "position" not in fired
    text = markdown.render(data)
    assert "Is the board sound?" in text
    assert "Is the board sound?" in html.render(data)
    assert "neighbours told apart" in text


def test_criteria_are_audited_one_by_one(run):
    criteria = [{"name": "overall", "scale": SCALE}, {"name": "tone", "scale": SCALE}]
    found = audit_path(run(task={"kind": "compare", "criteria": criteria}))
    assert [one.criterion for one in found] == ["overall", "tone"]


def test_a_table_of_votes_brings_its_findings_to_the_estimate(tmp_path):
    """Halves that never meet."""
    rows = "a,b,left\nb,a,left\nc,d,left\nd,c,left\n" * 30
    path = tmp_path / "v.csv"
    path.write_text("left,right,winner\n" + rows, encoding="utf-8")
    found = {one.flag: one.message for one in assess(path, Request()).suspicions}
    assert "board_disconnected" in found


def test_earlier_judgments_count_or_are_said_to_be_left_out(run, tmp_path):
    """As in the ranking beside it; the campaign that names them is loaded again for them."""
    earlier = run("earlier")
    directory = run(data={"prior_judgments": [str(earlier)]}, seed=4)
    (alone,), (found,) = audit_path(earlier), audit_path(directory)
    assert found.found["n_votes"] == 2 * alone.found["n_votes"]
    assert (alone.judges, found.judges) == (("j",), ("j", "earlier judges"))
    assert "left_out" not in found.found
    (tmp_path / "c.yaml").unlink()
    data = summary(directory)
    (without,) = data.audits
    assert without.found["n_votes"] == alone.found["n_votes"]
    for text in (markdown.render(data), html.render(data)):
        assert "This audit leaves out the judgments of earlier runs" in text


def test_what_is_no_board_is_refused(run, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("item_id,score\n1,2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"t.csv  left — no column has this name"):
        audit_path(path)
    rated = run(
        task={"kind": "rate", "scale": {"type": "boolean"}},
        estimate=[{"name": "m", "kind": "score_means"}],
    )
    with pytest.raises(ConfigError, match="is no run of comparisons"):
        audit_path(rated)
