"""What models take: looked up before the first call, never found out by being refused."""

from __future__ import annotations

import re
from datetime import date

import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from judges import capabilities
from judges.capabilities import capability, decoding_for, resolve_route
from orchestrator.core.errors import ConfigError
from orchestrator.core.ports import Decoding
from orchestrator.core.wire import Route

LIVE = ("openai", "anthropic", "google", "compatible")
ROWS = [
    (adapter, pattern, known)
    for adapter, rows in capabilities._TABLE.items()
    for pattern, known in rows
]

decodings = st.builds(
    Decoding,
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0.1, 1),
    seed=st.none() | st.integers(0, 9),
    extra=st.sampled_from([{}, {"reasoning_effort": "none"}, {"reasoning": {"effort": "none"}}]),
)
models = st.sampled_from(
    [
        "gpt-4o",
        "gpt-5",
        "gpt-5.1",
        "gpt-6-sol",
        "claude-opus-4-5",
        "claude-opus-5-5",
        "gemini-3.8-flash",
        "made-up",
    ]
)


@pytest.mark.parametrize(("adapter", "pattern", "known"), ROWS)
def test_every_row_says_when_and_where_from(
    adapter: str, pattern: str, known: capabilities.Capability
) -> None:
    assert adapter in LIVE
    assert known.is_known
    assert date(2026, 1, 1) < known.as_of <= date.today()  # noqa: DTZ011  # a date in a file
    assert known.source
    assert known.routes
    assert Route.TEXT in known.routes, "text is what every model can do"
    assert (Route.LOGPROB in known.routes) == (known.max_logprobs > 0)


@pytest.mark.parametrize(("adapter", "pattern"), [row[:2] for row in ROWS])
def test_every_row_names_a_model_that_the_price_sheet_knows(adapter: str, pattern: str) -> None:
    """A row that fits no model at all would be a typing error."""
    provider = next(p for p in get_snapshot().providers if p.id == adapter)
    names = [model.id for model in provider.models]
    assert any(re.fullmatch(pattern, name) for name in names), pattern


@pytest.mark.parametrize(
    ("adapter", "model", "same_as"),
    [
        ("openai", "gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai", "ft:gpt-4o-mini-2024-07-18:acme::7", "gpt-4o-mini"),
        ("anthropic", "claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("google", "models/gemini-2.5-flash", "gemini-2.5-flash"),
    ],
)
def test_a_snapshot_or_a_tuned_model_takes_what_its_model_takes(
    adapter: str, model: str, same_as: str
) -> None:
    assert capability(adapter, model) is capability(adapter, same_as)
    assert capability(adapter, model).is_known


@pytest.mark.parametrize(
    "model", ["gpt-4o-audio-preview", "gpt-5-chat-latest", "gpt-9", "o1-preview"]
)
def test_a_model_that_only_looks_like_a_known_one_is_unknown(model: str) -> None:
    assert not capability("openai", model).is_known
    assert capability("openai", model).refused == {"temperature", "top_p"}


def test_the_first_row_that_fits_holds() -> None:
    """The May snapshot of gpt-4o had no schemas yet, though gpt-4o has them."""
    assert Route.SCHEMA in capability("openai", "gpt-4o").routes
    assert Route.SCHEMA not in capability("openai", "gpt-4o-2024-05-13").routes


def test_an_openai_model_gets_the_field_that_it_wants_the_first_time() -> None:
    """C43 a: the limit of the output goes out as max_completion_tokens."""
    for model in ("gpt-4o", "o3", "gpt-5", "unheard-of"):
        assert capability("openai", model).renamed == {"max_tokens": "max_completion_tokens"}
    assert not capability("compatible", "llama").renamed


def test_a_refused_parameter_is_left_out_and_named() -> None:
    """C43 a: temperature is dropped by the table, not after a refusal."""
    sent, dropped = decoding_for("openai", "o3", Decoding(temperature=0.0, seed=7))
    assert sent == {"seed": 7}
    assert dropped == ("temperature",)


def test_strict_parameters_make_a_refused_one_an_error() -> None:
    """C43 b: one clear message, which names the parameter, the model and a way out."""
    with pytest.raises(ConfigError, match="o3 does not take temperature, top_p") as caught:
        decoding_for("openai", "o3", Decoding(temperature=0.0, top_p=0.9, is_strict=True))
    assert "strict_params" in str(caught.value)
    assert "2026-" in str(caught.value)


def test_reasoning_turned_off_gives_sampling_and_logprobs_back() -> None:
    cold = Decoding(temperature=0.0, is_strict=True)
    with pytest.raises(ConfigError, match="reasoning_effort: none"):
        decoding_for("openai", "gpt-5.1", cold)
    with pytest.raises(ValueError, match="reasoning_effort: none"):
        resolve_route("openai", "gpt-5.1", "logprob", cold)
    off = Decoding(temperature=0.0, is_strict=True, extra={"reasoning_effort": "none"})
    assert decoding_for("openai", "gpt-5.1", off) == ({"temperature": 0.0}, ())
    assert resolve_route("openai", "gpt-5.1", "logprob", off) is Route.LOGPROB


def test_of_two_samplers_that_exclude_each_other_the_first_is_sent() -> None:
    both = Decoding(temperature=0.2, top_p=0.9)
    assert decoding_for("anthropic", "claude-haiku-4-5", both) == ({"temperature": 0.2}, ("top_p",))
    only = Decoding(top_p=0.9)
    assert decoding_for("anthropic", "claude-haiku-4-5", only) == ({"top_p": 0.9}, ())


def test_an_interface_without_a_field_drops_it_too() -> None:
    sent, dropped = decoding_for("openai", "gpt-4o", Decoding(seed=7), also_refused=["seed"])
    assert (sent, dropped) == ({}, ("seed",))


@given(adapter=st.sampled_from([*LIVE, "mock", "python"]), model=models, decoding=decodings)
def test_what_is_given_is_either_sent_as_it_stands_or_named(
    adapter: str, model: str, decoding: Decoding
) -> None:
    wanted = {
        name: value
        for name in ("temperature", "top_p", "seed")
        if (value := getattr(decoding, name)) is not None
    }
    sent, dropped = decoding_for(adapter, model, decoding)
    assert sent.keys().isdisjoint(dropped)
    assert sent | {name: wanted[name] for name in dropped} == wanted


@pytest.mark.parametrize(
    ("adapter", "model", "route"),
    [
        ("openai", "gpt-4o", Route.SCHEMA),
        ("openai", "gpt-4-turbo", Route.TOOL),
        ("anthropic", "claude-opus-5-5", Route.SCHEMA),
        ("google", "gemini-3.8-flash", Route.SCHEMA),
        ("compatible", "any", Route.SCHEMA),
        ("mock", "", Route.SCHEMA),
        ("recorded", "", Route.SCHEMA),
        ("somebody.elses:PLUGIN", "any", Route.SCHEMA),
    ],
)
def test_auto_takes_the_first_route_of_a_model(adapter: str, model: str, route: Route) -> None:
    assert resolve_route(adapter, model, "auto") is route


@given(adapter=st.sampled_from([*LIVE, "mock", "python"]), model=models, decoding=decodings)
def test_auto_never_asks_for_a_bare_label(adapter: str, model: str, decoding: Decoding) -> None:
    assert resolve_route(adapter, model, "auto", decoding) is not Route.LOGPROB


@pytest.mark.parametrize(
    ("adapter", "model", "wanted"),
    [
        ("anthropic", "claude-opus-5-5", "tool"),
        ("anthropic", "claude-haiku-4-5", "logprob"),
        ("openai", "gpt-5", "logprob"),
        ("mock", "", "logprob"),
    ],
)
def test_a_route_that_a_model_can_not_take_is_refused_with_those_that_it_can(
    adapter: str, model: str, wanted: str
) -> None:
    with pytest.raises(ValueError, match=f"can't give a verdict by {wanted}; it takes schema"):
        resolve_route(adapter, model, wanted)


@given(adapter=st.sampled_from([*LIVE, "mock"]), model=models, wanted=st.sampled_from(list(Route)))
def test_a_wanted_route_is_given_or_refused_and_never_another(
    adapter: str, model: str, wanted: Route
) -> None:
    try:
        assert resolve_route(adapter, model, wanted) is wanted
    except ValueError:
        assert wanted not in capability(adapter, model).routes or (
            wanted in capability(adapter, model).unreasoned
        )
