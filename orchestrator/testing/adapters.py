"""The contract of an adapter. An adapter's test subclasses it and says how to make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from orchestrator.core.errors import Ambiguous, JudgeError, Transient
from orchestrator.core.money import FREE, PriceCard, cost
from orchestrator.core.query import MissingReason
from orchestrator.core.wire import Billing, Reply, Request


class AdapterContract:
    """What every adapter keeps to.

    `card` is a price card at which its calls cost something.
    """

    card = PriceCard(
        input=2_000_000,
        cached_input=200_000,
        cache_write_5m=2_500_000,
        cache_write_1h=4_000_000,
        output=10_000_000,
        per_call=1_000,
    )

    @pytest.fixture
    def adapter(self) -> Any:
        """Make an adapter whose attempts bring replies."""
        raise AssertionError("an adapter's test overrides this fixture")

    @pytest.fixture
    def requests(self) -> Sequence[Request]:
        """Give requests, better several that differ in length."""
        raise AssertionError("an adapter's test overrides this fixture")

    @pytest.fixture
    def attempts(self) -> Callable[[Any], int]:
        """Give a function that says how many attempts an adapter made, as the other side counts."""
        pytest.skip("nothing counts this adapter's attempts")

    @pytest.fixture
    def failing(self) -> Sequence[Any]:
        """Make adapters of which each fails in its own way."""
        pytest.skip("this adapter's test makes none that fail")

    @pytest.fixture
    def hanging(self) -> Any:
        """Make an adapter whose attempts don't end by themselves."""
        pytest.skip("this adapter never waits")

    def test_ceiling_is_pure(self, adapter: Any, requests: Sequence[Request]) -> None:
        """Asked again, also after an attempt, a ceiling is the same."""
        before = [adapter.ceiling(request, self.card) for request in requests]
        assert before == [adapter.ceiling(request, self.card) for request in requests]
        for request in requests:
            _attempt(adapter, request)
        assert before == [adapter.ceiling(request, self.card) for request in requests]

    def test_ceiling_bounds_what_a_reply_costs(
        self, adapter: Any, requests: Sequence[Request]
    ) -> None:
        """No reply costs more than was held for it; a reply without usage costs the hold."""
        for request in requests:
            usage = _attempt(adapter, request).usage
            if usage is not None:
                assert cost(usage, self.card) <= adapter.ceiling(request, self.card)

    def test_ceiling_is_positive_exactly_at_a_price(
        self, adapter: Any, requests: Sequence[Request]
    ) -> None:
        """A call at a price is never held at nothing, and a free one never at something."""
        for request in requests:
            assert adapter.ceiling(request, self.card) > 0
            assert adapter.ceiling(request, FREE) == 0

    def test_send_makes_one_attempt(
        self, adapter: Any, requests: Sequence[Request], attempts: Callable[[Any], int]
    ) -> None:
        """An adapter never retries by itself."""
        for n_before, request in enumerate(requests):
            assert attempts(adapter) == n_before
            _attempt(adapter, request)
        assert attempts(adapter) == len(requests)

    def test_a_failed_attempt_says_what_it_costs(
        self, failing: Sequence[Any], requests: Sequence[Request]
    ) -> None:
        """Each failure is one attempt and says whether it was billed and why it is missing."""
        for adapter in failing:
            with pytest.raises(JudgeError) as failure:
                _attempt(adapter, requests[0])
            error = failure.value
            assert error.reason in MissingReason
            match error:
                case Transient():
                    assert error.billing is Billing.NO
                case Ambiguous():
                    assert error.billing is Billing.UNKNOWN
                case _:
                    assert error.billing in Billing
            if error.usage is not None:
                assert cost(error.usage, self.card) <= adapter.ceiling(requests[0], self.card)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_cancellation_ends_an_attempt(
        self, hanging: Any, requests: Sequence[Request], backend: str
    ) -> None:
        """A cancelled attempt ends at once, and the adapter can be closed after it."""

        async def main() -> None:
            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(hanging.send, requests[0])
                    await anyio.wait_all_tasks_blocked()
                    tasks.cancel_scope.cancel()
                await hanging.aclose()

        anyio.run(main, backend=backend)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_closing_twice_is_fine(
        self, adapter: Any, requests: Sequence[Request], backend: str
    ) -> None:
        """An adapter can be closed after use, and closed again."""

        async def main() -> None:
            await adapter.send(requests[0])
            await adapter.aclose()
            await adapter.aclose()

        anyio.run(main, backend=backend)


def _attempt(adapter: Any, request: Request) -> Reply:
    reply = anyio.run(adapter.send, request)
    assert isinstance(reply, Reply)
    return reply
