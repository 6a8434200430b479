"""What is said of tables of right and wrong answers."""

from dataclasses import replace

import pytest

from orchestrator.core.estimate import Estimate, Status
from orchestrator.report.correctness import FIRST, grids, reference, strata, why


def estimate(target="arms", interval="hypergeometric", **about):
    by_name = {"n_drawn": [50], "population": [200], "missing": [0], **about}
    return Estimate(
        name="correct", kind="exchangeable", target=target, estimand="", names=("a",), value=(0.5,),
        se=(0.1,), lower=(0.4,), upper=(0.6,), level=0.95, interval=interval,
        watching_covered=False, alpha_split="none", family="", n_items=50, n_answers=50,
        status=Status.OK, diagnostics={"by_name": by_name},
    )  # fmt: skip


def about(n_strata, n_systems):
    names = [f"stratum {k}" for k in range(n_strata)]
    values = [k / n_strata for k in range(n_strata)]
    return {
        "names": names,
        "groups": None,
        "sizes": None,
        "by_system": [
            {
                "system": f"s{a}",
                "n_items": [10] * n_strata,
                "value": values,
                "lower": [None] * n_strata,
                "upper": [None] * n_strata,
            }
            for a in range(n_systems)
        ],
        "spread": [],
        "split_half": [{"r": None}],
        "correlations": None,
    }


@pytest.mark.parametrize(
    ("of", "says"),
    [
        (estimate(), "no normal law is taken"),
        (estimate(interval="finite-population Hoeffding"), "ends of the scale alone"),
        (estimate(n_drawn=[200]), "every item of the benchmark is here"),
        (estimate(n_drawn=[200], missing=[3]), "what missing verdicts leave open"),
        (estimate("ability", n_drawn=[200]), "don't make them more"),
        (estimate("macro"), "strata count alike"),
        (replace(estimate(), alpha_split="arms"), "shared by 1 name"),
    ],
)
def test_why_ours_differ(of, says):
    assert says in why(of)


def test_a_pair_of_parts_is_not_said_to_be_compared_item_by_item():
    paired = estimate("difference", "finite-population Hoeffding")
    parts = estimate("difference", "two intervals by hypergeometric")
    assert "compared with itself" in why(paired)
    assert "compared with itself" not in why(parts)


def test_of_several_bounds_the_widest_is_told():
    """Nothing where every item is here, or where no bound was made."""
    several = estimate(
        n_drawn=[50, 80], population=[200, 200], missing=[0, 0], exchangeable_half_width=[0.2, 0.1]
    )
    assert reference(several)[0].startswith("at most ±0.2000 at 50 of 200 items")
    assert reference(estimate()) == []
    assert reference(estimate(n_drawn=[200], exchangeable_half_width=[0.0])) == []


def test_of_many_strata_the_hardest_and_the_easiest_are_shown():
    (grid,) = grids(about(30, 1))
    assert [row[0] for row in grid.rows] == [
        f"stratum {k}" for k in (*range(FIRST), *range(30 - FIRST, 30))
    ]
    assert grid.title == "(18 more strata are in --json)"
    (few,) = grids(about(2 * FIRST, 1))
    assert (len(few.rows), few.title) == (2 * FIRST, "")


def test_many_systems_share_columns():
    (two,) = grids(about(3, 2))
    (many,) = grids(about(3, 3))
    assert two.head == ("stratum", "items", "s0", "s1")
    assert many.head == ("stratum", "items", "mean of 3", "lowest", "highest")


def test_nothing_is_said_of_halves_that_are_not_known():
    assert strata(about(2, 1)) == []
