from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.money import (
    PriceCard,
    ceiling_cost,
    cost,
    format_usd,
    parse_usd,
    rate_from_usd_per_million,
)
from orchestrator.core.wire import Usage

ACME = PriceCard(
    input=rate_from_usd_per_million("2.00"),
    cached_input=rate_from_usd_per_million("0.20"),
    cache_write_5m=rate_from_usd_per_million("2.50"),
    cache_write_1h=rate_from_usd_per_million("4.00"),
    output=rate_from_usd_per_million("10.00"),
)


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(input_tok=2000, cached_input_tok=8000, output_tok=500, reasoning_tok=300), "0.0106"),
        (
            Usage(input_tok=120, cache_write_5m_tok=6000, cached_input_tok=9000, output_tok=400),
            "0.02104",
        ),
        (
            Usage(input_tok=120, cache_write_1h_tok=6000, cached_input_tok=9000, output_tok=400),
            "0.03004",
        ),
        (Usage(input_tok=1000, output_tok=2000), "0.022"),
    ],
)
def test_cost_is_exact_over_disjoint_classes(usage, usd):
    """C07, C08: reasoning is part of the output, cached tokens are no input, exact to the nano."""
    assert cost(usage, ACME) == parse_usd(usd)


def test_cost_rounds_up_once_a_call():
    assert cost(Usage(input_tok=1, output_tok=1), PriceCard(input=1, output=1)) == 1
    assert cost(Usage(), PriceCard(per_call=3_332_000_001)) == 3_332_001
    assert cost(Usage(), PriceCard()) == 0


@given(
    st.builds(
        Usage,
        **dict.fromkeys(
            (
                "input_tok",
                "cached_input_tok",
                "cache_write_5m_tok",
                "cache_write_1h_tok",
                "output_tok",
            ),
            st.integers(0, 10**7),
        ),
    ),
    st.builds(
        PriceCard,
        **dict.fromkeys(
            ("input", "cached_input", "cache_write_5m", "cache_write_1h", "output", "per_call"),
            st.integers(0, 10**9),
        ),
    ),
)
def test_ceiling_bounds_every_usage_within_its_tokens(usage, card):
    """Whatever the provider reads from or writes to its cache, the hold covers it."""
    into = (
        usage.input_tok
        + usage.cached_input_tok
        + usage.cache_write_5m_tok
        + usage.cache_write_1h_tok
    )
    assert cost(usage, card) <= ceiling_cost(into, usage.output_tok, card)


@given(st.integers(-(10**15), 10**18))
def test_amounts_are_written_and_read_exactly(nano):
    text = format_usd(nano).replace("$", "").replace(",", "")
    assert parse_usd(text) == nano
    assert parse_usd(Decimal(nano) / 10**9) == nano


def test_amounts_keep_the_digits_asked_for():
    assert format_usd(80_000_000) == "$0.080000"
    assert format_usd(1) == "$0.000000001"
    assert format_usd(-1_234_500_000_000, decimals=2) == "-$1,234.50"
    assert format_usd(5_000_000_000, decimals=0) == "$5"


@pytest.mark.parametrize("text", ["five", "nan", "inf", "", "0.0000000001"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match=r"number|nano"):
        parse_usd(text)


def test_a_negative_price_is_refused():
    with pytest.raises(ValueError, match="negative"):
        PriceCard(input=-1)
    with pytest.raises(ValueError, match="negative"):
        rate_from_usd_per_million("-1")


def test_prices_round_up_to_the_pico():
    assert rate_from_usd_per_million("0.0000001") == 1
    assert rate_from_usd_per_million(2.5) == 2_500_000
