"""What the report says of batches: sentences and tables from what the model and the log hold."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from orchestrator.report import batches, html, markdown, result, wording
from orchestrator.report.data import Evenness, SlotTally
from orchestrator.report.summary import summarise

MEMORY = {"lag1": {"est": -1.0, "se": 0.1}, "first": {"est": 0.2, "se": 0.2}}
JUDGE = {
    "judge": "a",
    "n_batches": 60,
    "n_ratings": 240,
    "n_items": 4,
    "carry_over": MEMORY,
    "sigma_b": 0.5,
    "boundary": False,
    "loglik": -100.0,
    "reason": "",
    "saturated": False,
    "unanimous": {},
    "profile": [0.6, 0.5, 0.51, 0.51],
    "robust_ratio": 1.05,
    "gradient_max": 1e-9,
    "iterations": 5,
    "prediction": {"n_held_out": 20, "n_terms": 15, "missed": [], "passes": True},
}
RANKING = {
    "judge": "a",
    "first": {"x": 0.9, "y": 0.1, "z": 0.001},
    "order": ["x", "y", "z"],
    "naive_is_safe": True,
    "gap": 0.8,
    "needed": 0.3,
}
CONTRAST = {
    "contrast": {"est": 0.5, "se": 0.1, "z": 5.0, "p": 1e-6},
    "naive": {"est": -0.05, "se": 0.02, "z": -2.5, "p": 0.012},
    "naive_limit": {
        "slope": 0.1,
        "curvature": -0.16,
        "exact": -0.05,
        "ratio": 1.0,
        "spreads": 4.0,
        "acceptance": 0.6,
        "warns": True,
    },
    "prior_sensitivity": [],
}
TALLY = SlotTally(
    judge="a",
    n_batches=60,
    n_missing=0,
    n_units=4,
    is_share=True,
    lost={},
    rated=(60, 60, 60, 60),
    means=(0.6, 0.5, 0.5, 0.5),
    asked=Evenness((15, 15), (15, 15)),
    kept=Evenness((15, 15), (15, 15)),
)


@pytest.fixture
def data_of(log, make):
    """A run with one judge and what a model says of it; parts can be replaced."""
    whole = summarise(log.opened(judges=("a",)).rows)

    def markov(target, *names, **diagnostics):
        columns = {"value": 0.5, "se": 0.05, "lower": 0.4, "upper": 0.6}
        return make.estimate(
            name="groups",
            kind="markov_glmm",
            target=target,
            names=names,
            **{key: (x,) * len(names) for key, x in columns.items()},
            diagnostics=diagnostics,
        )

    def data_of(
        *,
        judge=(),
        contrast=(),
        ranking=(),
        units=(),
        looks=(),
        after_last_look=None,
        slots=(TALLY,),
    ):
        row = JUDGE | dict(judge)
        shown = {"judges": [row], "ranking": [RANKING | dict(ranking)]} | dict(units)
        of_units = markov("units", *"xyzw", **shown)
        groups = markov(
            "groups",
            "A - B",
            judges=[row | CONTRAST | dict(contrast)],
            looks=list(looks),
            after_last_look=after_last_look,
        )
        return replace(whole, slots=slots, estimates=(groups, of_units), primary=0)

    return data_of


def test_memory_is_told_as_odds_with_their_interval(data_of):
    """exp(-1) is 0.37; the ends are exp(-1 ± 1.96 · 0.1)."""
    carry, spread = batches.memory(data_of().estimates)
    assert carry == (
        "a: after a yes the odds of a yes are \N{MULTIPLICATION SIGN} 0.37 [0.30, 0.45], those after "
        "a no being 1."
    )
    assert spread == (
        "a: batches differ in how readily it says yes, by 0.50 logits (standard deviation)."
    )


def test_what_cannot_be_told_from_chance_is_not_told_as_an_effect(data_of):
    weak = {"lag1": {"est": -0.1, "se": 0.1}, "lag2": {"est": None, "se": None}}
    first, second, spread = batches.memory(
        data_of(judge={"carry_over": weak, "boundary": True}).estimates
    )
    assert first.endswith("no carry-over can be told from chance.")
    assert second == "a: what happens where the unit 2 before got a yes is not known."
    assert "does not differ between batches by more than chance" in spread
    (none, _) = batches.memory(data_of(judge={"carry_over": {}}).estimates)
    assert none == "a: no memory is modelled (lags: 0)."
    (failed,) = batches.memory(data_of(judge={"reason": "every item is unanimous"}).estimates)
    assert failed == "a: its batches can't be modelled: every item is unanimous."
    far = {"lag1": {"est": 40.0, "se": 1.0}}
    assert "above 1,000,000" in batches.memory(data_of(judge={"carry_over": far}).estimates)[0]


def test_who_is_first_is_said_of_the_panel_and_of_each_judge(data_of):
    """The panel's chances stand before those of its judges, and beside them what is proved."""
    both = {"ranking": [RANKING, RANKING | {"judge": "b"}], "first": {"x": 0.97, "y": 0.03}}
    lines = batches.adequacy(data_of(units=both).estimates)
    assert lines[2] == "All judges together: chance of being first: x 97%, y 3%."
    assert [line[:2] for line in lines[3:]] == ["a:", "b:"]
    ahead = {"ranks_hold_watched": True, "leader": "x", "rivals": []}
    proved = batches.adequacy(data_of(units=ahead | {"is_separated": {"leader": True}}).estimates)
    assert "x is proved to be first, with an error of at most 5%" in proved[2]
    open_ = ahead | {"rivals": ["y", "z"], "is_separated": {"leader": False}}
    assert batches.adequacy(data_of(units=open_).estimates)[2] == (
        "x leads and is not proved to be first: y, z may be."
    )


def test_adequacy_says_what_is_wrong_and_nothing_where_nothing_is(data_of):
    good = batches.adequacy(data_of().estimates)
    assert good[0].endswith("1.05 times the model's, so its intervals are about wide enough.")
    assert good[1].startswith("a: fitted to the batches before, the model puts 15 of 15")
    assert good[2] == "a: chance of being first: x 90%, y 10%."
    assert len(good) == 3
    bad = batches.adequacy(
        data_of(
            judge={
                "robust_ratio": 1.6,
                "gradient_max": 0.1,
                "saturated": True,
                "unanimous": {"x": "accept", "y": "accept", "z": "reject"},
                "prediction": {
                    "n_held_out": 1,
                    "n_terms": 15,
                    "missed": ["lag 2: 11", "order 2"],
                    "passes": False,
                },
            },
            ranking={"naive_is_safe": False, "gap": 0.1},
            contrast={
                "prior_sensitivity": [
                    {"scale": 3.0, "est": 0.4, "se": 0.1, "p": 0.00001},
                    {"scale": 5.0, "est": 0.5, "se": 0.3, "p": 0.09},
                ]
            },
        ).estimates
    )
    said = "\n".join(bad)
    for part in (
        "the model leaves something out",
        "the fit ended oddly (largest gradient 0.1 after 5 steps)",
        "a accepted x, y every time",
        "a rejected z every time",
        "a is saturated: 3 of 4 units get the same verdict every time",
        "puts 13 of 15 statistics of the last 1 batch where they lie; missed: lag 2: 11, order 2",
        "+0.400 (p below 0.001) at scale 3, +0.500 (p 0.090) at scale 5",
        "raw shares can turn the order of units less than 0.30 apart",
    ):
        assert part in said


def test_raw_verdicts_stand_beside_ours_with_the_reason(data_of):
    """Signs that differ are called so, and the parts of the limit are named."""
    data = data_of()
    (grid,) = batches.beside_naive(data.estimates)
    assert grid.rows == (
        ("a", "-0.050 [-0.089, -0.011]", "0.012", "0.50 [0.30, 0.70]", "below 0.001"),
    )
    first, second = batches.why_naive(data.estimates)
    assert first == (
        "a: by raw verdicts A - B is below 0, by the model it is above 0. With ever more batches the "
        "raw difference would tend to -0.050: +0.100 from the difference in quality, -0.160 "
        "from unequal spread (the first group's qualities are spread 4.00 times as wide), since "
        "shares are a curved function of quality, and +0.010 from what a second-order split leaves "
        "out; 0.60 of all are accepted."
    )
    assert "more of the groups' spread than of their quality" in second
    agreed = CONTRAST | {"naive": {"est": 0.1, "se": 0.02, "z": 5.0, "p": 1e-6}}
    (line,) = batches.why_naive(data_of(contrast=agreed).estimates)
    assert line.startswith("a: by raw verdicts and by the model A - B is above 0.")
    unknown = CONTRAST | {"contrast": {"est": None, "se": None, "z": None, "p": None}}
    assert (
        "by the model it is not known" in batches.why_naive(data_of(contrast=unknown).estimates)[0]
    )


def test_parts_that_make_up_the_whole_leave_nothing_to_name(data_of):
    limit = CONTRAST["naive_limit"] | {"exact": -0.06}
    first, _ = batches.why_naive(data_of(contrast={"naive_limit": limit}).estimates)
    assert "curved function of quality; 0.60" in first


AGREED = {"est": 0.2, "se": 0.03, "z": 6.7, "p": 1e-9}


@pytest.mark.parametrize(
    ("naive", "limit", "is_noted"),
    [
        (CONTRAST["naive"], {}, True),
        (CONTRAST["naive"], {"curvature": 0.0}, True),
        (CONTRAST["naive"], {"warns": False}, False),
        (AGREED, {"exact": 0.2, "curvature": -0.07}, True),
        (AGREED, {"exact": 0.2, "curvature": -0.06}, False),
        (AGREED | {"se": 0.1}, {"exact": 0.01, "curvature": 0.03}, False),
    ],
)
@pytest.mark.parametrize("render", [html.render, markdown.render])
def test_raw_shares_are_warned_of_where_they_mislead(data_of, render, naive, limit, is_noted):
    """Where the verdicts differ, or spread is much of the raw difference; other flags always stand."""
    limit = CONTRAST["naive_limit"] | limit
    data = data_of(contrast={"naive": naive, "naive_limit": limit})
    groups, units = data.estimates
    flags = ("naive_biased", "prior_sensitive")
    data = replace(data, estimates=(replace(groups, flags=flags), units))
    notes = batches.notes(data.estimates[0])
    assert [wording.flag(f) for f in flags if f != "naive_biased" or is_noted] == notes
    assert ("raw verdicts mislead here" in render(data)) == is_noted


def test_looks_show_the_bound_over_time_and_what_crossed_it(data_of):
    looks = [
        {"batches": 20, "of": 60, "z": 1.0, "bound": None},
        {"batches": 40, "of": 60, "z": -3.0, "bound": 2.9},
    ]
    after = {"n_batches": 45, "est": 0.4, "se": 0.1, "z": 4.0}
    data = data_of(looks=looks, after_last_look=after)
    (grid,) = batches.looks(data.estimates)
    assert grid.rows == (
        ("20 of 60", "1.00", "out of reach", ""),
        ("40 of 60", "3.00", "2.90", "yes"),
    )
    (line,) = batches.after_looks(data.estimates)
    assert "45 batches in all, it is 0.40 [0.20, 0.60]; the verdict stays that of the look" in line


def test_slots_stand_beside_what_the_model_expects(data_of):
    grid = batches.by_slot(data_of())
    assert grid.head == ("slot", "a: verdicts", "accepted", "by the model")
    assert grid.rows[0] == ("1", "60", "0.600", "0.600")
    many = replace(TALLY, rated=(5,) * 60, means=(0.5,) * 60)
    rows = batches.by_slot(data_of(slots=(many,))).rows
    assert [row[0] for row in rows] == [str(s) for s in (*range(1, 21), *range(41, 61))]
    assert batches.by_slot(data_of(slots=())) is None


@pytest.mark.parametrize("render", [html.render, markdown.render])
def test_pages_hold_the_section_for_batches_alone(render, data_of):
    with_batches, without = render(data_of()), render(data_of(slots=()))
    assert "Each unit stood 15 times in each slot" in with_batches
    assert "Raw verdicts beside ours" in with_batches
    assert "Raw verdicts beside ours" not in without


def test_names_of_units_are_escaped(data_of):
    data = data_of(judge={"unanimous": {"<script>x</script>": "accept"}})
    assert "<script>x" not in html.render(data)
    assert "<script>x" not in markdown.render(data)


def test_slots_stand_in_the_result(data_of):
    lossy = replace(TALLY, lost={"omitted": 2}, means=(0.6, math.nan, 0.5, 0.5), kept=None)
    (slots,) = result.document(data_of(slots=(lossy,)))["diagnostics"]["slots"]
    assert slots["asked"] == {"per_slot": [15, 15], "per_pair": [15, 15]}
    assert (slots["kept"], slots["means"][1], slots["lost"]) == (None, None, {"omitted": 2})
