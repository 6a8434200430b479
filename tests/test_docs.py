"""The documentation says what is so: links, campaigns, commands, keys, examples, output."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
import pytest
import typer
from ruamel.yaml import YAML

from orchestrator import cli
from orchestrator.build import build
from orchestrator.config import json_schema, load_campaign
from orchestrator.core.errors import InvalidCampaign, RateLimited
from orchestrator.core.events import DECISIONS, KINDS
from orchestrator.core.wire import Usage
from orchestrator.previewing import preview
from orchestrator.quantities import read_duration

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PACKAGES = ("orchestrator", "judges", "policies", "estimators")


def name_of(page):
    return str(page.relative_to(ROOT))


# --- reading pages -----------------------------------------------------------------------------


class Block(NamedTuple):
    """A fenced block: its language, the file it is (if it is one), its text."""

    language: str
    file: str
    text: str


FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page, *languages):
    found = [Block(*match.groups(default="")) for match in FENCE.finditer(page.read_text("utf-8"))]
    return [block for block in found if not languages or block.language in languages]


def prose(page):
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page):
    """Name the headings of a page as the web shows them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(text):
    """Give the cells of all table rows, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [i for i, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for i, row in enumerate(cells) if i not in rules and i + 1 not in rules]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_lead_somewhere(page):
    """Every relative link names a file that exists, and every anchor a heading of it."""
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_is_found_from_the_overview(page):
    """The overview links to each page."""
    linked = {(DOCS / link).resolve() for link in LINK.findall(prose(DOCS / "index.md"))}
    assert page in {*linked, DOCS / "index.md", ROOT / "README.md", DOCS / "measured.md"}


# --- campaigns ---------------------------------------------------------------------------------

BASE = """\
version: 1
name: base
data: {path: configs/data/replies-v1.jsonl, fields: {candidate: reply}}
judges: [{name: one, adapter: mock, price_usd_per_1m: {input: 1, output: 4}}]
task: {kind: rate, scale: {type: integer, min: 1, max: 5}}
policy: {kind: uniform, max_repeats: 1}
budget: {usd: 1}
"""
yaml = YAML(typ="safe", pure=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder that holds the shipped configs."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay_out(page, folder):
    """Write the blocks of a page that are files."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")


def loaded(text, folder):
    """Load a campaign; one that is a part replaces sections of a small whole one."""
    path = folder / "printed.yaml"
    data = yaml.load(text)
    if "version" not in data:
        data = yaml.load(BASE) | data
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(data, file)
    return load_campaign(path, environ={})


PRINTED = [
    pytest.param(page, block.text, id=f"{name_of(page)}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page, "yaml"))
]


@pytest.mark.parametrize(("page", "text"), PRINTED)
def test_printed_campaigns_are_valid(page, text, folder, monkeypatch):
    """What a page prints as YAML loads and, with the files that the page prints, builds."""
    lay_out(page, folder)
    monkeypatch.syspath_prepend(folder)
    build(loaded(text, folder))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.yaml")), ids=name_of)
def test_shipped_campaigns_are_valid(path):
    load_campaign(path, environ={})


@pytest.mark.shared
@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.yaml")), ids=name_of)
def test_campaigns_of_benchmarks_are_valid(path, shared_data):
    assert shared_data.is_dir()
    load_campaign(path, environ={})


LIVE_PAGE = DOCS / "how-to" / "live-judges.md"


@pytest.mark.parametrize("text", [block.text for block in blocks(LIVE_PAGE, "yml")])
def test_printed_live_judges_are_valid(text, folder):
    """They load; building them would want their keys."""
    loaded(text, folder)


@pytest.mark.parametrize("status", [200, 429])
def test_the_printed_function_is_a_judge(status, folder, monkeypatch):
    """It gives the verdict and the usage of its server, and passes on that it has to wait."""
    lay_out(LIVE_PAGE, folder)
    monkeypatch.syspath_prepend(folder)
    (text,) = [b.text for b in blocks(LIVE_PAGE, "yml") if "adapter: python" in b.text]
    blueprint = build(loaded(text, folder))
    shown = preview(blueprint)
    asked = {}

    def post(url, *, json, timeout):
        asked.update(json)
        said = {"text": '{"score": 4}', "in": 812, "out": 40}
        return httpx2.Response(status, json=said, request=httpx2.Request("POST", url))

    monkeypatch.setattr(httpx2, "post", post)
    send = partial(anyio.run, blueprint.crew.judges[0].adapter.send, shown.request)
    if status == 429:
        with pytest.raises(RateLimited):
            send()
    else:
        assert send().usage == Usage(input_tok=812, output_tok=40)
    assert asked["limit"] == shown.request.max_output_tok
    monkeypatch.delitem(sys.modules, "grading")


def test_a_misprint_in_a_campaign_would_be_found(folder):
    """The control: a part with an unknown key is refused."""
    with pytest.raises(InvalidCampaign, match="budgt"):
        loaded("budgt: {usd: 1}", folder)


# --- the reference of campaign files -----------------------------------------------------------


def described(node, path=""):
    """Walk a JSON Schema; give dotted path, default (None: none) and whether it is required."""
    while "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].removeprefix("#/$defs/")]
    for form in (node.get("anyOf", ()), node.get("oneOf", ()), node.get("prefixItems", ())):
        for branch in form:
            yield from described(branch, path)
    for key, child in node.get("properties", {}).items():
        at = f"{path}.{key}".lstrip(".")
        yield at, child.get("default"), key in node.get("required", ())
        yield from described(child, at)
    for key, step in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(node.get(key), dict):
            yield from described(node[key], path + step)


SCHEMA = json_schema()
SCHEMA["properties"]["judge_defaults"] = {}  # has the keys of a judge, by reference
CAMPAIGN_PAGE = DOCS / "reference" / "campaign.md"


def documented():
    """Give each key that the page has in a table, in full, with what stands beside it."""
    section = ""
    for part in re.split(r"^#+ ", prose(CAMPAIGN_PAGE), flags=re.MULTILINE):
        heading, _, text = part.partition("\n")
        section = f"{quoted(heading)[0]}." if quoted(heading) else ""
        for key, default, *_ in rows(text):
            for name in quoted(key):
                yield section + name, default, heading.startswith("Planned")


def keys_of_files():
    found = {}
    for at, default, is_required in described(SCHEMA):
        if not at.startswith("systems[]."):  # these have the keys of a judge
            key = at.replace("data.arms.*.*.", "data.fields.*.")  # and these of a field
            found.setdefault(key, []).append((default, is_required))
    return found


def test_every_key_of_a_campaign_file_is_documented():
    """The reference has each key of the models, built or planned, or keys inside it."""
    known = {key for key, _, _ in documented()}
    inside = {key.rpartition(".")[0] for key in known}
    blocks_of = {"judges[].params", "judges[].limits", "judges[].timeouts", "judges[].assume"}
    missing = {
        key
        for key in keys_of_files()
        if key not in known and key not in inside and key not in blocks_of
    }
    assert missing == set()


def test_every_documented_key_exists():
    """The reference names no key that a campaign file can't have."""
    real = set(keys_of_files()) | {"systems[].prompt", "data.arms.*.*"}
    assert {key for key, _, _ in documented()} - real == set()


def test_documented_defaults_are_those_of_the_models():
    """A default that the reference states is the model's."""
    files = keys_of_files()
    for key, cell, is_planned in documented():
        if is_planned or key not in files or not cell:
            continue
        defaults = [default for default, _ in files[key]]
        if cell == "required":
            # The schema does not require an adapter, since judge_defaults may give it.
            is_required = any(is_so for _, is_so in files[key])
            assert is_required or key == "judges[].adapter", key
        elif cell == "none":
            assert None in defaults, key
        else:
            (stated,) = quoted(cell)
            value = yaml.load(stated)
            seconds = read_duration(value) if re.fullmatch(r"\d+[smhd]", stated) else value
            assert seconds in defaults, (key, defaults)


# --- commands ----------------------------------------------------------------------------------


def commands(group, *names):
    """Give each command with its name in full, such as `lab experiment est-ivwe`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name)), command


COMMANDS = dict(commands(typer.main.get_command(cli.app)))
COMMANDS_PAGE = DOCS / "reference" / "commands.md"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_printed_commands_exist(page):
    """Each `sortition` line of a shell block names a command, and options and arguments it has."""
    for block in blocks(page, "sh"):
        for line in block.text.splitlines():
            words = shlex.split(line, comments=True)
            while words and "=" in words[0]:
                words = words[1:]
            if words[:1] == ["sortition"]:
                (name,) = [n for n in COMMANDS if words[1 : 1 + len(n.split())] == n.split()]
                COMMANDS[name].make_context(name, words[1 + len(name.split()) :])


def test_a_misprint_in_a_command_would_be_found():
    """The control: an option that a command does not have is refused."""
    with pytest.raises(Exception, match="--budgt"):
        COMMANDS["run"].make_context("run", ["--budgt", "1"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_documented(command):
    """The reference lists exactly the options of each command."""
    text = COMMANDS_PAGE.read_text("utf-8")
    (section,) = re.findall(
        rf"^## `sortition {command}\b.*?(?=^## )", text, re.MULTILINE | re.DOTALL
    )
    stated = {word.split()[0] for row in rows(section) for word in quoted(row[0])}
    options = {opt for param in COMMANDS[command].params for opt in param.opts if opt[0] == "-"}
    assert stated == options - {"-h", "--help"}


def test_every_exit_code_is_documented():
    """The codes that the program uses stand in the reference, in result.json's page and the README."""
    used = set()
    commands = (ROOT / "orchestrator/cli").glob("*.py")
    for path in (*commands, ROOT / "orchestrator/report/result.py"):
        source = path.read_text("utf-8")
        used |= set(re.findall(r"\b(?:code = |Exit\(|return )(\d+)\b", source))
    stated = {row[0] for row in rows(COMMANDS_PAGE.read_text("utf-8").split("## Exit codes")[1])}
    assert {"0", "2", "3", "4", "5", "130"} <= used <= stated
    readme = (ROOT / "README.md").read_text("utf-8").partition("**Exit codes**")[2]
    assert all(re.search(rf"\b{code} [\w`]", readme) for code in used)


# --- the log, sources --------------------------------------------------------------------------

LOG_PAGE = DOCS / "reference" / "log.md"


def test_every_event_is_documented_in_its_class():
    heads = {"decision event": set(), "fact": set()}
    for head, found in heads.items():
        table = LOG_PAGE.read_text("utf-8").split(f"| {head} |")[1].split("\n\n")[0]
        found.update(word for row in rows(f"|-|\n{table}") for word in quoted(row[0]))
    decisions = DECISIONS
    assert heads == {"decision event": decisions, "fact": set(KINDS) - decisions}


def test_every_table_of_the_log_is_documented():
    schema = (ROOT / "orchestrator/store/schema.sql").read_text("utf-8")
    tables = {row[0]: row[1] for row in rows(LOG_PAGE.read_text("utf-8"))}
    for table, columns in re.findall(r"CREATE TABLE (\w+) \((.*?)\) STRICT", schema, re.DOTALL):
        assert f"`{table}`" in tables
        if table in {"meta", "events", "blobs"}:
            names = re.findall(r"(?:^|, |\n\s+)(\w+) [A-Z]", columns)
            assert set(names) <= set(quoted(tables[f"`{table}`"])), table


KEY = re.compile(r"\[([A-Z]+\d{2})\]")


def test_every_citation_is_resolved_and_every_reference_cited():
    """Keys in docstrings and pages stand in the references, and none stands there unused."""
    references = (DOCS / "references.md").read_text("utf-8")
    defined = set(re.findall(r"\*\*\[(\w+)\]\*\*", references))
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    pages = [page for page in PAGES if page.name != "references.md"]
    cited = {key for path in [*sources, *pages] for key in KEY.findall(path.read_text("utf-8"))}
    assert cited == defined


# --- examples that run -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "reference" / "python.md"], ids=name_of
)
def test_printed_python_runs(page, folder, capsys):
    for block in blocks(page, "python"):
        exec(compile(block.text, name_of(page), "exec"), {})
    assert "budget" in capsys.readouterr().out


@pytest.fixture
def sortition(folder, monkeypatch, capsys):
    """Run the command in this process; give all that it prints."""

    def run(line):
        monkeypatch.setattr(sys, "argv", ["sortition", *shlex.split(line)])
        with pytest.raises(SystemExit):
            cli.main()
        return "".join(capsys.readouterr())

    return run


def check_output(block, output):
    """Compare what does not depend on names, versions and the calls under way at the stop."""
    varies = ("run ", "report ", "spend " if "target is reached" in output else "run ")
    printed = output.splitlines()
    for line in block.text.splitlines():
        assert line in printed or line.startswith(varies)


def test_the_quickstart_prints_what_readme_and_tutorial_show(sortition):
    (readme,) = blocks(ROOT / "README.md", "text")
    first, cheap, raised, *_ = blocks(DOCS / "tutorial" / "first-campaign.md", "text")
    whole = sortition("run configs/quickstart.yaml --run-dir runs/first")
    check_output(readme, whole)
    check_output(first, whole)
    check_output(
        cheap, sortition("run configs/quickstart.yaml --run-dir runs/cheap --budget-usd 0.20")
    )
    check_output(raised, sortition("resume runs/cheap --budget-usd 0.50"))


@pytest.mark.parametrize("name", ["run-on-recorded-judgments", "write-a-plugin"])
def test_examples_print_what_their_pages_show(name, folder, sortition, monkeypatch):
    page = DOCS / "how-to" / f"{name}.md"
    lay_out(page, folder)
    monkeypatch.syspath_prepend(folder)
    check_output(blocks(page, "text")[0], sortition("run campaign.yaml -y"))


def test_the_plugin_of_the_page_passes_its_contract(folder):
    """The judge that the page shows is tested as the page says."""
    lay_out(DOCS / "how-to" / "write-a-plugin.md", folder)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_hedging.py"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


# --- comparing groups --------------------------------------------------------------------------


def test_the_page_on_groups_shows_what_its_campaign_says(folder, sortition):
    """The plan's lines, the judge's memory, and two verdicts that differ."""
    page = DOCS / "how-to" / "compare-groups.md"
    lay_out(page, folder)
    (folder / "campaign.yaml").write_text(blocks(page, "yaml")[0].text, "utf-8")
    (shown,) = blocks(page, "text")
    assert shown.text in sortition("plan")
    sortition("run --run-dir run")
    sortition("report run -o report.md")
    report = (folder / "report.md").read_text("utf-8").replace("\\", "")
    (memory,) = re.findall(r'its memory: "([^"]+)"', prose(page))
    assert f"a: {memory}" in report
    assert "by raw verdicts gnc - glasso is not told from 0, by the model it is above 0" in report


# --- ranking models ----------------------------------------------------------------------------

RANKING_PAGE = DOCS / "how-to" / "rank-models.md"


@pytest.mark.parametrize("text", [block.text for block in blocks(RANKING_PAGE, "yml")])
def test_printed_parts_of_a_ranking_are_valid(text, folder):
    """They take the place of sections of the campaign that the page begins with."""
    (whole,) = blocks(RANKING_PAGE, "yaml")
    (folder / "runs" / "ranking").mkdir(parents=True)  # which the newcomer's campaign reads
    part = yaml.load(text)
    with (folder / "part.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(part if "version" in part else yaml.load(whole.text) | part, file)
    load_campaign(folder / "part.yaml", environ={})


def test_the_page_prints_the_shipped_ranking():
    """But for the folder that paths are relative to."""
    (whole,) = blocks(RANKING_PAGE, "yaml")
    shipped = (ROOT / "configs" / "ranking.yaml").read_text("utf-8")
    assert yaml.load(whole.text.replace("configs/data/", "data/")) == yaml.load(shipped)


def test_a_ranking_and_its_newcomer_print_what_their_page_shows(folder, sortition):
    """The second run takes in what the first has asked, at no cost."""
    lay_out(RANKING_PAGE, folder)
    first, second = blocks(RANKING_PAGE, "text")
    check_output(first, sortition("run configs/ranking.yaml --run-dir runs/ranking"))
    check_output(second, sortition("run newcomer.yaml --run-dir runs/newcomer"))


# --- a part of a benchmark ---------------------------------------------------------------------

BENCHMARK_PAGE = DOCS / "how-to" / "subsample-a-benchmark.md"


@pytest.mark.parametrize("text", [block.text for block in blocks(BENCHMARK_PAGE, "yml")])
def test_printed_parts_of_a_benchmark_are_valid(text, folder):
    """They take the place of sections of the campaign that the page begins with."""
    (whole,) = blocks(BENCHMARK_PAGE, "yaml")
    lay_out(BENCHMARK_PAGE, folder)
    (folder / "runs" / "answers").mkdir(parents=True)
    (folder / "runs" / "answers" / "generations.jsonl").touch()  # which a recorded system reads
    part = yaml.load(text)
    with (folder / "part.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(part if "version" in part else yaml.load(whole.text) | part, file)
    load_campaign(folder / "part.yaml", environ={})


def test_the_page_prints_the_shipped_benchmark():
    """But for the folder that paths are relative to."""
    (whole,) = blocks(BENCHMARK_PAGE, "yaml")
    shipped = (ROOT / "configs" / "benchmark.yaml").read_text("utf-8")
    assert yaml.load(whole.text.replace("configs/data/", "data/")) == yaml.load(shipped)


def test_a_benchmark_prints_what_its_page_shows(sortition):
    """The plan's line on methods, and the run watched to its target."""
    planned, ran = blocks(BENCHMARK_PAGE, "text")
    assert planned.text in sortition("plan configs/benchmark.yaml --half-width 0.06")
    check_output(ran, sortition("run configs/benchmark.yaml --run-dir runs/benchmark"))


def test_answers_and_verdicts_that_are_there_are_read_as_the_page_says(folder, sortition):
    """Answers that were generated alone are judged at no cost, and marks in columns need no judge."""
    lay_out(BENCHMARK_PAGE, folder)
    sortition(
        "generate configs/benchmark.yaml --run-dir runs/answers --set policy.max_items=400 -y"
    )
    served = sortition("run recorded.yaml --run-dir runs/recorded")
    assert "by 400 items each" in served
    assert re.search(
        r"judges: \d+ answers, \d+ by the key, 1 missing; systems: 799 answers, 1 missing", served
    )
    assert "spend   $0.000000 settled" in served
    assert "11 answers, 1 missing" in sortition("run marks.yaml --run-dir runs/marks")


ARITHMETIC = ROOT / "configs" / "data" / "arithmetic.jsonl"


def test_the_shipped_benchmark_has_keys_that_are_right():
    """Of the topics that are one operation, by doing it again; all have 50 questions."""
    rows = [json.loads(line) for line in ARITHMETIC.read_text("utf-8").splitlines()]
    assert set(Counter(row["topic"] for row in rows).values()) == {50}
    assert len({row["question"] for row in rows}) == len({row["id"] for row in rows}) == 600
    n_checked = 0
    for row in rows:
        numbers = [int(n) for n in re.findall(r"\d+", row["question"])]
        if row["topic"] in REDONE:
            assert int(row["key"]) == REDONE[row["topic"]](*numbers), row
            n_checked += 1
    assert n_checked == 550


REDONE = {
    "sums": lambda a, b: a + b,
    "differences": lambda a, b: a - b,
    "products": lambda a, b: a * b,
    "quotients": lambda a, b: a / b,
    "remainders": lambda a, b: a % b,
    "squares": lambda a: a**2,
    "percent": lambda a, b: a * b / 100,
    "averages": lambda a, b, c: (a + b + c) / 3,
    "divisors": math.gcd,
    "multiples": math.lcm,
    "sequences": lambda a, b, c, d: d + b - a,
}
"""What a topic asks for, from the numbers in its question; clocks apart."""


def test_votes_in_a_table_are_worth_what_the_page_shows(folder, sortition):
    page = DOCS / "how-to" / "estimate-from-a-table.md"
    lay_out(page, folder)
    (shown,) = [block.text for block in blocks(page, "text") if "strengths" in block.text]
    assert shown in sortition("estimate votes.csv --map item_id=prompt")
