"""Two real judges that gave 21 verdicts a conversation: their memory, and what it predicts."""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from estimators.batches import sequences
from estimators.markov_glmm import fit_markov_glmm
from estimators.markov_inference import lag_contrasts
from estimators.markov_prediction import predictive_check

pytestmark = pytest.mark.shared

JUDGES = ("gpt-4.1-nano", "llama3.2:3b")


@pytest.fixture(scope="module")
def verdicts(shared_data):
    """Ratings by judge and condition; an empty y was neither yes nor no."""
    found = defaultdict(list)
    with gzip.open(shared_data / "amel_sequential/batches.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            y = float(row["y"]) if row["y"] else math.nan
            rating = (row["batch_id"], int(row["position"]), row["item_id"], y)
            found[row["judge"], row["condition"]].append(rating)
    return found


@pytest.fixture(scope="module")
def fits(verdicts):
    return {judge: fit_markov_glmm(verdicts[judge, "balanced"]) for judge in JUDGES}


def pairs(ratings):
    """Each verdict with the one before it, and its item and slot."""
    before = {}
    for batch, slot, item, y in sorted(ratings):
        x = before.get((batch, slot - 1), math.nan)
        before[batch, slot] = y
        if not (math.isnan(x) or math.isnan(y)):
            yield item, slot, x, y


def penalised_logit(ratings, *, item_sd):
    """Previous verdict and position beside item effects that are pulled to 0: no batch effects."""
    rows = list(pairs(ratings))
    items = sorted({item for item, *_ in rows})
    x = np.zeros((len(rows), len(items) + 3))
    for r, (item, slot, last, _) in enumerate(rows):
        x[r, items.index(item)] = 1.0
        x[r, -3:] = 1.0, last, slot / 10
    y = np.array([said for *_, said in rows])
    precision = np.r_[np.full(len(items), item_sd**-2), np.zeros(3)]

    def loss(b):
        eta = x @ b
        value = np.logaddexp(0, eta).sum() - y @ eta + precision @ b**2 / 2
        return value, x.T @ (expit(eta) - y) + precision * b

    b = minimize(loss, np.zeros(x.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-6}).x
    p = expit(x @ b)
    se = np.sqrt(np.diag(np.linalg.inv((x.T * (p * (1 - p))) @ x + np.diag(precision))))
    return b[-2], se[-2]


def within_items(ratings):
    """Log of the Mantel-Haenszel odds ratio of a verdict on the one before, within items."""
    tables = defaultdict(lambda: np.zeros((2, 2)))
    for item, _, x, y in pairs(ratings):
        tables[item][int(x), int(y)] += 1
    up = sum(t[1, 1] * t[0, 0] / t.sum() for t in tables.values())
    down = sum(t[1, 0] * t[0, 1] / t.sum() for t in tables.values())
    return math.log(up / down)


@pytest.mark.parametrize("judge", JUDGES)
def test_the_published_effect_is_that_of_a_logit_with_items_pulled_hard(verdicts, judge):
    """-1.09 (se 0.37) comes out for both judges; it needs item effects within 2 logits and a trend."""
    est, se = penalised_logit(verdicts[judge, "balanced"], item_sd=2.0)
    assert est == pytest.approx(-1.09, abs=0.03)
    assert se == pytest.approx(0.375, abs=0.015)
    # At a scale that leaves unanimous items where they are, about half of it is left.
    loose, _ = penalised_logit(verdicts[judge, "balanced"], item_sd=5.0)
    assert -0.65 < loose < -0.5


def test_the_model_agrees_with_the_comparison_within_items(verdicts, fits):
    """One judge turns away from its last yes; of the other nothing can be told, whichever way."""
    found = {}
    for judge in JUDGES:
        at = fits[judge].coef_names.index("lag1")
        found[judge] = fits[judge].coef[at], fits[judge].se[at]
        plain = within_items(verdicts[judge, "balanced"])
        assert abs(found[judge][0] - plain) < found[judge][1]
        assert "saturated" in fits[judge].flags
        # Three domains were never rated in one batch.
        assert set(fits[judge].component) == {0, 1, 2}
    assert [len(fits[judge].unanimous) for judge in JUDGES] == [48, 44]
    nano, llama = (found[judge] for judge in JUDGES)
    assert nano == pytest.approx((-1.11, 0.50), abs=0.01)
    assert llama == pytest.approx((-0.21, 0.36), abs=0.01)
    assert nano[0] + 1.96 * nano[1] < 0
    assert abs(nano[0] + 1.09) < nano[1]
    assert llama[0] - 1.96 * llama[1] > -1.09


@pytest.mark.parametrize("judge", JUDGES)
def test_orders_that_are_not_shuffled_are_not_predicted(verdicts, fits, judge):
    """Fitted where expected yes and no alternate, the model fails where all yes stand first.

    A memory of one verdict is too short for a conversation whose whole history is shown.
    """
    check = predictive_check(
        fits[judge], sequences(verdicts[judge, "fixed"]), np.random.default_rng(1)
    )
    assert not check.passes
    assert sum(one.is_inside for one in check.joint) <= 3
    assert not any(one.is_inside for one in check.entropy)
    # Verdicts repeat themselves more than expected: the entropy of the next one is too low.
    assert all(one.observed < one.lower for one in check.entropy)


@pytest.mark.parametrize("judge", JUDGES)
def test_memory_and_prediction_are_measured(verdicts, fits, judge, measured):
    fit = fits[judge]
    at = fit.coef_names.index("lag1")
    est, se = float(fit.coef[at]), float(fit.se[at])
    naive, naive_se = penalised_logit(verdicts[judge, "balanced"], item_sd=2.0)
    deep = ", ".join(f"{c.est:.2f} ± {c.se:.2f}" for c in lag_contrasts(fit))
    measured(
        f"amel_sequential, {judge}: previous yes, balanced batches",
        f"{est:.2f} [{est - 1.96 * se:.2f}, {est + 1.96 * se:.2f}] logits (one to three before: "
        f"{deep}); penalised logit {naive:.2f} ± {naive_se:.2f}; within items "
        f"{within_items(verdicts[judge, 'balanced']):.2f}",
    )
    test = sequences(verdicts[judge, "fixed"])
    for propagate in (True, False):
        check = predictive_check(
            fit, test, np.random.default_rng(1), propagate=propagate, copies=2000
        )
        inside = {name: sum(one.is_inside for one in getattr(check, name)) for name in _PARTS}
        measured(
            f"amel_sequential, {judge}: `fixed` predicted, {'propagated' if propagate else 'frozen'}",
            f"{inside['joint']} of 12 joint, {inside['conditional']} of 12 conditional, "
            f"{inside['entropy']} of 3 entropies inside",
        )
        assert not check.passes


_PARTS = ("joint", "conditional", "entropy")
