"""What people would say of all items of a benchmark, from a judge's scores and labels of a few."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from estimators.calibration import agreement
from estimators.cells import Cells, Panel, Scoring
from estimators.intervals import FEW, Array
from estimators.offsets import judge_offsets
from estimators.prediction_powered import Bounded, prediction_powered
from orchestrator.core.estimate import plain
from orchestrator.core.study import Study
from orchestrator.core.wire import Json


class Labelled:
    """What each judge has said, to be held against labels."""

    def __init__(self, study: Study, scoring: Scoring, labels: Array) -> None:
        self.cells = Cells(study, scoring)
        self._judges = [panelist.name for panelist in study.panel]
        self._scoring, self._clusters = scoring, study.frame.cluster
        self._labels = labels.reshape(-1, study.frame.n_arms).T.copy()

    def agreement(self, level: float) -> list[Json]:
        """Say of each judge how far it goes with the labels; what a key decided counts for none."""
        said = Panel(self.cells.judged(self.cells.main), self._scoring)
        bias = judge_offsets(said, self._clusters, (), self._labels)
        return agreement(said, self._labels, bias, level).records(self._judges)


class HumanMean(NamedTuple):
    """What is found of one arm.

    Attributes
    ----------
    bounded : the corrected mean; with few labels, or where its error can't be had, that of the labels;
        nan without any
    method : how its interval was made
    flag : why the labels stand alone, empty where they don't
    about : what the labels say by themselves, and how the judge agrees with them
    """

    bounded: Bounded
    method: str
    flag: str
    about: dict[str, Json]


def human_mean(
    labels: Array, scores: Array, population: int, *, alpha: float, scoring: Scoring
) -> HumanMean:
    """Correct the labels of told items by the judge's scores of all told items.

    A score that is missing may be any number that is made up alike for labelled and other items: it
    makes the correction weaker, and biases nothing.

    Parameters
    ----------
    labels, scores : (n,) in the order of the draw; labels nan where there is none
    """
    is_labelled = ~np.isnan(labels)
    n_labels = int(is_labelled.sum())
    if not n_labels:
        nothing = Bounded(math.nan, math.nan, math.nan, math.nan, "")
        return HumanMean(nothing, _POWERED, "", dict.fromkeys(_ABOUT) | {"n_labels": 0})
    found = prediction_powered(
        labels[is_labelled],
        scores[is_labelled],
        scores[~is_labelled],
        population,
        level=1 - alpha,
        low=scoring.low,
        high=scoring.high,
    )
    alone = found.labels_only
    ends = {"value": alone.value, "lower": alone.lower, "upper": alone.upper}
    agreement = (plain(found.power), plain(found.correlation))
    about = dict(zip(_ABOUT, (n_labels, *agreement, ends), strict=True))
    if found.powered is not None:
        return HumanMean(found.powered, f"{_POWERED}, {found.powered.interval}", "", about)
    flag = "few_labels" if n_labels < FEW else "labels_stand_alone"
    return HumanMean(alone, f"labels alone, {alone.interval}", flag, about)


_POWERED = "power-tuned prediction-powered"
_ABOUT = ("n_labels", "power", "correlation", "labels_only")
