"""Contrasts of several judges: the pool, their disagreement, the claim that some judge sees it."""

import math

import pytest
from scipy import stats

from estimators.judge_pool import holm, pool_judges
from estimators.markov_inference import wald
from estimators.markov_model import Contrast, FitStatus

OPEN = Contrast(math.nan, math.nan, math.nan, math.nan, FitStatus.NOT_ESTIMABLE, "one batch")


def test_judges_are_pooled_by_precision():
    found = pool_judges({"a": wald(1.0, 0.5), "b": wald(0.0, 1.0)})
    assert found.pooled.est == pytest.approx(0.8)
    assert found.pooled.se == pytest.approx(math.sqrt(0.2))
    assert found.q == pytest.approx(0.04 / 0.25 + 0.64)
    assert found.q_p == pytest.approx(stats.chi2.sf(found.q, 1))
    assert not found.disagree


def test_judges_that_contradict_each_other_are_reported():
    assert pool_judges({"a": wald(1.0, 0.2), "b": wald(-1.0, 0.2)}).disagree


def test_a_judge_without_a_contrast_is_left_out():
    found = pool_judges({"a": wald(1.0, 0.5), "b": OPEN})
    assert found.left_out == ("b",)
    assert (found.pooled.est, found.df) == (1.0, 0)
    assert math.isnan(found.q)


def test_nothing_to_pool_is_a_status():
    assert pool_judges({"b": OPEN}).pooled.status is FitStatus.NOT_ESTIMABLE


def test_a_sensitive_part_makes_the_pool_sensitive():
    sensitive = wald(1.0, 0.5)._replace(prior_sensitive=True)
    assert pool_judges({"a": sensitive, "b": wald(1.0, 0.5)}).pooled.prior_sensitive


def test_holm_steps_down_and_never_falls():
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx(
        {"a": 0.06, "b": 0.03, "c": 0.06}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
