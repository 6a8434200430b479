"""Whether subjects differ: halves of nine models on MMLU, spread by domain, correlations."""

import time

import numpy as np
import pytest
from scipy import stats

from estimators.benchmark_diagnostics import (
    heterogeneity,
    split_half,
    subject_correlations,
    subject_shares,
)
from estimators.beta_binomial import BetaBinomialStatus, fit_beta_binomial
from tests.estimators.mmlu_data import mmlu

# --- halves ------------------------------------------------------------------------------------


def test_halves_of_nine_models_agree(shared_data):
    """A11: .86 to .95 over 57 subjects; a second program draws right answers of a half by their law."""
    data = mmlu(shared_data)
    found = []
    for model, x in zip(data.models, data.right, strict=True):
        rng = np.random.default_rng(11)
        split = split_half(x, data.subject, rng, n_splits=60)
        k, n = (each.astype(int) for each in data.counts(model))
        left = rng.hypergeometric(k, n - k, n // 2, size=(200, 57))
        r = [stats.pearsonr(each / (n // 2), (k - each) / (n - n // 2))[0] for each in left]
        error = np.std(r) / np.sqrt(60) + np.std(r) / np.sqrt(200)
        assert split.r == pytest.approx(np.mean(r), abs=4 * error), model
        assert split.spearman_brown == pytest.approx(2 * split.r / (1 + split.r))
        assert (split.n_splits, split.n_subjects) == (60, 57)
        found.append(split.r)
    assert 0.855 <= min(found) < max(found) <= 0.96


def test_halves_agree_within_domains_too(shared_data):
    """.85 to .94 without differences between domains; .78 to .96 in each domain alone."""
    data = mmlu(shared_data)
    rng = np.random.default_rng(12)
    for x in data.right:
        centred = split_half(x, data.subject, rng, n_splits=30, centre=data.domain)
        assert 0.84 <= centred.r <= 0.945
        for domain in range(4):
            here = data.domain[data.subject] == domain
            assert 0.76 <= split_half(x[here], data.subject[here], rng, n_splits=30).r <= 0.965


def test_halves_of_shuffled_subjects_do_not_agree(shared_data):
    """A11: Subjects in name only: the mean over 20 shuffles is about 0, single ones reach .2."""
    data = mmlu(shared_data)
    rng = np.random.default_rng(13)
    for x in data.right[[0, 4, 5]]:
        found = [
            split_half(x, rng.permutation(data.subject), rng, n_splits=10).r for _ in range(20)
        ]
        assert abs(np.mean(found)) < 0.1
        assert max(np.abs(found)) < 0.45


def test_domain_means_are_taken_off():
    """Two domains, alike inside: halves agree by the domains alone, and not without them."""
    rng = np.random.default_rng(14)
    subject = np.repeat(np.arange(40), 60)
    domain = np.arange(40) // 20
    scores = (rng.random(2400) < np.where(domain[subject], 0.9, 0.4)).astype(float)
    assert split_half(scores, subject, rng).r > 0.9
    assert abs(split_half(scores, subject, rng, centre=domain).r) < 0.4


def test_halves_without_variance_are_dropped():
    """Pitfall 22: Three subjects of two items: some splits have a half of ones alone, and no correlation."""
    scores = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    split = split_half(scores, [0, 0, 1, 1, 2, 2], np.random.default_rng(1), n_splits=100)
    assert 0 < split.n_splits < 100
    assert split.n_splits == (~np.isnan(split.splits)).sum()
    assert split.r == pytest.approx(np.nanmean(split.splits))
    opposed = split_half([1, 0, 1, 0, 0.5, 0.5], [0, 0, 1, 1, 2, 2], np.random.default_rng(1))
    assert (opposed.r, opposed.spearman_brown) == (-1.0, -np.inf)
    flat = split_half(np.full(12, 0.3), np.arange(12) // 3, np.random.default_rng(1))
    assert (flat.n_splits, flat.n_subjects) == (0, 4)
    assert np.isnan(flat.r)
    assert np.isnan(flat.spearman_brown)


def test_it_needs_three_subjects_of_two_scores():
    """Pitfall 22: A subject of one score, or of one that is there, has no halves."""
    rng = np.random.default_rng(2)
    scores = np.array([1.0, 0.0, 0.3, 1.0, 0.2, 0.7, 0.9, np.nan])
    subject = np.array([0, 0, 1, 1, 2, 2, 5, 5])
    split = split_half(scores, subject, rng, centre=np.zeros(6, dtype=int))
    assert split.n_subjects == 3
    assert split.n_splits > 0
    two = split_half(scores[:4], subject[:4], rng)
    assert (two.n_subjects, two.n_splits) == (2, 0)
    assert np.isnan(two.r)


def test_a_seed_gives_the_same_halves():
    rng = np.random.default_rng(3)
    scores, subject = rng.random(300), rng.integers(0, 9, 300)
    first, again = (split_half(scores, subject, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(first.splits, again.splits)


def test_a_hundred_splits_of_mmlu_take_no_time(shared_data):
    data = mmlu(shared_data)
    start = time.process_time()
    split_half(data.right[0], data.subject, np.random.default_rng(1))
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("scores", "subject", "more"),
    [
        ([1.0, 0.0], [0], {}),
        ([[1.0, 0.0]], [0, 0], {}),
        ([1.0, 0.0], [0.0, 0.5], {}),
        ([1.0, 0.0], [0, -1], {}),
        ([1.0, 0.0], [0, 0], {"n_splits": 0}),
        ([1.0, 0.0], [2, 2], {"centre": [0]}),
    ],
)
def test_labels_that_do_not_fit_are_refused(scores, subject, more):
    with pytest.raises(ValueError, match=r"subject|scores|n_splits|centre"):
        split_half(scores, subject, np.random.default_rng(1), **more)


# --- heterogeneity -----------------------------------------------------------------------------


def test_subjects_of_mmlu_spread_by_11_to_18_points(shared_data):
    """Raw SD .110 to .176; no model has one chance for all subjects."""
    data = mmlu(shared_data)
    found = [heterogeneity(*data.counts(model), data.domain) for model in data.models]
    sd = [each.pooled.sd for each in found]
    assert (min(sd), max(sd)) == pytest.approx((0.110, 0.176), abs=5e-4)
    for each in found:
        assert [part.n_subjects for part in each.domains] == np.bincount(data.domain).tolist()
        assert each.pooled.fit.p_value < 1e-10
        assert each.pooled.fit.sd < each.pooled.sd
        assert each.df == 6
        assert each.p_value == pytest.approx(stats.chi2.sf(each.ratio, 6))


def test_domains_are_compared_by_their_laws(shared_data):
    """GPT-4 Turbo's domains differ, Gemini 1.5 Pro's do not show it."""
    data = mmlu(shared_data)
    for model, is_one in [("gpt-4-1106-preview", False), ("gemini-1.5-pro-preview-0409", True)]:
        k, n = data.counts(model)
        found = heterogeneity(k, n, data.domain)
        parts = [fit_beta_binomial(k[data.domain == d], n[data.domain == d]) for d in range(4)]
        whole = fit_beta_binomial(k, n)
        ratio = 2 * (
            sum(
                stats.betabinom.logpmf(k[data.domain == d], n[data.domain == d], f.a, f.b).sum()
                for d, f in enumerate(parts)
            )
            - stats.betabinom.logpmf(k, n, whole.a, whole.b).sum()
        )
        assert found.ratio == pytest.approx(ratio, abs=1e-5)
        assert (found.p_value > 0.05) == is_one


def test_domains_of_one_law_are_called_different_rarely():
    rng = np.random.default_rng(5)
    n, domain = np.full(40, 60), np.arange(40) // 20
    p = [heterogeneity(rng.binomial(n, rng.beta(6, 3, 40)), n, domain).p_value for _ in range(60)]
    assert np.mean(np.array(p) < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert np.quantile(p, 0.9) > 0.7


def test_a_domain_of_one_subject_is_described_and_not_compared():
    found = heterogeneity([3, 8, 2, 0], [10, 10, 9, 0], [0, 0, 4, 4])
    assert [(part.domain, part.n_subjects) for part in found.domains] == [(0, 2), (4, 1)]
    assert found.domains[1].fit.status is BetaBinomialStatus.NOT_IDENTIFIED
    assert np.isnan(found.domains[1].sd)
    assert np.isnan(found.p_value)
    alone = heterogeneity([3, 8], [10, 10])
    assert (alone.df, alone.p_value, alone.ratio) == (0, 1.0, 0.0)
    assert alone.pooled.mean == pytest.approx(0.55)
    with pytest.raises(ValueError, match="shapes"):
        heterogeneity([3, 8], [10, 10], [0])


# --- correlations ------------------------------------------------------------------------------


def test_correlations_are_those_of_columns(shared_data):
    """Nine systems: .42 on average, and .07 when each system's mean is taken off."""
    data = mmlu(shared_data)
    shares = subject_shares(data.right, data.subject)
    assert shares[0] == pytest.approx(np.divide(*data.counts(data.models[0])))
    r = subject_correlations(shares)
    assert r == pytest.approx(np.corrcoef(shares.T), abs=1e-12)
    centred = subject_correlations(shares, is_centred=True)
    table = shares - shares.mean(axis=1, keepdims=True)
    assert centred == pytest.approx(np.corrcoef(table.T), abs=1e-12)
    pairs = np.triu_indices(57, 1)
    assert (r[pairs].mean(), centred[pairs].mean()) == pytest.approx((0.42, 0.07), abs=0.01)


def test_a_pair_uses_the_systems_that_have_both():
    rng = np.random.default_rng(6)
    shares = rng.random((12, 5))
    shares[rng.random(shares.shape) < 0.25] = np.nan
    shares[:10, 4] = np.nan
    r = subject_correlations(shares)
    for i in range(5):
        for j in range(5):
            both = ~np.isnan(shares[:, i]) & ~np.isnan(shares[:, j])
            if both.sum() < 3:
                assert np.isnan(r[i, j])
            else:
                direct = np.corrcoef(shares[both, i], shares[both, j])[0, 1]
                assert r[i, j] == pytest.approx(direct)
    assert np.isnan(r[4]).all()


def test_subjects_that_do_not_vary_have_no_correlation():
    r = subject_correlations(np.column_stack((np.full(5, 0.3), np.arange(5.0), -np.arange(5.0))))
    assert np.isnan(r[0]).all()
    assert r[1, 2] == -1.0
    with pytest.raises(ValueError, match="two axes"):
        subject_correlations(np.zeros(3))


def test_shares_are_means_of_what_is_there():
    shares = subject_shares([[1.0, np.nan, 0.0, 1.0], [np.nan, np.nan, 1.0, 0.5]], [0, 0, 2, 2])
    assert shares == pytest.approx(
        np.array([[1.0, np.nan, 0.5], [np.nan, np.nan, 0.75]]), nan_ok=True
    )
    with pytest.raises(ValueError, match="subject"):
        subject_shares([[1.0, 0.0]], [0])
