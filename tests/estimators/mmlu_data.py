"""Right and wrong answers of nine models to MMLU, and two published constants of its size."""

import csv
import gzip
from functools import cache
from typing import NamedTuple

import numpy as np

ITEMS = 14_042
"""Of the whole test set; 14,010 of them are in the table."""


class Answers(NamedTuple):
    """`right` (9, items) is nan where an answer is missing; `domain` is along subjects."""

    models: list
    right: np.ndarray
    subject: np.ndarray
    subjects: list
    domain: np.ndarray

    def counts(self, model, *, missing=None):
        """Right answers and answers by subject; missing ones are left out, or count as told."""
        x = self.right[self.models.index(model)]
        x = x if missing is None else np.where(np.isnan(x), missing, x)
        is_there = ~np.isnan(x)
        label, n = self.subject[is_there], len(self.subjects)
        return np.bincount(label, x[is_there], n), np.bincount(label, minlength=n)


@cache
def mmlu(folder):
    """Read the table."""
    with gzip.open(folder / "mmlu/mmlu_helm9.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    models = list(rows[0])[4:]
    domain = {row["subject"]: row["domain"] for row in rows}
    subjects, domains = sorted(domain), sorted(set(domain.values()))
    return Answers(
        models,
        np.array([[float(row[model] or "nan") for row in rows] for model in models]),
        np.array([subjects.index(row["subject"]) for row in rows]),
        subjects,
        np.array([domains.index(domain[subject]) for subject in subjects]),
    )
