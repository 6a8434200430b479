"""Measured properties of units that estimates control for or items are drawn by: lengths, marks, columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.campaign_file import EstimateEntry, Policy
from orchestrator.core.frame import CANDIDATE
from orchestrator.core.wire import Chat
from orchestrator.data import Dataset

_MARKS = re.compile(r"^[ ]{0,3}(?:#{1,6} |[-*+] |\d+[.)] |```|\|)|\*\*[^*\n]+\*\*", re.MULTILINE)
"""Headings, list items, fences and table rows at the start of a line; bold anywhere."""

MEASURES: Mapping[str, Callable[[str], float]] = {
    "log_length": lambda text: math.log1p(len(text)),
    "format_marks": lambda text: math.log1p(len(_MARKS.findall(text))),
}
"""Covariates that are measured in a field's text, by name; all others are columns of numbers."""


class _Wanted(NamedTuple):
    """A covariate of the campaign file: where it stands, its name, and the field or column it is of."""

    key: str
    name: str
    source: str


def columns(estimate: Iterable[EstimateEntry], policy: Policy | None) -> dict[str, str]:
    """List the columns of numbers that are read for estimates and the policy, by the key that names them."""
    found = {w.key: w.source for w in _wanted(estimate) if w.name not in MEASURES}
    return found | dict(_drawn_by(estimate, policy))


def measured_fields(estimate: Iterable[EstimateEntry]) -> dict[str, str]:
    """List the fields that are measured for estimates, by the key that names them."""
    return {w.key: w.source for w in _wanted(estimate) if w.name in MEASURES}


def measured(
    estimate: Iterable[EstimateEntry], policy: Policy, data: Dataset
) -> dict[str, NDArray[np.float64]]:
    """Give all covariates that estimates control for or items are drawn by, (n_units,) each.

    What is of a field that units lack is not among them: such a file is refused (`disagreements`).
    """
    found: dict[str, NDArray[np.float64]] = {}
    for wanted in _wanted(estimate):
        if wanted.name not in MEASURES:
            found[wanted.name] = data.numbers[wanted.source]
        elif wanted.source in data.fields[0]:
            measure = MEASURES[wanted.name]
            texts = (_text(fields[wanted.source]) for fields in data.fields)
            found[wanted.name] = np.array([measure(text) for text in texts])
    return found | {column: data.numbers[column] for _, column in _drawn_by(estimate, policy)}


def _drawn_by(
    estimate: Iterable[EstimateEntry], policy: Policy | None
) -> Iterator[tuple[str, str]]:
    """Give the columns by which items are drawn, each with the key that names it."""
    entries = {f"estimate[{index}]": entry.settings for index, entry in enumerate(estimate)}
    if policy is not None:
        entries = {"policy": policy.settings, **entries}
    for place, settings in entries.items():
        if (column := getattr(settings, "draw_by", None)) is not None:
            yield f"{place}.draw_by", column


def _wanted(estimate: Iterable[EstimateEntry]) -> Iterator[_Wanted]:
    for index, entry in enumerate(estimate):
        listed: tuple[Any, ...] = getattr(entry.settings, "covariates", ())
        for number, covariate in enumerate(listed):
            usual = CANDIDATE if covariate.name in MEASURES else covariate.name
            key = f"estimate[{index}].covariates[{number}].from"
            yield _Wanted(key, covariate.name, covariate.source or usual)


def _text(field: str | Chat) -> str:
    return field if isinstance(field, str) else "\n".join(turn.content for turn in field.turns)
