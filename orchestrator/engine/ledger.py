"""The ledger: what is spent, what may be spent, what is held. Integers only.

A question belongs to four accounts: the campaign, its judge, its role and its purpose. A hold is
taken on all of them or on none. For every account with a cap

    settled + uncertain + held <= cap

holds after every event, unless a provider billed more than the bound that was held (`overrun`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.errors import Overdraft, UnknownHold
from orchestrator.core.ids import QNo
from orchestrator.core.money import Nano
from orchestrator.core.query import Purpose, Query, Role


@dataclass(slots=True)
class Account:
    """One pot of money."""

    name: str
    cap: int | None = None
    settled: int = 0
    uncertain: int = 0
    held: int = 0

    @property
    def committed(self) -> int:
        """All that is or may be spent."""
        return self.settled + self.uncertain + self.held

    def lacks(self, amount: int) -> bool:
        """Whether an amount does not fit."""
        return self.cap is not None and self.committed + amount > self.cap

    @property
    def overrun(self) -> int:
        """By how much the account stands above its cap."""
        return 0 if self.cap is None else max(0, self.committed - self.cap)


@dataclass(frozen=True, slots=True)
class _Hold:
    amount: Nano
    accounts: tuple[Account, ...]


class Ledger:
    """Holds, settlements and caps of one run."""

    def __init__(
        self,
        cap: Nano | None,
        judges: Sequence[str],
        judge_caps: Sequence[Nano | None],
        role_caps: Mapping[str, Nano],
        n_systems: int = 0,
    ) -> None:
        """Open the accounts; the last `n_systems` of the judges are systems under test."""
        self.campaign = Account("campaign", cap)
        roles = [Role.JUDGE] * (len(judges) - n_systems) + [Role.SYSTEM] * n_systems
        self.judges = [
            Account(f"{role}:{name}", most)
            for role, name, most in zip(roles, judges, judge_caps, strict=True)
        ]
        self.roles = {role: Account(f"role:{role}", role_caps.get(role)) for role in Role}
        self.purposes = {purpose: Account(f"purpose:{purpose}") for purpose in Purpose}
        self._holds: dict[QNo, _Hold] = {}

    def accounts_of(self, query: Query) -> tuple[Account, ...]:
        """List the accounts a question is charged to, the campaign first."""
        return (
            self.campaign,
            self.judges[query.judge],
            self.roles[query.role],
            self.purposes[query.purpose],
        )

    def lacking(self, *wanted: tuple[Query, Nano]) -> str | None:
        """Name the first account that has no room for all these amounts, None if all have."""
        totals: dict[int, tuple[Account, int]] = {}
        for query, amount in wanted:
            for account in self.accounts_of(query):
                _, total = totals.get(id(account), (account, 0))
                totals[id(account)] = account, total + amount
        for account, total in totals.values():
            if account.lacks(total):
                return account.name
        return None

    def has_room_instead(self, q: QNo, charge: Nano, amount: Nano) -> bool:
        """Whether an amount fits once a question's hold is replaced by a charge."""
        hold = self._get(q)
        more = Nano(charge + amount - hold.amount)
        return not any(account.lacks(more) for account in hold.accounts)

    def hold(self, q: QNo, query: Query, amount: Nano) -> None:
        """Hold the worst case of one attempt.

        Raises
        ------
        Overdraft
            It does not fit, or the question already holds money: a bug in the decider.
        """
        if amount < 0 or q in self._holds:
            raise Overdraft(f"question {q}: hold of {amount} nano-USD taken twice or negative")
        accounts = self.accounts_of(query)
        for account in accounts:
            if account.lacks(amount):
                raise Overdraft(
                    f"question {q}: {amount} nano-USD do not fit {account.name}: "
                    f"{account.committed} of {account.cap} are committed"
                )
        for account in accounts:
            account.held += amount
        self._holds[q] = _Hold(amount, accounts)

    def settle(self, q: QNo, *, cost: Nano, uncertain: Nano) -> int:
        """Replace a question's hold by what it costs for certain and what it may cost.

        Gives by how much the bill passes what was held (0 unless the provider broke its own
        bound).
        """
        hold = self._get(q)
        del self._holds[q]
        for account in hold.accounts:
            account.held -= hold.amount
            account.settled += cost
            account.uncertain += uncertain
        return max(0, cost + uncertain - hold.amount)

    def forfeit(self, q: QNo) -> None:
        """Charge a question's whole hold as uncertain: sent, and no one knows what became of it."""
        self.settle(q, cost=Nano(0), uncertain=self._get(q).amount)

    def release(self, q: QNo) -> None:
        """Give a question's hold back: it never left."""
        self.settle(q, cost=Nano(0), uncertain=Nano(0))

    def _get(self, q: QNo) -> _Hold:
        if q not in self._holds:
            raise UnknownHold(f"question {q} holds no money")
        return self._holds[q]
