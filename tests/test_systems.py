"""Systems under test and the task `check`: what a file may say, what is asked, what it costs."""

import json
from pathlib import Path

import pytest

from orchestrator import Campaign
from orchestrator.core.errors import BudgetTooSmall, ConfigError, InvalidCampaign
from orchestrator.core.events import Arrived, Asked, Sent
from orchestrator.core.money import format_usd
from orchestrator.core.query import Kind, Query, Role
from orchestrator.core.wire import FIRST_ATTEMPT, Origin
from orchestrator.report.export import answers, generations
from orchestrator.rundir import progress, reading
from orchestrator.verification import check

CHEAP = "price_usd_per_1m: {input: 1, output: 5}"
FILE = """\
version: 1
name: exam
seed: 3
data: {path: items.jsonl, id: item, strata: subject, fields: {question: question, key: answer}}
systems:
  - {name: old, adapter: mock, prompt: "{{ question }}", CHEAP, mock: {right: 0.6}}
  - {name: new, adapter: mock, prompt: "{{ question }}", CHEAP, mock: {right: 0.8}}
judges:
  - {name: checker, adapter: mock, CHEAP, mock: {sd: 0.1}}
task:
  kind: check
  verdict:
    - {match: key, normalise: [case, space]}
    - {judge: checker}
policy: {kind: subsample, design: paired}
budget: {usd: 5}
estimate:
  - {name: accuracy, kind: exchangeable}
""".replace("CHEAP", CHEAP)
CHECK = (
    "kind: check\n  verdict:\n    - {match: key, normalise: [case, space]}\n    - {judge: checker}"
)


@pytest.fixture
def folder(tmp_path):
    rows = [
        {
            "item": f"i{n}",
            "subject": f"s{n % 4}",
            "question": f"{n} + 1?",
            "answer": f" Answer {n + 1} ",
            "right": "" if n % 10 == 9 else n % 3 > 0,
        }
        for n in range(60)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "items.jsonl").write_text(text, "utf-8")
    return tmp_path


@pytest.fixture
def campaign(folder):
    def campaign(*changes, **options):
        text = FILE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "c.yaml").write_text(text, "utf-8")
        return Campaign.from_yaml(folder / "c.yaml", **options)

    return campaign


def problems_of(campaign, *changes):
    with pytest.raises(InvalidCampaign) as caught:
        campaign(*changes).build()
    return {problem.path: problem.message for problem in caught.value.problems}


def events_of(result):
    with reading(result.directory) as reader:
        return [row.event for row in reader.read()]


def answers_of(result):
    with reading(result.directory) as reader:
        return [*answers(reader.read(), reader.get_blob)]


def test_systems_answer_and_only_what_the_key_leaves_open_is_judged(campaign, folder):
    result = campaign().run(folder / "run")
    assert (result.state, list(check(result.directory))) == ("finished", [])
    by_role = result.document["counts"]["by_role"]
    assert by_role["system"]["answered"] == by_role["judge"]["answered"] == 120
    said = answers_of(result)
    keyed = [row for row in said if row.origin == "key"]
    assert all(row.value == 1 and row.cost_nano_usd == 0 for row in keyed)
    # A mock's wrong answer is another text than the key; its right one is the key itself.
    assert {row.answer.startswith("not") for row in keyed} == {False}
    assert {row.answer.startswith("not") for row in said if row.origin == "live"} == {True}
    calls = sum(isinstance(event, Sent) for event in events_of(result))
    assert calls == 120 + len(said) - len(keyed)
    spend = result.document["spend"]
    assert spend["by_role"]["system"]["settled_nano_usd"] == 120 * 1_000_000
    assert spend["by_role"]["judge"]["settled_nano_usd"] == (120 - len(keyed)) * 1_000_000
    (accuracy,) = result.estimates
    assert accuracy.names == ("old", "new")
    assert accuracy.n_items == 60


def test_a_verdict_reads_its_generation_and_leaves_after_it(campaign, folder):
    open_ = {}
    for event in events_of(campaign().run(folder / "run")):
        match event:
            case Asked(q=q, query=query) if query.role is Role.SYSTEM:
                assert query.kind is Kind.GENERATE
                open_[q] = None
            case Asked(query=query):
                assert query.parent in open_
            case Arrived(q=q) if q in open_:
                open_[q] = q
            case _:
                pass
    assert all(q is not None for q in open_.values())


def test_a_match_alone_needs_no_judge_and_decides_both_ways(campaign, folder):
    result = campaign(
        ("judges:\n  - {name: checker, adapter: mock, " + CHEAP + ", mock: {sd: 0.1}}\n", ""),
        ("    - {judge: checker}\n", ""),
    ).run(folder / "run")
    assert list(check(result.directory)) == []
    said = answers_of(result)
    assert {row.origin for row in said} == {"key"}
    assert {row.value for row in said} == {0, 1}
    assert result.document["spend"]["by_role"].keys() == {"system"}
    assert [judge["name"] for judge in result.document["judges"]] == ["key"]


RECORDED = """\
version: 1
name: recorded
data: {path: items.jsonl, id: item, strata: subject}
task: {kind: check, verdict: [{column: right}]}
policy: {kind: subsample}
estimate: [{name: accuracy, kind: exchangeable, targets: [benchmark, strata]}]
"""


def test_recorded_verdicts_are_free_and_a_blank_one_is_missing(folder):
    (folder / "c.yaml").write_text(RECORDED, "utf-8")
    result = Campaign.from_yaml(folder / "c.yaml").run(folder / "run")
    assert (result.state, list(check(result.directory))) == ("finished", [])
    assert result.missing == {"empty": 6}
    assert not result.document["mock"]
    assert result.document["spend"]["settled_nano_usd"] == 0
    accuracy = result.estimates[0]
    # The six may be wrong, or right; 36 of the others are.
    assert accuracy.lower[0] == pytest.approx(36 / 60)
    assert accuracy.upper[0] == pytest.approx(42 / 60)


@pytest.mark.parametrize(
    ("task", "policy", "estimate"),
    [
        (
            "kind: rate\n  scale: {type: integer, min: 1, max: 5}",
            "uniform, max_repeats: 2",
            "score_means",
        ),
        (
            "kind: compare\n  scale: {type: preference}",
            "uniform, max_repeats: 1",
            "bradley_terry",
        ),
        (
            "kind: rate_batch\n  scale: {type: boolean}",
            "batch_design, design: shuffle, batch_size: 6, blocks: 1",
            "score_means",
        ),
    ],
    ids=["rate", "compare", "rate_batch"],
)
def test_every_task_can_be_about_what_systems_answer(campaign, folder, task, policy, estimate):
    """Each unit is generated once, however often and in whatever company it is judged."""
    result = campaign(
        (CHECK, task),
        ("subsample, design: paired", policy),
        ("exchangeable", estimate),
    ).run(folder / "run")
    assert result.state == "finished"
    assert list(check(result.directory)) == []
    asked = [e.query for e in events_of(result) if isinstance(e, Asked)]
    generated = [query.units for query in asked if query.role is Role.SYSTEM]
    assert sorted(generated) == [(unit,) for unit in range(120)]
    assert result.document["counts"]["by_role"]["judge"]["answered"] > 0


def test_a_panel_compares_what_systems_answer(campaign, folder):
    """What each judge's absence would change is reckoned from verdicts alone."""
    result = campaign(
        (
            "  - {name: checker,",
            "  - {name: other, adapter: mock, " + CHEAP + "}\n  - {name: checker,",
        ),
        (CHECK, "kind: compare\n  scale: {type: preference}"),
        ("subsample, design: paired", "uniform, max_repeats: 1"),
        ("exchangeable", "bradley_terry"),
    ).run(folder / "run")
    assert (result.state, list(check(result.directory))) == ("finished", [])
    assert len(result.document["diagnostics"]["without_judge"]) == 2


def test_the_status_counts_verdicts_and_answers_as_the_report_does(campaign, folder):
    """A refused answer is missing once as an answer, and once as a verdict."""
    refusing = "right: 0.6, faults: {refused: 0.1}"
    result = campaign(("right: 0.6", refusing)).run(folder / "run")
    shown, by_role = progress(result.directory), result.document["counts"]["by_role"]
    judges, systems = by_role["judge"], by_role["system"]
    assert systems["missing"]["refused"] > 0
    assert (shown.n_answered, shown.missing) == (judges["answered"], judges["missing"])
    assert (shown.n_generated, shown.lost) == (systems["answered"], systems["missing"])


def test_a_panel_reads_one_answer(campaign, folder):
    result = campaign(
        (
            "  - {name: checker,",
            "  - {name: other, adapter: mock, " + CHEAP + "}\n  - {name: checker,",
        ),
        (
            "    - {judge: checker}",
            "    - {judge: other, rubric: Be strict.}\n    - {judge: checker}",
        ),
    ).run(folder / "run")
    assert list(check(result.directory)) == []
    by_role = result.document["counts"]["by_role"]
    assert (by_role["system"]["answered"], by_role["judge"]["answered"]) == (120, 240)


def test_what_systems_and_judges_fail_at_is_told_apart(campaign, folder):
    result = campaign(
        ("mock: {right: 0.6}", "mock: {right: 0.6, faults: {refused: 0.2}}"),
        ("mock: {sd: 0.1}", "mock: {sd: 0.1, faults: {unparsable: 0.2}}"),
    ).run(folder / "run")
    assert list(check(result.directory)) == []
    by_role = result.document["counts"]["by_role"]
    refused = by_role["system"]["missing"]["refused"]
    assert 2 <= refused <= 30
    assert by_role["judge"]["missing"].keys() == {"no_answer", "parse_failure"}
    assert by_role["judge"]["missing"]["no_answer"] == refused
    accuracy = result.estimates[0]
    reasons = accuracy.diagnostics["missing_reasons"]
    assert reasons["old"]["no_answer"] == refused
    assert "missing_imputed" in accuracy.flags


def test_the_end_of_the_money_cuts_the_tail_alone(campaign, folder):
    """Units count in the order of their generations, and no generation lacks its verdict's money."""
    result = campaign(("{usd: 5}", "{usd: 5, by_role: {system: 0.05, judge: 1}}")).run(
        folder / "run"
    )
    assert result.stop_reason == "budget"
    assert list(check(result.directory)) == []
    asked = [e.query for e in events_of(result) if isinstance(e, Asked)]
    generated = [query.units[0] for query in asked if query.role is Role.SYSTEM]
    judged = [query.units[0] for query in asked if query.role is Role.JUDGE]
    assert generated == judged
    order = [unit // 2 for unit in generated]
    assert order == sorted(order, key=order.index)
    assert result.document["spend"]["by_role"]["system"]["settled_nano_usd"] <= 50_000_000


def test_kept_generations_serve_another_rubric(campaign, folder):
    cache = ("estimate:", "cache: {dir: kept}\nestimate:")
    campaign(cache).run(folder / "first")
    again = campaign(
        cache, ("  kind: check\n", "  kind: check\n  rubric: Judge by the result alone.\n")
    ).run(folder / "second")
    assert list(check(again.directory)) == []
    asked = [e for e in events_of(again) if isinstance(e, Asked)]
    origins = {e.origin for e in asked if e.query.role is Role.SYSTEM}
    assert origins == {Origin.CACHE}
    assert again.document["spend"]["by_role"].keys() <= {"judge"}
    assert {e.origin for e in asked if e.query.role is Role.JUDGE} == {Origin.LIVE}
    same = campaign(cache).run(folder / "third")
    assert same.document["spend"]["settled_nano_usd"] == 0


def test_generating_alone_asks_no_judge_and_writes_what_was_answered(campaign, folder):
    result = (
        campaign(("mock: {right: 0.8}", "mock: {right: 0.8, faults: {refused: 0.1}}"))
        .for_generation()
        .run(folder / "run")
    )
    assert (result.state, list(check(result.directory))) == ("finished", [])
    assert result.document["counts"]["by_role"].keys() == {"system"}
    with reading(result.directory) as reader:
        rows = [*generations(reader.read(), reader.get_blob)]
    assert len(rows) == 120
    assert {row.system for row in rows} == {"old", "new"}
    for row in rows:
        assert (row.answer is None) == (row.missing == "refused")
    lines = (result.directory / "generations.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [row._asdict() for row in rows]


def test_recorded_systems_replay_what_was_generated(campaign, folder):
    made = (
        campaign(("mock: {right: 0.8}", "mock: {right: 0.8, faults: {refused: 0.1}}"))
        .for_generation()
        .run(folder / "run")
    )
    path = made.directory / "generations.jsonl"
    recorded = "adapter: recorded, recorded: {path: %s, judge: %s, usd_per_call: 0}}"
    live = campaign(("mock: {right: 0.8}", "mock: {right: 0.8, faults: {refused: 0.1}}"))
    first = live.run(folder / "live")
    again = campaign(
        (
            'adapter: mock, prompt: "{{ question }}", ' + CHEAP + ", mock: {right: 0.6}}",
            recorded % (path, "old"),
        ),
        (
            'adapter: mock, prompt: "{{ question }}", ' + CHEAP + ", mock: {right: 0.8}}",
            recorded % (path, "new"),
        ),
    ).run(folder / "again")
    assert list(check(again.directory)) == []
    assert again.document["estimates"][0]["value"] == first.document["estimates"][0]["value"]
    assert again.document["spend"]["by_role"].keys() <= {"judge"}


def test_an_interrupted_chain_goes_on_from_its_answers(campaign, folder):
    """What was generated before an interrupt is read from the log, and not asked for again."""
    whole = campaign().run(folder / "whole")
    slow = ("mock: {sd: 0.1}", "mock: {sd: 0.1, realtime: true, latency: {constant: 0.02}}")
    first = campaign(slow)

    seen = 0

    def observe(progress, events):
        nonlocal seen
        seen += len(events)
        if seen > 150:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.run(folder / "run", observe=observe)
    result = campaign(slow).run(folder / "run")
    assert list(check(result.directory)) == []
    generated = [
        e.query.units
        for e in events_of(result)
        if isinstance(e, Asked) and e.query.role is Role.SYSTEM
    ]
    assert sorted(generated) == [(unit,) for unit in range(120)]
    assert result.document["estimates"][0]["value"] == whole.document["estimates"][0]["value"]


def test_own_loops_are_handed_generations_too(campaign, folder):
    with campaign().own_loop(folder / "run") as loop:
        while not loop.is_over:
            for question in loop.ask(7):
                if question.judge == "checker":
                    loop.tell(question.id, 0)
                else:
                    n = int(question.prompt.split()[0])
                    said = f"answer {n + 1}" if n % 2 else "who knows"
                    loop.tell(question.id, said)
        result = loop.close()
    assert list(check(result.directory)) == []
    assert result.estimates[0].value == pytest.approx((0.5, 0.5))


ELSEWHERE = (
    (
        "fields: {question: question, key: answer}",
        "arm: subject, fields: {candidate: question, key: answer}",
    ),
    ("  - {name: new,", "  - {name: checker,"),
    ("budget: {usd: 5}", "budget: {usd: 5}\noutput: {keep: {replies: parsed}}"),
)


def test_what_does_not_go_with_systems_is_named_at_once(campaign):
    others = {"data.arm", "data.fields.candidate", "systems[1].name", "output.keep.replies"}
    column = ("    - {judge: checker}", "    - {column: right}\n    - {judge: checker}")
    assert problems_of(campaign, *ELSEWHERE, column).keys() >= {*others, "task.verdict[1].column"}
    mistyped = problems_of(campaign, *ELSEWHERE, ("{judge: checker}", "{judge: checkr}"))
    assert mistyped.keys() >= others
    assert 'did you mean "checker"' in mistyped["task.verdict[1].judge"]


ANN = 'mock, prompt: "{{ question }}", ' + CHEAP + ", mock: {right: 0.6}}"
"""The end of the first system's entry, after its adapter's key."""


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("normalise:", "normalize:", "task.verdict[0].normalize", 'did you mean "normalise"?'),
        ("{match: key,", "{mach: key,", "task.verdict[0].mach", 'did you mean "match"?'),
        ("{judge: checker}", "{coolumn: right}", "task.verdict[1].coolumn", 'mean "column"?'),
        ("{judge: checker}", "{rubric: x}", "task.verdict[1]", "COLUMN}, not {rubric}"),
        (
            "{judge: checker}",
            '{judge: checker, rubric: "{{ questiom }}"}',
            "task.verdict[1].rubric",
            '"questiom" is no field of data.fields',
        ),
        ("{kind: subsample, design: paired}", "{kind: uniform}", "estimate[0].kind", "subsample"),
        ("right: 0.6", "rihgt: 0.6", "systems[0].mock.rihgt", 'mean "right"?'),
        (
            ANN,
            "recorded, recorded: {path: made.csv, judge: odl, usd_per_call: 0}}",
            "systems[0].recorded.judge",
            'made.csv: no system "odl"; did you mean "old"?',
        ),
        (
            ANN,
            "recorded, recorded: {path: other.csv, judge: old, usd_per_call: 0}}",
            "systems[0].recorded.path",
            'no column "system", "answer"',
        ),
    ],
)
def test_a_mistake_about_answers_and_checks_is_one_problem_at_its_place(
    campaign, folder, old, new, path, message
):
    """Nothing that is right is said to be wrong with it: arms and ids are those of the systems."""
    (folder / "made.csv").write_text("item,system,answer\ni1,old,x\n", "utf-8")
    (folder / "other.csv").write_text("item,name\ni1,old\n", "utf-8")
    contrast = ("kind: exchangeable", "kind: exchangeable, contrast: {arm: new, baseline: old}")
    ((at, said),) = problems_of(campaign, (old, new), contrast).items()
    assert at == path
    assert message in said


def test_a_problem_in_a_line_of_a_recording_says_which_key_names_it(campaign, folder):
    (folder / "other.csv").write_text("item,name\ni1,old\n", "utf-8")
    recorded = "recorded, recorded: {path: other.csv, judge: old, usd_per_call: 0}}"
    with pytest.raises(InvalidCampaign) as caught:
        campaign((ANN, recorded)).build()
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(folder / "other.csv"), 1)
    assert problem.message.endswith("c.yaml names the file on line 6")


def test_a_name_given_twice_accuses_no_data(campaign):
    said = problems_of(campaign, ("{name: new,", "{name: old,"))
    assert said.keys() == {"systems[1].name"}


def test_no_verdict_in_a_column_names_item_and_arm(campaign, folder):
    rows = (folder / "items.jsonl").read_text("utf-8").replace('"right": false', '"right": "?"', 1)
    (folder / "items.jsonl").write_text(rows, "utf-8")
    systems = FILE[FILE.index("systems:") : FILE.index("task:")]
    arms = "arms: {old: {mark: right}, new: {mark: right}}, fields: {question: question}"
    said = problems_of(
        campaign,
        (systems, ""),
        ("fields: {question: question, key: answer}", arms),
        (CHECK, "kind: check\n  verdict: [{column: mark}]"),
    )
    assert "in 2 units, the first of them \"i0/old\": '?'" in said["task.verdict"]


@pytest.mark.parametrize("blank", ['""', '"  "', "null"])
def test_an_item_with_a_blank_key_is_left_to_the_judge(campaign, folder, blank):
    rows = (folder / "items.jsonl").read_text("utf-8").replace('" Answer 1 "', blank)
    (folder / "items.jsonl").write_text(rows, "utf-8")
    result = campaign(("right: 0.6", "right: 1"), ("right: 0.8", "right: 1")).run(folder / "run")
    assert {row.item for row in answers_of(result) if row.origin == "live"} == {"i0"}


def test_too_little_money_says_for_whom_and_how_much_is_enough(campaign):
    with pytest.raises(BudgetTooSmall) as caught:
        campaign(("{usd: 5}", "{usd: 0.0001}")).build()
    enough = format_usd(caught.value.sufficient)
    said = str(caught.value)
    assert said.startswith(f"one answer of old and one call to checker about it can cost {enough}")
    assert f"budget.usd wants {enough} or more" in said
    campaign(("{usd: 5}", f"{{usd: {enough.removeprefix('$')}}}")).build()
    with pytest.raises(BudgetTooSmall):
        campaign(("{usd: 5}", f"{{usd: {float(enough.removeprefix('$')) - 1e-9:.9f}}}")).build()


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("design: paired", "design: paired, max_items: 61", "policy.max_items"),
        ("design: paired", "design: paired, max_items: 60", ""),
        (
            "kind: exchangeable",
            "kind: exchangeable, check: anytime, last_look: {items: 61}",
            "estimate[0].last_look.items",
        ),
        ("{usd: 5}", "{usd: 5, by_role: {system: 5.01}}", "budget.by_role.system"),
        ("{usd: 5}", "{usd: 5, by_role: {system: 5}}", ""),
        ("{usd: 5}", "{usd: 5}\nstop: {target_half_width: 3}", "stop.target_half_width"),
        ("{usd: 5}", "{usd: 5}\nstop: {target_half_width: 0.5}", "stop.target_half_width"),
        ("{usd: 5}", "{usd: 5}\nstop: {target_half_width: 0.49}", ""),
        (
            "kind: exchangeable",
            "kind: exchangeable, target_half_width: 3",
            "estimate[0].target_half_width",
        ),
    ],
)
def test_numbers_that_can_not_be_meant_are_warned_of(campaign, old, new, path):
    warnings = campaign((old, new)).build().warnings
    assert [warning.path for warning in warnings] == [path] * bool(path)


def test_the_range_of_a_difference_is_twice_as_long(campaign):
    contrast = "kind: exchangeable, contrast: {arm: new, baseline: old}"
    stop = ("{usd: 5}", "{usd: 5}\nstop: {target_half_width: %s}")
    for width, n in (("0.99", 0), ("1", 1)):
        made = campaign(("kind: exchangeable", contrast), (stop[0], stop[1] % width))
        assert len(made.build().warnings) == n
        with pytest.raises(ConfigError, match="--half-width: 1 is met at once"):
            made.plan(half_widths=[1.0])


def test_a_judge_that_no_step_asks_is_named(campaign):
    said = problems_of(campaign, ("    - {judge: checker}\n", ""))
    assert "no step of task.verdict asks" in said["judges[0].name"]


@pytest.mark.parametrize(
    ("prompt", "path", "message"),
    [
        ("'{{ questiom }}'", "systems[0].prompt", 'did you mean "question"'),
        ("'{{ key }}'", "systems[0].prompt", "give the answer away"),
        ("'{{ question'", "systems[0].prompt", "line 1 of the text"),
    ],
)
def test_a_wrong_prompt_is_named_at_its_place(campaign, prompt, path, message):
    said = problems_of(
        campaign,
        (
            '{name: old, adapter: mock, prompt: "{{ question }}"',
            f"{{name: old, adapter: mock, prompt: {prompt}",
        ),
    )
    assert message in said[path]


def test_a_role_without_anyone_in_it_has_no_cap(campaign, folder):
    (folder / "c.yaml").write_text(
        RECORDED.replace("policy:", "budget: {usd: 1, by_role: {system: 1}}\npolicy:"), "utf-8"
    )
    with pytest.raises(InvalidCampaign, match="there are no systems"):
        Campaign.from_yaml(folder / "c.yaml").build()


def test_a_system_without_a_prompt_is_shown_the_only_field_that_is_no_key(campaign, folder):
    blueprint = campaign(('prompt: "{{ question }}", ', "")).build()
    rubric = blueprint.crew.judges[1].rubric
    query = Query(kind=Kind.GENERATE, judge=1, units=(0,), role=Role.SYSTEM)
    (part,) = rubric.render(query, FIRST_ATTEMPT).parts
    assert part.text == "0 + 1?"


def test_the_canonical_benchmark_runs_with_mocks(shared_examples, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    text = (shared_examples / "benchmark.yaml").read_text("utf-8")
    (tmp_path / "benchmark.yaml").write_text(text, "utf-8")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "rubrics").mkdir()
    (tmp_path / "prompts" / "answer.md").write_text("{{ question }}", "utf-8")
    (tmp_path / "rubrics" / "correct.md").write_text("Does it say the same?", "utf-8")
    rows = [
        {"item": f"i{n}", "subject": f"s{n % 7}", "prompt": f"{n}?", "key": str(n)}
        for n in range(800)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bench.parquet")
    priced = {f"systems.{name}.mock": {} for name in ("m1", "m2")}
    campaign = Campaign.from_yaml(
        tmp_path / "benchmark.yaml",
        {
            "systems.m1.price_usd_per_1m": {"input": 1, "output": 5},
            "judges.checker.price_usd_per_1m": {"input": 1, "output": 5},
            **priced,
        },
        mock=True,
    )
    result = campaign.run(tmp_path / "run")
    assert list(check(Path(result.directory))) == []
    (accuracy,) = result.estimates
    assert accuracy.names == ("m1", "m2")
    assert accuracy.half_width <= 0.015 or accuracy.n_items == 800
