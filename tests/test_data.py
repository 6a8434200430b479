"""The units: rows of files to a frame and fields, and every problem with them."""

import contextlib
import csv
import gzip
import json
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.campaign_file import Data
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.frame import Frame
from orchestrator.core.seeds import Seeds
from orchestrator.core.wire import Chat, Turn
from orchestrator.data import Dataset, read_data, sample

FIELDS = {"question": "q", "candidate": "a"}
ROWS = [
    {"id": f"i{n}", "q": f"question {n}", "a": f"answer {n}", "who": f"u{n % 3}", "hard": n / 4}
    for n in range(1, 21)
]


def write(path, rows):
    """Write rows in the form that the file's ending names."""
    name = path.name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        if ".csv" in name:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def read(tmp_path):
    """Read rows (a list to `rows.jsonl`, or a mapping of file names to lists)."""

    def read(rows, truth=None, **keys):
        files = rows if isinstance(rows, dict) else {"rows.jsonl": rows}
        for name, content in files.items():
            if isinstance(content, list):
                write(tmp_path / name, content)
            else:
                (tmp_path / name).write_bytes(content)
        if "arms" not in keys or isinstance(next(iter(keys["arms"].values())), dict):
            keys.setdefault("path", next(iter(files)))
        return read_data(Data.model_validate({"fields": FIELDS} | keys), base=tmp_path, truth=truth)

    return read


@pytest.fixture
def problems(read):
    def problems(rows, **keys):
        with pytest.raises(InvalidCampaign) as caught:
            read(rows, **keys)
        return [str(problem) for problem in caught.value.problems]

    return problems


# --- forms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz", "r.jsonl.gz", "r.parquet", "R.JSONL"])
def test_every_form_gives_the_same_dataset(read, name):
    """The digest is about what the rows say, not about how the file spells it."""
    keys = {"cluster": "who", "weight": "hard", "truth": "hard"}
    plain, other = read(ROWS, **keys), read({name: ROWS}, **keys)
    assert other.digest == plain.digest
    assert other.fields == plain.fields
    assert other.frame.items == tuple(f"i{n}" for n in range(1, 21))
    assert other.frame.clusters == ("u1", "u2", "u0")
    assert np.array_equal(other.truth, np.arange(1, 21) / 4)
    assert np.array_equal(other.frame.weight, np.arange(1, 21) / 4)


def test_any_change_of_a_row_changes_the_digest(read):
    """C19c."""
    keys = {"cluster": "who", "truth": "hard"}
    plain = read(ROWS, **keys).digest
    for key, value in {"id": "new", "q": "new", "a": "new", "who": "new", "hard": 9}.items():
        assert read([*ROWS[:-1], ROWS[-1] | {key: value}], **keys).digest != plain
    assert read([row | {"unused": 1} for row in ROWS], **keys).digest == plain
    assert read(ROWS[::-1], **keys).digest != plain


def test_parquet_without_pyarrow_says_what_to_install(problems, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (line,) = problems({"r.parquet": b""})
    assert line == "r.parquet  Parquet wants pyarrow: pip install 'sortition[parquet]'"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.tsv", b"id\n", "wants .csv, .jsonl (also .gz) or .parquet"),
        ("r.csv.gz", b"no gzip", "can't be read"),
        ("r.parquet", b"no parquet", "not readable as Parquet"),
        ("r.csv", "id,q,a\n1,x,é\n".encode("latin-1"), "r.csv:2  not UTF-8"),
        ("r.csv", b'id,q,a\n1,"x,y\n', "not readable as CSV"),
        ("r.csv", b"id,q,a,q\n1,x,y,z\n", 'r.csv:1  column "q" stands 2 times'),
        ("r.csv", b"id;q;a\n1;x;y\n", 'r.csv:1  its columns are separated by ";"; wants commas'),
        ("r.csv", b"id,q,a\n1,x\n", "r.csv:2  row 1: 2 cells for 3 columns"),
        ("r.csv", b"id,q,a\n", "no rows"),
        ("r.csv", b"", "no rows"),
        ("r.jsonl", b'{"id": 1\n', "r.jsonl:1  row 1: not readable as JSON"),
        ("r.jsonl", b'\n\n["a"]\n', "r.jsonl:3  row 1: wants an object, not a list"),
    ],
)
def test_what_can_not_be_read_is_said(problems, name, content, said):
    assert any(said in line for line in problems({name: content}))


def test_long_cells_and_quoted_line_ends_are_read(read):
    """A conversation of a megabyte is one cell; the next row keeps its line number."""
    long = "word\n" * 200_000
    data = read({"r.csv": [{"id": "a", "q": long, "a": "x"}, {"id": "b", "q": "y", "a": "z"}]})
    assert data.fields[0]["question"] == long
    with pytest.raises(InvalidCampaign, match=r"r\.csv:4  a — row 2: the field candidate is empty"):
        read({"r.csv": b'id,q,a\n1,"two\nlines",x\n2,y,\n'})


# --- problems ----------------------------------------------------------------------------------


def spoilt():
    rows = [dict(row) for row in ROWS]
    rows[16]["id"] = "i3"
    rows[8]["a"] = ""
    return rows


def test_all_problems_of_a_csv_come_at_once(problems):
    """C24: duplicate id (rows 3 and 17), missing field (row 5), empty candidate (row 9), a BOM."""
    rows = spoilt()
    rows[4]["q"] = ""
    text = "id,q,a\n" + "".join(f"{row['id']},{row['q']},{row['a']}\n" for row in rows)
    assert problems({"d.csv": text.encode("utf-8-sig")}) == [
        "d.csv:6  q — row 5: the field question is empty",
        "d.csv:10  a — row 9: the field candidate is empty",
        'd.csv:18  id — row 17: "i3" is the id of row 3 (line 4) already',
    ]


def test_all_problems_of_a_jsonl_come_at_once(problems):
    """C24, with a blank line before the rows: numbers count data rows, lines count lines."""
    rows = spoilt()
    del rows[4]["q"]
    text = "\n" + "".join(json.dumps(row) + "\n" for row in rows)
    assert problems({"d.jsonl": text.encode("utf-8-sig")}) == [
        "d.jsonl:6  q — row 5: the field question is missing",
        "d.jsonl:10  a — row 9: the candidate is empty",
        'd.jsonl:18  id — row 17: "i3" is the id of row 3 (line 4) already',
    ]


def test_a_byte_order_mark_is_accepted(read):
    assert read({"d.csv": "\ufeffid,q,a\n1,x,y\n".encode()}).frame.items == ("1",)
    assert read({"d.jsonl": '\ufeff{"id":1,"q":"x","a":"y"}'.encode()}).frame.items == ("1",)


def test_an_unknown_column_is_said_once_at_the_campaigns_field(tmp_path):
    write(tmp_path / "r.csv", ROWS)
    spec = {"path": "r.csv", "fields": {"candidate": "answr"}, "cluster": "whom", "id": "id"}
    write(tmp_path / "r.csv", [row | {"answer": "x"} for row in ROWS])
    with pytest.raises(InvalidCampaign) as caught:
        read_data(
            Data.model_validate(spec),
            base=tmp_path,
            locate=lambda path, message: Problem(file="c.yaml", path=path, message=message),
        )
    assert [str(problem) for problem in caught.value.problems] == [
        'c.yaml  data.cluster — r.csv has no column "whom"; did you mean "who"?',
        'c.yaml  data.fields.candidate — r.csv has no column "answr"; did you mean "answer"?',
    ]


def test_of_one_kind_five_are_listed_and_the_rest_counted(problems):
    found = problems([{"id": n, "q": "x", "a": ""} for n in range(120)])
    assert len(found) == 6
    assert found[4] == "rows.jsonl:5  a — row 5: the candidate is empty"
    assert found[5] == "rows.jsonl  a — and 115 more of this kind: empty"


@pytest.mark.parametrize(
    ("cell", "keys", "said"),
    [
        ({"id": None}, {}, "id — row 20: missing"),
        ({"id": " "}, {}, "id — row 20: missing"),
        ({"id": 1.5}, {}, "id — row 20: wants text or a whole number, not 1.5"),
        ({"id": True}, {}, "id — row 20: wants text or a whole number, not true"),
        ({"who": None}, {"cluster": "who"}, "who — row 20: missing"),
        ({"hard": 0}, {"weight": "hard"}, "hard — row 20: wants a number above 0, not 0"),
        ({"hard": "x"}, {"truth": "hard"}, 'hard — row 20: wants a number, not "x"'),
        ({"hard": float("nan")}, {"truth": "hard"}, "hard — row 20: wants a number, not nan"),
        ({"hard": True}, {"truth": "hard"}, "hard — row 20: wants a number, not true"),
        ({"a": ["x"]}, {}, "a — row 20: wants text, not a list; use as: json or as: chat"),
        ({"a": " \n"}, {}, "a — row 20: the candidate is empty"),
        ({"q": None}, {}, "q — row 20: the field question is missing"),
    ],
)
def test_each_bad_cell_is_named(problems, cell, keys, said):
    assert problems([*ROWS[:-1], ROWS[-1] | cell], **keys) == [f"rows.jsonl:20  {said}"]


def test_an_optional_field_may_be_missing(read):
    fields = {"context": {"from": "c", "optional": True}, "candidate": "a"}
    data = read([{"id": 1, "a": "x", "c": "y"}, {"id": 2, "a": "x"}], fields=fields)
    assert [unit["context"] for unit in data.fields] == ["y", ""]


def test_a_text_may_be_empty_where_the_file_says_so(read):
    """JSON tells an empty text from none; CSV does not."""
    assert read([{"id": 1, "q": "", "a": "x"}]).fields[0]["question"] == ""


@given(content=st.binary(max_size=80) | st.text(alphabet='id,qa1"\r\n{}[]:', max_size=60))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(tmp_path, content):
    """No file ends in a traceback."""
    raw = content if isinstance(content, bytes) else content.encode()
    for name in ("r.csv", "r.jsonl", "r.csv.gz", "r.parquet"):
        (tmp_path / name).write_bytes(raw)
        spec = Data.model_validate({"path": name, "fields": FIELDS})
        with contextlib.suppress(InvalidCampaign):
            assert read_data(spec, base=tmp_path).frame.n_items


# --- arms --------------------------------------------------------------------------------------

LONG = [
    {"id": f"i{n}", "arm": arm, "q": f"q{n}", "a": f"{arm}{n}", "who": f"u{n % 2}"}
    for n in range(4)
    for arm in ("old", "new")
]
WIDE = [
    {"id": f"i{n}", "q": f"q{n}", "a_old": f"old{n}", "a_new": f"new{n}", "who": f"u{n % 2}"}
    for n in range(4)
]


def test_three_ways_of_telling_arms_apart_agree(read):
    split = {f"{arm}.jsonl": [row for row in LONG if row["arm"] == arm] for arm in ("old", "new")}
    by_file = read(split, arms={"old": "old.jsonl", "new": "new.jsonl"}, cluster="who")
    by_column = read(LONG, arm="arm", cluster="who")
    own = {"old": {"candidate": "a_old"}, "new": {"candidate": "a_new"}}
    by_fields = read(WIDE, arms=own, fields={"question": "q"}, cluster="who")
    assert by_file.digest == by_column.digest == by_fields.digest
    assert by_file.frame.arms == ("old", "new")
    assert [unit["candidate"] for unit in by_fields.fields[:3]] == ["old0", "new0", "old1"]
    assert by_file.losses == {"old": 0, "new": 0}


def test_items_that_an_arm_lacks_are_left_out_and_counted(read):
    rows = [row for row in LONG if (row["id"], row["arm"]) not in {("i1", "new"), ("i2", "old")}]
    data = read([*rows, {"id": "i9", "arm": "old", "q": "q", "a": "a"}], arm="arm")
    assert data.frame.items == ("i0", "i3")
    assert data.losses == {"old": 2, "new": 1}
    assert [unit["candidate"] for unit in data.fields] == ["old0", "new0", "old3", "new3"]


def test_arms_that_share_no_item_are_a_problem(problems):
    rows = [{"id": n, "arm": f"arm{n}", "q": "q", "a": "a"} for n in range(2)]
    assert problems(rows, arm="arm") == ["data.arms — no item is in every arm"]


def test_arms_agree_on_what_belongs_to_the_item(problems):
    rows = [*LONG[:-1], LONG[-1] | {"who": "u7"}]
    assert problems(rows, arm="arm", cluster="who") == [
        'rows.jsonl:8  who — row 8: "u7", where another arm of the item has "u1"'
    ]


def test_an_id_is_given_once_in_each_arm(problems):
    (line,) = problems([*LONG, LONG[0]], arm="arm")
    assert line == 'rows.jsonl:9  id — row 9: "i0" is the id of row 1 (line 1) already'


def test_without_fields_the_ids_are_enough(read):
    """Recorded judges read nothing."""
    data = read([{"id": 1}, {"id": 2}], fields={})
    assert data.frame.items == ("1", "2")
    assert data.fields == ({}, {})
    assert data.truth is None


# --- what a judge is shown ---------------------------------------------------------------------

CHAT = [
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": None, "tool_calls": [{"name": "track", "id": 7}]},
    {"role": "tool", "content": [{"type": "text", "text": "In Köln."}]},
    {"role": "assistant", "content": [{"type": "tool_use", "name": "stop"}]},
]
TURNS = (
    Turn(role="user", content="Where is it?"),
    Turn(role="assistant", content='{"name":"track","id":7}'),
    Turn(role="tool", content="In Köln."),
    Turn(role="assistant", content='{"type":"tool_use","name":"stop"}'),
)


def test_a_chat_keeps_roles_tool_calls_and_results(read):
    fields = {"context": {"from": "c", "as": "chat"}, "candidate": "a"}
    (unit,) = read([{"id": 1, "c": CHAT, "a": "x"}], fields=fields).fields
    assert unit["context"] == Chat(turns=TURNS)
    (unit,) = read({"r.csv": [{"id": 1, "c": json.dumps(CHAT), "a": "x"}]}, fields=fields).fields
    assert unit["context"] == Chat(turns=TURNS)


def test_json_is_shown_compactly(read):
    fields = {"context": {"from": "c", "as": "json"}, "candidate": "a"}
    (unit,) = read([{"id": 1, "c": {"b": [1, "é"]}, "a": "x"}], fields=fields).fields
    assert unit["context"] == '{"b":[1,"é"]}'
    (unit,) = read({"r.csv": [{"id": 1, "c": '{"b": [1]}', "a": "x"}]}, fields=fields).fields
    assert unit["context"] == '{"b":[1]}'


@pytest.mark.parametrize(
    ("kind", "cell", "said"),
    [
        ("chat", "hello", "not readable as JSON"),
        ("chat", {"role": "user"}, "wants a list of {role, content}, not a mapping"),
        ("chat", [{"content": "x"}], "wants {role, content} for every turn"),
        ("chat", [{"role": "user", "content": 3}], "wants text in a turn, not 3"),
        ("chat", [{"role": "user", "content": [{"type": "image_url"}]}], "holds an image"),
        ("chat", [], "the candidate is empty"),
    ],
)
def test_what_is_no_chat_is_said(problems, kind, cell, said):
    fields = {"candidate": {"from": "a", "as": kind}}
    (line,) = problems([{"id": 1, "a": cell}], fields=fields)
    assert said in line


def test_numbers_are_shown_as_text(read):
    (unit,) = read([{"id": 7, "q": 4, "a": True}]).fields
    assert unit == {"question": "4", "candidate": "true"}


# --- any text ----------------------------------------------------------------------------------


def test_any_script_and_line_separator_passes(read):
    """C23: umlauts, emoji of several points, U+2028."""
    text = "Größe ✓ 漢字 🏳️‍🌈 one\u2028two\u0085three"
    for name in ("r.csv", "r.jsonl", "r.parquet"):
        data = read({name: [{"id": text, "q": text, "a": text}]})
        assert data.frame.items == (text,)
        assert data.fields[0]["candidate"] == text
        assert data.warnings == ()


def test_a_lone_surrogate_is_replaced_and_flagged(read):
    """C23: it becomes U+FFFD, and the row is named."""
    escaped = {"r.jsonl": b'{"id": 1, "q": "x", "a": "y"}\n{"id": 2, "q": "x", "a": "a\\ud83cb"}\n'}
    raw = {"r.csv": b"id,q,a\n1,x,y\n2,x,a\xed\xa0\xbcb\n"}
    for files, line in ((escaped, 2), (raw, 3)):
        data = read(files)
        assert data.fields[1]["candidate"] == "a\ufffdb"
        (warning,) = data.warnings
        assert (warning.line, warning.path) == (line, "a")
        assert warning.message == "row 2: a lone surrogate became U+FFFD"


# --- samples -----------------------------------------------------------------------------------


def numbered(n, arms=("",)):
    frame = Frame.of([f"i{i}" for i in range(n)], arms, cluster=[f"c{i % 3}" for i in range(n)])
    fields = tuple({"candidate": frame.unit_name(unit)} for unit in range(frame.n_units))
    return Dataset(
        frame=frame,
        fields=fields,
        truth=np.arange(frame.n_units, dtype=np.float64),
        losses={},
        digest="whole",
        warnings=(),
    )


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 2**64))
def test_a_sample_is_a_dataset_of_its_own(n, of, seed):
    data = numbered(of, ("a", "b"))
    part = sample(data, n, seeds=Seeds(seed))
    assert part.frame.n_items == min(n, of)
    for unit in range(part.frame.n_units):
        name = part.frame.unit_name(unit)
        assert part.fields[unit] == {"candidate": name}
        whole = 2 * int(name.split("/")[0][1:]) + part.frame.arm_of(unit)
        assert part.truth[unit] == whole
        item, there = part.frame.item_of(unit), data.frame.item_of(whole)
        label = part.frame.clusters[part.frame.cluster[item]]
        assert label == data.frame.clusters[data.frame.cluster[there]]
    larger = sample(data, n + 5, seeds=Seeds(seed))
    assert set(part.frame.items) <= set(larger.frame.items)
    assert (part.digest == "whole") == (n >= of)


def test_a_sample_is_not_the_first_rows():
    """Each item is as likely as any other."""
    data = numbered(10)
    count = np.zeros(10)
    for seed in range(400):
        for item in sample(data, 3, seeds=Seeds(seed)).frame.items:
            count[int(item[1:])] += 1
    assert np.all(np.abs(count - 120) < 5 * np.sqrt(400 * 0.3 * 0.7))


def test_a_sample_has_its_own_digest(read):
    data = read(ROWS)
    one, two = sample(data, 5, seeds=Seeds(1)), sample(data, 5, seeds=Seeds(2))
    again = read([row for row in ROWS if row["id"] in one.frame.items])
    assert one.digest == again.digest != two.digest


@pytest.mark.slow
def test_a_hundred_thousand_rows_load_in_seconds(read):
    text = "words that stand in an answer " * 20
    rows = [{"id": n, "q": text, "a": text, "who": n % 99} for n in range(100_000)]
    start = time.process_time()
    assert read(rows, cluster="who").frame.n_items == 100_000
    assert time.process_time() - start < 10
