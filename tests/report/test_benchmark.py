"""What the report says of a random part of a benchmark: in words, against money, by stratum."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimators.benchmark_diagnostics import subject_correlations
from orchestrator.core.estimate import Status
from orchestrator.core.stopping import StopReason
from orchestrator.report import benchmark, charts, html, markdown, result, screen, wording
from orchestrator.report.charts import Track
from orchestrator.report.data import Stratum
from orchestrator.report.summary import summarise
from tests.report.conftest import FRAME, estimate

ITEMS = [f"i{k}" for k in range(40)]
BOOLEAN = ({"name": "right", "type": "boolean", "low": 0, "high": 1},)


TWO = "a 0.70 [0.60, 0.80], b 0.70 [0.60, 0.80]"


def outlook(n=(), half=(), **end):
    return {"n_items": list(n), "half_width": list(half), **end}


def about(n, *, drawn=10, population=40, missing=0, in_flight=0, alpha=0.05, **by_name):
    """Diagnostics along n names."""
    return {
        "population": population,
        "strata": 5,
        "design": "simple",
        "seed": 7,
        "model": "fixed",
        "error": {"alpha": 0.05, "split": "arms", "last_look": 0.0},
        "missing_policy": "the lowest score",
        "by_name": {
            "n_items": [drawn - missing] * n,
            "n_answers": [drawn - missing] * n,
            "n_drawn": [drawn] * n,
            "population": [population] * n,
            "missing": [missing] * n,
            "in_flight": [in_flight] * n,
            "interim_lower": [0.5 if in_flight else None] * n,
            "interim_upper": [0.8 if in_flight else None] * n,
            "alpha": [alpha] * n,
            "outlook": [outlook([20, 30, 40], [0.08, 0.05, 0.0])] * n,
        }
        | by_name,
    }


@pytest.fixture
def means(make):
    """An estimate of means over a benchmark, one for each name."""

    def means(
        *names, value=0.7, half=0.1, target="arms", watched=True, split="none", flags=(), **of
    ):
        n = len(names)
        values = value if isinstance(value, tuple) else (value,) * n
        return make.estimate(
            name="accuracy",
            kind="exchangeable",
            target=target,
            names=names,
            estimand="mean over the 40 items of this benchmark, judged by this judge",
            value=values,
            se=(0.05,) * n,
            lower=tuple(v - half for v in values),
            upper=tuple(v + half for v in values),
            interval="betting sequence without replacement",
            watching_covered=watched,
            alpha_split=split,
            family="all arms",
            flags=flags,
            diagnostics=about(n, **of),
        )

    return means


@pytest.fixture
def opened(log):
    """Open a run on some arms and strata."""

    def opened(*, arms=("",), strata=None, **identity):
        entry = {"name": "accuracy", "kind": "exchangeable"}
        log.opened(
            arms=arms, items=ITEMS, criteria=BOOLEAN, judges=("j",), estimate=[entry], **identity
        )
        if strata is not None:
            frame = json.loads(log.blobs[FRAME]) | {"stratum": strata}
            log.blobs[FRAME] = json.dumps(frame).encode()
        return log

    return opened


def summed(log):
    return summarise(log.rows, get_blob=log.get_blob)


def ended(log, *estimates, reason=StopReason.PRECISION, settled=0):
    log.look(*estimates, settled=settled, is_final=True).stop(reason)
    return summed(log)


class TestStatements:
    def test_an_arm_is_said_in_full(self, opened, means):
        """What was measured, of what, by whom, by how many items, for what it holds and why it ended."""
        log = opened(stop={"target_half_width": 0.1}).judged(0, 1.0)
        said = benchmark.statements(ended(log, means("", missing=2)))
        mean, guarantee, stop = said
        assert mean == (
            "The mean over the 40 items of this benchmark, judged by this judge, is 0.70 [0.60, 0.80] by "
            "10 of them. 2 of these have no verdict."
        )
        assert guarantee == (
            "With a chance of at least 0.95 this interval holds, although every result was watched. An item "
            "without a verdict counts as the lowest score."
        )
        assert stop == (
            "The run stopped at item 10 because ±0.1 was reached; the interval holds although the stop hung "
            "on the scores."
        )

    def test_a_single_look_is_not_said_to_be_watched(self, opened, means):
        """Intervals for one look never claim that watching is covered."""
        log = opened(stop={"target_half_width": 0.1}).judged(0, 1.0)
        said = " ".join(benchmark.statements(ended(log, means("", watched=False))))
        assert "for one look at a number of items that no score has decided" in said
        assert "that number follows from the target alone" in said
        assert "although" not in said

    def test_what_is_missing_moves_a_stop_that_no_score_moves(self, opened, means):
        """Missing verdicts widen an interval, so the number hangs on them too."""
        log = opened(stop={"target_half_width": 0.1}).judged(0, 1.0)
        said = " ".join(benchmark.statements(ended(log, means("", watched=False, missing=2))))
        assert "follows from the target and from what is missing, not from the scores" in said

    def test_arms_that_share_the_error_are_said_to_hold_together(self, opened, means):
        """How the error is split is part of the sentence."""
        log = opened(arms=("a", "b")).judged(0, 1.0)
        shared = means("a", "b", split="arms", alpha=0.025)
        said = " ".join(benchmark.statements(ended(log, shared, reason=StopReason.FINISHED)))
        assert "both of these intervals hold together (error 0.05 in 2 parts of 0.025)" in said
        assert "stopped" not in said
        alone = means("a", "b")
        said = " ".join(benchmark.statements(ended(opened(arms=("a", "b")), alone)))
        assert "each of these intervals holds by itself" in said

    def test_what_is_under_way_is_told_with_its_own_interval(self, opened, means):
        """Items in flight don't count, and what they may still do is said beside."""
        log = opened().look(means("", in_flight=3))
        said = benchmark.statements(summed(log))[0]
        assert said.endswith(
            "3 items before the last one that is back are under way; with all that is back it is within "
            "[0.500, 0.800]."
        )
        over = benchmark.statements(ended(log, means("", in_flight=3)))[0]
        assert over.endswith("by 10 of them.")

    def test_an_interval_short_of_its_planned_number_is_said_to_be_one(self, opened, means):
        """It is no more than the sure range, and must not be read like any other."""
        flags = ("before_planned_number",)
        data = ended(opened(), means("", half=0.3, flags=flags), reason=StopReason.BUDGET)
        words = "the planned number of items is not reached, so this interval is no more than what is sure"
        assert words in wording.answer(data)
        assert any(words in line.lower() for line in benchmark.statements(data))

    def test_what_entries_share_is_shown_once(self, opened, means):
        """Two entries of one benchmark say the same of its arms."""
        arms = means("a", "b")
        both = (arms, replace(arms, name="again"), replace(arms, name="other", upper=(0.9, 0.9)))
        data = ended(opened(arms=("a", "b")), *both)
        assert [e.name for e in benchmark.parts(data)] == ["accuracy", "other"]
        page = markdown.render(data)
        assert "The same as of accuracy." in page
        assert page.count("### again: mean over this benchmark") == 1

    def test_a_target_of_every_arm_is_said_to_be_one(self, opened, means):
        """With a difference first, its half-width is not the one that is met."""
        gap = means("a - b", value=0.05, half=0.036, target="difference")
        stop = {"target_half_width": 0.03, "of": "every_arm"}
        data = ended(opened(arms=("a", "b"), stop=stop), gap, means("a", "b", half=0.029))
        met = "Precision target ±0.03 of every arm: met, the widest half-width is ±0.029."
        assert wording.precision(data) == met
        arms = "Scores: a 0.700 [0.671, 0.729], b 0.700 [0.671, 0.729]"
        assert wording.beside(data).startswith(arms)
        shown = (html.render(data), "\n".join(screen.closing_lines(data)))
        assert all(arms in text for text in shown)
        assert "Scores: a 0.700 \\[0.671, 0.729\\]" in markdown.render(data)
        stops = [line for line in benchmark.statements(data) if "±0.03 was reached" in line]
        assert len(stops) == 1
        assert benchmark.statements(data)[-1] == stops[0]
        alone = ended(opened(arms=("a", "b"), stop=stop), means("a", "b"))
        assert wording.beside(alone) is None

    def test_a_macro_mean_is_none_over_items(self, opened, means):
        """The mean of strata's means is called so."""
        said = benchmark.statements(ended(opened(), means("", target="macro")))[0]
        assert "means of 5 strata of this benchmark" in said
        assert "10 of its 40 items" in said

    def test_every_interval_carries_its_small_print(self, opened, means):
        """A20: estimand, method, error and split, N, n, in flight, missing, seed, watching."""
        e = means("a", "b", split="arms", alpha=0.025, missing=2, in_flight=1)
        said = wording.method(e)
        for part in (
            "estimand: mean over the 40 items of this benchmark",
            "betting sequence without replacement",
            "error split: arms",
            "error 0.05, 0.025 a name",
            "10 of 40 items drawn by seed 7",
            "2 in flight",
            "4 missing",
            "hold although one looked at every result",
        ):
            assert part in said
        assert "; 4 items, 16 answers; " in said
        by_name = dict(e.diagnostics["by_name"]) | {"n_labels": [8, 8], "n_items": [8, 8]}
        of_people = {
            "target": "human",
            "n_items": 8,
            "diagnostics": dict(e.diagnostics) | {"by_name": by_name},
        }
        assert "; 8 labelled items, 5 answers; " in wording.method(
            replace(e, n_answers=5, **of_people)
        )
        alone = replace(e, n_answers=0, **of_people)
        assert "; 8 labelled items; " in wording.method(alone)
        columns = wording.columns_of(alone, [0, 1])
        assert columns["labels"] == ["8", "8"]
        assert "items" not in columns
        unseeded = replace(e, diagnostics=dict(e.diagnostics) | {"seed": None})
        assert "drawn not by this program" in wording.method(unseeded)

    @pytest.mark.parametrize(
        ("names", "target", "expected"),
        [
            (
                ("",),
                "arms",
                "The score is 0.70 [0.60, 0.80] over the 40 items of this benchmark, by 10 of them",
            ),
            (
                ("a", "b"),
                "arms",
                f"Scores: {TWO}; over the 40 items of this benchmark, by 10 items each",
            ),
            (
                ("a",),
                "macro",
                "Scores: a 0.70 [0.60, 0.80]; in the mean of 5 strata of the 40 items, by 10 of them",
            ),
            (("a",), "ability", "Ability on subjects like these: a 0.70 [0.60, 0.80]"),
        ],
    )
    def test_the_headline_says_this_benchmark_or_subjects_like_these(
        self, means, names, target, expected
    ):
        """What a number speaks of stands in the one line that everybody reads."""
        assert wording.headline(means(*names, target=target)) == expected

    def test_of_many_arms_the_ends_are_named(self, means):
        """More than four arms are told by the best and the worst."""
        values = tuple(k / 10 for k in range(1, 7))
        said = wording.headline(means(*"abcdef", value=values, half=0.01))
        assert said.startswith(
            "Of 6 arms, f is highest, 0.600 [0.590, 0.610], and a lowest, 0.100 [0.090, 0.110]"
        )

    def test_a_sequence_is_not_said_to_suffer_from_the_stop(self, opened, means):
        """The limit of stopping at a width is that of other intervals."""
        log = opened(stop={"target_half_width": 0.1}).judged(0, 1.0).missed(1, "refused", unit=1)
        said = " ".join(wording.limits(ended(log, means(""))))
        assert "become narrow" not in said
        assert "counts as the lowest score" in said
        assert "left out of every mean" not in said


class TestPairs:
    def test_who_is_ahead(self, opened, means):
        """An interval beyond 0 names who is ahead, whichever way it points."""
        for value, ahead in ((0.3, "a is ahead of b"), (-0.3, "b is ahead of a")):
            e = means("a - b", value=value, target="difference")
            assert benchmark.statements(ended(opened(arms=("a", "b")), e))[0].startswith(ahead)

    def test_what_it_would_take_to_tell(self, opened, means):
        """An interval that holds 0 says how many more items a difference of this size takes, and dollars."""
        e = means("a - b", value=0.08, half=0.2, target="difference")
        log = opened(arms=("a", "b")).judged(0, 1.0, cost=1_000_000_000)
        said = benchmark.statements(ended(log, e))[0]
        assert said.startswith("a and b can't be told apart yet: a - b is 0.08 [-0.12, 0.28]")
        assert "about 10 more items" in said
        assert "at about $1.000" in said

    def test_all_items_or_none(self, opened, means):
        """A difference near 0 takes all items; one hidden by what is missing is never told."""
        log = opened(arms=("a", "b"))
        e = means("a - b", value=1e-9, half=0.2, target="difference")
        assert "takes all items" in benchmark.statements(ended(log, e))[0]
        hidden = about(1, outlook=[outlook([20, 40], [0.15, 0.1])])
        said = benchmark.statements(ended(log, replace(e, diagnostics=hidden)))[0]
        assert "No number of items would tell" in said

    def test_the_table_of_all_pairs(self, opened, means):
        """Each pair has its verdict, or the items that it would take."""
        names = ("a - b", "a - c", "b - c")
        e = means(*names, value=(0.3, 0.08, -0.3), half=0.2, target="differences", split="pairs")
        data = ended(opened(arms=("a", "b", "c")), e)
        (grid,) = benchmark.pairs(data)
        assert [row[2:] for row in grid.rows] == [
            ("a", ""),
            ("can't be told yet", "10"),
            ("c", ""),
        ]
        assert "Of 3 pairs of arms 2 can be told apart." in benchmark.statements(data)


class TestOutlook:
    def test_what_as_much_again_would_buy(self, opened, means):
        """The same money again, twice as much, or as much as all items take."""
        log = opened().judged(0, 1.0, cost=1_000_000_000)
        data = ended(log, means("", outlook=[outlook([15, 20, 30, 40], [0.09, 0.08, 0.05, 0.0])]))
        (grid,) = benchmark.outlooks(data)
        assert grid.rows == (
            ("as it is", "10", "0.10"),
            ("another $1.000", "20", "0.080"),
            ("another $2.000", "30", "0.050"),
        )
        assert "An item has cost $0.100 so far" in benchmark.outlook_note(data)

    def test_no_more_than_all_items_is_bought(self, opened, means):
        """Where fewer items are left than the money pays for, their own price is told."""
        log = opened().judged(0, 1.0, cost=1_000_000_000)
        most = means("", drawn=25, outlook=[outlook([38, 40], [0.02, 0.0])])
        (grid,) = benchmark.outlooks(ended(log, most))
        assert [row[:2] for row in grid.rows] == [("as it is", "25"), ("another $0.600", "40")]

    def test_systems_and_judges_count(self, opened, means):
        """An item costs what all roles cost."""
        log = opened(systems=[{"name": "s", "adapter": "mock", "model": ""}])
        log.generated(0, system=1, cost=3_000_000_000).judged(1, 1.0, cost=1_000_000_000)
        assert benchmark.per_item(ended(log, means(""))) == pytest.approx(4e8)

    def test_nothing_is_predicted_where_all_is_drawn_or_nothing_known(self, opened, means):
        """A complete benchmark has no outlook, nor has one without a verdict."""
        assert benchmark.outlooks(ended(opened(), means("", drawn=40))) == []
        none = means("", value=math.nan, outlook=[outlook()], drawn=0)
        assert benchmark.outlooks(ended(opened(), replace(none, status=Status.EMPTY))) == []

    @given(st.floats(0.001, 0.2))
    def test_items_and_widths_undo_each_other(self, half):
        """The items for a width have that width, by the same prediction."""
        e = _estimate(steps=([15, 20, 30, 60, 90], [0.15, 0.12, 0.08, 0.04, 0.02]), population=100)
        n = benchmark.items_for(e, 0, half)
        assert n is not None
        if 10 < n <= 90:
            assert benchmark.half_width_at(e, 0, n) == pytest.approx(half, rel=0.1)
            assert benchmark.half_width_at(e, 0, n) <= half * (1 + 1e-9)


def _estimate(*, steps, population):
    diagnostics = about(1, population=population, outlook=[outlook(*steps)])
    return estimate(
        kind="exchangeable",
        names=("",),
        value=(0.5,),
        lower=(0.3,),
        upper=(0.7,),
        diagnostics=diagnostics,
    )


STRATA = [f"s{k % 5}" for k in range(40)]


class TestStrata:
    def judged(self, log, n_arms=1, n=15, score=lambda item, arm: (item + arm) % 3 == 0):
        for k in range(n * n_arms):
            item, arm = divmod(k, n_arms)
            log.judged(k, float(score(item, arm)), unit=k)
        return log

    def test_raw_counts_where_nothing_was_estimated(self, opened, means):
        """Drawn of all, and the raw mean; small strata are marked."""
        data = ended(self.judged(opened(strata=STRATA)), means(""))
        assert data.strata[0] == Stratum("", "s0", 8, 3, pytest.approx(1 / 3))
        grid = benchmark.strata(data)
        assert grid.rows[0] == ("s0 *", "8", "3", "0.33")
        assert "no intervals" in benchmark.strata_note(data)
        assert "fewer than 10" in benchmark.strata_note(data)

    def test_intervals_where_they_were(self, opened, means):
        """Estimated strata stand with their intervals, in the place of raw means."""
        arms = ("a", "b")
        names = tuple(f"{arm}/s{k}" for arm in arms for k in range(5))
        values = tuple(k / 20 for k in range(10))
        e = means(*names, value=values, half=0.02, target="strata", watched=False)
        log = self.judged(opened(arms=arms, strata=STRATA), n_arms=2)
        data = ended(log, means("a", "b"), e)
        rows = benchmark.strata(data).rows
        assert rows[0] == ("s0 *", "8", "3", "0.000 [-0.020, 0.020]", "0.250 [0.230, 0.270]")
        assert "by itself, for one look" in benchmark.strata_note(data)

    def test_repeats_and_second_judges_draw_no_further_item(self, opened, means):
        """An item counts once, and repeats not at all."""
        log = opened(strata=STRATA).judged(0, 1.0)
        log.ask(1, 0, replicate=1)
        assert summed(log.look(means(""))).strata[0].n == 1

    def test_none_without_strata(self, opened, means):
        """A benchmark without strata has no table, no ability, no correlations."""
        data = ended(opened().judged(0, 1.0), means(""))
        assert benchmark.strata(data) is None
        assert benchmark.correlations(data) is None

    def test_of_many_arms_the_ends_of_each_stratum(self, opened, means):
        """More than four arms have the lowest and the highest of each stratum."""
        arms = tuple("abcdef")
        log = self.judged(
            opened(arms=arms, strata=STRATA), n_arms=6, n=10, score=lambda _, arm: arm > 4
        )
        row = benchmark.strata(ended(log, means(*arms))).rows[0]
        assert row == ("s0 *", "8", "2", "a 0.00", "f 1.00")


class TestCorrelations:
    def data(self, opened, means, table):
        data = ended(opened(), means(""))
        strata = tuple(
            Stratum(f"m{a}", f"s{s}", 8, 8, float(x))
            for a, row in enumerate(table)
            for s, x in enumerate(row)
        )
        return replace(data, strata=strata)

    def test_they_are_those_of_the_estimators(self, opened, means):
        """A second witness: the product's own correlations of subjects, with cells missing."""
        table = np.random.default_rng(2).random((6, 7))
        table[0, 3] = table[4, 1] = np.nan
        found = benchmark.correlations(self.data(opened, means, table))
        expected = subject_correlations(table)
        np.fill_diagonal(expected, 1)
        np.testing.assert_allclose(found.r, expected, atol=1e-9)
        centred = subject_correlations(table, is_centred=True)
        apart = ~np.eye(7, dtype=bool)
        assert found.centred == pytest.approx(centred[apart].mean())

    def test_too_few_systems_or_strata_have_none(self, opened, means):
        """Two systems, or four strata, say nothing."""
        rng = np.random.default_rng(3)
        assert benchmark.correlations(self.data(opened, means, rng.random((2, 9)))) is None
        assert benchmark.correlations(self.data(opened, means, rng.random((9, 4)))) is None
        assert benchmark.correlations(self.data(opened, means, np.full((4, 6), np.nan))) is None
        assert benchmark.correlations(self.data(opened, means, np.full((4, 6), 0.5))) is None

    def test_where_chance_ends_is_said(self, opened, means):
        """Of nine systems, a correlation of .67 is where chance ends."""
        table = np.random.default_rng(4).random((9, 6))
        (said,) = benchmark.correlations_told(self.data(opened, means, table))
        assert "With 9 systems a single correlation below 0.666 is no more than chance" in said

    @pytest.mark.parametrize("n", [6, 57])
    def test_the_picture_is_drawn(self, opened, means, n):
        """Few strata stand with their numbers, many as colours alone."""
        table = np.random.default_rng(5).random((9, n))
        page = html.render(self.data(opened, means, table))
        (picture,) = re.findall(
            r'<svg class="chart"[^>]*aria-label="Correlations.*?</svg>(?:.*?</svg>)?</div>',
            page,
            re.DOTALL,
        )
        assert ("<path" in picture) is (n == 57)
        assert "s0" in picture


LAW = {"sampling": 1e-4, "mixture": 1e-3, "statuses": ["ok"], "icc": [0.2], "strata": 5}


class TestAbility:
    def said(self, opened, means, **law):
        e = means("a", target="ability", outlook=[outlook([20], [0.09], end=0.06)])
        e = replace(e, diagnostics=dict(e.diagnostics) | {"laws": {"a": LAW | law}})
        data = ended(opened(), means("a"), e)
        page, text = html.render(data), markdown.render(data)
        assert "subjects like these" in page
        assert "subjects like these" in text
        return " ".join(benchmark.ability(data))

    def test_it_is_told_from_this_benchmark(self, opened, means):
        """What each speaks of, and where more items of the same subjects end."""
        said = self.said(opened, means)
        assert "its items are all there are" in said
        assert "correlate by 0.20" in said
        assert "±0.060 at best" in said

    @pytest.mark.parametrize(
        ("status", "words"),
        [
            ("no_overdispersion", "no more than chance"),
            ("degenerate_all_equal", "all answers are alike"),
            ("not_identified", "can't be known"),
            ("at_phi_max", "all right or all wrong"),
        ],
    )
    def test_each_status_has_its_words(self, opened, means, status, words):
        """A law that could not be fitted says why."""
        assert words in self.said(opened, means, statuses=[status], icc=[None])


class TestOverTheRun:
    def test_intervals_are_followed_from_look_to_look(self, opened, means):
        """Items and dollars of each look, the last interval at the end; nothing before it is known."""
        log = opened(stop={"target_half_width": 0.1})
        unknown = means("", value=math.nan, drawn=0)
        log.look(unknown).look(means("", half=0.3, drawn=4), settled=500_000_000)
        data = ended(log, means("", half=0.1), settled=1_250_000_000)
        (one,) = benchmark.tracks(data)
        assert one.track == (
            Track(4, 0.5, 0.7, pytest.approx(0.4), pytest.approx(1.0)),
            Track(10, 1.25, 0.7, pytest.approx(0.6), pytest.approx(0.8)),
        )
        assert one.target == 0.1
        (grid,) = benchmark.looks(data)
        assert grid.rows[-1] == ("10", "$1.250", "0.70", "[0.60, 0.80]")

    @given(
        st.lists(
            st.tuples(st.integers(1, 10**6), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
            min_size=1,
            max_size=20,
            unique_by=lambda row: row[0],
        ),
        st.none() | st.floats(0.001, 1),
    )
    def test_any_track_can_be_drawn(self, rows, target):
        """The picture is well-formed and holds no nan, whatever was seen."""
        track = [Track(n, n * d, *sorted((a, 0.5, b))) for n, d, a, b in sorted(rows)]
        track = [t._replace(value=t.lower, lower=min(t.value, t.lower)) for t in track]
        drawn = charts.band(track, title="<&>", target=target)
        ET.fromstring(drawn)
        assert "nan" not in drawn

    def test_page_and_markdown_hold_it_all(self, opened, means):
        """The section stands in both, and in neither of a run that has no such estimate."""
        log = opened(strata=STRATA, arms=("a", "b"))
        log.judged(0, 1.0).look(means("a", "b", drawn=5))
        data = ended(log, means("a", "b"))
        page, text = html.render(data), markdown.render(data)
        for head in ("Benchmark", "What more money would buy", "Strata"):
            assert f">{head}<" in page
            assert f"# {head}" in text
        assert page.count('class="band"') == 2
        json.dumps(result.document(data), allow_nan=False)

    def test_others_have_no_such_section(self, log, make):
        """A run without such an estimate has no word of benchmarks."""
        data = summarise(log.opened().judged(0, 4.0).look(make.estimate(), is_final=True).rows)
        assert "benchmark" not in markdown.render(data).lower()
        assert 'id="benchmark"' not in html.render(data)
