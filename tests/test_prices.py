import subprocess
import sys
from datetime import UTC, date, datetime

import genai_prices
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import prices
from orchestrator.core.errors import UnpricedModel
from orchestrator.core.money import FREE, PriceCard, cost
from orchestrator.core.wire import Usage

AT = datetime(2026, 11, 30, tzinfo=UTC)


def resolve(price="sheet", *, adapter="openai", model="gpt-5", **options):
    return prices.resolve(price, judge="large", adapter=adapter, model=model, at=AT, **options)


def billed(usage, adapter, model):
    """What the sheet's own calculator asks for a call, in USD."""
    return genai_prices.calc_price(
        genai_prices.Usage(**usage), model, provider_id=adapter, genai_request_timestamp=AT
    ).total_price


# The sheet


@pytest.mark.parametrize(
    ("adapter", "model", "card"),
    [
        ("openai", "gpt-5", (1_250_000, 125_000, 1_250_000, 1_250_000, 10_000_000)),
        ("anthropic", "claude-haiku-4-5", (1_000_000, 100_000, 1_250_000, 2_000_000, 5_000_000)),
        ("google", "gemini-2.5-flash", (300_000, 30_000, 300_000, 300_000, 2_500_000)),
    ],
)
def test_the_sheet_gives_exact_prices_in_all_classes(adapter, model, card):
    """Published prices of three models, in pico-USD per token."""
    price = resolve(adapter=adapter, model=model)
    assert price.card.rates == (*card, 0)
    assert price.source == f"genai-prices {genai_prices.__version__}: {adapter}/{model}"
    assert price.notes == ()


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**5))
def test_our_bill_is_that_of_the_sheets_calculator(plain, read, written, said):
    """A second witness, to the nano-USD: the calculator of the price package."""
    ours = cost(
        Usage(input_tok=plain, cached_input_tok=read, cache_write_5m_tok=written, output_tok=said),
        resolve(adapter="anthropic", model="claude-haiku-4-5").card,
    )
    counts = {
        "input_tokens": plain + read + written,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "output_tokens": said,
    }
    theirs = billed(counts, "anthropic", "claude-haiku-4-5") * 10**9
    assert 0 <= ours - theirs < 1


@pytest.mark.parametrize("n_input", [1_000, 200_000, 200_001, 900_000])
def test_no_length_of_input_costs_more_than_the_card(n_input):
    """A tiered price is taken at its dearest tier; the sheet's calculator never asks for more."""
    price = resolve(adapter="google", model="gemini-2.5-pro")
    usage = Usage(input_tok=n_input, output_tok=1000)
    theirs = billed({"input_tokens": n_input, "output_tokens": 1000}, "google", "gemini-2.5-pro")
    assert cost(usage, price.card) >= theirs * 10**9
    assert (cost(usage, price.card) == theirs * 10**9) is (n_input > 200_000)
    assert price.notes == ('judge "large": priced at the dearest length of input',)


def test_tiers_that_no_input_reaches_do_not_count():
    """With a bound on the input the lower tier is exact, up to the tier's own edge."""
    short = resolve(adapter="google", model="gemini-2.5-pro", max_input_tok=200_000)
    longer = resolve(adapter="google", model="gemini-2.5-pro", max_input_tok=200_001)
    assert (short.card.input, short.notes) == (1_250_000, ())
    assert longer.card == resolve(adapter="google", model="gemini-2.5-pro").card


@pytest.mark.parametrize("hour", range(24))
def test_no_hour_costs_more_than_the_card(hour):
    """A price that depends on the hour is taken at its dearest hour."""
    price = resolve(
        adapter="compatible", model="deepseek-chat", base_url="https://api.deepseek.com/v1"
    )
    theirs = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=1000, output_tokens=1000),
        "deepseek-chat",
        provider_id="deepseek",
        genai_request_timestamp=AT.replace(hour=hour),
    ).total_price
    assert cost(Usage(input_tok=1000, output_tok=1000), price.card) >= theirs * 10**9
    assert price.notes == ('judge "large": priced at the dearest hour',)


def test_a_fee_per_request_is_part_of_the_card():
    """$12 a thousand requests are 12,000,000 nano-USD each."""
    price = resolve(
        adapter="compatible", model="sonar", base_url="https://api.perplexity.ai/chat/completions"
    )
    assert cost(Usage(), price.card) == 12_000_000


def test_every_model_on_the_sheet_is_priced_or_refused():
    """No entry of the sheet breaks the reading, and a priced one is never cheaper than the sheet."""
    n_priced = 0
    for provider in genai_prices.data_snapshot.get_snapshot().providers:
        for model in provider.models:
            try:
                card = prices._dearest(prices._in_force(model, AT), None)
            except prices._NoPriceError:
                continue
            n_priced += 1
            table = model.get_prices(AT)
            assert card.output >= getattr(table.output_mtok, "base", table.output_mtok) * 10**6
    assert n_priced > 1000


def test_the_sheet_in_force_is_named():
    """The manifest says which version was read and how new its prices are."""
    sheet = prices.sheet(AT)
    assert sheet.version == f"genai-prices {genai_prices.__version__}"
    assert date(2026, 1, 1) < sheet.newest <= AT.date()
    assert prices.sheet(datetime(2001, 1, 1, tzinfo=UTC)).newest is None


# Prices of one's own


def test_an_override_wins_over_the_sheet():
    """C06 d: prices in the file are used for a model that the sheet knows too."""
    card = PriceCard(input=2_000_000, cached_input=200_000, output=10_000_000)
    price = resolve(card)
    assert price.card == card
    assert price.source == "campaign file"


def test_free_is_free():
    """C06 c: a free judge costs nothing, and is called free."""
    price = resolve("free", adapter="compatible", model="my-judge-8b")
    assert (price.card, price.source) == (FREE, "free")


def test_a_price_per_call_needs_no_tokens():
    assert cost(Usage(), prices.per_call(3_300_000).card) == 3_300_000


# No price


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "gtp-5-mini"}, 'no model "gtp-5-mini" of OpenAI (did you mean "gpt-5-mini"?)'),
        ({"model": "text-embedding-3-small"}, "other units than tokens of text"),
        ({"adapter": "mock"}, 'no adapter "mock"'),
        (
            {"adapter": "compatible", "base_url": "http://gpu1:8000/v1"},
            "no provider at http://gpu1:8000/v1",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_judge_without_a_price_is_refused_by_name(options, words):
    """C06 a, b: the message names the judge, what was looked for, and what to write."""
    with pytest.raises(UnpricedModel) as refusal:
        resolve(**options)
    assert words in str(refusal.value)
    assert str(refusal.value).startswith('judge "large": ')
    assert "price_usd_per_1m: {input: ..., output: ...}" in str(refusal.value)


def test_a_judge_of_any_name_is_named():
    """C23: names may be in any script."""
    with pytest.raises(UnpricedModel, match="Prüfer 判"):
        prices.resolve("sheet", judge="Prüfer 判", adapter="mock", model="", at=AT)


def test_a_rehearsal_assumes_a_price_and_says_so():
    """Under `--mock` an unpriced judge charges $1 and $4; a priced one keeps its price."""
    assumed = resolve(adapter="compatible", model="MODEL-A", mock=True)
    assert (assumed.card.input, assumed.card.output) == (1_000_000, 4_000_000)
    assert assumed.source == "assumed for mock"
    assert resolve(mock=True) == resolve()
    assert resolve("free", mock=True).card.is_free


def test_the_sheet_is_read_only_when_needed():
    """Free judges and own prices don't pay for importing 2,000 prices."""
    script = (
        "import sys, datetime; from orchestrator import prices; "
        "at = datetime.datetime.now(datetime.UTC); "
        "[prices.resolve(p, judge='j', adapter='mock', model='', at=at) "
        "for p in ('free', prices.PriceCard(input=1))]; "
        "sys.exit('genai_prices' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
