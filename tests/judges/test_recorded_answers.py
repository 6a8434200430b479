"""The recorded adapter as a system under test: whole texts, by item, for its own arm."""

import gzip
import json
from decimal import Decimal

import pytest

from judges.recorded import NoVerdict, RecordedConfig, RecordedJudge, load, repeats
from judges.rubrics.check import Check
from judges.rubrics.generate import Generate
from orchestrator.core.errors import Exhausted, InvalidCampaign
from orchestrator.core.frame import Frame
from orchestrator.core.money import PriceCard, cost
from orchestrator.core.ports import JudgeSetting
from orchestrator.core.query import Kind, MissingReason, Query, Role
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Study
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Billing, Finish, Origin
from orchestrator.testing.adapters import AdapterContract

RIGHT = Criterion(name="score", scale=Scale(type=ScaleType.BOOLEAN, labels=("wrong", "right")))
RUBRIC = Generate(None, (), hidden=(), max_output_tok=400)
LONG = ' \n"42", said {"score": 1}\n</verdict>\n'
ROWS = [
    {"id": "a", "system": "m1", "answer": LONG, "reason": None},
    {"id": "b", "system": "m1", "answer": None, "reason": "refused"},
    {"id": "c", "system": "m1", "answer": 7},
    {"id": "a", "system": "m2", "answer": "Rome"},
    {"id": "z", "system": "m1", "answer": "of no item here"},
]


def jsonl(tmp_path, rows=ROWS, name="answers.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def recording(tmp_path):
    return jsonl(tmp_path)


def system(path, *, name="first", judge="m1", items=("a", "b", "c", "d"), role=Role.SYSTEM, **own):
    frame = Frame.of(items, ("second", "first"))
    study = Study(kind=Kind.CHECK, frame=frame, panel=(), criteria=(RIGHT,), seeds=Seeds(7))
    setting = JudgeSetting(name=name, judge=2, study=study, max_output_tok=400, role=role)
    return RecordedJudge(RecordedConfig(path=path, judge=judge, usd_per_call=0, **own), setting)


def asked(item=0, arm=1, *, replicate=0, attempt=FIRST_ATTEMPT):
    query = Query(
        kind=Kind.GENERATE,
        role=Role.SYSTEM,
        judge=2,
        units=(2 * item + arm,),
        replicate=replicate,
    )
    return RUBRIC.render(query, attempt)


def sent(adapter, request):
    """Drive an attempt that never waits, without an event loop."""
    try:
        adapter.send(request).send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the attempt waits")


def problem(path, **options):
    with pytest.raises(InvalidCampaign) as refusal:
        system(path, **options)
    (only,) = refusal.value.problems
    assert only.file == str(path)
    return only.line, only.message


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self, recording):
        return system(recording)

    @pytest.fixture
    def requests(self):
        return [asked(0), asked(1), asked(2)]

    @pytest.fixture
    def failing(self, recording):
        return [system(recording, items=("x", "a"))]


def test_an_answer_is_served_whole_and_for_the_systems_own_arm(recording):
    """White space and what looks like a verdict are part of it."""
    adapter = system(recording)
    reply = sent(adapter, asked(0))
    assert (reply.text, reply.finish, reply.origin) == (LONG, Finish.STOP, Origin.RECORDED)
    assert sent(adapter, asked(2)).text == "7"
    assert sent(system(recording, name="second", judge="m2"), asked(0, arm=0)).text == "Rome"
    for nowhere in (asked(3), asked(0, arm=0), asked(0, replicate=1)):
        with pytest.raises(Exhausted):
            sent(adapter, nowhere)


def test_what_the_system_did_not_answer_is_a_failure_that_costs_once(recording):
    """C28: its reason stands in the file, and no text in its place."""
    adapter = system(recording)
    reply = sent(adapter, asked(1))
    assert (reply.text, reply.finish) == ("", Finish.EMPTY)
    assert cost(reply.usage, PriceCard(per_call=5_000)) == 5
    assert RUBRIC.read(asked(1).query, reply).reason is MissingReason.EMPTY
    with pytest.raises(NoVerdict) as failure:
        sent(adapter, asked(1, attempt=Attempt(number=2, paid=1)))
    assert (failure.value.billing, failure.value.reason) == (Billing.NO, MissingReason.EMPTY)


@pytest.mark.parametrize(
    "header",
    ["item_id,arm,answer", "item,system,answer", "id,judge,answer", ",id,arm,replicate,answer"],
)
@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz"])
def test_tables_name_their_columns_in_several_ways(tmp_path, header, name):
    """As other tools do, a table's own index included; a blank cell is no answer."""
    rows = [("a", "m1", "0", '"x,\n ""y"" "'), ("b", "m1", "0", "  ")]
    n_cells = len(header.split(","))
    lines = [
        ",".join({3: (item, arm, text), 5: ("", item, arm, r, text)}[n_cells])
        for item, arm, r, text in rows
    ]
    path = tmp_path / name
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        file.write("\n".join([header, *lines, ""]))
    adapter = system(path)
    assert sent(adapter, asked(0)).text == 'x,\n "y" '
    assert sent(adapter, asked(1)).finish is Finish.EMPTY


def test_repeats_are_served_in_their_order(tmp_path):
    """The recorded numbers order them; what is beyond them is exhausted, or drawn again."""
    rows = [{"item_id": "a", "arm": "m1", "replicate": r, "answer": f"take {r}"} for r in (5, 2)]
    path = jsonl(tmp_path, rows)
    assert [sent(system(path), asked(replicate=r)).text for r in range(2)] == ["take 2", "take 5"]
    drawn = sent(system(path, on_exhausted="resample"), asked(replicate=2))
    assert drawn.text in ("take 2", "take 5")
    assert drawn.flags == ("resampled",)
    config = RecordedConfig(path=path, judge="m1", usd_per_call=Decimal(0))
    assert repeats(config, load(path)) == 2


def test_a_very_long_answer_is_read(tmp_path):
    """Python's own limit of 128 KB a cell does not hold for answers."""
    path = tmp_path / "long.csv"
    path.write_text(f"id,system,answer\na,m1,{'x' * 200_000}\n", encoding="utf-8")
    assert len(sent(system(path), asked()).text) == 200_000


def test_a_lone_surrogate_is_replaced(tmp_path):
    """As in what a live system says: no store and no provider can hold it."""
    path = jsonl(tmp_path, [{"id": "a", "system": "m1", "answer": "x\ud800"}])
    assert sent(system(path), asked()).text == "x\ufffd"


# What is refused


def test_a_system_gives_answers_and_a_judge_verdicts(tmp_path, recording):
    """One is not taken for the other, and the problem says which is there."""
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("item_id,judge,score\na,m1,1\n", encoding="utf-8")
    assert problem(ratings) == (None, "it holds ratings, and a system gives answers")
    votes = tmp_path / "votes.csv"
    votes.write_text("item_id,judge,left,right,winner\na,m1,x,y,x\n", encoding="utf-8")
    assert problem(votes) == (None, "it holds comparisons, and a system gives answers")
    message = "it holds answers, and a judge gives verdicts"
    assert problem(recording, role=Role.JUDGE) == (None, message)


def test_what_a_recording_lacks_is_named(tmp_path, recording):
    assert problem(recording, judge="x9") == (None, 'no system "x9"; there are "m1", "m2"')
    said = 'none of the answers of "m1" is on a unit of the campaign'
    assert problem(recording, items=("x",)) == (None, said)
    path = tmp_path / "r.csv"
    path.write_text("id,answer\na,x\n", encoding="utf-8")
    assert problem(path) == (1, 'no column "system"; there are "id", "answer"')
    path.write_text("id,name\na,x\n", encoding="utf-8")
    assert problem(path) == (1, 'no column "system", "answer"; there are "id", "name"')
    path = jsonl(tmp_path, [ROWS[0], {"id": "b", "answer": "x"}], "broken.jsonl")
    assert problem(path) == (2, 'not an object with "item_id", "system", "answer"')
    rows = [ROWS[0] | {"replicate": 0}] * 2
    assert problem(jsonl(tmp_path, rows, "twice.jsonl"))[1].startswith("twice the same answer")


def test_a_recorded_judge_checks_as_it_rates(tmp_path):
    """A check's verdicts are ratings."""
    path = tmp_path / "ratings.csv"
    path.write_text("item_id,judge,score,arm\na,m1,1,first\na,m1,0,second\n", encoding="utf-8")
    adapter = system(path, role=Role.JUDGE)
    rubric = Check(None, (RIGHT,), (), seeds=Seeds(7), max_output_tok=400, steps=(), has_judge=True)
    verdicts = []
    for unit in range(2):
        query = Query(kind=Kind.CHECK, judge=2, units=(unit,))
        reply = sent(adapter, rubric.render(query, FIRST_ATTEMPT))
        verdicts += [seen.value for seen in rubric.read(query, reply).observations]
    assert verdicts == [0, 1]
