"""The keys of an estimate by a random part of a benchmark."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from estimators.benchmark_bounds import SequenceKind
from estimators.benchmark_order import Allocation, SampleDesign
from estimators.benchmark_words import Judgment
from estimators.subsample_bounds import Model
from estimators.targets import Contrast

Target = Literal["benchmark", "macro", "strata", "ability", "human"]


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LastLook(_Config):
    """A fixed look within a watched run, at a number of items that the budget is sure to reach.

    Parameters
    ----------
    items : of each arm, chosen beforehand
    error : its share of the error; the sequence has the rest
    """

    items: PositiveInt
    error: Annotated[float, Field(gt=0, lt=1)] = 0.2


class ExchangeableConfig(_Config):
    """The keys of an estimate of kind `exchangeable`.

    Parameters
    ----------
    criterion : whose verdicts; None: the only one, or the composite of several
    targets : `benchmark` (mean over all items), `macro` (mean of strata's means), `strata` (each
        stratum by itself), `ability` (on subjects like these: strata are taken for draws), `human`
        (what people would say of all items: their labels of a few, taken to be random ones, corrected
        by the judge's scores). None: `macro` with the macro design, else `benchmark`
    judgment : whose a mean is. `these`: that of the verdicts that all items would get; `expected`: of
        the scores that the judge is expected to give, so that the noise of its calls, taken to be
        independent, counts. A watched run leaves a fifth of its error to it
    repeats : as the policy's: an item's score is the mean of so many verdicts of each judge. None: 1
    model : over what the probability is; see `estimators.subsample_bounds`
    sequence : of a watched run whose order knows no strata. Differences under `prior_posterior`
        are by betting, since they are not yes or no. By strata in turn it is Hoeffding's over rounds
    error_split : whether arms share the error, or all pairs of arms, which are then compared; with
        `none` each name stands by itself
    design, strata, draw_by : as the policy's, whose order they give; None: simple, and as there. By
        a column items are bounded by bets that are watched at all numbers
    max_items : as the policy's: a watched run is planned for no more. None: all
    contrast : two arms whose difference is the primary estimate
    mixture : of `ability`; see `estimators.macro_ability`
    missing : what a missing verdict scores. `impute`: the lowest for the lower end, the highest for
        the upper; `lowest`: the low end of the scale, as a wrong answer does
    check, target_half_width : None follows the stop rule. `end` is for a number of items fixed
        beforehand; with a target its width does not depend on the scores, so that the number doesn't
    last_look : a part of the error that is spent on a fixed look
    """

    name: str
    kind: Literal["exchangeable"] = "exchangeable"
    criterion: str | None = None
    targets: tuple[Target, ...] | None = None
    judgment: Judgment = "these"
    repeats: PositiveInt | None = None
    model: Model = "fixed"
    sequence: SequenceKind = "betting"
    error_split: Literal["arms", "pairs", "none"] = "arms"
    design: SampleDesign | None = None
    strata: Allocation | None = None
    draw_by: str | None = None
    max_items: PositiveInt | None = None
    contrast: Contrast | None = None
    mixture: Literal["plug_in", "upper"] = "plug_in"
    missing: Literal["impute", "lowest"] = "impute"
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    check: Literal["end", "anytime", "group_sequential"] | None = None
    target_half_width: PositiveFloat | None = None
    last_look: LastLook | None = None
