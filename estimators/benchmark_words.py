"""What an estimate over a part of a benchmark is of, in words."""

from __future__ import annotations

from typing import Literal

from orchestrator.core.study import Study

Judgment = Literal["these", "expected"]
"""Whose judgment a mean is of: that of these verdicts, or that which the judge is expected to give."""

NOTES = {
    True: "that of the draw; answers count up to the first that is not back",
    False: "as given; taken for a random one",
}
"""How items are ordered, by whether the seed drew them."""

MISSING = {
    "impute": "the lowest score for the lower end, the highest for the upper",
    "lowest": "the lowest score, as for a wrong answer",
}
"""What a missing verdict counts as, by the policy for it."""

LABELS = "those of items in the told prefix; taken to be of random items"


def estimand(target: str, study: Study, judgment: Judgment, *, is_macro: bool) -> str:
    """Say what an estimate is of; whose judgment stands behind the last comma.

    Parameters
    ----------
    is_macro : whether differences are those of macro means
    """
    frame, n_judges = study.frame, len(study.panel)
    judge = "this judge" if n_judges == 1 else "this panel"
    whose = f"judged by {judge}"
    if judgment == "expected":
        whose = f"by the score that {judge} is expected to give"
    whole = f"the {frame.n_items:,} items of this benchmark"
    macro = f"mean of the means of {len(frame.strata)} strata of this benchmark"
    mean = macro if is_macro else f"mean over {whole}"
    match target:
        case "difference" | "differences":
            return f"difference of arms: {mean}, {whose}"
        case "macro":
            return f"{macro}, {whose}"
        case "strata":
            return f"mean over each stratum of this benchmark, {whose}"
        case "ability":
            return (
                "ability on subjects like these: mean chance over subjects of which the strata "
                f"are draws, judged by {judge}"
            )
        case "human":
            return f"mean over {whole}, as people would label them"
        case _:
            return f"mean over {whole}, {whose}"


def family(target: str, *, is_split: bool) -> str:
    """Say of which names the intervals hold together."""
    match target:
        case "difference":
            return "one contrast"
        case "differences":
            return "all pairs of arms"
        case _:
            return "all arms" if is_split else "each name by itself"
