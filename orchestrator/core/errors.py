"""Every error that Sortition raises.

OrchestratorError
├─ ConfigError
│   ├─ InvalidCampaign(problems)     the campaign file or its data; all problems at once
│   ├─ UnknownKind                   no plug-in of that name
│   ├─ UnpricedModel                 a dollar cap, and a judge without a price
│   ├─ BudgetTooSmall(sufficient)    the policy can't do its work with this money
│   └─ ShadowedPackage               another distribution owns one of our import names
├─ StoreError
│   ├─ RunLocked                     another process owns the run
│   ├─ SchemaTooNew                  written by a later version
│   ├─ CorruptLog(seq)               a row can't be read
│   └─ StorageFailed                 the disk refused a commit
├─ ReplayError
│   ├─ ReplayDivergence(seq)         the log and the code disagree on a decision
│   └─ IdentityChanged(fields)       the campaign is no longer the one that was opened
├─ JudgeError(billing, retry_after_s)   raised by adapters alone, consumed by engine/attempts
│   ├─ Transient                     RateLimited · Overloaded · Unreachable
│   ├─ Ambiguous                     TimedOut · Disconnected
│   └─ Permanent                     BadCredentials · QuotaExhausted · BadRequest · UnknownModel ·
│                                    TooLong · ExceedsRate · Blocked · Exhausted
├─ LedgerError                       Overdraft · UnknownHold: a bug in us, never caught
└─ EstimationError                   NotIdentified · DidNotConverge(iterations, residual)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from orchestrator.core.query import MissingReason
from orchestrator.core.wire import Billing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.wire import Usage


class OrchestratorError(Exception):
    """Something Sortition refuses or could not do."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").splitlines()[0])


# --- configuration -----------------------------------------------------------------------------


class ConfigError(OrchestratorError):
    """The campaign can't be run as it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a file: where, which field, what, and what to do about it."""

    message: str
    file: str = ""
    line: int | None = None
    column: int | None = None
    path: str = ""

    def __str__(self) -> str:
        """Render as `file:line:column  path — message`."""
        place = ":".join(str(p) for p in (self.file, self.line, self.column) if p not in ("", None))
        what = f"{self.path} — {self.message}" if self.path else self.message
        return f"{place}  {what}" if place else what


class InvalidCampaign(ConfigError):
    """The campaign file or its data has problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        n = len(self.problems)
        lines = [str(p) for p in self.problems]
        lines.append(f"{n} problem{'s' if n != 1 else ''}; nothing was sent")
        super().__init__("\n".join(lines))


class UnknownKind(ConfigError):
    """No plug-in has that name."""


class UnpricedModel(ConfigError):
    """A dollar cap is set and a judge has no price."""


class BudgetTooSmall(ConfigError):
    """The budget can't pay for what the policy must ask."""

    def __init__(self, message: str, *, sufficient: int) -> None:
        self.sufficient = sufficient
        """Smallest sufficient budget, nano-USD."""
        super().__init__(message)


class ShadowedPackage(ConfigError):
    """Another distribution provides a package of the same import name as ours."""


# --- store and replay --------------------------------------------------------------------------


class StoreError(OrchestratorError):
    """The run's log can't be used."""


class RunLocked(StoreError):
    """Another process owns this run."""


class SchemaTooNew(StoreError):
    """A later version of Sortition wrote this run."""


class CorruptLog(StoreError):
    """A row of the log can't be read."""

    def __init__(self, message: str, *, seq: int) -> None:
        self.seq = seq
        super().__init__(message)


class StorageFailed(StoreError):
    """The disk refused a commit; nothing was sent after it."""


class ReplayError(OrchestratorError):
    """The log does not fit the campaign or the code."""


class ReplayDivergence(ReplayError):
    """The code proposes another decision than the log holds."""

    def __init__(self, message: str, *, seq: int) -> None:
        self.seq = seq
        super().__init__(message)


class IdentityChanged(ReplayError):
    """The campaign differs from the one that was opened, in fields that can't change."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)
        names = ", ".join(self.fields)
        super().__init__(
            f"the campaign is not the one this run was opened with; changed: {names}; "
            "start a new run for a changed campaign"
        )


# --- judges ------------------------------------------------------------------------------------

LONGEST_WAIT_S = 366.0 * 86_400
"""No server means longer, and no calendar ends before."""


class JudgeError(OrchestratorError):
    """One attempt at a judge brought no reply.

    `billing` says whether it can have cost anything, `retry_after_s` how long the server asked to
    wait (what is no time counts as not said), `usage` what the provider counted if it said so.
    """

    billing: Billing = Billing.UNKNOWN
    reason: ClassVar[MissingReason] = MissingReason.SERVER_ERROR
    parks_judge: ClassVar[bool] = False

    def __init__(
        self,
        message: str | None = None,
        *,
        billing: Billing | None = None,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        if billing is not None:
            self.billing = billing
        if retry_after_s is not None:
            is_time = retry_after_s >= 0  # which nan is not
            retry_after_s = min(retry_after_s, LONGEST_WAIT_S) if is_time else None
        self.retry_after_s = retry_after_s
        self.usage = usage

    @property
    def plain(self) -> str:
        """Say what kind of error it is, in none of the provider's words."""
        return (type(self).__doc__ or "").splitlines()[0]


class Transient(JudgeError):
    """The same request may succeed later, and this one was not billed."""

    billing = Billing.NO


class RateLimited(Transient):
    """The provider asks for fewer requests."""

    reason = MissingReason.RATE_LIMITED


class Overloaded(Transient):
    """The provider is out of capacity."""


class Unreachable(Transient):
    """No connection was made, so no byte of the request left."""

    reason = MissingReason.CONNECTION_LOST


class Ambiguous(JudgeError):
    """The request left and no complete reply came: it may have been billed."""


class TimedOut(Ambiguous):
    """No reply within the attempt's deadline."""

    reason = MissingReason.TIMEOUT


class Disconnected(Ambiguous):
    """The connection broke after bytes were sent."""

    reason = MissingReason.CONNECTION_LOST


class Permanent(JudgeError):
    """The same request would fail again."""

    billing = Billing.NO
    reason = MissingReason.BAD_REQUEST


class BadCredentials(Permanent):
    """The provider refuses the key."""

    reason = MissingReason.JUDGE_DOWN
    parks_judge = True


class QuotaExhausted(Permanent):
    """The account's quota or credit is used up."""

    reason = MissingReason.JUDGE_DOWN
    parks_judge = True


class UnknownModel(Permanent):
    """The provider does not know the model."""

    reason = MissingReason.JUDGE_DOWN
    parks_judge = True


class BadRequest(Permanent):
    """The provider refuses this request."""


class TooLong(Permanent):
    """The request exceeds the model's context."""

    reason = MissingReason.TOO_LONG


class ExceedsRate(Permanent):
    """The request alone has more tokens than the account may use in a minute."""

    reason = MissingReason.EXCEEDS_RATE_BUCKET


class Blocked(Permanent):
    """The provider's filter blocks this request."""

    reason = MissingReason.BLOCKED


class Exhausted(Permanent):
    """A recording holds no further repeat of this question."""

    reason = MissingReason.EXHAUSTED


# --- bugs and estimation -----------------------------------------------------------------------


class LedgerError(OrchestratorError):
    """The ledger's invariant is broken: a bug in Sortition."""


class Overdraft(LedgerError):
    """A hold was taken that does not fit the cap."""


class UnknownHold(LedgerError):
    """A question was settled that holds no money."""


class EstimationError(OrchestratorError):
    """A fit could not be made."""


class NotIdentified(EstimationError):
    """The data do not determine what was asked."""


class DidNotConverge(EstimationError):
    """The iteration did not reach its tolerance."""

    def __init__(self, message: str, *, iterations: int, residual: float) -> None:
        self.iterations = iterations
        self.residual = residual
        super().__init__(message)
