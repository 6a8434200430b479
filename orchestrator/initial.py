"""A first campaign that runs at once: its file, its rubric, and data with a known truth."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from orchestrator.core.errors import ConfigError
from orchestrator.core.money import NANO_PER_USD, Nano
from orchestrator.wording import seen

POLICIES = ("uniform", "two_phase", "est_ivwe")
"""The policies that a first campaign can have."""

CAMPAIGN = "campaign.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The ends of a scale of whole numbers; yes and no where `is_boolean`."""

    low: int = 0
    high: int = 1
    is_boolean: bool = False

    @classmethod
    def read(cls, text: str) -> Range:
        """Read "1-5", or "yes-no".

        Raises
        ------
        ConfigError
            It is neither.
        """
        if text.strip().lower() in {"yes-no", "yes/no", "no-yes"}:
            return cls(is_boolean=True)
        ends = re.fullmatch(r"\s*(\d{1,4})\s*-\s*(\d{1,4})\s*", text)
        if ends is None or int(ends[1]) >= int(ends[2]):
            raise ConfigError(f"a scale is written 1-5 or yes-no, not {seen(text)}")
        return cls(low=int(ends[1]), high=int(ends[2]))

    @property
    def span(self) -> int:
        """The distance between the ends."""
        return self.high - self.low

    def yaml(self) -> str:
        """Write it as a campaign file has it."""
        if self.is_boolean:
            return "{type: boolean}"
        return f"{{type: integer, min: {self.low}, max: {self.high}}}"


FIVE = Range(low=1, high=5)
ONE_USD = Nano(NANO_PER_USD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a first campaign is about.

    `is_pair`: two versions of each answer are compared; otherwise one set of answers is judged.
    """

    policy: str = "uniform"
    is_pair: bool = True
    scale: Range = FIVE
    budget: Nano = ONE_USD

    def __post_init__(self) -> None:
        """Refuse what can't be written."""
        if self.policy not in POLICIES:
            raise ConfigError(f"policy {seen(self.policy)}: wants one of {', '.join(POLICIES)}")
        if self.budget <= 0:
            raise ConfigError("the budget wants more than 0 USD")


def suits_pair(policy: str) -> bool:
    """Say whether a policy is for the difference of two versions, rather than for single scores."""
    return policy != "est_ivwe"


def campaign(wishes: Wishes, *, name: str) -> dict[str, str]:
    """Write the files of a first campaign, by path."""
    span = wishes.scale.span
    # A boolean is cut in the middle, where smaller errors would hardly ever change it.
    error_span = 3 * span if wishes.scale.is_boolean else span
    environment = Environment(
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  # writes YAML, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.from_string(_starter("campaign.yaml.j2")).render(
        title=_TITLES[wishes.is_pair],
        name=json.dumps(name, ensure_ascii=False),
        is_pair=wishes.is_pair,
        judges=[_scaled(judge, error_span) for judge in _JUDGES],
        scale=wishes.scale.yaml(),
        policy=wishes.policy,
        budget=f"{Decimal(wishes.budget) / NANO_PER_USD:f}",
        target=f"{0.05 * span:g}",
    )
    return {
        CAMPAIGN: text,
        "rubric.md": _starter("rubric.md"),
        "data/items.jsonl": _items(wishes),
    }


def write(directory: Path, texts: Mapping[str, str]) -> None:
    """Write files into a folder, all or none; nothing is overwritten.

    Raises
    ------
    ConfigError
        One is there already.
    """
    there = [path for path in texts if (directory / path).exists()]
    if there or (directory.exists() and not directory.is_dir()):
        names = ", ".join(there) or str(directory)
        raise ConfigError(f"{names}: there already; nothing was written")
    for path, text in texts.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", newline="\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MockJudge:
    """A mock judge; prices in USD per million tokens, its errors as parts of the scale."""

    name: str
    input: str
    output: str
    bias: float
    sd: float
    interaction: float


_JUDGES = (
    _MockJudge(name="large", input="2.00", output="10.00", bias=0.0, sd=0.10, interaction=0.0),
    _MockJudge(name="mid", input="1.00", output="5.00", bias=0.05, sd=0.15, interaction=0.05),
    _MockJudge(name="small", input="0.10", output="0.40", bias=-0.08, sd=0.25, interaction=0.10),
)
_TITLES = {
    True: "Two versions of a library's answers, rated by three judges of different price",
    False: "A library's answers, rated by three judges of different price",
}


def _scaled(judge: _MockJudge, span: int) -> dict[str, str]:
    errors = {"bias": judge.bias, "sd": judge.sd, "interaction": judge.interaction}
    return {"name": judge.name, "input": judge.input, "output": judge.output} | {
        name: f"{part * span:g}" for name, part in errors.items()
    }


def _items(wishes: Wishes) -> str:
    """Write a row for each item and version, with the truth on the scale."""
    lines = []
    for line in _starter("items.jsonl").splitlines():
        item = json.loads(line)
        for version in ("old", "new") if wishes.is_pair else ("new",):
            row = {key: item[key] for key in ("id", "topic")}
            row |= {"version": version} if wishes.is_pair else {}
            quality = wishes.scale.low + item[f"quality_{version}"] * wishes.scale.span
            row |= {"question": item["question"], "answer": item[version]}
            row |= {"quality": round(quality, 2)}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


def _starter(name: str) -> str:
    return (files("orchestrator") / "starter" / name).read_text(encoding="utf-8")
