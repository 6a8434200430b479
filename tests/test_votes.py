"""Tables of comparisons: whose vote it is, what is refused, and that the numbers are the data's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from estimators.bradley_terry import fit_bradley_terry
from estimators.comparisons import by_judge
from orchestrator.core.errors import ConfigError
from orchestrator.estimating import Request, assess
from orchestrator.report.assessment import lines
from orchestrator.tables import Problems, read_columns
from orchestrator.votes import PARTS, naive_of, read_votes


@pytest.fixture
def read(tmp_path):
    def do(text, **columns):
        path = tmp_path / "v.csv"
        path.write_text(text, encoding="utf-8")
        problems = Problems()
        names = text.splitlines()[0].split(",")
        table = read_columns(path, "v.csv", names, problems)
        parts = {
            part: name
            for part, others in PARTS.items()
            for name in names
            if name in (part, *others)
        }
        return read_votes(table, parts | columns, problems), [str(p) for p in problems.listed()]

    return do


def test_a_winner_is_a_side_a_model_a_tie_or_missing(read):
    """Arenas' words are read; a model of the name of a side is meant where it stands in the row."""
    votes, problems = read(
        "left,right,winner\n"
        "x,y,left\nx,y,right\nx,y,tie\nx,y,tie (bothbad)\nx,y,\ny,x,x\nx,y,x\n"
        "left,right,right\nright,left,right\nx,y,model_b\nx,y,A\n"
    )
    assert problems == []
    assert votes.models == ("left", "right", "x", "y")
    np.testing.assert_array_equal(votes.comparisons.outcome, [1, 0, 0.5, 0.5, 0, 1, 0, 1, 0, 1])
    assert votes.missing[0, 2, 3] == votes.missing.sum() == votes.n_missing == 1


def test_the_columns_of_public_arenas_are_known(read):
    votes, problems = read("model_a,model_b,winner,judge\ng,h,model_a,u1\nh,g,tie,u2\n")
    assert problems == []
    assert (votes.models, votes.judges) == (("g", "h"), ("u1", "u2"))
    assert votes.items == ("row 1", "row 2")


@pytest.mark.parametrize(
    ("word", "outcome"),
    [("both_bad", 0.5), ("bothbad", 0.5), ("Both bad", 0.5), ("Model A", 1), ("MODEL_B", 0)],
)
def test_a_verdict_may_be_spelt_in_several_ways(read, word, outcome):
    votes, problems = read(f"left,right,winner\nx,y,{word}\n")
    assert problems == []
    assert votes.comparisons.outcome.tolist() == [outcome]


def test_a_winner_that_names_a_column_is_the_model_in_it(read):
    """Whichever side it was shown on; only without such a column is `model_a` the left one."""
    rows = "x,y,model_a\ny,x,Model B\nx,y,tie\n"
    plain, _ = read("model_a,model_b,winner\n" + rows)
    turned, problems = read("model_a,model_b,winner\n" + rows, left="model_b", right="model_a")
    assert problems == []
    np.testing.assert_array_equal(turned.comparisons.left, plain.comparisons.right)
    np.testing.assert_array_equal(turned.comparisons.outcome, [0, 1, 0.5])
    np.testing.assert_array_equal(plain.comparisons.outcome, [1, 0, 0.5])
    apart, problems = read(
        "model_a,model_b,one,two,winner\nx,y,y,x,model_a\nx,y,x,y,model_a\nx,y,y,x,one\n",
        left="one",
        right="two",
    )
    assert problems == []
    np.testing.assert_array_equal(apart.comparisons.outcome, [0, 1, 1])


def test_a_missing_vote_without_a_criterion_is_missing_in_each(read):
    """As a run writes it; blank without a reason is "not applicable" where reasons are given."""
    votes, problems = read(
        "left,right,winner,criterion,missing\n"
        "x,y,left,one,\nx,y,right,two,\ny,x,,,parse_failure\nx,y,,one,empty\nx,y,,two,\n"
    )
    assert problems == []
    assert votes.criteria == ("one", "two")
    np.testing.assert_array_equal(votes.missing, [[[0, 1], [1, 0]], [[0, 0], [1, 0]]])
    assert votes.n_missing == 2
    table = "left,right,winner,criterion\nx,y,left,one\ny,x,,\n"
    assert read(table)[0].missing[0, 1, 0] == 1
    assert read(table + "x,y,left,\n")[1] == ["v.csv:4  criterion — row 3: missing"]


def test_a_reason_beside_a_winner_is_refused(read):
    (problem,) = read("left,right,winner,missing\nx,y,left,empty\n")[1]
    assert problem.endswith('says why there is no winner, and the winner is "left"')


def test_no_winner_is_nothing_to_estimate(read, tmp_path):
    assert read("left,right,winner\nx,y,\ny,x,\n")[1] == ["v.csv  no row has a winner"]
    assert read("left,right,winner,criterion\nx,y,left,one\ny,x,,two\n")[1] == [
        'v.csv  no row has a winner for "two"'
    ]
    (tmp_path / "n.csv").write_text("model_a,model_b,winner\nx,y,\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no row has a winner\n1 problem; nothing was estimated"):
        assess(tmp_path / "n.csv", Request())


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("x,x,left", "v.csv:2  right — row 1: is the left model too"),
        ("x,y,z", 'v.csv:2  winner — row 1: wants left, right, tie, "x" or "y", not "z"'),
        (",y,left", "v.csv:2  left — row 1: missing"),
    ],
)
def test_what_is_no_vote_is_named_at_its_place(read, row, says):
    assert read(f"left,right,winner\n{row}\n")[1] == [says]


def test_the_kth_vote_in_one_order_belongs_to_the_kth_in_the_other(read):
    """Repeats are numbered within an order, whatever the file calls them."""
    votes, _ = read(
        "item_id,left,right,winner,replicate\nq,x,y,left,7\nq,y,x,right,9\nq,x,y,left,9\nq,y,x,left,12\n"
    )
    (row,) = by_judge(votes.comparisons, 1)
    assert row.turned._asdict() == {"n": 2, "kept": 1, "flipped": 1, "wavered": 0, "to_first": 1}


def votes_of(first, tie, second, path):
    words = ["left"] * first + ["tie"] * tie + ["right"] * second
    path.write_text("left,right,winner\n" + "".join(f"x,y,{w}\n" for w in words), encoding="utf-8")
    return path


def test_wins_ties_and_losses_are_a_score_by_the_stated_rule(tmp_path):
    """C35: 40/0/60 is .40, and 33/34/33 is .50; ties are said to count half."""
    for counts, score in (((40, 0, 60), 0.4), ((33, 34, 33), 0.5)):
        found = assess(votes_of(*counts, tmp_path / "v.csv"), Request())
        assert found.results[0].compared[0].naive.value[0] == pytest.approx(score, abs=1e-15)
        assert "a tie is half a win" in [a.what for a in found.assumptions]


def test_a_record_of_seven_to_three_has_its_odds(tmp_path):
    """C38: log-odds .8473, SE .6901; with an advantage of the first place they can't be told apart."""
    path = votes_of(7, 0, 3, tmp_path / "v.csv")
    text = path.read_text(encoding="utf-8")
    turned = "".join(f"y,x,{'right' if i < 7 else 'left'}\n" for i in range(10))
    path.write_text(text + turned, encoding="utf-8")
    found = assess(path, Request(contrast="x:y")).results[0].compared[0].estimate
    assert found.value[0] == pytest.approx(0.8473, abs=5e-5)
    assert found.se[0] == pytest.approx(0.6901 / np.sqrt(2), abs=5e-5)


def test_ten_to_nothing_is_one_sided_and_flagged(tmp_path):
    """C38: a bound from the counts, and no number that looks like an estimate."""
    path = votes_of(10, 0, 0, tmp_path / "v.csv")
    path.write_text(path.read_text(encoding="utf-8") + "y,x,right\n" * 10, encoding="utf-8")
    found = assess(path, Request(contrast="x:y")).results[0].compared[0].estimate
    assert "separated" in found.flags
    p = 0.025 ** (1 / 20)
    assert found.lower[0] == pytest.approx(np.log(p / (1 - p)), rel=1e-9)
    assert (np.isnan(found.se[0]), found.upper[0]) == (True, np.inf)
    assert found.status == "not_identified"


def test_groups_that_never_meet_are_not_ranked(tmp_path):
    """C38: both are named."""
    path = tmp_path / "v.csv"
    rows = "a,b,left\nb,a,left\nc,d,left\nd,c,left\n" * 5
    path.write_text("left,right,winner\n" + rows, encoding="utf-8")
    (compared,) = assess(path, Request()).results[0].compared
    about = compared.estimate.diagnostics
    assert about["components"] == [["a", "b"], ["c", "d"]]
    assert about["by_name"]["rank_lower"] == [1, 1, 1, 1]
    assert about["by_name"]["rank_upper"] == [4, 4, 4, 4]


def said(path, **request):
    found = assess(path, Request(**request))
    return {one.flag: one.message for one in found.suspicions}


def test_the_estimates_own_flags_are_suspicions_in_words(tmp_path):
    path = tmp_path / "v.csv"
    rows = "a,b,left,one\nb,a,left,one\nc,d,left,one\nd,c,left,one\na,b,left,two\nc,d,left,two\n"
    path.write_text("left,right,winner,criterion\n" + rows * 5, encoding="utf-8")
    found = said(path)
    assert {"disconnected", "separated", "prior_holds"} <= found.keys()
    assert found["separated"].startswith("two: some arms have won, or lost, all")
    few = "item_id,left,right,winner,category\n" + "".join(
        f"q{i % 5},{a},{b},{('left', 'right', 'tie', 'left')[i % 4]},{'kl'[i % 5 % 2]}\n"
        for i in range(20)
        for a, b in ("xy", "yx")
    )
    path.write_text(few, encoding="utf-8")
    assert "few_clusters" in said(path)
    assert said(path, kind="bt_tensor")["pooled"].startswith("too few votes")


def test_models_whose_names_are_alike_are_suspicious(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("left,right,winner\nGPT,x,left\nx,gpt ,left\ny,x,tie\n", encoding="utf-8")
    message = said(path)["names_alike"]
    assert message == '"GPT", "gpt " differ in case or spaces alone; each is taken as a model'


@pytest.mark.parametrize("head", ["item_id", "note"])
def test_a_table_that_was_doubled_is_suspicious(tmp_path, head):
    """By its items, or where it has none because no sort of vote stands alone."""
    rng = np.random.default_rng(4)
    words = rng.choice(["left", "right", "tie"], size=200)
    sides = [rng.choice(list("wxyz"), size=2, replace=False) for _ in words]
    rows = [f"q{i},{a},{b},{w}\n" for i, ((a, b), w) in enumerate(zip(sides, words, strict=True))]
    path = tmp_path / "v.csv"
    for text, is_doubled in (("".join(rows), False), ("".join(rows * 2), True)):
        path.write_text(f"{head},left,right,winner\n{text}", encoding="utf-8")
        assert ("repeated_rows" in said(path)) is is_doubled


def test_a_column_that_looks_like_the_items_is_suggested(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("question_id,left,right,winner\nq,x,y,left\nq,y,x,tie\n", encoding="utf-8")
    sources = [one.source for one in assess(path, Request()).assumptions]
    assert "no column item_id; --map item_id=question_id takes that" in sources
    mapped = assess(path, Request(names={"item_id": "question_id"}))
    assert not any("item_id" in one.source for one in mapped.assumptions)


def test_win_probabilities_count_votes_and_mark_the_cells_without(tmp_path):
    """No column of items, of which none are counted by name."""
    rng = np.random.default_rng(5)
    rows = []
    for i in range(600):
        topic = ("law", "code")[i % 2]
        a, b = rng.choice(list("wxyz" if topic == "law" else "wxy"), size=2, replace=False)
        word = "left" if rng.random() < 1 / (1 + np.exp(ord(a) - ord(b))) else "right"
        rows.append(f"q{i},{a},{b},{word},{topic}\n")
    path = tmp_path / "v.csv"
    path.write_text("item_id,left,right,winner,category\n" + "".join(rows), encoding="utf-8")
    text = lines(assess(path, Request(kind="bt_tensor")))
    (head,) = [line for line in text if "win probabilities" in line and "rows" in line]
    assert head.split()[-5:] == ["naive", "win", "rate", "ours", "width"]
    assert "items" not in head
    empty = [line for line in text if line.startswith("z in code")]
    assert empty
    assert all(line.split()[3:8] == ["0", "no", "votes", "here", line.split()[7]] for line in empty)
    assert not any("rows speak of" in line for line in text)


def test_a_fit_that_failed_has_nothing_beside_it(read, tmp_path):
    """And is written nevertheless."""
    text = "left,right,winner\nx,y,left\ny,x,tie\n"
    path = tmp_path / "f.csv"
    path.write_text(text, encoding="utf-8")
    found = assess(path, Request())
    (result,) = found.results
    (compared,) = result.compared
    nothing = dict.fromkeys(("names", "value", "se", "lower", "upper"), ())
    failed = replace(
        compared.estimate, target="scores", kind="bt_tensor", diagnostics={}, **nothing
    )
    naive = naive_of(read(text)[0], 0, failed, None)
    assert (naive.n_rows, naive.value) == ((), ())
    one = compared._replace(estimate=failed, naive=naive)
    assert lines(replace(found, results=(replace(result, compared=(one,)),)))


@pytest.mark.parametrize(
    ("header", "names", "says"),
    [
        (
            "model_a,model_b,winner_model_a,winner_model_b,winner_tie",
            {},
            "winner — no column has this name; .* one column winner that holds model_a, model_b or tie",
        ),
        (
            "model_a,model_b,winner",
            {"category": "winner"},
            "winner — its column winner is read as category; --map winner=COLUMN names one\n",
        ),
        (
            "model_a,model_b,winner",
            {"left": "model_b"},
            "right — its column model_b is read as left",
        ),
    ],
)
def test_a_table_that_is_nearly_of_votes_says_what_it_lacks(tmp_path, header, names, says):
    """The part is named, and neither ratings nor systems are guessed."""
    path = tmp_path / "v.csv"
    n = header.count(",") - 1
    cells = ("1", "0", "0")[:n] if n > 1 else ("tie",)
    rows = [",".join(("x", "y", *cells)), ",".join(("y", "x", *cells[::-1]))]
    path.write_text("\n".join((header, *rows)), encoding="utf-8")
    with pytest.raises(ConfigError, match=says) as refusal:
        assess(path, Request(names=names))
    assert "score" not in str(refusal.value)


def test_what_means_nothing_to_comparisons_is_refused(tmp_path):
    path = votes_of(5, 0, 5, tmp_path / "v.csv")
    with pytest.raises(ConfigError, match="--per — bradley_terry has no such choice"):
        assess(path, Request(per="unit"))
    with pytest.raises(ConfigError, match='two of x, y, not "x:z"'):
        assess(path, Request(contrast="x:z"))


# --- other people's votes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("judge", "first_share", "flips"),
    [
        ("GPT-4/Metrics_Reference", 0.525, 0.084),
        ("GPT-4/Vanilla", 0.512, 0.072),
        ("GPT-4/Vanilla_1shot", 0.468, 0.084),
        ("PaLM2/Metrics", 0.596, 0.289),
        ("PaLM2/Reference", 0.463, 0.266),
    ],
)
def test_llmbar_has_the_flips_that_are_known(shared_data, judge, first_share, flips):
    """Share of the first place and of hard flips by evaluator."""
    found = assess(shared_data / "llmbar/pairwise.csv.gz", Request())
    rows = {r["judge"]: r for r in found.results[0].compared[0].estimate.diagnostics["judges"]}
    assert rows[judge]["first_share"] == pytest.approx(first_share, abs=5e-4)
    turned = rows[judge]["turned"]
    assert turned["flipped"] / turned["n"] == pytest.approx(flips, abs=5e-4)


def test_the_crowds_strengths_on_llmfao_are_evalicas(shared_data):
    """Spearman of the shipped scores and ours is .9999 or more."""
    path = shared_data / "llmfao/pairwise.csv.gz"
    problems = Problems()
    names = ["item_id", "left", "right", "winner", "judge"]
    votes = read_votes(
        read_columns(path, "v", names, problems), {name: name for name in names}, problems
    )
    machines = [votes.judges.index(name) for name in ("gpt-3.5", "gpt-4")]
    crowd = votes.comparisons.take(~np.isin(votes.comparisons.judge, machines))
    fit = fit_bradley_terry(crowd.left, crowd.right, crowd.outcome, n_models=len(votes.models))
    golden = {}
    for line in Path(shared_data / "llmfao/golden_evalica.csv").read_text("utf-8").splitlines():
        if line.startswith("bradley_terry,"):
            _, item, score = line.split(",")
            golden[item] = float(score)
    ours = {m: x for m, x in zip(votes.models, fit.theta, strict=True) if not np.isnan(x)}
    assert golden.keys() == ours.keys()
    both = sorted(golden)
    assert len(both) == 59
    rank = spearmanr([golden[m] for m in both], [ours[m] for m in both]).statistic
    assert rank >= 0.9999
