"""A judge made of numbers: its truth is known, and it fails in every way that a real one can.

The latent verdict on a unit and criterion is::

    x = truth + bias + interaction·N(item, judge) + order_effect·slot + drift·replicate
        + carry_over·previous + batch_sd·N(question) + sd·noise

`slot` counts places in the presentation from 0: of the unit or, in a question on one unit, of the
criterion in the list. `drift` is a shift per repeat: the r-th repeat of a question lies r·drift
higher. `previous` is the verdict on the unit before, mapped to [0, 1], and 0 for the first; N(question)
is shared by all verdicts of a question. With `log_odds` all of this is in log-odds: a boolean is true
with probability 1/(1 + e⁻ˣ), where x is without its last term. What is emitted is x on the criterion's scale: rounded to the nearest label of an integer
scale, true from the middle of a boolean scale up, six decimals of a float scale, and clipped to the
ends. Where a bare label is asked for, it has all of the probability.
`MockJudge.expected` gives the exact mean of what is emitted.

Two answers are compared by Bradley, Terry and Davidson. With the log-odds::

    x = discrimination·(θ[first] - θ[second]) + order_effect + batch_sd·N(question)
    θ = truth + interaction·N(arm, judge)

the first is better, there is a tie, and the second is better in the proportions e^(x/2) : nu : e^(-x/2);
`nu` counts only where the criterion has ties. `MockJudge.chances` gives these probabilities.

A system under test says what the key says with the probability `right`, and otherwise that it is not
so; where there is no key, a text that is its own.

Answers depend only on (seed, item, arm, judge, order, repeat) and faults also on the number of the
attempt, where items, arms and judges count by their names: a question that is asked in another
campaign with the same seed is answered alike. The one exception, for rehearsing an outage, is a
fault that begins with the N-th attempt of the process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from statistics import NormalDist
from typing import Annotated, Self

import anyio
import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from judges.rubrics.ids import ID, VERDICTS, unit_ids
from judges.rubrics.labels import SIDES
from orchestrator.core.errors import (
    BadCredentials,
    BadRequest,
    Disconnected,
    InvalidCampaign,
    JudgeError,
    Overloaded,
    Problem,
    QuotaExhausted,
    RateLimited,
    TimedOut,
    TooLong,
    UnknownModel,
)
from orchestrator.core.money import Nano, PriceCard, ceiling_cost
from orchestrator.core.ports import JudgeSetting, Plugin
from orchestrator.core.query import Kind, Preference, Query, Role
from orchestrator.core.scale import Scale, ScaleType
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import Finish, Reply, Request, Usage

ERRORS: Mapping[str, type[JudgeError]] = {
    "400": BadRequest,
    "401": BadCredentials,
    "402": QuotaExhausted,
    "403": BadCredentials,
    "404": UnknownModel,
    "408": TimedOut,
    "413": TooLong,
    "422": BadRequest,
    "429": RateLimited,
    "500": Overloaded,
    "502": Disconnected,
    "503": Overloaded,
    "504": TimedOut,
    "529": Overloaded,
    "disconnect": Disconnected,
    "quota": QuotaExhausted,
    "timeout": TimedOut,
}
"""Faults that bring no reply. A complete error reply costs nothing, except where somebody gave up
waiting (408, 502, 504) while the model may have worked; so too with `timeout` and `disconnect`."""

REPLIES = ("truncated", "refused", "blocked", "unparsable", "empty", "usage_missing")
"""Faults that are replies, and billed as such."""

_STANDARD = NormalDist()

PROSE = "That depends on what one looks at, so I would rather not put a figure on it."
REASON = "a mock has no reasons"

Size = Annotated[FiniteFloat, Field(ge=0)]


def _known(fault: str) -> str:
    if fault not in ERRORS and fault not in REPLIES:
        raise ValueError(f"no fault of that name; there are {', '.join((*ERRORS, *REPLIES))}")
    return fault


# YAML reads the key 429 as a number.
FaultName = Annotated[str, BeforeValidator(str), AfterValidator(_known)]


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class After(_Config):
    """A fault that strikes from the N-th attempt on, counted in this process and not replayed."""

    after: PositiveInt


class Latency(_Config):
    """How long an attempt takes, in seconds: exactly one of three laws.

    `lognormal` [mu, sigma] of the logarithm, `uniform` [a, b], or `constant`.
    """

    constant: Size | None = None
    lognormal: tuple[FiniteFloat, Size] | None = None
    uniform: tuple[Size, Size] | None = None

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("give one of constant, lognormal, uniform")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError("uniform takes the shorter time first")
        return self

    def quantile(self, p: float) -> float:
        """Give the time that a share 0 < p < 1 of the attempts does not exceed."""
        if self.lognormal is not None:
            mu, sigma = self.lognormal
            return math.exp(mu + sigma * _STANDARD.inv_cdf(p))
        if self.uniform is not None:
            shortest, longest = self.uniform
            return shortest + p * (longest - shortest)
        return self.constant or 0.0


class Tokens(_Config):
    """Tokens of one attempt; those of the answer never exceed the output limit."""

    model_config = ConfigDict(populate_by_name=True)

    input: NonNegativeInt = Field(default=500, alias="in")
    output: NonNegativeInt = Field(default=100, alias="out")


class MockConfig(_Config):
    """The key `mock` of a judge.

    Of comparisons `order_effect` is the advantage of the answer shown first in log-odds, `interaction`
    the SD of a taste for arms that this judge alone has, `discrimination` how much of the truth it
    sees and `nu` the weight of ties; `bias`, `sd`, `drift`, `carry_over` and `log_odds` are not used.
    Otherwise `bias`, `sd`, `interaction`, `order_effect`, `drift`, `carry_over` and `batch_sd` are in units of the
    scale or, with `log_odds`, log-odds of yes; `sd` is then not used. `truth` names the column that holds the known truth; without one it is drawn (`synthetic_truth`). `faults`
    maps an HTTP status or a name in `REPLIES` or `ERRORS` to a probability, or to `{after: N}`.
    Of a system `right` is the chance that its answer is the key; nothing above but `faults` is used.
    `max_output_tokens` is the output limit, which is otherwise the judge's own. Latency is waited
    for only if `realtime`; a timeout then hangs until it is cancelled.
    """

    bias: FiniteFloat = 0.0
    sd: Size = 0.5
    interaction: Size = 0.0
    order_effect: FiniteFloat = 0.0
    drift: FiniteFloat = 0.0
    carry_over: FiniteFloat = 0.0
    batch_sd: Size = 0.0
    log_odds: bool = False
    discrimination: Size = 1.0
    nu: Size = 0.0
    right: Annotated[float, Field(ge=0, le=1)] = 0.7
    faults: dict[FaultName, Annotated[float, Field(ge=0, le=1)] | After] = {}
    latency: Latency = Latency(constant=0.0)
    tokens: Tokens = Tokens()
    realtime: bool = False
    truth: str | None = None
    max_output_tokens: PositiveInt | None = None

    @model_validator(mode="after")
    def _faults_fit(self) -> Self:
        if sum(p for p in self.faults.values() if isinstance(p, float)) > 1:
            raise ValueError("the probabilities of faults exceed 1")
        return self


class MockJudge:
    """Answers from a known truth, without network, clock or price list.

    `n_attempts` counts the attempts made.

    Raises
    ------
    InvalidCampaign
        The truth has not one finite number for each unit and criterion, or verdicts in log-odds are
        asked of a scale that is not boolean.
    """

    def __init__(self, config: MockConfig, setting: JudgeSetting) -> None:
        study = setting.study
        self._config = config
        self._seeds = study.seeds
        self._scales = [criterion.scale for criterion in study.criteria]
        self._criteria = {c.name: index for index, c in enumerate(study.criteria)}
        self._judge = _key(setting.name)
        self._name = setting.name
        self._frame = study.frame
        self._keys = setting.keys
        self._units = _unit_keys(study)
        is_system = setting.role is Role.SYSTEM
        is_boolean = all(scale.type is ScaleType.BOOLEAN for scale in self._scales)
        if config.log_odds and not is_boolean and not is_system:
            path, message = f"judges.{setting.name}.mock.log_odds", "wants boolean criteria"
            raise InvalidCampaign([Problem(path=path, message=message)])
        self._compares = study.kind is Kind.COMPARE
        self._centres = np.empty((0, len(self._scales)))
        if not is_system:
            self._centres = _truth(config, setting) + config.bias + self._interactions(study)
        self._centre_rows: list[list[float]] = self._centres.tolist()
        self._odds, self._onsets = _schedule(config.faults)
        self.n_attempts = 0

    def ceiling(self, request: Request, card: PriceCard) -> Nano:
        """Bound one attempt: all input tokens, and output up to the limit."""
        return ceiling_cost(self._config.tokens.input, self._limit(request), card)

    async def send(self, request: Request) -> Reply:
        """Answer, or fail as configured, once the attempt's time has passed if `realtime`."""
        result, seconds = self.attempt(request)
        if seconds == math.inf:
            await anyio.sleep_forever()
        if self._config.realtime:
            await anyio.sleep(seconds)
        if isinstance(result, JudgeError):
            raise result
        return result

    def attempt(self, request: Request) -> tuple[Reply | JudgeError, float]:
        """Say what comes of an attempt, and after how many seconds; infinity for never.

        Draws from `stream(MOCK, 2, judge, repeat, units)`, in this order: the noise of each unit
        and criterion, then a fault and a latency for each attempt up to this one; and what all of a
        question have in common from `stream(MOCK, 3, judge, repeat, units)`.
        """
        self.n_attempts += 1
        query = request.query
        key = (self._judge, query.replicate, *[self._units[u] for u in query.units])
        rng = self._seeds.stream(Stream.MOCK, 2, *key)
        noise = rng.standard_normal(len(query.units) * len(self._scales)).tolist()
        chance = pace = 0.5
        if self._odds or self._config.realtime:
            chance, pace = rng.random(2 * request.attempt.number)[-2:].tolist()
        shared = 0.0
        if self._config.batch_sd:
            rng = self._seeds.stream(Stream.MOCK, 3, *key)
            shared = self._config.batch_sd * float(rng.standard_normal())
        fault = self._fault(chance)
        seconds = 0.0
        if self._config.realtime:
            # The generator can give 0, which no law of latency has a finite quantile for.
            pace = max(pace, 2.0**-54)
            seconds = math.inf if fault == "timeout" else self._config.latency.quantile(pace)
        if fault in ERRORS:
            # Without latency there is no waiting before another attempt either.
            wait_s = None if self._config.realtime else 0.0
            return ERRORS[fault](f"mock: {fault}", retry_after_s=wait_s), seconds
        return self._reply(request, self._text(request, noise, shared), fault), seconds

    async def aclose(self) -> None:
        """Close nothing: there is no connection."""

    def expected(self, *, slot: int = 0, replicate: int = 0) -> NDArray[np.float64]:
        """Give the exact mean verdict over the noise, (n_units, n_criteria) float64.

        It is this judge's known truth on each unit, where no other stands before it in a question:
        bias and interaction are part of it, carry-over is not. Of comparisons see `chances`.
        """
        latent = self._centres + self._shift(slot, replicate)
        if self._config.log_odds:
            return expected_yes(latent, self._config.batch_sd)
        sd = math.hypot(self._config.sd, self._config.batch_sd)
        columns = zip(latent.T, self._scales, strict=True)
        return np.column_stack([expected_verdict(mean, sd, scale) for mean, scale in columns])

    def chances(self, query: Query) -> NDArray[np.float64]:
        """Give the probabilities of first, tie and second by each criterion, (n_criteria, 3) float64.

        What all verdicts of a question share counts as 0.
        """
        return np.array(
            [self._shares(self._advantage(query, c), c) for c in range(len(self._scales))]
        )

    def _advantage(self, query: Query, index: int) -> float:
        """Give the log-odds of the answer shown first, against the second and before any tie."""
        first, second = (self._centre_rows[unit][index] for unit in query.units)
        return self._config.discrimination * (first - second) + self._config.order_effect

    def _shares(self, log_odds: float, index: int) -> tuple[float, float, float]:
        # In units of the likelier side, so that nothing overflows.
        other, half = math.exp(-abs(log_odds)), math.exp(-abs(log_odds) / 2)
        tie = self._config.nu * half if self._scales[index].ties else 0.0
        total = 1 + other + tie
        likely, unlikely = 1 / total, other / total
        first, second = (likely, unlikely) if log_odds >= 0 else (unlikely, likely)
        return first, tie / total, second

    def _interactions(self, study: Study) -> NDArray[np.float64]:
        frame = study.frame
        if not self._config.interaction:
            return np.zeros((frame.n_units, len(study.criteria)))
        # What an item adds to both of its answers is lost in a comparison.
        draws = [
            study.seeds.stream(Stream.MOCK, 1, self._judge, _key(label)).standard_normal(
                len(study.criteria)
            )
            for label in (frame.arms if self._compares else frame.items)
        ]
        whole = (
            np.tile(draws, (frame.n_items, 1))
            if self._compares
            else np.repeat(draws, frame.n_arms, axis=0)
        )
        return self._config.interaction * whole

    def _shift(self, slot: int, replicate: int) -> float:
        return self._config.order_effect * slot + self._config.drift * replicate

    def _limit(self, request: Request) -> int:
        own = self._config.max_output_tokens
        if own is None:
            return request.max_output_tok
        return own * 2 if request.attempt.widened else own

    def _fault(self, chance: float) -> str:
        """Choose the fault of an attempt, "" for none; one that has set in comes first."""
        for fault, onset in self._onsets:
            if self.n_attempts >= onset:
                return fault
        for fault, below in self._odds:
            if chance < below:
                return fault
        return ""

    def _text(self, request: Request, noise: list[float], shared: float) -> str:
        """Write the verdicts as the request's schema asks: a label, an object, or one a unit."""
        query = request.query
        if query.kind is Kind.GENERATE:
            return self._answer(query, noise[0])
        if self._compares:
            return self._preferences(request, noise, shared)
        keys = request.schema.get("properties")
        if keys is None:
            label = self._verdict(query, 0, 0, 0, noise, shared)
            return _DIGITS.get(label, label)
        is_batch = query.kind is Kind.RATE_BATCH
        if is_batch:
            ids = unit_ids(self._seeds, query)
            keys = keys[VERDICTS]["items"]["properties"]
        answers = []
        carried = [0.0] * len(self._scales)
        for place in range(len(query.units)):
            pairs = []
            n_listed = 0
            for key in keys:
                index = self._criteria.get(key)
                if index is None:
                    said = ids[place] if is_batch and key == ID else REASON
                    pairs.append(f"{_quoted(key)}: {_quoted(said)}")
                    continue
                slot = n_listed if len(query.units) == 1 else place
                n_listed += 1
                shift = shared + carried[index]
                verdict = self._verdict(query, place, slot, index, noise, shift)
                pairs.append(f"{_quoted(key)}: {verdict}")
                if self._config.carry_over:
                    previous = self._scales[index].to_unit(float(_DIGITS.get(verdict, verdict)))
                    carried[index] = self._config.carry_over * previous
            answers.append("{" + ", ".join(pairs) + "}")
        listed = ", ".join(answers)
        if is_batch:
            return f"{{{_quoted(VERDICTS)}: [{listed}]}}"
        return listed if len(answers) == 1 else f"[{listed}]"

    def _answer(self, query: Query, noise: float) -> str:
        """Write what a system answers."""
        (unit,) = query.units
        key = self._keys[unit] if self._keys is not None else ""
        if not key.strip():
            item = self._frame.items[unit // self._frame.n_arms]
            return f"answer {query.replicate + 1} of {self._name} to {item}"
        # With a word ahead it can't equal the key, whatever of case and space is left out.
        return key if _STANDARD.cdf(noise) < self._config.right else f"not {key}"

    def _preferences(self, request: Request, noise: list[float], shared: float) -> str:
        """Write which answer is better as the request's schema asks: a label, or an object."""
        keys = request.schema.get("properties")
        said = []
        for index in range(len(self._scales)):
            first, tie, _ = self._shares(self._advantage(request.query, index) + shared, index)
            place = _STANDARD.cdf(noise[index])
            side = 0 if place < first else 1 if place < first + tie else 2
            said.append((Preference.FIRST, Preference.TIE, Preference.SECOND)[side])
        if keys is None:
            return next(label for label, side in SIDES.items() if side is said[0])
        verdicts = {
            key: said[self._criteria[key]] if key in self._criteria else REASON for key in keys
        }
        return json.dumps(verdicts)

    def _verdict(
        self, query: Query, place: int, slot: int, index: int, noise: list[float], shift: float
    ) -> str:
        """Write the verdict on one criterion of the unit at a place."""
        latent = self._centre_rows[query.units[place]][index] + self._shift(slot, query.replicate)
        chance = noise[place * len(self._scales) + index]
        if self._config.log_odds:
            return "true" if latent + shift + _logistic(chance) >= 0 else "false"
        return spelt_verdict(latent + shift + self._config.sd * chance, self._scales[index])

    def _reply(self, request: Request, text: str, fault: str) -> Reply:
        tokens, limit = self._config.tokens, self._limit(request)
        output = min(tokens.output, limit)
        finish = Finish.STOP
        match fault:
            case "truncated":
                text, finish, output = text[: len(text) // 2], Finish.LENGTH, limit
            case "refused":
                text, finish = "I can't help with that.", Finish.REFUSED
            case "blocked":
                text, finish, output = "", Finish.BLOCKED, 0
            case "empty":
                text, finish = "", Finish.EMPTY
            case "unparsable":
                text = PROSE
            case _:
                pass
        usage = _usage(tokens.input, output)
        return Reply(
            text=text,
            finish=finish,
            usage=None if fault == "usage_missing" else usage,
            served_model="mock",
            alternatives=((text, 0.0),) if "enum" in request.schema else (),
        )


_DIGITS = {"false": "0", "true": "1"}
"""The labels of a boolean where a bare label is asked for."""

_quoted = lru_cache(maxsize=256)(json.dumps)


@lru_cache(maxsize=256)
def _usage(input_tok: int, output_tok: int) -> Usage:
    return Usage(input_tok=input_tok, output_tok=output_tok)


@lru_cache(maxsize=1)
def synthetic_truth(study: Study) -> NDArray[np.float64]:
    """Draw a known truth for each unit and criterion, (n_units, n_criteria) float64.

    Normal around mid-scale with an SD of a quarter of the range, equal for all judges; not rounded
    and not clipped. Draws from `stream(MOCK, 0, unit)`. Of comparisons it is that of the arm, in
    log-odds: standard normal, from `stream(MOCK, 0, arm)`.
    """
    if study.kind is Kind.COMPARE:
        strengths = [
            study.seeds.stream(Stream.MOCK, 0, _key(arm)).standard_normal(len(study.criteria))
            for arm in study.frame.arms
        ]
        known: NDArray[np.float64] = np.tile(strengths, (study.frame.n_items, 1))
        known.setflags(write=False)
        return known
    scales = [criterion.scale for criterion in study.criteria]
    draws = np.array(
        [
            study.seeds.stream(Stream.MOCK, 0, unit).standard_normal(len(scales))
            for unit in _unit_keys(study)
        ]
    ).reshape(study.frame.n_units, len(scales))
    middle = np.array([(scale.low + scale.high) / 2 for scale in scales])
    truth: NDArray[np.float64] = middle + draws * np.array([scale.span / 4 for scale in scales])
    truth.setflags(write=False)
    return truth


def spelt_verdict(latent: float, scale: Scale) -> str:
    """Write the verdict that a latent value gives on a scale, as JSON."""
    match scale.type:
        case ScaleType.FLOAT:
            # Clipped after rounding, which may carry a value past an end; + 0.0 drops a minus sign.
            return repr(min(max(round(latent, 6), scale.low), scale.high) + 0.0)
        case ScaleType.BOOLEAN:
            return "true" if latent >= 0.5 else "false"
        case _:
            return str(int(min(max(math.floor(latent + 0.5), scale.low), scale.high)))


def expected_verdict(mean: NDArray[np.float64], sd: float, scale: Scale) -> NDArray[np.float64]:
    """Give the mean of the emitted verdict when the latent one is N(mean, sd²); shape of `mean`.

    With labels L..H, ``E = L + Σ_{k=L+1..H} P(x ≥ k - ½)``. On a float scale, clipped to [L, H],
    ``E = L + ∫_L^H P(x > t) dt = L + sd·(G((m-L)/sd) - G((m-H)/sd))`` with ``G(z) = z·Φ(z) +
    φ(z)``; rounding to six decimals moves it by less than 10⁻⁶.
    """
    if scale.type is ScaleType.FLOAT:
        if sd == 0:
            return np.clip(mean, scale.low, scale.high)
        return scale.low + sd * (_area((mean - scale.low) / sd) - _area((mean - scale.high) / sd))
    steps = np.arange(scale.low + 1, scale.high + 1) - 0.5
    distance = mean[..., np.newaxis] - steps
    reached = (distance >= 0).astype(np.float64) if sd == 0 else _phi(distance / sd)
    return np.asarray(scale.low + reached.sum(axis=-1))


def expected_yes(log_odds: NDArray[np.float64], sd: float) -> NDArray[np.float64]:
    """Give the mean of 1/(1 + e⁻ˣ) when x is N(log_odds, sd²), by quadrature; shape of `log_odds`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    # The logistic function by tanh, which no log-odds are too large for.
    excess = np.tanh((log_odds[..., np.newaxis] + sd * nodes) / 2)
    return np.asarray((1 + excess @ (weights / weights.sum())) / 2)


def _logistic(z: float) -> float:
    """Turn a standard normal draw into a standard logistic one of the same rank."""
    return math.log(math.erfc(-z / math.sqrt(2)) / math.erfc(z / math.sqrt(2)))


def _phi(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return 0.5 * np.asarray(_ERFC(-z / math.sqrt(2)), dtype=np.float64)


def _area(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return z * _phi(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


_NODES = 80
"""Enough for 10⁻⁶ up to an SD of 3."""

_ERFC = np.frompyfunc(math.erfc, 1, 1)


def _truth(config: MockConfig, setting: JudgeSetting) -> NDArray[np.float64]:
    study = setting.study
    if setting.truth is None and config.truth is None:
        return synthetic_truth(study)
    truth = np.asarray(setting.truth, dtype=np.float64)
    shape = (study.frame.n_units, len(study.criteria))
    if truth.shape != shape or not np.isfinite(truth).all():
        message = (
            f"the truth must have one number for each of {shape[0]} units and {shape[1]} criteria"
        )
        raise InvalidCampaign([Problem(path=f"judges.{setting.name}.mock.truth", message=message)])
    return truth


def _schedule(
    faults: Mapping[str, float | After],
) -> tuple[list[tuple[str, float]], list[tuple[str, int]]]:
    """Split faults into those by chance, as cumulative probabilities, and those with an onset."""
    odds: list[tuple[str, float]] = []
    onsets: list[tuple[str, int]] = []
    total = 0.0
    # Sorted, so that the order in the file decides nothing.
    for fault, when in sorted(faults.items(), key=itemgetter(0)):
        if isinstance(when, After):
            onsets.append((fault, when.after))
        else:
            total += when
            odds.append((fault, total))
    return odds, onsets


def _unit_keys(study: Study) -> list[int]:
    frame = study.frame
    return [_key(item, arm) for item in frame.items for arm in frame.arms]


def _key(*labels: str) -> int:
    """Digest labels to a key of a random stream."""
    digest = blake2b(json.dumps(labels).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


PLUGIN = Plugin(config=MockConfig, build=MockJudge)
