"""Measured properties of answers that estimates control for: their length, their marks, own columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrator.campaign_file import EstimateEntry
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


def columns(estimate: Iterable[EstimateEntry]) -> dict[str, str]:
    """List the columns of numbers that estimates control for, by the key that names them."""
    return {w.key: w.source for w in _wanted(estimate) if w.name not in MEASURES}


def measured_fields(estimate: Iterable[EstimateEntry]) -> dict[str, str]:
    """List the fields that are measured for estimates, by the key that names them."""
    return {w.key: w.source for w in _wanted(estimate) if w.name in MEASURES}


def measured(estimate: Iterable[EstimateEntry], data: Dataset) -> dict[str, NDArray[np.float64]]:
    """Give all covariates that estimates control for, (n_units,) each.

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
    return found


def _wanted(estimate: Iterable[EstimateEntry]) -> Iterator[_Wanted]:
    for index, entry in enumerate(estimate):
        listed: tuple[Any, ...] = getattr(entry.settings, "covariates", ())
        for number, covariate in enumerate(listed):
            usual = CANDIDATE if covariate.name in MEASURES else covariate.name
            key = f"estimate[{index}].covariates[{number}].from"
            yield _Wanted(key, covariate.name, covariate.source or usual)


def _text(field: str | Chat) -> str:
    return field if isinstance(field, str) else "\n".join(turn.content for turn in field.turns)
