"""What a provider allows in a minute, kept on monotonic time that is passed in.

A bucket refills steadily and holds ten seconds' worth, so no minute sees more than seven sixths of
the limit. What a call takes is taken when it leaves, by what is expected of it, and mended once its
usage is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.core.judge import Judge, Limits
from orchestrator.core.money import PriceCard
from orchestrator.core.wire import Request, Usage

BURST_S = 10.0
"""How much time's worth of a limit can be used at once."""

_LEARNING = 0.1
"""Weight of the latest call in what is expected of the next."""

_INPUT, _OUTPUT = PriceCard(input=1000), PriceCard(output=1000)
"""At one nano-USD a token a ceiling counts tokens."""


class Bucket:
    """One limit, in units a minute.

    An amount beyond what the bucket holds leaves a full bucket in debt: the next one waits longer.
    """

    __slots__ = ("_at_s", "_level", "per_s")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_s = per_minute / 60
        self._level = self._capacity
        self._at_s = now

    @property
    def _capacity(self) -> float:
        return max(1.0, self.per_s * BURST_S)

    def ready_at(self, amount: float, now: float) -> float:
        """Say from when on an amount can be taken."""
        lacking = min(amount, self._capacity) - self._filled(now)
        return now if lacking <= 0 else now + lacking / self.per_s

    def take(self, amount: float, now: float) -> None:
        """Take an amount, or give one back (< 0)."""
        self._level = min(self._capacity, self._filled(now) - amount)
        self._at_s = now

    def _filled(self, now: float) -> float:
        return min(self._capacity, self._level + (now - self._at_s) * self.per_s)


class _Share:
    """What part of a bound calls come to; 1 until one is known."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def learn(self, used: int, bound: int) -> None:
        if bound:
            part = used / bound
            before = part if self.value is None else self.value
            self.value = before + _LEARNING * (part - before)

    def of(self, bound: int) -> float:
        return bound if self.value is None else self.value * bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a call took from the buckets, and the bounds that it was expected by."""

    input_bound: int = 0
    output_bound: int = 0
    input: float = 0.0
    output: float = 0.0


NOTHING = Taken()


class Rates:
    """The buckets of one model at one account: requests, input tokens, output tokens."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._requests: Bucket | None = None
        self._input: Bucket | None = None
        self._output: Bucket | None = None
        self._input_share, self._output_share = _Share(), _Share()
        self.limit(limits, now)

    def limit(self, limits: Limits, now: float) -> None:
        """Set the limits; None lifts one."""
        self.limits = limits

        def bucket(per_minute: int | None) -> Bucket | None:
            return None if per_minute is None else Bucket(per_minute, now)

        self._requests = bucket(limits.rpm)
        self._input = bucket(limits.input_tpm)
        self._output = bucket(limits.output_tpm)

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing is limited."""
        return self._requests is None and self._input is None and self._output is None

    def expect(self, judge: Judge, request: Request) -> Taken:
        """Say what a call will take, by its bounds and what became of earlier ones."""
        most_in = judge.adapter.ceiling(request, _INPUT) if self._input is not None else 0
        most_out = judge.adapter.ceiling(request, _OUTPUT) if self._output is not None else 0
        return Taken(
            input_bound=most_in,
            output_bound=most_out,
            input=self._input_share.of(most_in),
            output=self._output_share.of(most_out),
        )

    def ready_at(self, taken: Taken, now: float) -> float:
        """Say from when on a call can leave."""
        return max((b.ready_at(amount, now) for b, amount in self._amounts(taken)), default=now)

    def take(self, taken: Taken, now: float) -> None:
        """Let a call leave."""
        for bucket, amount in self._amounts(taken):
            bucket.take(amount, now)

    def settle(self, taken: Taken, usage: Usage, now: float) -> None:
        """Mend what a call took, now that its usage is known."""
        if self._input is not None and taken.input_bound:
            # What is read from a cache counts in full: not every provider leaves it out.
            used = usage.input_tok + usage.cached_input_tok
            used += usage.cache_write_5m_tok + usage.cache_write_1h_tok
            self._input.take(used - taken.input, now)
            self._input_share.learn(used, taken.input_bound)
        if self._output is not None and taken.output_bound:
            self._output.take(usage.output_tok - taken.output, now)
            self._output_share.learn(usage.output_tok, taken.output_bound)

    def _amounts(self, taken: Taken) -> list[tuple[Bucket, float]]:
        pairs = ((self._requests, 1.0), (self._input, taken.input), (self._output, taken.output))
        return [(bucket, amount) for bucket, amount in pairs if bucket is not None]


@dataclass(slots=True)
class Account:
    """A key at a provider: a refusal of one call makes all of its judges wait."""

    paused_until: float = -math.inf
    why: str = ""
    rates: dict[str, Rates] = field(default_factory=dict)
    """By model."""

    def pause(self, until: float, why: str) -> None:
        """Let nothing leave before a time; an earlier pause is never shortened."""
        if until > self.paused_until:
            self.paused_until, self.why = until, why


def accounts(judges: Sequence[Judge], now: float) -> list[tuple[Account, Rates]]:
    """Give each judge its account and buckets; what is shared is one object.

    Judges of one model at one account share its buckets, by the lowest of their limits.
    """
    by_key: dict[str, Account] = {}
    pairs = []
    for ix, judge in enumerate(judges):
        account = by_key.setdefault(judge.account or f"#{ix}", Account())
        same = [j.limits for j in judges if judge.account and _are_alike(j, judge)]
        limits = _lowest(same or [judge.limits])
        rates = account.rates.setdefault(judge.model, Rates(limits, now))
        pairs.append((account, rates))
    return pairs


def _are_alike(a: Judge, b: Judge) -> bool:
    return (a.account, a.model) == (b.account, b.model)


def _lowest(limits: Sequence[Limits]) -> Limits:
    def lowest(name: str) -> int | None:
        return min((v for each in limits if (v := getattr(each, name)) is not None), default=None)

    return Limits(rpm=lowest("rpm"), input_tpm=lowest("input_tpm"), output_tpm=lowest("output_tpm"))
