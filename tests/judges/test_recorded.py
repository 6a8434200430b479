import csv
import gzip
import json
import math
import socket
from decimal import Decimal

import anyio
import pytest

from judges.recorded import NoVerdict, RecordedConfig, RecordedJudge, load, repeats
from judges.rubrics.rate import Rate
from orchestrator.core.errors import Exhausted, InvalidCampaign
from orchestrator.core.frame import Frame
from orchestrator.core.money import PriceCard, cost
from orchestrator.core.ports import JudgeSetting, Unreadable
from orchestrator.core.query import Kind, MissingReason, Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.study import Study
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Billing, Finish, Origin
from orchestrator.testing.adapters import AdapterContract

TEN = Criterion(name="score", scale=Scale(type=ScaleType.INTEGER, low=1, high=10))
YES_NO = Criterion(name="correct", scale=Scale(type=ScaleType.BOOLEAN, labels=("no", "yes")))
ROWS = """\
item_id,judge,replicate,score,dimension
a,big,4,9,overall
a,big,0,7,overall
a,big,2,8.0,overall
b,big,0,3,overall
b,big,1,,overall
a,small,0,1,overall
"""


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(ROWS, encoding="utf-8")
    return path


def written(tmp_path, text, name="r.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def judge(path, *, items=("a", "b", "c"), arms=("",), criteria=(TEN,), **config):
    study = Study(
        kind=Kind.RATE,
        frame=Frame.of(items, arms),
        panel=(),
        criteria=criteria,
        seeds=Seeds(7),
    )
    setting = JudgeSetting(name="recorded", judge=0, study=study, max_output_tok=400)
    options = {"judge": "big", "usd_per_call": 0.0033} | config
    return RecordedJudge(RecordedConfig(path=path, **options), setting)


def request_for(unit=0, replicate=0, attempt=FIRST_ATTEMPT, criteria=(TEN,)):
    query = Query(kind=Kind.RATE, judge=0, units=(unit,), replicate=replicate)
    rubric = Rate(None, criteria, (), seeds=Seeds(7), max_output_tok=400)
    return rubric.render(query, attempt)


def sent(adapter, request):
    """Drive an attempt that never waits, without an event loop."""
    try:
        adapter.send(request).send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the attempt waits")


def values(adapter, unit=0, replicate=0, criteria=(TEN,)):
    rubric = Rate(None, criteria, (), seeds=Seeds(7), max_output_tok=400)
    request = request_for(unit, replicate, criteria=criteria)
    read = rubric.read(request.query, sent(adapter, request))
    return read if isinstance(read, Unreadable) else [o.value for o in read.observations]


def problems(path, **options):
    with pytest.raises(InvalidCampaign) as refusal:
        judge(path, **options)
    assert {p.file for p in refusal.value.problems} == {str(path)}
    return [(p.line, p.message) for p in refusal.value.problems]


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self, ratings):
        return judge(ratings)

    @pytest.fixture
    def requests(self):
        return [request_for(0, 0), request_for(1, 0), request_for(1, 1)]

    @pytest.fixture
    def failing(self, ratings):
        return [judge(ratings, items=("c", "a"))]


# What is served


def test_each_repeat_is_served_once_in_recorded_order(ratings):
    """Recorded replicates may have gaps; the r-th that exists answers repeat r."""
    adapter = judge(ratings)
    assert [values(adapter, 0, r) for r in range(3)] == [[7.0], [8.0], [9.0]]
    with pytest.raises(Exhausted) as failure:
        sent(adapter, request_for(0, 3))
    assert failure.value.billing is Billing.NO
    assert failure.value.reason is MissingReason.EXHAUSTED


def test_an_item_without_verdicts_is_exhausted_from_the_start(ratings):
    """What the recording lacks is not asked at any cost."""
    for on_exhausted in ("stop", "resample"):
        with pytest.raises(Exhausted):
            sent(judge(ratings, on_exhausted=on_exhausted), request_for(2))


def test_an_empty_score_is_a_failure_that_costs_once(ratings):
    """C28: it is missing, never a score; the call is billed, and asked again it is not."""
    adapter = judge(ratings)
    reply = sent(adapter, request_for(1, 1))
    assert reply.finish is Finish.EMPTY
    assert values(adapter, 1, 1).reason is MissingReason.EMPTY
    again = Attempt(number=2, paid=1)
    with pytest.raises(NoVerdict) as failure:
        sent(adapter, request_for(1, 1, again))
    assert (failure.value.billing, failure.value.reason) == (Billing.NO, MissingReason.EMPTY)


def test_resampling_draws_from_the_cell_and_says_so(ratings):
    """C40: beyond the recorded repeats one of them is drawn, flagged, the same in every run."""
    adapters = [judge(ratings, on_exhausted="resample") for _ in range(2)]
    drawn = [[sent(a, request_for(0, r)) for r in range(40)] for a in adapters]
    assert drawn[0] == drawn[1]
    assert [reply.flags for reply in drawn[0]] == [()] * 3 + [("resampled",)] * 37
    assert {json.loads(reply.text)["score"] for reply in drawn[0][3:]} == {7, 8, 9}


def test_a_recorded_reply_says_what_it_is(ratings):
    """It is marked as recorded, names its judge, and counts no tokens."""
    reply = sent(judge(ratings), request_for())
    assert (reply.origin, reply.served_model) == (Origin.RECORDED, "big")
    assert reply.usage.input_tok == reply.usage.output_tok == 0


def test_hold_and_cost_are_the_price_of_a_call(ratings):
    """Whatever the request, an answer at $0.0033 holds and costs 3,300,000 nano-USD."""
    adapter, card = judge(ratings), PriceCard(per_call=3_300_000_000)
    widened = request_for(attempt=Attempt(number=2, widened=True))
    assert adapter.ceiling(request_for(), card) == adapter.ceiling(widened, card) == 3_300_000
    assert cost(sent(adapter, request_for()).usage, card) == 3_300_000


def test_a_price_is_read_as_it_is_written(ratings):
    """Money is decimal from the file on."""
    config = RecordedConfig(path=ratings, judge="big", usd_per_call=0.0033)
    assert config.usd_per_call == Decimal("0.0033")
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        RecordedConfig(path=ratings, judge="big", usd_per_call=-1)


def test_several_criteria_are_read_from_dimensions_of_their_names(tmp_path):
    """One answer holds all criteria of a repeat; where one is missing, the repeat is a failure."""
    path = written(
        tmp_path,
        "item_id,judge,replicate,score,criterion\n"
        "a,big,0,7,score\na,big,0,yes,correct\na,big,1,8,score\na,big,2,9,score\na,big,2,0,correct\n",
    )
    adapter = judge(path, criteria=(TEN, YES_NO))
    assert values(adapter, 0, 0, (TEN, YES_NO)) == [7.0, 1.0]
    assert values(adapter, 0, 1, (TEN, YES_NO)).reason is MissingReason.EMPTY
    assert values(adapter, 0, 2, (TEN, YES_NO)) == [9.0, 0.0]


@pytest.mark.parametrize(
    ("score", "value"), [("1", 1), ("0.0", 0), ("True", 1), ("false", 0), ("yes", 1), ("no", 0)]
)
def test_recorded_booleans_come_in_several_spellings(tmp_path, score, value):
    path = written(tmp_path, f"item_id,judge,score\na,big,{score}\n")
    assert values(judge(path, criteria=(YES_NO,)), criteria=(YES_NO,)) == [value]


@pytest.mark.parametrize("score", ["NaN", "8_0", "8,5", "eight", "11", "7.5", "true", "2024-01-01"])
def test_what_was_recorded_and_is_no_verdict_stays_none(tmp_path, score):
    """C26: the rubric refuses it; nothing is guessed at, rescaled or clamped."""
    path = written(tmp_path, f'item_id,judge,score\na,big,"{score}"\n')
    assert values(judge(path)).reason is MissingReason.PARSE_FAILURE


def test_arms_are_matched_where_the_recording_has_them(tmp_path):
    path = written(tmp_path, "item_id,judge,score,arm\na,big,2,old\na,big,9,new\n")
    adapter = judge(path, items=("a",), arms=("old", "new"))
    assert [values(adapter, 0), values(adapter, 1)] == [[2.0], [9.0]]


def test_names_of_any_script_are_found(tmp_path):
    """C23: items and judges may have any names, and a byte-order mark is no part of them."""
    path = written(tmp_path, "\ufeffitem_id,judge,score\nGröße ✓ 漢字 🏳️‍🌈,Prüfer,4\n")
    adapter = judge(path, judge="Prüfer", items=("Größe ✓ 漢字 🏳️‍🌈",))
    assert values(adapter) == [4.0]


@pytest.mark.parametrize("zipped", [False, True])
def test_json_lines_and_gzip_say_the_same(tmp_path, ratings, zipped):
    """The four forms of a file serve the same verdicts."""
    rows = list(csv.DictReader(ratings.read_text().splitlines()))
    for row in rows:
        row["score"] = float(row["score"]) if row["score"] else None
        row["replicate"] = int(row["replicate"])
    lines = "".join(json.dumps(row) + "\n" for row in rows) + "\n"
    for name, text in (("r.csv", ROWS), ("r.jsonl", lines)):
        path = tmp_path / (f"{name}.gz" if zipped else name)
        path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
        adapter = judge(path)
        assert [values(adapter, 0, r) for r in range(3)] == [[7.0], [8.0], [9.0]]
        assert values(adapter, 1, 1).reason is MissingReason.EMPTY


def test_null_is_not_applicable_where_the_task_allows_it(tmp_path):
    """C28: it is a verdict without a value; where the task has no such verdict it is none."""
    adapter = judge(written(tmp_path, "item_id,judge,score\na,big,null\n"))
    request = request_for()
    reply = sent(adapter, request)
    allowing = Rate(None, (TEN,), (), seeds=Seeds(7), max_output_tok=400, allow_na=True)
    assert [o.value for o in allowing.read(request.query, reply).observations] == [None]
    assert values(adapter).reason is MissingReason.PARSE_FAILURE


def test_repeats_without_numbers_count_in_file_order(tmp_path):
    path = written(tmp_path, "item_id,judge,score\na,big,2\nb,big,1\na,big,9\n")
    adapter = judge(path)
    assert [values(adapter, 0, r) for r in range(2)] == [[2.0], [9.0]]


def test_the_number_of_repeats_is_known_beforehand(ratings):
    """So that no policy plans a repeat that nobody can answer."""
    config, recording = RecordedConfig(path=ratings, judge="big"), load(ratings)
    assert repeats(config, recording) == 3
    assert repeats(config.model_copy(update={"judge": "small"}), recording) == 1
    assert repeats(config.model_copy(update={"on_exhausted": "resample"}), recording) is None


def test_judges_share_one_reading_until_the_file_changes(tmp_path):
    path = written(tmp_path, "item_id,judge,score\na,big,2\n")
    first = load(path)
    assert load(path) is first
    path.write_text("item_id,judge,score\na,big,10\n")
    assert values(judge(path)) == [10.0]


def test_no_socket_is_opened(monkeypatch, ratings):
    """C57: a recording answers where no socket can be made."""

    def refuse(*_, **__):
        raise AssertionError("a socket was made")

    monkeypatch.setattr(socket, "socket", refuse)
    assert values(judge(ratings)) == [7.0]


# What is refused before anything is asked


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "item,judge,score\na,big,1\n",
            1,
            'no column "item_id"; there are "item", "judge", "score"',
        ),
        ("", 1, 'no column "item_id", "judge", "score"; there are '),
        ("item_id,judge,score\na,big,1\na,big\n", 3, "2 cells under a header of 3"),
        ('item_id,judge,score\na,big,"1\n', 2, "unexpected end of data"),
        ("item_id,judge,replicate,score\na,big,x,1\n", 2, "no whole number: replicate 'x'"),
        ("item_id,judge,replicate,score\na,big,1,1\na,big,1,2\n", 3, "twice the same verdict"),
        ('item_id,judge,score\n"a\nb",big,1\na,big\n', 4, "2 cells under a header of 3"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path, text, line, message):
    ((where, what),) = problems(written(tmp_path, text))
    assert where == line
    assert what.startswith(message)


@pytest.mark.parametrize(
    ("text", "line"), [('{"item_id": "a"\n', 1), ('\n{"item_id": "a"}\n', 2), ("[1]\n", 1)]
)
def test_broken_json_lines_are_refused_with_their_line(tmp_path, text, line):
    ((where, _),) = problems(written(tmp_path, text, "r.jsonl"))
    assert where == line


def test_all_broken_rows_are_told_at_once(tmp_path):
    """Up to a number that one can read."""
    rows = "".join(f"a,big,x{n},1\n" for n in range(50))
    path = written(tmp_path, f"item_id,judge,replicate,score\n{rows}")
    assert [line for line, _ in problems(path)] == list(range(2, 22))


@pytest.mark.parametrize("data", [b"item_id,judge,score\n\xff,big,1\n", b"\x1f\x8b\x08broken"])
@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz"])
def test_a_file_that_is_no_text_is_refused(tmp_path, data, name):
    path = tmp_path / name
    path.write_bytes(data)
    ((_, message),) = problems(path)
    assert message.startswith("can't be read: ")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert problems(tmp_path / "no.csv") == [(None, "no such file")]


def test_a_recording_must_fit_the_campaign(tmp_path, ratings):
    """An unknown judge, dimension, item or arm is told with what there is instead."""
    assert problems(ratings, judge="bigger") == [(None, 'no judge "bigger"; did you mean "big"?')]
    assert problems(ratings, judge="x") == [(None, 'no judge "x"; there are "big", "small"')]
    assert problems(ratings, criterion="tone") == [
        (None, 'no dimension "tone" of judge "big"; there are "overall"')
    ]
    assert problems(ratings, criteria=(TEN, YES_NO)) == [
        (None, 'no dimension "score", "correct" of judge "big"; there are "overall"')
    ]
    ((_, message),) = problems(ratings, items=("x", "y"))
    assert message == 'none of the verdicts of "big" is on a unit of the campaign'
    ((_, message),) = problems(ratings, arms=("old", "new"))
    assert message == "no column arm, and the campaign has 2 arms"


def test_one_of_several_dimensions_must_be_named(tmp_path):
    """It is found by the criterion's own name, or as the judge's key `criterion` says."""
    path = written(tmp_path, "item_id,judge,score,dimension\na,big,1,tone\na,big,5,depth\n")
    assert problems(path)[0][1].startswith('no dimension "score"')
    assert values(judge(path, criterion="depth")) == [5.0]
    tone = Criterion(name="tone", scale=TEN.scale)
    assert values(judge(path, criteria=(tone,)), criteria=(tone,)) == [1.0]


# Real recordings


@pytest.mark.shared
def test_real_ratings_are_served_whole(shared_data):
    """All repeats of a judge on 4,656 answers, and the mean of what is read, come back exactly."""
    path = shared_data / "rb2_scores" / "ratings.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["judge"] == "gpt-5.4-nano"]
    items = tuple(dict.fromkeys(row["item_id"] for row in rows))
    adapter = judge(path, judge="gpt-5.4-nano", items=items)
    rubric = Rate(None, (TEN,), (), seeds=Seeds(7), max_output_tok=400)
    n_repeats = repeats(RecordedConfig(path=path, judge="gpt-5.4-nano"), load(path))

    async def replay():
        scores = []
        for unit in range(len(items)):
            for replicate in range(n_repeats):
                query = Query(kind=Kind.RATE, judge=0, units=(unit,), replicate=replicate)
                try:
                    reply = await adapter.send(rubric.render(query, FIRST_ATTEMPT))
                except Exhausted:
                    break
                (observation,) = rubric.read(query, reply).observations
                scores.append(observation.value)
        return scores

    scores = anyio.run(replay)
    assert n_repeats == 8
    assert len(scores) == len(rows)
    assert math.fsum(scores) == sum(int(row["score"]) for row in rows)
