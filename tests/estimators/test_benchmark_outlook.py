"""What is said of a bound with more items: held against what further items then bring."""

import math
import time

import numpy as np
import pytest

from estimators.benchmark_bounds import Line, Terms
from estimators.benchmark_outlook import (
    FURTHER,
    ability_outlook,
    half_widths_ahead,
    items_ahead,
    outlook_of,
)
from estimators.macro_ability import macro_ability
from estimators.unit_scores import Score

N = 6_000


def terms(n_strata=1, **changes):
    values = {
        "low": 0.0,
        "high": 1.0,
        "sizes": np.full(n_strata, N // n_strata),
        "weights": None,
        "allocation": None,
        "alpha": 0.05,
        "is_binary": True,
        "model": "fixed",
        "sequence": "betting",
        "target": None,
    } | changes
    return Terms(**values)


def line_of(of, scores, missing=()):
    n_strata = len(of.sizes)
    line = Line(of, np.tile(np.arange(n_strata), N // n_strata).tolist())
    for k, x in enumerate(scores):
        lost = k in missing
        line.update(
            Score(of.low, of.high, math.nan, 0, is_missing=True) if lost else Score(x, x, x, 1)
        )
    return line


def half(line):
    lower, upper = line.interval()
    return float(upper - lower) / 2


METHODS = {
    "betting, planned": terms(target=0.03),
    "betting": terms(),
    "prior-posterior": terms(sequence="prior_posterior"),
    "hoeffding": terms(sequence="hoeffding", target=0.03),
    "empirical-bernstein": terms(sequence="empirical_bernstein", target=0.03),
    "hypergeometric": terms(sequence=None),
    "one look at a width": terms(sequence=None, target=0.03),
    "strata": terms(10, sequence=None, allocation="proportional"),
    "rounds": terms(10, allocation="equal", weights=np.full(10, 0.1), target=0.03),
    "differences": terms(low=-1.0, is_binary=False, target=0.05),
}


@pytest.mark.parametrize("of", METHODS.values(), ids=METHODS)
def test_half_widths_come_out_as_predicted(of):
    """What twice and three times the items would bring is within an eighth of what they do bring."""
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(5):
        scores = (rng.random(1_200) < 0.7) * 1.0
        if of.low < 0:
            scores = scores - (rng.random(1_200) < 0.6)
        line = line_of(of, scores[:400])
        ahead = dict(
            zip(items_ahead(line).tolist(), half_widths_ahead(line, line.interval()), strict=True)
        )
        ratios += [ahead[n] / half(line_of(of, scores[:n])) for n in (800, 1_200)]
    assert np.mean(ratios) == pytest.approx(1, abs=1 / 8)


def test_a_kept_width_stays():
    """A width that is kept is not narrowed by more items; before, the sure range is all there is."""
    kept = terms(10, allocation="proportional", target=0.08)
    before = terms(10, allocation="proportional", target=0.03)
    scores = np.ones(400)
    line = line_of(kept, scores)
    assert half_widths_ahead(line, line.interval())[:4] == pytest.approx([half(line)] * 4)
    early = line_of(before, scores)
    assert half_widths_ahead(early, early.interval())[1] == pytest.approx(0.5 * (1 - 800 / N))
    assert half_widths_ahead(early, early.interval())[4] == pytest.approx(0.03)


@pytest.mark.parametrize("of", METHODS.values(), ids=METHODS)
def test_no_width_is_predicted_to_grow_or_to_pass_what_is_sure(of):
    """From the first item to the last: widths fall, and end at what missing verdicts leave open."""
    rng = np.random.default_rng(5)
    scores = (rng.random(N) < 0.97) * 1.0
    for n in (1, 2, 10, 100, 3_000, N):
        line = line_of(of, scores[:n], missing={0})
        ahead = half_widths_ahead(line, line.interval())
        assert (np.diff([half(line), *ahead]) <= 1e-12).all()
        if items_ahead(line)[-1] == N:
            weight = float((of.shares / line.tally.drawn.clip(1))[0])
            assert ahead[-1] == pytest.approx(min(half(line), of.span * weight / 2))


def test_two_lines_add_up_and_go_as_far_as_the_shorter():
    """A difference of arms with their own items is as wide as both together."""
    scores = np.arange(300) % 2 * 1.0
    one, other = line_of(terms(), scores), line_of(terms(), scores[:200])
    found = outlook_of([one, other], [one.interval(), other.interval()])
    assert found["n_items"] == np.ceil(FURTHER * 200).astype(int).tolist()
    both = [half_widths_ahead(each, each.interval()) for each in (one, other)]
    assert found["half_width"] == pytest.approx(sum(both))


def test_ability_ends_at_the_spread_of_subjects():
    """More items of the same subjects take out their sampling alone."""
    line = line_of(terms(10, sequence=None), np.arange(400) % 3 / 2 > 0.4)
    drawn = line.tally.drawn
    found = macro_ability(np.linspace(10, 35, 10).astype(int), drawn)
    ahead = ability_outlook(line, found, 0.05)
    assert ahead["end"] == pytest.approx(math.sqrt(2 * found.mixture * math.log(40)))
    twice = macro_ability(np.linspace(10, 35, 10).astype(int) * 2, drawn * 2)
    expected = math.sqrt(2 * (twice.sampling + found.mixture) * math.log(40))
    assert ahead["half_width"][1] == pytest.approx(expected)
    assert ahead["half_width"] == sorted(ahead["half_width"], reverse=True)
    assert ahead["half_width"][-1] > ahead["end"]


def test_a_look_can_afford_it():
    """Ten arms take about a millisecond a look; the bar leaves room for a slow machine."""
    lines = [line_of(terms(target=0.02), np.arange(500) % 2 * 1.0) for _ in range(10)]
    ends = [line.interval() for line in lines]
    times = []
    for _ in range(20):
        began = time.perf_counter()
        for line, interval in zip(lines, ends, strict=True):
            outlook_of([line], [interval])
        times.append(time.perf_counter() - began)
    assert min(times) <= 3e-3
