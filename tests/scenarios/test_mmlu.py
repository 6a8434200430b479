"""Recorded verdicts on a real benchmark, asked one by one as if each were paid for."""

import csv
import gzip

import pytest

from orchestrator import Campaign
from orchestrator.verification import check

pytestmark = pytest.mark.shared

FILE = """\
version: 1
name: mmlu
seed: SEED
data:
  path: mmlu.csv
  id: id
  strata: subject
  arms:
ARMS
task: {kind: check, verdict: [{column: right}]}
policy: {kind: subsample, DESIGN}
stop: STOP
estimate:
  - {name: accuracy, kind: exchangeable, ESTIMATE}
"""
POINTS = 0.0154


@pytest.fixture(scope="module")
def table(shared_data, tmp_path_factory):
    """Give each item an id of its own: in the table they recur across subjects."""
    path = tmp_path_factory.mktemp("mmlu") / "mmlu.csv"
    with gzip.open(shared_data / "mmlu" / "mmlu_helm9.csv.gz", "rt", encoding="utf-8") as source:
        rows = list(csv.DictReader(source))
    with path.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, ["id", *rows[0]])
        writer.writeheader()
        writer.writerows({"id": f"{row['subject']}/{row['item']}", **row} for row in rows)
    return path


@pytest.fixture
def run(table, tmp_path):
    def run(*arms, seed=1, design="design: simple", stop, estimate):
        (tmp_path / "mmlu.csv").write_bytes(table.read_bytes())
        listed = [f'    {arm}: {{right: {{from: "{arm}", optional: true}}}}' for arm in arms]
        text = FILE.replace("ARMS", "\n".join(listed)).replace("STOP", stop)
        text = text.replace("SEED", str(seed)).replace("DESIGN", design)
        (tmp_path / "c.yaml").write_text(text.replace("ESTIMATE", estimate), encoding="utf-8")
        result = Campaign.from_yaml(tmp_path / "c.yaml").run(tmp_path / f"run-{seed}")
        assert list(check(result.directory)) == []
        assert result.document["spend"]["settled_nano_usd"] == 0
        return result

    return run


@pytest.mark.parametrize(
    ("model", "most"), [("claude-3-opus-20240229", 3200), ("mixtral-8x22b", 3900)]
)
def test_a_watched_run_ends_long_before_the_published_bound(run, table, model, most):
    """Every fifth item is looked at; the bound of the paper would need 5,000 of the 14,042."""
    result = run(
        model,
        stop=f"{{target_half_width: {POINTS}, check: anytime, every: 5}}",
        estimate="sequence: betting",
    )
    (accuracy,) = result.estimates
    assert result.stop_reason == "precision"
    assert accuracy.watching_covered
    assert accuracy.n_items <= most
    assert accuracy.half_width <= POINTS
    with table.open(encoding="utf-8") as rows:
        right = [int(row[model]) for row in csv.DictReader(rows)]
    assert accuracy.lower[0] <= sum(right) / len(right) <= accuracy.upper[0]


def test_a_close_pair_is_told_apart_by_a_fifth_of_the_items(run):
    """gpt-4o leads gpt-4-1106 by 3.79 points; pairing needs a few hundred items to say so."""
    result = run(
        "gpt-4o-2024-05-13",
        "gpt-4-1106-preview",
        design="design: paired",
        stop="{when: gate_decided, check: anytime, every: 10}\n"
        "gate:\n  - {estimate: accuracy, rule: superior}",
        estimate="contrast: {arm: gpt-4o-2024-05-13, baseline: gpt-4-1106-preview}",
    )
    difference = result.estimates[0]
    assert result.stop_reason == "gate_decided"
    assert difference.n_items < 2500
    assert difference.lower[0] > 0
