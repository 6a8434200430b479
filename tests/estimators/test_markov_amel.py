"""A real pair of judges that rated 21 items a call: their carry-over, and orders not fitted to."""

import csv
import gzip

import numpy as np
import pytest

from estimators.batches import sequences
from estimators.markov_glmm import fit_markov_glmm
from estimators.markov_prediction import predictive_check

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def batches(shared_data):
    """Ratings of a judge in one condition."""
    path = shared_data / "amel_sequential" / "batches.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def of(judge, condition):
        return [
            (
                row["batch_id"],
                int(row["position"]),
                row["item_id"],
                int(row["y"]) if row["y"] else None,
            )
            for row in rows
            if (row["judge"], row["condition"]) == (judge, condition)
        ]

    return of


@pytest.mark.parametrize(
    ("judge", "carry_over", "se", "n_unanimous"),
    [("gpt-4.1-nano", -1.108, 0.500, 48), ("llama3.2:3b", -0.208, 0.364, 44)],
)
def test_carry_over_in_balanced_orders(batches, measured, judge, carry_over, se, n_unanimous):
    """Most items are unanimous, so it rests on few of them and its interval is wide. The raw
    previous-yes effect of -1.09 lies in the first judge's interval and beyond the second's."""
    fit = fit_markov_glmm(batches(judge, "balanced"))
    at = fit.coef_names.index("lag1")
    measured(f"carry-over of {judge}, logits", f"{fit.coef[at]:.2f} ± {1.96 * fit.se[at]:.2f}")
    assert (fit.coef[at], fit.se[at]) == pytest.approx((carry_over, se), abs=2e-3)
    assert len(fit.unanimous) == n_unanimous
    assert "saturated" in fit.flags
    # Three domains were never rated in one batch.
    assert set(fit.component) == {0, 1, 2}


def test_the_fixed_order_is_not_predicted_from_balanced_ones(batches, measured):
    """All positives first: with a memory of one slot the fit does not foresee it, and says so."""
    for judge in ("gpt-4.1-nano", "llama3.2:3b"):
        fit = fit_markov_glmm(batches(judge, "balanced"))
        held_out = sequences(batches(judge, "fixed"))
        found = predictive_check(fit, held_out, np.random.default_rng(0), copies=500)
        inside = sum(one.is_inside for one in found.joint)
        measured(f"fixed order of {judge}: transition terms of 12 inside", str(inside))
        assert not found.passes
