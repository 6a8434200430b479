"""Figures beside those of others: Monte-Carlo errors, tables, JSON, curves."""

import io
import json
import math
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from rich.console import Console

from orchestrator.experiments import figures, plot
from orchestrator.experiments.figures import Figure, cited, mean, median, share, written

NAN = math.nan


def shown(found):
    console = Console(file=io.StringIO(), width=100)
    for part in figures.tables(found):
        console.print(part)
    return console.file.getvalue()


def test_a_share_has_the_error_of_a_binomial():
    found = share("t", "w", 3, np.array([True] * 20 + [False] * 80))
    assert (found.value, found.se) == (20, pytest.approx(4))


def test_a_mean_leaves_out_who_has_no_value():
    found = mean("t", "w", 3, np.array([1.0, NAN, 3.0]))
    assert (found.value, found.se, found.n_replicates) == (2, pytest.approx(1), 2)
    assert math.isnan(mean("t", "w", 3, np.array([NAN])).value)


def test_a_median_has_the_error_that_its_replicates_show():
    """Against the spread of medians of fresh samples."""
    rng = np.random.default_rng(0)
    samples = rng.exponential(size=(400, 100))
    spread = np.median(samples, axis=1).std()
    errors = [median("t", "w", 3, sample).se for sample in samples]
    assert np.mean(errors) == pytest.approx(spread, rel=0.15)
    assert median("t", "w", 3, np.array([1.0, NAN])).value == 1
    assert math.isnan(median("t", "w", 3, np.array([NAN])).value)


@pytest.mark.parametrize(
    ("value", "se", "says"),
    [
        (16.61, 1.18, "16.6 ± 1.2"),
        (-0.0279, 0.0061, "-0.0279 ± 0.0061"),
        (97.0, 12.3, "97 ± 12"),
        (0.0, 0.0, "0"),
        (0.50214, NAN, "0.5021"),
        (2.1e-7, 3.3e-8, "2.1e-07 ± 3e-08"),
        (NAN, NAN, "-"),
    ],
)
def test_figures_are_written_to_two_digits_of_their_error(value, se, says):
    assert written(Figure("t", "w", 1, value, se, 9)) == says


FOUND = [
    Figure("one", "naive, %", 30, 16.6, 1.2, 100),
    Figure("one", "naive, %", 150, 55.9, 1.6, 100),
    Figure("one", "contrast, logits", 30, -0.028, 0.006, 100),
    Figure("two", "naive, %", 30, NAN, NAN, 0),
]


def test_a_table_has_the_figures_of_others_below_ours():
    text = shown(cited(FOUND, {"naive, %": {30: "18.1"}}, {"naive, %": {150: "54.9"}}))
    lines = [line.split() for line in text.splitlines()]
    at = lines.index(["naive,", "%", "16.6", "±", "1.2", "55.9", "±", "1.6"])
    assert lines[at + 1 : at + 3] == [["published", "18.1"], ["reference", "54.9"]]
    assert ["one"] in lines
    assert ["two"] in lines


def test_what_is_no_number_is_null_in_json():
    document = json.loads(json.dumps(figures.as_json(FOUND), allow_nan=False))
    assert document[-1]["value"] is None
    assert document[0]["value"] == 16.6


def test_curves_are_of_one_unit():
    (panel,) = figures.panels(FOUND, "%")
    assert (panel.title, dict(panel.curves)) == ("one", {"naive": [(30, 16.6), (150, 55.9)]})
    assert dict(figures.panels(FOUND, "logits")[0].curves) == {"contrast": [(30, -0.028)]}


@pytest.mark.parametrize("values", [(0.0, 0.0), (-0.4, 2.0), (5.0, 55.9)])
def test_a_level_axis_takes_any_number_and_holds_0(values):
    """Heights are proportional to values, and ticks are few and round."""
    panel = plot.Panel("t", {"c": [(30, values[0]), (150, values[1])]})
    drawing = ET.fromstring(plot.svg([panel], title="t", x="n", y="%", is_level=True))
    namespace = "{http://www.w3.org/2000/svg}"
    first, second = (float(dot.get("cy")) for dot in drawing.iter(f"{namespace}circle"))
    levels = {
        float(text.text): float(text.get("y")) - 4
        for text in drawing.iter(f"{namespace}text")
        if text.get("text-anchor") == "end" and text.get("class") == "tick" and text.text != "n"
    }
    assert 2 <= len(levels) <= 7
    zero = levels[0]
    rounding = 0.2 * max(map(abs, values))  # heights are written to a tenth
    assert (zero - first) * values[1] == pytest.approx((zero - second) * values[0], abs=rounding)
