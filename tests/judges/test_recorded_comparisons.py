"""The recorded judge as one who compares: by item, by the two arms as shown, and by repeat."""

import csv
import gzip
import json

import pytest

from judges.recorded import RecordedConfig, RecordedJudge, load, repeats
from judges.rubrics.compare import Compare
from orchestrator.core.errors import Exhausted, InvalidCampaign
from orchestrator.core.frame import Frame
from orchestrator.core.ports import JudgeSetting, Unreadable
from orchestrator.core.query import Kind, MissingReason, Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Study
from orchestrator.core.wire import FIRST_ATTEMPT, Finish, Origin
from orchestrator.testing.adapters import AdapterContract

OVERALL = Criterion(name="overall", scale=Scale(type=ScaleType.PREFERENCE, ties=True))
TONE = Criterion(name="tone", scale=Scale(type=ScaleType.PREFERENCE))
ROWS = """\
item_id,left,right,winner,category,judge,order,replicate
a,old,new,left,x,big,AB,0
a,old,new,tie,x,big,AB,3
a,new,old,right,x,big,BA,0
b,old,new,new,y,big,AB,0
b,new,old,,y,big,BA,0
a,old,new,right,x,small,AB,0
"""


@pytest.fixture
def votes(tmp_path):
    return written(tmp_path, ROWS)


def written(tmp_path, text, name="votes.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def study(items, arms, criteria, kind=Kind.COMPARE):
    frame = Frame.of(items, arms)
    return Study(kind=kind, frame=frame, panel=(), criteria=criteria, seeds=Seeds(7))


def judge(
    path,
    *,
    items=("a", "b", "c"),
    arms=("old", "new"),
    criteria=(OVERALL,),
    kind=Kind.COMPARE,
    **config,
):
    of = study(items, arms, criteria, kind)
    setting = JudgeSetting(name="recorded", judge=0, study=of, max_output_tok=400)
    options = {"judge": "big", "usd_per_call": 0.0033} | config
    return RecordedJudge(RecordedConfig(path=path, **options), setting)


def rubric(criteria, n_arms):
    return Compare(None, criteria, (), n_arms=n_arms, seeds=Seeds(7), max_output_tok=400)


def request_for(units=(0, 1), replicate=0, criteria=(OVERALL,), n_arms=2):
    query = Query(kind=Kind.COMPARE, judge=0, units=units, replicate=replicate)
    return rubric(criteria, n_arms).render(query, FIRST_ATTEMPT)


def sent(adapter, request):
    """Drive an attempt that never waits, without an event loop."""
    try:
        adapter.send(request).send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the attempt waits")


def winners(adapter, units=(0, 1), replicate=0, criteria=(OVERALL,), n_arms=2):
    request = request_for(units, replicate, criteria, n_arms)
    read = rubric(criteria, n_arms).read(request.query, sent(adapter, request))
    return (
        read.reason if isinstance(read, Unreadable) else [o.preference for o in read.observations]
    )


def problems(path, **options):
    with pytest.raises(InvalidCampaign) as refusal:
        judge(path, **options)
    return [(p.line, p.message) for p in refusal.value.problems]


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self, votes):
        return judge(votes)

    @pytest.fixture
    def requests(self):
        return [request_for((0, 1)), request_for((1, 0)), request_for((0, 1), 1)]


def test_a_comparison_is_found_by_item_and_arms_as_shown(votes):
    """The other order is another question; a winner is told by place or by name."""
    adapter = judge(votes)
    assert [winners(adapter, (0, 1), r) for r in range(2)] == [["first"], ["tie"]]
    assert winners(adapter, (1, 0)) == ["second"]
    assert winners(adapter, (2, 3)) == ["second"]
    assert winners(judge(votes, judge="small"), (0, 1)) == ["second"]
    reply = sent(adapter, request_for())
    assert (reply.origin, reply.served_model) == (Origin.RECORDED, "big")


def test_a_pair_that_was_not_recorded_is_exhausted(votes):
    """What the recording lacks is not asked at any cost: an item, an order or a repeat."""
    adapter = judge(votes, on_exhausted="resample")
    for units in ((4, 5), (5, 4)):
        with pytest.raises(Exhausted):
            sent(adapter, request_for(units))
    with pytest.raises(Exhausted):
        sent(judge(votes), request_for((0, 1), 2))
    again = sent(adapter, request_for((0, 1), 2))
    assert again.flags == ("resampled",)
    with pytest.raises(Exhausted):
        sent(judge(votes, judge="small"), request_for((1, 0)))


def test_an_empty_winner_is_a_failure(votes):
    """C28: it is missing, never a tie."""
    adapter = judge(votes)
    assert sent(adapter, request_for((3, 2))).finish is Finish.EMPTY
    assert winners(adapter, (3, 2)) is MissingReason.EMPTY


def test_a_tie_where_there_are_none_is_no_verdict(votes):
    """C34: with ties off the recorded tie is refused by the ordinary reading."""
    strict = Criterion(name="overall", scale=Scale(type=ScaleType.PREFERENCE))
    adapter = judge(votes, criteria=(strict,))
    assert winners(adapter, (0, 1), 1, (strict,)) is MissingReason.PARSE_FAILURE


def test_several_criteria_are_one_answer(tmp_path):
    """Rows of one question by criterion; one without a winner spoils the answer."""
    rows = ["item_id,left,right,winner,judge,criterion"]
    rows += ["a,old,new,left,big,overall", "a,old,new,right,big,tone"]
    rows += ["b,old,new,tie,big,overall", "b,old,new,,big,tone"]
    both = (OVERALL, TONE)
    adapter = judge(written(tmp_path, "\n".join(rows)), criteria=both)
    assert winners(adapter, (0, 1), criteria=both) == ["first", "second"]
    assert winners(adapter, (2, 3), criteria=both) is MissingReason.EMPTY


def test_arena_votes_are_read_as_they_come(tmp_path):
    """`model_a`, `model_b` and a winner by these words, from JSON lines, repeats in their order."""
    rows = [("model_a", "old"), ("model_b", "new"), ("tie (bothbad)", None), ("old", "old")]
    lines = [
        json.dumps(
            {"item_id": "a", "judge": "big", "model_a": "old", "model_b": "new", "winner": w}
        )
        for w, _ in rows
    ]
    path = tmp_path / "votes.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    adapter = judge(path)
    assert [winners(adapter, replicate=r)[0] for r in range(4)] == [
        *("first", "second", "tie", "first")
    ]
    assert repeats(RecordedConfig(path=path, judge="big"), load(path)) == 4


def test_an_arm_may_be_called_like_a_place(tmp_path):
    """A name of one of the two arms comes before the word for a place."""
    text = "item_id,left,right,winner,judge\na,right,left,left,big\n"
    adapter = judge(written(tmp_path, text), arms=("left", "right"))
    assert winners(adapter, (1, 0)) == ["second"]


def test_three_arms_and_others_that_the_campaign_lacks(tmp_path):
    """Rows of other arms or items are passed over."""
    text = "item_id,left,right,winner,judge\na,c,a,left,big\na,a,z,left,big\nq,a,b,left,big\n"
    adapter = judge(written(tmp_path, text), arms=("a", "b", "c"))
    assert winners(adapter, (2, 0), n_arms=3) == ["first"]
    assert adapter.n_repeats(2, 0) == 1
    assert adapter.n_repeats(0, 2) == 0


def test_ratings_and_comparisons_are_not_taken_for_each_other(tmp_path, votes):
    """What the file holds must be what the task asks for."""
    ((_, message),) = problems(votes, kind=Kind.RATE)
    assert message == "it holds comparisons, and the task is rate"
    ratings = written(tmp_path, "item_id,judge,score\na,big,1\n", "ratings.csv")
    ((_, message),) = problems(ratings)
    assert message == "it holds ratings, and the task is compare"


def test_columns_that_lack_are_named(tmp_path):
    """Comparisons want both arms; a file of neither kind is taken for ratings."""
    path = written(tmp_path, "item_id,judge,winner,left\na,big,left,old\n")
    ((line, message),) = problems(path)
    assert (line, message.split(";")[0]) == (1, 'no column "right"')
    other = written(tmp_path, '{"item_id": "a", "winner": "left"}\n', "v.jsonl")
    ((_, message),) = problems(other)
    assert '"judge"' in message
    assert '"left"' in message


def test_twice_the_same_vote_is_refused(tmp_path):
    """Two rows with one key would be one vote counted twice."""
    row = "a,old,new,left,big,0\n"
    path = written(tmp_path, f"item_id,left,right,winner,judge,replicate\n{row}{row}")
    ((line, message),) = problems(path)
    assert (line, message) == (3, "twice the same verdict: replicate '0'")


def test_real_votes_are_served_as_they_stand(shared_data):
    """96 pairs by nine judges in both orders: each is served by its key, tie or not."""
    path = shared_data / "posbias_mtbench" / "pairwise.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["judge"] == "gpt-4-0613"]
    items = list(dict.fromkeys(row["item_id"] for row in rows))
    arms = sorted({row[side] for row in rows for side in ("left", "right")})
    adapter = judge(path, items=items, arms=arms, judge="gpt-4-0613")
    side = {"left": "first", "right": "second", "tie": "tie"}
    found = {}
    for row in rows:
        item = items.index(row["item_id"]) * len(arms)
        units = (item + arms.index(row["left"]), item + arms.index(row["right"]))
        found.setdefault(units, []).append((int(row["replicate"]), side[row["winner"]]))
    assert len(rows) > 300
    for units, said in found.items():
        for n, (_, winner) in enumerate(sorted(said)):
            assert winners(adapter, units, n, n_arms=len(arms)) == [winner]
