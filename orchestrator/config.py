"""Reads a campaign file: YAML, overrides, the files it names, and every problem at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema

from orchestrator import covariates
from orchestrator.campaign_file import (
    BUILT_IN,
    Campaign,
    EstimateEntry,
    Keep,
    Stop,
    truth_column,
)
from orchestrator.consistency import cautions, disagreements
from orchestrator.core.errors import InvalidCampaign, Problem
from orchestrator.core.frame import Frame
from orchestrator.core.scale import COMPOSITE
from orchestrator.core.wire import Json
from orchestrator.data import read_data
from orchestrator.document import Document, dump, override, parse
from orchestrator.quantities import Loc, dotted, undotted
from orchestrator.task import DEFAULT_CRITERION, KEY
from orchestrator.translation import translated
from orchestrator.wording import on_one_line, seen

# --- what a file implies -----------------------------------------------------------------------

_ATOMIC = "price_usd_per_1m"
"""A judge's own prices replace the default ones: half of each would be neither."""


def _share_defaults(document: Document) -> None:
    """Give every judge what `judge_defaults` says and it does not; blocks are merged by key."""
    defaults, judges = document.data.get("judge_defaults"), document.data.get("judges")
    if not isinstance(defaults, dict) or not isinstance(judges, list):
        return
    for index, judge in enumerate(judges):
        if not isinstance(judge, dict):
            continue
        for key, value in defaults.items():
            own = judge.get(key)
            if key not in judge:
                taken: list[Loc] = [(key,)]
                judge[key] = dict(value) if isinstance(value, dict) else value
            elif isinstance(own, dict) and isinstance(value, dict) and key != _ATOMIC:
                taken = [(key, inner) for inner in value.keys() - own.keys()]
                judge[key] = value | own
            else:
                continue
            for tail in taken:
                _copy_places(document, ("judge_defaults", *tail), ("judges", index, *tail))


def _copy_places(document: Document, source: Loc, target: Loc) -> None:
    for loc, place in list(document.places.items()):
        if loc[: len(source)] == source:
            document.places[target + loc[len(source) :]] = place


def _imply(data: dict[str, Any]) -> None:
    """Write down what is meant where nothing is said."""
    is_of_pairs = _mapping(data.get("task")).get("kind") == "compare"
    data["estimate"] = data.get("estimate", []) or [
        {"name": "ranking", "kind": "bradley_terry"}
        if is_of_pairs
        else {"name": "scores", "kind": "score_means"}
    ]
    _imply_of_checks(data)
    judges = [judge for judge in _list(data.get("judges")) if isinstance(judge, dict)]
    systems = [system for system in _list(data.get("systems")) if isinstance(system, dict)]
    for judge in (*judges, *systems):
        adapter = judge.get("adapter")
        if adapter == "mock":
            judge.setdefault("mock", {})
        elif adapter == "recorded" and _is_run(_mapping(judge.get("recorded")).get("path")):
            judge["recorded"].setdefault("usd_per_call", 0)
        elif isinstance(adapter, str) and adapter not in BUILT_IN:
            judge.setdefault("settings", {})
    policy = _mapping(data.get("policy"))
    if policy.get("kind") == "uniform" and judges and all(map(_serves_once, judges)):
        policy.setdefault("max_repeats", 1)


def _imply_of_checks(data: dict[str, Any]) -> None:
    """Let fields that steps read be blank, and someone stand for the judge where none is asked."""
    task, source = _mapping(data.get("task")), _mapping(data.get("data"))
    if task.get("kind") != "check":
        return
    steps = [step for step in _list(task.get("verdict")) if isinstance(step, dict)]
    own = [arm for arm in _mapping(source.get("arms")).values() if isinstance(arm, dict)]
    for step in steps:
        fields, name = source.setdefault("fields", {}), step.get("column", step.get("match"))
        if not isinstance(name, str) or not isinstance(fields, dict):
            continue
        holders = [holder for holder in (fields, *own) if name in holder]
        for holder in holders or ([fields] if "column" in step else []):
            written = holder.get(name, name)
            given = {"from": written} if isinstance(written, str) else _mapping(written)
            holder[name] = {"optional": True, **given} if given else written
    if "judges" not in data and not any("judge" in step for step in steps):
        data["judges"] = [{"name": KEY, "adapter": KEY, "price_usd_per_1m": "free"}]


def _is_run(path: object) -> bool:
    """Say whether a recording, by now an absolute path, is another run: its verdicts are paid."""
    return isinstance(path, str) and Path(path).is_dir()


def _serves_once(judge: dict[str, Any]) -> bool:
    recorded = judge.get("recorded")
    return (
        judge.get("adapter") == "recorded"
        and isinstance(recorded, dict)
        and recorded.get("on_exhausted") != "resample"
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# --- files that a file names -------------------------------------------------------------------

_FILES: dict[str, Literal["file", "recording", "path", "later", "text"]] = {
    "data.path": "file",
    "data.arms.*": "file",
    "data.prior_judgments.*": "path",
    "judges|systems.*.recorded.path": "recording",
    "labels.path": "file",
    "task.rubric": "text",
    "task.verdict.*.rubric": "text",
    "systems.*.prompt": "text",
    "cache.dir": "later",
    "output.dir": "later",
}
"""Where paths stand, all relative to the campaign file. A `file` must be there, a `recording` is one
or the directory of a run, a `path` may be a folder, a `later` one need not exist yet; `text` is
inline or, as file://PATH, read now."""

_IS_THERE: dict[str, Callable[[Path], bool]] = {
    "file": Path.is_file,
    "recording": lambda path: path.is_file() or path.is_dir(),
    "path": Path.exists,
    "later": lambda _: True,
}

_SCHEME = "file://"


def _open_files(document: Document, base: Path) -> Iterator[Path]:
    """Make every path absolute, read the texts that are given as files, and give what is read."""
    for pattern, role in _FILES.items():
        for loc, holder, key in _matches(document.data, pattern):
            text = holder[key]
            if not isinstance(text, str):
                continue
            if role == "text":
                if text.startswith(_SCHEME):
                    yield base / text.removeprefix(_SCHEME)
                try:
                    holder[key] = _text(text, base)
                except OSError as exc:
                    message = f"can't be read: {exc.strerror or exc}"
                    document.problems.append(document.problem(loc, message))
                except ValueError as exc:
                    document.problems.append(document.problem(loc, str(exc)))
                continue
            path = base / text
            holder[key] = str(path)
            if role != "later":
                yield path
            if not _IS_THERE[role](path):
                what = "path" if role == "path" else "file"
                document.problems.append(
                    document.problem(loc, f"no such {what}: {on_one_line(str(path))}")
                )


def _text(text: str, base: Path) -> str:
    if text.startswith(_SCHEME):
        path = base / text.removeprefix(_SCHEME)
        if not path.is_file():
            raise ValueError(f"no such file: {on_one_line(str(path))}")
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as exc:
            raise ValueError(f"not UTF-8: {on_one_line(str(path))}") from exc
    elif re.fullmatch(r"\S+\.(md|txt|j2|jinja2?)", text):
        raise ValueError(f"looks like a file; wants {_SCHEME}{text}")
    if not text.strip():
        raise ValueError("wants a text, and this one is blank")
    return text


class _Match(NamedTuple):
    """A value that a pattern names: where it stands, its container, and its key there."""

    loc: Loc
    holder: Any
    key: Any


def _matches(data: Any, pattern: str) -> Iterator[_Match]:
    """Find what a pattern names; `*` is any key or entry, `a|b` either."""
    head, _, rest = pattern.partition(".")
    keys: Iterable[Any]
    match data:
        case dict():
            keys = list(data) if head == "*" else [key for key in head.split("|") if key in data]
        case list() if head == "*":
            keys = range(len(data))
        case _:
            return
    for key in keys:
        if not rest:
            yield _Match((key,), data, key)
        else:
            for below in _matches(data[key], rest):
                yield below._replace(loc=(key, *below.loc))


# --- the loaded file ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFile:
    """A valid campaign with the places of its fields.

    `reads` are the files it is made from, itself the first. `warnings` are fields that are allowed
    and probably not meant.
    """

    campaign: Campaign
    path: Path
    reads: tuple[Path, ...]
    warnings: tuple[Problem, ...]
    _document: Document

    def locate(self, path: str, message: str) -> Problem:
        """Make a problem at a field, given as `judges[1].price_usd_per_1m`."""
        return self._document.problem(undotted(path), message)

    def for_generation(self) -> CampaignFile:
        """Give the same campaign without judges and what reads them: systems answer, and that is all.

        Raises
        ------
        InvalidCampaign
            There are no systems.
        """
        if not self.campaign.systems:
            message = "missing; generate asks the models under test that it lists"
            raise InvalidCampaign([self.locate("systems", message)])
        nothing: dict[str, object] = {"judges": (), "estimate": (), "gate": (), "labels": None}
        alone = self.campaign.model_copy(update={**nothing, "stop": Stop()})
        return replace(self, campaign=alone)

    def section(self, name: str) -> Json:
        """Give a section as it runs: overrides, defaults of judges and texts in place, paths absolute."""
        return deepcopy(self._document.data.get(name))

    def identity_json(self) -> dict[str, Json]:
        """Give everything that must not change while a run goes on, as plain JSON.

        Texts are digested, passwords in URLs are left out, and so is all that `OPERATIONAL` names.
        """
        identity = self.campaign.model_dump(mode="json", by_alias=True, exclude_none=True)
        for pattern in OPERATIONAL:
            for _, holder, key in list(_matches(identity, pattern)):
                del holder[key]
        if self.campaign.output.keep == Keep():
            del identity["output"]  # logs from before this was identity keep their digest
        for _, block, key in list(_matches(identity, "judges|systems.*.mock.*")):
            if key in _LATER and block[key] == _LATER[key]:
                del block[key]
        if self.campaign.data.files:
            identity["data"]["arms"] = list(self.campaign.data.files)
        for pattern in _TEXTS:
            for _, holder, key in _matches(identity, pattern):
                holder[key] = f"sha256:{sha256(holder[key].encode()).hexdigest()}"
        _hide_passwords(identity)
        return identity

    def resolved_yaml(self) -> str:
        """Write the campaign as it runs: overrides, defaults of judges and texts in place.

        Paths are absolute, so the copy can stand and be run anywhere on this machine. Passwords in
        URLs are left out.
        """
        data = deepcopy(self._document.data)
        data.pop("judge_defaults", None)
        _hide_passwords(data)
        return dump(data)


OPERATIONAL: dict[str, str] = {
    "judge_defaults": "stands in each judge",
    "data.path": "where the data are; their digest is identity",
    "data.prior_judgments": "where they are",
    "judges|systems.*.limits": "how fast",
    "judges|systems.*.timeouts": "how patient",
    "judges|systems.*.api_key_env": "whose key",
    "judges|systems.*.price_usd_per_1m": "a change of prices is an event",
    "judges|systems.*.*.usd_per_call": "a change of prices is an event",
    "judges|systems.*.recorded.path": "where the recording is",
    "judges|systems.*.budget_usd": "how much",
    "judges|systems.*.assume": "for `plan` alone",
    "budget": "how much; a change is an event",
    "cache.dir": "where it is",
    "labels.path": "where they are",
    "output.dir": "where results go; what is kept is identity, since `verify` counts on it",
    "output.formats": "in which forms",
    "shutdown": "how it ends when interrupted",
}
"""What may change while a run goes on, and why; everything else is identity."""

_LATER = {
    "carry_over": 0.0,
    "batch_sd": 0.0,
    "log_odds": False,
    "discrimination": 1.0,
    "nu": 0.0,
    "right": 0.7,
}
"""Keys of mock judges that came later, with what earlier ones did: logs of those keep their digest."""

_TEXTS = tuple(pattern for pattern, role in _FILES.items() if role == "text")


def _hide_passwords(data: dict[str, Any]) -> None:
    for _, holder, key in _matches(data, "judges|systems.*.base_url"):
        parts = urlsplit(holder[key] or "")
        holder[key] = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


# --- entry points ------------------------------------------------------------------------------

OUTPUT_DIR = "SORTITION_OUTPUT_DIR"


def load_campaign(
    path: Path, *, overrides: Mapping[str, object] | None = None, environ: Mapping[str, str]
) -> CampaignFile:
    """Read a campaign file.

    `overrides` map dotted paths to values (`budget.usd`, `judges.large.limits.concurrency`); a text
    is read as a YAML value. They win over the file, and so does ``SORTITION_OUTPUT_DIR``.

    Raises
    ------
    InvalidCampaign
        With every problem at once.
    """
    document = _read(path)
    if not isinstance(document.data, dict):
        if not document.problems:
            message = f"wants a mapping of keys, not {seen(document.data)}"
            document.problems.append(document.problem((), message))
        raise InvalidCampaign(document.problems)
    if folder := environ.get(OUTPUT_DIR):
        override(document, "output.dir", Path(folder).absolute(), source=OUTPUT_DIR)
    for dotted_path, value in (overrides or {}).items():
        override(document, dotted_path, value)
    _share_defaults(document)
    reads = (path.absolute(), *_open_files(document, path.absolute().parent))
    _imply(document.data)
    campaign = _validated(document)
    if campaign is None or document.problems:
        raise InvalidCampaign(in_order(document.problems, document.file))
    warnings = tuple(document.problem(undotted(at), why) for at, why in cautions(campaign))
    return CampaignFile(
        campaign=campaign, path=path, reads=reads, warnings=warnings, _document=document
    )


def _read(path: Path) -> Document:
    file = str(path)
    try:
        return parse(path.read_text(encoding="utf-8-sig"), file)
    except OSError as exc:
        message = f"can't be read: {exc.strerror or exc}"
    except UnicodeDecodeError:
        message = "not UTF-8"
    return Document(file=file, problems=[Problem(file=file, message=message)])


def _validated(document: Document) -> Campaign | None:
    """Validate each section, then what goes together among those that are valid.

    A file that is refused is held against its data too, so that all its problems are named at once;
    one that is not is held against them by who runs it.
    """
    data = document.data
    sections: dict[str, Any] = {
        name: field.get_default(call_default_factory=True)
        for name, field in Campaign.model_fields.items()
        if name not in data and not field.is_required()
    }
    campaign = None
    try:
        campaign = Campaign.model_validate(data, context={"sections": sections, **_names(data)})
    except ValidationError as error:
        refusals = [*translated(error, data)]
        document.problems += [document.problem(*refusal) for refusal in refusals]
        if "estimate" not in sections:
            sections |= _named_estimates(data, [refusal.loc for refusal in refusals])
    document.problems += [document.problem(loc, message) for loc, message in _repeated_names(data)]
    if document.problems or any(disagreements(sections)):
        sections |= _frame(document, sections)
    document.problems += [
        document.problem(undotted(at), message) for at, message in disagreements(sections)
    ]
    return campaign


def _named_estimates(data: dict[str, Any], wrong: Iterable[Loc]) -> dict[str, Any]:
    """Give estimates without those of their keys that are wrong, so that names can be looked up."""
    entries = deepcopy(_list(data.get("estimate")))
    for loc in wrong:
        match loc:
            case ("estimate", int(index), str(key), *_):
                entries[index].pop(key, None)
    context = {"sections": {}, **_names(data)}
    try:
        named = tuple(EstimateEntry.model_validate(entry, context=context) for entry in entries)
    except ValidationError:
        return {}
    return {"named": named}


def _frame(document: Document, sections: Mapping[str, Any]) -> dict[str, Frame]:
    """Read which units there are, where the file says rightly where."""
    if "data" not in sections or any(p.path.startswith("data") for p in document.problems):
        return {}
    systems = _named(document.data.get("systems"))
    try:
        data = read_data(
            sections["data"],
            base=Path(document.file).absolute().parent,
            truth=truth_column(sections.get("judges", ())),
            systems=list(dict.fromkeys(systems)),
            numbers=covariates.columns(
                sections.get("named", sections.get("estimate", ())), sections.get("policy")
            ),
            locate=lambda at, message: document.problem(undotted(at), message),
        )
    except InvalidCampaign as exc:
        document.problems += exc.problems
        return {}
    # A system without a name would be an arm that no one could be compared with.
    is_complete = len(systems) == len(_list(document.data.get("systems")))
    return {"frame": data.frame} if is_complete else {}


def _names(data: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Collect the names that other fields may refer to; without `arms` where the data hold them."""
    task, source = _mapping(data.get("task")), _mapping(data.get("data"))
    criteria = _named(task.get("criteria")) or (DEFAULT_CRITERION,)
    names = {
        "judges": _named(data.get("judges")),
        "estimates": _named(data.get("estimate")),
        "criteria": (*criteria, COMPOSITE),
    }
    if "systems" in data:
        names["arms"] = _named(data["systems"])
    elif "arm" not in source:
        names["arms"] = tuple(_mapping(source.get("arms"))) or ("",)
    return names


def _named(entries: object) -> tuple[str, ...]:
    names = [entry.get("name") for entry in _list(entries) if isinstance(entry, dict)]
    return tuple(name for name in names if isinstance(name, str))


def _repeated_names(data: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    for loc in (("judges",), ("systems",), ("estimate",), ("task", "criteria")):
        entries = _mapping(data.get(loc[0])).get(loc[1]) if len(loc) > 1 else data.get(loc[0])
        first: dict[str, int] = {}
        for index, entry in enumerate(_list(entries)):
            name = _mapping(entry).get("name")
            if isinstance(name, str) and first.setdefault(name, index) != index:
                same = dotted((*loc, first[name]))
                yield (*loc, index, "name"), f"{seen(name)} is the name of {same} already"


def in_order(problems: Iterable[Problem], file: str) -> list[Problem]:
    """Sort by place, those of the campaign file before others, and say nothing twice."""
    return sorted(
        dict.fromkeys(problems),
        key=lambda p: (p.file != file, p.file, p.line or 0, p.column or 0),
    )


class _Untitled(GenerateJsonSchema):
    """Leaves out titles, which would only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 # pydantic's port
        return False


def json_schema() -> dict[str, Any]:
    """Generate the JSON Schema of campaign files, the keys of every kind included."""
    schema = Campaign.model_json_schema(schema_generator=_Untitled)
    keys = schema["$defs"]["Judge"]["properties"]
    schema["properties"]["judge_defaults"] = {
        "type": "object",
        "properties": {key: {"$ref": f"#/$defs/Judge/properties/{key}"} for key in keys},
        "additionalProperties": False,
    }
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}
