"""The campaign file as models: every key that it can have, and what goes together.

Reading the file is `config`'s work; here is only its shape. Keys that belong to a plug-in are
validated by the plug-in's own model, which is found by kind and imported only when named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from orchestrator.core.errors import ConfigError
from orchestrator.gates import GateEntry
from orchestrator.quantities import (
    Count,
    Duration,
    Lax,
    Level,
    Loc,
    Model,
    Name,
    PositiveDuration,
    PositiveUsd,
    Rate,
    Share,
    Some,
    Usd,
)
from orchestrator.registry import Group, find, known
from orchestrator.task import CheckTask, CompareTask, RateBatchTask, RateTask
from orchestrator.wording import seen

# --- plug-ins ----------------------------------------------------------------------------------


def settings_model(group: Group, kind: str) -> type[BaseModel]:
    """Give the model of a plug-in's own keys.

    Raises
    ------
    ConfigError
        No such plug-in, or several.
    """
    model: type[BaseModel] = find(group, kind).config
    return model


def _known_kind(group: Group, kind: str) -> str:
    try:
        settings_model(group, kind)
    except ConfigError as exc:
        raise ValueError(str(exc)) from exc
    return kind


def _settings(group: Group, kind: str, value: object, info: ValidationInfo) -> BaseModel:
    """Validate a plug-in's own keys by its own model.

    They pass as JSON, so that strictness refuses "yes" for true and still takes a list for a tuple.
    """
    model = settings_model(group, kind)
    return model.model_validate_json(json.dumps(value), strict=True, context=info.context)


class Plugged(Model):
    """An entry whose `kind` names a plug-in: the common keys here, its own keys in `settings`.

    In the file they stand side by side.
    """

    group: ClassVar[Group]
    told: ClassVar[tuple[str, ...]] = ("kind",)
    """Common keys that the plug-in's model has too."""

    kind: str
    settings: Any

    @model_validator(mode="before")
    @classmethod
    def _part(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        common = cls.model_fields.keys() - {"settings"}
        own = {key: value for key, value in data.items() if key in cls.told or key not in common}
        return {key: data[key] for key in common & data.keys()} | {"settings": own}

    @field_validator("kind")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return _known_kind(cls.group, value)

    @field_validator("settings", mode="plain")
    @classmethod
    def _by_kind(cls, value: Any, info: ValidationInfo) -> BaseModel | None:
        kind = info.data.get("kind")
        return None if kind is None else _settings(cls.group, kind, value, info)

    @model_serializer(mode="wrap")
    def _side_by_side(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return written | (written.pop("settings") or {})

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe one form of the entry for each kind, and one for plug-ins from elsewhere."""
        common = handler.resolve_ref_schema(handler(core))
        properties = {k: v for k, v in common["properties"].items() if k != "settings"}
        required = [key for key in common["required"] if key != "settings"]
        forms: list[JsonSchemaValue] = []
        for kind in known(cls.group):
            model = settings_model(cls.group, kind)
            own = handler.resolve_ref_schema(handler(model.__pydantic_core_schema__))
            forms.append(
                own
                | {
                    "properties": properties | own["properties"],
                    "required": sorted({*required, *own.get("required", ())}),
                }
            )
        elsewhere = {"kind": {"type": "string", "pattern": ":"}}
        forms.append({"properties": properties | elsewhere, "required": required})
        return {"oneOf": forms}


# --- data --------------------------------------------------------------------------------------


class FieldSource(Model):
    """Which column a field comes from, and how it is shown to a judge."""

    column: Name = Field(alias="from")
    kind: Literal["text", "chat", "json"] = Field(default="text", alias="as")
    optional: bool = False
    """Whether a row may lack it; it is empty there."""


def _as_source(value: Any) -> Any:
    return {"from": value} if isinstance(value, str) else value


def _field_name(value: str) -> str:
    if not value.isidentifier() or value in {"criteria", "end"}:
        raise ValueError(
            f"{seen(value)} can't name a field; wants one word of letters, digits and _"
        )
    return value


Fields = dict[
    Annotated[str, AfterValidator(_field_name)],
    Annotated[FieldSource, BeforeValidator(_as_source, json_schema_input_type=str | FieldSource)],
]

Arm = Annotated[
    Annotated[Path, Lax, Tag("file")] | Annotated[Fields, Tag("fields")],
    Discriminator(
        lambda value: "fields" if isinstance(value, dict) else "file",
    ),
]
"""An arm has a file of its own, or fields of its own in the rows that all arms share."""


class Data(Model):
    """The units: where they are, which column is what, and what a judge is shown.

    Arms are told apart by file (`arms: {old: a.jsonl, new: b.jsonl}`), by column (`arm: COLUMN`),
    or by fields (`arms: {old: {candidate: reply_old}, new: {candidate: reply_new}}`).
    """

    path: Annotated[Path, Lax] | None = None
    arms: dict[Name, Arm] | None = None
    arm: Name | None = None
    id: Name = "id"
    cluster: Name | None = None
    strata: Name | None = None
    group: Name | None = None
    weight: Name | None = None
    fields: Fields = Field(default_factory=dict)
    prior_judgments: Annotated[tuple[Annotated[Path, Lax], ...], Lax] = ()

    @property
    def files(self) -> dict[str, Path]:
        """The file of each arm, where arms are told apart by file."""
        return {name: arm for name, arm in (self.arms or {}).items() if isinstance(arm, Path)}

    @property
    def arm_fields(self) -> dict[str, Fields]:
        """The fields of each arm's own, where arms are told apart by fields."""
        return {name: arm for name, arm in (self.arms or {}).items() if isinstance(arm, dict)}

    @property
    def arm_names(self) -> tuple[str, ...] | None:
        """The arms, None where only the data can say."""
        if self.arm is not None:
            return None
        return tuple(self.arms) if self.arms is not None else ("",)

    @property
    def field_names(self) -> frozenset[str]:
        """All fields that a unit has."""
        return frozenset(self.fields).union(*self.arm_fields.values())

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Want one way of telling arms apart, and files for it."""
        files, own = self.files, self.arm_fields
        if self.path is None and self.arms is None:
            yield ("path",), "missing; wants a file, or several under arms"
        if self.arms is not None and self.arm is not None:
            yield ("arm",), "wants arms or arm, not both"
        if self.arms is not None and not self.arms:
            yield ("arms",), "wants at least one arm"
        if files and own:
            yield ("arms",), "wants files for all arms or fields for all, not both"
        elif files and self.path is not None:
            yield ("path",), "each arm has a file of its own, so this one is never read"
        elif own and self.path is None:
            yield ("path",), "missing; wants the file whose rows hold all arms"
        names = {frozenset(fields) for fields in own.values()}
        if len(names) > 1:
            yield ("arms",), "wants the same fields for every arm"
        for field in sorted(frozenset(self.fields).intersection(*names) if names else ()):
            yield ("fields", field), "each arm has a field of that name too"


class Cache(Model):
    """Verdicts kept between runs; a share is asked again, to see whether the model has changed."""

    dir: Annotated[Path, Lax] = Path(".sortition/cache")
    max_age: Duration | None = None
    recheck: Share = 0.0


class Labels(Model):
    """Human verdicts on some of the units; columns as for `estimate DATA`."""

    path: Annotated[Path, Lax]
    id: Name = "item_id"
    arm: Name | None = None
    criterion: Name | None = None
    score: Name = "score"


# --- judges ------------------------------------------------------------------------------------


class Params(Model):
    """Decoding; `extra` goes to the provider as it stands."""

    max_output_tokens: Count = 400
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: int | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class Rates(Model):
    """Prices in USD per million tokens by class, kept in pico-USD per token."""

    input: Rate
    output: Rate
    cached_input: Rate | None = None
    cache_write_5m: Rate | None = None
    cache_write_1h: Rate | None = None


Price = Annotated[
    Annotated[Literal["sheet", "free"], Tag("word")] | Annotated[Rates, Tag("rates")],
    Discriminator(
        lambda value: {str: "word", dict: "rates", Rates: "rates"}.get(type(value)),
        custom_error_type="wants",
        custom_error_message="wants sheet, free, or {input, output, ...} in USD per million tokens",
    ),
]


class Limits(Model):
    """How many calls and tokens may be under way."""

    concurrency: Count = 16
    rpm: Count | None = None
    input_tpm: Count | None = None
    output_tpm: Count | None = None


class Timeouts(Model):
    """Deadlines of one attempt and of one answer, and how long a judge may keep us waiting."""

    connect: PositiveDuration = 10.0
    attempt: PositiveDuration = 300.0
    answer: PositiveDuration = 900.0
    patience: PositiveDuration = 30.0
    max_wait: PositiveDuration = 900.0

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Fit one attempt into the answer's deadline."""
        if self.attempt > self.answer:
            yield (
                ("attempt",),
                f"wants at most answer, {self.answer:g} s, not {self.attempt:g} s",
            )


class Assumption(Model):
    """What `plan` takes for granted about a judge."""

    sd: Annotated[float, Field(ge=0)] | None = None
    output_tokens: Count | None = None
    missing: Share | None = None


def _variable(value: str) -> str:
    # The value is not shown: it may be the key itself.
    if not value.isidentifier() or not value.isascii():
        raise ValueError("wants the name of an environment variable, never a key")
    return value


def _url(value: str) -> str:
    # The value is not shown: it may hold a password.
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = urlsplit("")
    is_one = not any(c.isspace() for c in value)
    if not is_one or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("wants a URL that begins with http:// or https://")
    return value


LIVE = frozenset({"openai", "anthropic", "google", "compatible"})
BLOCKS = ("mock", "recorded", "openai", "anthropic", "google", "compatible", "python")
BUILT_IN = frozenset(BLOCKS)
"""Adapters whose own keys stand in a block of their name; any other has its own in `settings`."""


class Judge(Model):
    """Who is asked, at which price and limits.

    A built-in adapter's own keys stand in a block of its name, those of one from elsewhere in
    `settings`. A `mock` block is allowed with any adapter: a mock may stand in for it.
    """

    name: Name
    adapter: str
    model: str = ""
    base_url: Annotated[str, AfterValidator(_url)] | None = None
    api_key_env: Annotated[str, AfterValidator(_variable)] | None = None
    params: Params = Params()
    price_usd_per_1m: Price = "sheet"
    planning_usd_per_call: Usd | None = None
    budget_usd: PositiveUsd | None = None
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    max_attempts: Count = 3
    strict_params: bool = False
    input_bound: Literal["bytes", "tokenizer"] = "bytes"
    lane: Literal["live", "batch"] = "live"
    mock: Any = None
    recorded: Any = None
    openai: Any = None
    anthropic: Any = None
    google: Any = None
    compatible: Any = None
    python: Any = None
    settings: Any = None
    assume: Assumption = Assumption()

    @field_validator("adapter")
    @classmethod
    def _is_known(cls, value: str) -> str:
        return _known_kind("judges", value)

    @field_validator(*BLOCKS, mode="plain")
    @classmethod
    def _by_name(cls, value: Any, info: ValidationInfo) -> BaseModel:
        return _settings("judges", str(info.field_name), value, info)

    @field_validator("settings", mode="plain")
    @classmethod
    def _by_adapter(cls, value: Any, info: ValidationInfo) -> BaseModel | None:
        adapter = info.data.get("adapter")
        return None if adapter is None else _settings("judges", adapter, value, info)

    @property
    def is_free(self) -> bool:
        """Whether no call can cost anything."""
        if self.is_by_call:
            return self.own_settings is not None and not self.own_settings.usd_per_call
        return self.price_usd_per_1m == "free"

    @property
    def own_settings(self) -> Any:
        """The keys of its adapter's own, None where it has none."""
        return getattr(self, self.adapter) if self.adapter in BUILT_IN else self.settings

    @property
    def is_by_call(self) -> bool:
        """Whether it charges by the call and counts no tokens."""
        own = self.own_settings
        return self.adapter == "recorded" or getattr(own, "usd_per_call", None) is not None

    @property
    def truth(self) -> str | None:
        """The column that its mock takes for the truth."""
        return None if self.mock is None else self.mock.truth

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Want what the adapter needs, and nothing that it never reads."""
        given = self.model_fields_set
        if self.adapter in LIVE and not self.model:
            yield ("model",), f"missing; {self.adapter} wants one"
        if self.adapter == "compatible" and self.base_url is None:
            yield ("base_url",), "missing; compatible wants the server's URL"
        if self.adapter == "recorded":
            if self.recorded is None:
                yield ("recorded",), "missing; wants {path, judge, usd_per_call}"
            elif self.recorded.usd_per_call is None:
                yield ("recorded", "usd_per_call"), "missing; wants USD, 0 if the calls are free"
        if self.adapter == "python" and self.python is None:
            yield ("python",), "missing; wants {call: package.module:function}"
        if self.is_by_call and "price_usd_per_1m" in given:
            message = f"{self.adapter} charges usd_per_call, so this is never read"
            yield ("price_usd_per_1m",), message
        for block in given.intersection(BLOCKS) - {self.adapter, "mock"}:
            yield (block,), f"only the adapter {block} reads it, not {self.adapter}"
        if "settings" in given and self.adapter in BUILT_IN:
            yield ("settings",), f"only adapters from elsewhere read it, not {self.adapter}"

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the blocks of plug-ins; only the name is required, since defaults give the rest."""
        schema = handler(core)
        form = handler.resolve_ref_schema(schema)
        for block in BLOCKS:
            model = settings_model("judges", block)
            form["properties"][block] = handler(model.__pydantic_core_schema__)
        form["required"] = ["name"]
        return schema


class System(Judge):
    """A model under test: it answers the items that judges then rate, as an arm of its name.

    `prompt` is what it is shown, a template in which fields stand for their texts; None: the only
    field that no step of the task reads.
    """

    prompt: str | None = None


# --- the rest ----------------------------------------------------------------------------------

Task = Annotated[
    RateTask | RateBatchTask | CompareTask | CheckTask,
    Discriminator("kind"),
]


class Policy(Plugged):
    """How the next question is chosen, and in which order answers count."""

    group = "policies"

    window: Count | None = None
    delivery: Literal["in_order", "arrival"] = "in_order"
    allow_identical_repeats: bool = False


class EstimateEntry(Plugged):
    """A number that the campaign is after; the first is primary unless another one says so."""

    group = "estimators"
    told = ("kind", "name")

    name: Name
    primary: bool = False


class Roles(Model):
    """Caps by role."""

    system: PositiveUsd | None = None
    judge: PositiveUsd | None = None


class Budget(Model):
    """What may be spent; `max_uncertain` is a share of `usd`."""

    usd: PositiveUsd | None = None
    by_role: Roles = Roles()
    max_uncertain: Share = 0.10
    max_requests: Count | None = None
    max_tokens: Count | None = None
    wall_clock: PositiveDuration | None = None


class Stop(Model):
    """When the run ends before its money does."""

    when: Literal["target", "gate_decided", "ranking_separated"] = "target"
    check: Literal["end", "anytime", "group_sequential"] = "end"
    rule: Literal["obrien_fleming"] | None = None
    every: Count = 25
    target_half_width: Annotated[float, Field(gt=0)] | None = None
    of: Literal["primary", "every_arm"] = "primary"
    separate: Literal["leader", "ranking"] | None = None
    min_items: Count = 20
    max_answers: Count | None = None
    confidence: Level = 0.95

    @property
    def checking(self) -> str:
        """How it is checked; a rule of looks implies group_sequential."""
        return "group_sequential" if self.rule is not None else self.check

    @property
    def separates(self) -> Literal["leader", "ranking"] | None:
        """What of a ranking is to be proved: its leader, unless every pair is asked for."""
        return self.separate or "leader" if self.when == "ranking_separated" else None

    def contradictions(self) -> Iterable[tuple[Loc, str]]:
        """Want a target where one is named, and one way of checking."""
        given = self.model_fields_set
        if "when" in given and self.when == "target" and self.target_half_width is None:
            yield ("target_half_width",), "missing; when: target wants one"
        if self.when != "target" and self.target_half_width is not None:
            yield ("target_half_width",), f"when: {self.when} never reads it"
        if self.separate is not None and self.when != "ranking_separated":
            yield ("separate",), f"when: {self.when} never reads it"
        if "check" in given and self.check != self.checking:
            yield ("check",), f"rule: {self.rule} implies group_sequential, not {self.check}"


class Keep(Model):
    """What of the texts is kept."""

    prompts: Literal["none", "hash", "full"] = "hash"
    replies: Literal["none", "parsed", "full"] = "full"


class Output(Model):
    """Where results go, and in which forms."""

    dir: Annotated[Path, Lax] | None = None
    formats: Annotated[
        tuple[Literal["html", "md", "parquet", "jsonl", "csv", "junit"], ...], Lax
    ] = ("html",)
    keep: Keep = Keep()


class Shutdown(Model):
    """How long calls under way are waited for once the run is interrupted."""

    grace: Duration = 30.0


def truth_column(judges: Iterable[Judge]) -> str | None:
    """Name the column that holds the truth of mock judges, None where it is synthetic."""
    return next((judge.truth for judge in judges if judge.truth is not None), None)


class Campaign(Model):
    """A whole campaign file.

    Each section that is valid by itself is kept in the validation context's `sections`, so that
    what goes together can be checked although another section is wrong.
    """

    version: Literal[1]
    name: Name
    seed: Annotated[int, Field(ge=0)] = 0
    data: Data
    systems: Annotated[tuple[System, ...], Lax] = ()
    judge_defaults: dict[str, Any] = Field(default_factory=dict)
    judges: Annotated[tuple[Judge, ...], Lax, Some]
    task: Task
    policy: Policy
    budget: Budget = Budget()
    stop: Stop = Stop()
    estimate: Annotated[tuple[EstimateEntry, ...], Lax] = ()
    gate: Annotated[tuple[GateEntry, ...], Lax] = ()
    cache: Cache | None = None
    labels: Labels | None = None
    output: Output = Output()
    shutdown: Shutdown = Shutdown()

    @field_validator("*", mode="wrap")
    @classmethod
    def _keep_section(
        cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        section = check(value)
        if info.context is not None:
            info.context["sections"][info.field_name] = section
        return section

    @property
    def asked(self) -> tuple[Judge, ...]:
        """All who can be asked: the judges, then the systems."""
        return (*self.judges, *self.systems)

    @property
    def is_generating(self) -> bool:
        """Whether systems answer and nothing is judged; see `CampaignFile.for_generation`."""
        return not self.judges

    def place(self, ix: int) -> str:
        """Give the path of one who can be asked."""
        n = len(self.judges)
        return f"judges[{ix}]" if ix < n else f"systems[{ix - n}]"

    @property
    def primary(self) -> EstimateEntry:
        """The estimate that stop rules and gates look at."""
        return next((entry for entry in self.estimate if entry.primary), self.estimate[0])

    @property
    def truth_column(self) -> str | None:
        """The column that holds the truth of mock judges, None where it is synthetic."""
        return truth_column(self.asked)
