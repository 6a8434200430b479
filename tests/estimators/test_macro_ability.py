"""Macro scores as ability: nine models on MMLU, the parts of the bound, statuses, coverage."""

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import logsumexp

from estimators.beta_binomial import fit_beta_binomial
from estimators.beta_proxy import bernoulli_proxy, beta_proxy
from estimators.macro_ability import (
    independent_items_half_width,
    macro_ability,
    mixture_proxy,
    upper_mixture_proxy,
)
from tests.estimators.mmlu_data import mmlu

HALF_WIDTHS = {
    "claude-3-opus-20240229": 0.0454,
    "gpt-4o-2024-05-13": 0.0483,
    "gpt-4-0613": 0.0491,
    "gemini-1.5-pro-preview-0409": 0.0504,
    "gpt-4-1106-preview": 0.0603,
    "llama-3-70b": 0.0525,
    "text-unicorn@001": 0.0507,
    "mixtral-8x22b": 0.0489,
    "gemini-1.5-flash-preview-0514": 0.0519,
}
"""One law in each of the four domains; a missing answer counts as wrong."""


def by_other_means(k, n, domain):
    """SciPy's law by Nelder and Mead, and the proxy by a grid over the power series of the mgf."""
    w, mixture = 1 / len(n), 0.0
    for d in np.unique(domain):
        here = domain == d

        def loss(logs, here=here):
            return -stats.betabinom.logpmf(k[here], n[here], *np.exp(logs)).sum()

        found = optimize.minimize(
            loss, [1.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}
        )
        a, b = sorted(np.exp(found.x))
        x = np.linspace(0.05, 3 * (a + b + 1), 500)[:, None]
        j = np.arange(400)
        steps = np.log((a + j) / ((a + b + j) * (j + 1))) + np.log(x)
        series = np.concatenate((np.zeros((len(x), 1)), np.cumsum(steps, axis=1)), axis=1)
        log_mgf = logsumexp(series, axis=1) - x[:, 0] * a / (a + b)
        mixture += here.sum() * w**2 * (2 * log_mgf / x[:, 0] ** 2).max()
    return np.sqrt(2 * (np.sum(w**2 / n) / 4 + mixture) * np.log(40))


def test_nine_models_have_their_published_half_widths(shared_data):
    """A10, pitfall 10: 4.5 to 6.0 points, 7 times or more what independent items would have."""
    data = mmlu(shared_data)
    for model, half_width in HALF_WIDTHS.items():
        k, n = data.counts(model, missing=0.0)
        found = macro_ability(k, n, domain=data.domain)
        assert found.half_width == pytest.approx(half_width, abs=5e-4), model
        assert found.half_width == pytest.approx(by_other_means(k, n, data.domain), rel=1e-4)
        naive = independent_items_half_width(k, n)
        assert 0.0057 < naive < 0.0070
        assert found.half_width / naive >= 7
        assert found.flags == ()


def test_llama_and_its_parts(shared_data):
    """A10: Macro .7933, SD .1428, ±5.25 points; most of it is subjects, and 7.0 with the upper limit."""
    data = mmlu(shared_data)
    k, n = data.counts("llama-3-70b")
    found = macro_ability(k, n, domain=data.domain)
    assert found.score == pytest.approx(0.7933, abs=5e-5)
    assert (k / n).std(ddof=1) == pytest.approx(0.1428, abs=5e-5)
    assert found.half_width == pytest.approx(0.0525, abs=1e-4)
    assert found.sampling == pytest.approx(np.sum(1 / n) / (4 * 57**2))
    assert found.mixture > 10 * found.sampling
    assert found.interval.lower == pytest.approx(found.score - found.half_width)
    upper = macro_ability(k, n, domain=data.domain, mixture="upper")
    assert upper.half_width == pytest.approx(0.070, abs=2e-4)
    assert upper.score == found.score
    assert upper.sampling == found.sampling
    assert independent_items_half_width(k, n) == pytest.approx(
        1.96 * np.sqrt(0.78672 * 0.21328 / 14010), rel=1e-3
    )


def test_domains_are_apart_and_can_be_pooled(shared_data):
    """Four laws in their order, or one; more alike subjects inside a domain make it narrower."""
    data = mmlu(shared_data)
    k, n = data.counts("claude-3-opus-20240229")
    apart, pooled = macro_ability(k, n, domain=data.domain), macro_ability(k, n)
    assert (apart.domains, pooled.domains) == ((0, 1, 2, 3), (0,))
    assert [fit.n_subjects for fit in apart.fits] == np.bincount(data.domain).tolist()
    assert pooled.half_width == pytest.approx(0.0490, abs=1e-4)
    assert apart.half_width < pooled.half_width
    shares = np.bincount(data.domain) / 57**2
    assert apart.mixture == pytest.approx(shares @ apart.proxies)
    assert apart.proxies[0] == beta_proxy(apart.fits[0].a, apart.fits[0].b)


def test_a_status_has_its_proxy():
    """0 without spread; 1/4 where it can't be known; a coin's where subjects are all or none."""
    for counts, proxy in [
        (([50] * 4, [100] * 4), 0.0),
        (([0, 0], [5, 5]), 0.0),
        (([3], [10]), 0.25),
        (([0, 1, 1], [1, 1, 1]), 0.25),
        (([0, 5, 5, 5], [5] * 4), bernoulli_proxy(0.75)),
    ]:
        assert mixture_proxy(fit_beta_binomial(*counts)) == proxy
        upper = upper_mixture_proxy(*counts)
        assert upper > proxy or upper == 0.25
        assert upper <= 0.25


def test_laws_that_rest_on_little_are_flagged():
    found = macro_ability([0, 0, 3, 0, 5], [5, 5, 10, 5, 5], domain=[4, 4, 1, 7, 7])
    assert found.domains == (1, 4, 7)
    assert found.flags == ("degenerate_all_equal", "not_identified", "at_phi_max", "few_subjects")
    assert macro_ability([5] * 12, [10] * 12).flags == ()
    assert macro_ability([0] * 12, [10] * 12).mixture == 0.0
    assert macro_ability([0] * 12, [10] * 12, mixture="upper").proxies == (0.25,)


def test_weights_make_it_micro():
    """w_s = N_s/N: the score is the share of all answers, and Σ w²/(4 n) is 1/(4 N)."""
    k, n = np.array([60, 30, 900]), np.array([100, 50, 1000])
    found = macro_ability(k, n, weights=n / n.sum())
    assert found.score == pytest.approx(990 / 1150)
    assert found.sampling == pytest.approx(1 / (4 * 1150))
    wide = macro_ability([0, 1], [1, 1])
    assert (wide.interval.lower, wide.interval.upper) == (0.0, 1.0)


def test_more_items_leave_the_spread_of_subjects():
    """A hundred times the answers: the sampling part goes, the half-width hardly."""
    rng = np.random.default_rng(4)
    p = rng.beta(7, 3, 57)
    few, many = (macro_ability(np.round(p * n), np.full(57, n)) for n in (200, 20_000))
    assert many.sampling == pytest.approx(few.sampling / 100)
    assert many.half_width > 0.9 * few.half_width


def test_ability_is_covered_and_independent_items_do_not_cover_it():
    """New subjects each time: ±5 points cover the mean .7 always, ±.8 in a third of draws."""
    rng = np.random.default_rng(5)
    n = np.full(57, 250)
    is_covered, is_naive = [], []
    for _ in range(60):
        k = rng.binomial(n, rng.beta(7, 3, 57))
        found = macro_ability(k, n)
        is_covered.append(abs(found.score - 0.7) <= found.half_width)
        is_naive.append(abs(found.score - 0.7) <= independent_items_half_width(k, n))
    assert np.mean(is_covered) >= 0.95
    assert np.mean(is_naive) < 0.5


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ({"n": [0, 10]}, "n must be"),
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"weights": [1.5, -0.5]}, "weights"),
        ({"weights": [1.0]}, "weights"),
        ({"domain": [0]}, "domain"),
        ({"mixture": "best"}, "mixture"),
        ({"delta": 0.0}, "delta"),
        ({"k": [11, 1]}, "k and n"),
    ],
)
def test_what_makes_no_sense_is_refused(bad, what):
    given = {"k": [0, 4], "n": [10, 10], **bad}
    with pytest.raises(ValueError, match=what):
        macro_ability(given.pop("k"), given.pop("n"), **given)
