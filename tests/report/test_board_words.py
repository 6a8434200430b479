"""What the audit of a board found, in words: names, figures, money, and what to do."""

import json
from dataclasses import replace

import numpy as np
import pytest

from estimators.board_audit import Kind, audit
from orchestrator.experiments.board_worlds import FINDS, WORLDS
from orchestrator.report.board_words import findings, sentence, table

MODELS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
JUDGES = tuple(f"judge-{i}" for i in range(300))


def audited(defect, *, price=None):
    rng = np.random.default_rng([1, 3])
    return audit(WORLDS[defect].draw(rng), n_models=6, rng=rng, price=price).as_json()


def of(found, kind):
    return next(each for each in found["findings"] if each["kind"] == kind)


SAYS = {
    "scarce": ("neighbours", "more comparisons", "about $"),
    "slot": ("beta was shown first in 95%", "log-odds", "both orders"),
    "drawer": ("epsilon ties in 8", "delta", "half wins"),
    "circle": ("beta beats", "gamma beats", "delta beats", "read the pairs"),
    "halves": ("2 groups", "across groups"),
    "top": ("zeta has", "even share", "Ask more about zeta"),
    "handful": ("By judge", "300 judges", "Use intervals by judge"),
    "opinion": ("judge-0", "lifts delta", "without it"),
}


@pytest.mark.parametrize("defect", FINDS)
def test_a_finding_says_what_how_much_and_what_to_do(defect):
    found = audited(defect, price=2_800_000)
    said = sentence(of(found, FINDS[defect]), MODELS, JUDGES, by=found["by"])
    assert said in findings(found, MODELS, JUDGES)
    for part in SAYS[defect]:
        assert part in said
    assert "nan" not in said
    assert "None" not in said
    assert said.endswith(".")
    assert "  " not in said


def test_money_is_the_number_times_the_price():
    found = of(audited("scarce", price=2_000_000), "neighbours_open")
    more = found["detail"]["more_to_settle"]
    said = sentence(found, MODELS, JUDGES)
    assert f"{more:,} more comparisons of these pairs, about ${more * 0.002:.2f};" in said
    free = of(audited("scarce"), "neighbours_open")
    assert "$" not in sentence(free, MODELS, JUDGES)


def test_a_pair_that_one_has_won_has_no_cost():
    zeros = np.zeros(1, dtype=np.int64)
    votes = WORLDS["scarce"].draw(np.random.default_rng(1)).take(zeros)
    votes = replace(votes, left=zeros, right=zeros + 1, outcome=np.ones(1))
    found = audit(votes, n_models=2, rng=np.random.default_rng(1)).as_json()
    (said,) = findings(found, MODELS, JUDGES)
    assert "between alpha and beta one has won everything" in said
    assert said.endswith("How many more comparisons settle that can't be told.")


def test_votes_that_do_not_count_are_told():
    found = of(audited("top"), "coverage")
    assert "not counted" not in sentence(found, MODELS, JUDGES)
    found = found | {"detail": found["detail"] | {"left_out": 3}}
    said = sentence(found, MODELS, JUDGES)
    assert "3 votes on gaps without a finite estimate are not counted." in said


def test_what_did_not_fire_gives_no_advice():
    found = audited("none")
    for each in found["findings"]:
        said = sentence(each, MODELS, JUDGES, by=found["by"])
        assert "Use" not in said
        assert "Ask" not in said
        assert "read the pairs" not in said
    assert findings(found, MODELS, JUDGES) == ["8 checks of 6,000 votes found nothing amiss."]


def test_a_judge_that_lowers_a_model_is_said_to_and_the_interval_is_turned():
    found = of(audited("opinion"), "judge_influence")
    lowered = found | {
        "effect": -found["effect"],
        "lower": -found["upper"],
        "upper": -found["lower"],
    }
    one, other = (sentence(each, MODELS, JUDGES) for each in (found, lowered))
    assert one.replace("lifts", "lowers") == other


def test_what_cannot_be_known_is_said_so():
    rng = np.random.default_rng(1)
    votes = WORLDS["none"].draw(rng)
    alone = replace(votes, judge=np.zeros(len(votes), dtype=np.int64))
    found = audit(alone, n_models=6, rng=rng).as_json()
    said = sentence(of(found, "judge_influence"), MODELS, JUDGES)
    assert said == "No judge decides: not known; there is one judge."
    assert findings(found, MODELS, JUDGES) == [
        "7 checks of 6,000 votes found nothing amiss. Nothing can be said of: no judge decides."
    ]


def test_a_gap_without_a_finite_estimate_is_named():
    rng = np.random.default_rng(1)
    votes = WORLDS["none"].draw(rng).take(np.arange(40))
    beaten = (votes.left == 0) | (votes.right == 0)
    votes = replace(votes, outcome=np.where(beaten, votes.left == 0, votes.outcome).astype(float))
    whole = audit(votes, n_models=6, rng=rng)
    assert np.isinf(whole.of("neighbours_open").effect)
    found = of(whole.as_json(), "neighbours_open")
    said = sentence(found, MODELS, JUDGES)
    assert "no finite estimate" in said
    assert "None" not in said


def test_an_audit_is_kept_as_strict_json():
    for defect in ("none", "scarce", "halves"):
        json.dumps(audited(defect, price=1), allow_nan=False)


def test_the_table_has_a_row_a_check():
    grid = table(audited("slot"))
    assert len(grid.rows) == len(Kind)
    assert {len(row) for row in grid.rows} == {len(grid.head)}
    assert [row[-1] for row in grid.rows].count("found") == 1
