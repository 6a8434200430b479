"""From `ReportData` to `result.json`: small, stable, for programs. See docs/reference/result.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from orchestrator.core.gate import GateOutcome, Verdict
from orchestrator.core.stopping import StopReason
from orchestrator.core.wire import Json
from orchestrator.report.data import (
    Agreement,
    ArmTally,
    Charge,
    Evenness,
    JudgeTally,
    Outage,
    PlaceEffect,
    Ranged,
    ReportData,
    Scores,
    SlotTally,
    State,
    Steered,
    Suspected,
    Times,
    WithoutJudge,
)

SCHEMA = 1
"""Raised when a key is renamed, removed or changes its meaning; new keys do not raise it."""


def exit_code(
    state: State,
    stop_reason: StopReason | None,
    *,
    target_met: bool | None,
    gate: GateOutcome | None = None,
    is_empty: bool = False,
    is_overrun: bool = False,
    is_stale: bool = False,
    is_incomplete: bool = False,
) -> int:
    """Say with which code the command ends.

    `target_met` is None where no precision target is set, `gate` where there is no gate; `is_empty`
    says that no question was answered, though some were asked, so there is nothing to say;
    `is_overrun`, that bills came to more than the cap, if only after the stop; `is_stale`, that the
    cache no longer speaks for its model; `is_incomplete`, that a judge was lost. What kept the run from coming to an end of its own comes first, then a gate that is not passed, then what
    a provider billed past the cap. With a gate the gate decides; without one, a design that is
    complete is 0 whatever its precision, and whatever else ends a run before its target, the user's
    own stop included, is 3.
    """
    if state is State.RUNNING:
        return 0
    match stop_reason, gate:
        case StopReason.INTERRUPTED, _:
            return 130
        case StopReason.STORAGE, _:
            return 5
        case StopReason.JUDGES_DOWN, _:
            return 4
        case _, GateOutcome.FAILED:
            return 1
        case _, GateOutcome.UNDECIDED:
            return 6
        case StopReason.OVERRUN, _:
            return 3
        case _ if is_overrun:
            return 3
        case _ if is_stale:
            return 4
        case _ if is_empty:
            return 6
        case ((StopReason.BUDGET | StopReason.LIMIT | StopReason.DEADLINE | StopReason.USER), None):
            return 3 if target_met is False else 0
        case StopReason.FINISHED, None if is_incomplete and target_met is False:
            return 3
        case _:
            return 0


def document(data: ReportData) -> dict[str, Json]:
    """Write the whole result as JSON values: money in nano-USD, null where nothing is known."""
    spend, counts = data.spend, data.counts
    estimates = [estimate.as_json() for estimate in data.estimates]
    is_over = data.state is not State.RUNNING
    code = exit_code(
        data.state,
        data.stop_reason,
        target_met=data.target_met,
        gate=data.gate,
        is_empty=bool(counts.asked) and not (counts.verdicts if data.judges else counts.answered),
        is_overrun=spend.overrun > 0,
        is_stale=data.limit == "stale_cache",
        is_incomplete=any(one.down for one in (*data.judges, *data.systems)),
    )
    return {
        "schema": SCHEMA,
        "run": data.run,
        "state": str(data.state),
        "stop_reason": None if data.stop_reason is None else str(data.stop_reason),
        "stop_why": data.limit_why or None,
        "exit_code": code if is_over else None,
        "mock": data.mock,
        "money": data.money,
        "fingerprint": data.fingerprint,
        "spend": {
            "cap_nano_usd": spend.cap,
            "settled_nano_usd": spend.settled,
            "held_nano_usd": spend.held,
            "uncertain_nano_usd": spend.uncertain,
            "overrun_nano_usd": spend.overrun,
            "by_judge": _charges(spend.by_judge),
            "by_system": _charges(spend.by_system),
            "by_role": _charges(spend.by_role),
            "by_purpose": _charges(spend.by_purpose),
            "by_class": _charges(spend.by_class),
            "unmetered_nano_usd": spend.unmetered,
        },
        "counts": {
            "asked": counts.asked,
            "answered": counts.answered,
            "cached": counts.cached,
            "parked": counts.parked,
            "withdrawn": counts.withdrawn,
            "late": counts.late,
            "unmetered": counts.unmetered,
            "missing": dict(counts.missing),
            "by_role": {
                role: {
                    "asked": fate.asked,
                    "answered": fate.answered,
                    "missing": dict(fate.missing),
                }
                for role, fate in counts.by_role.items()
            },
            "missing_by_arm": {arm.name: _arm(arm) for arm in data.arms},
        },
        "estimates": [
            {k: v for k, v in estimate.items() if k != "diagnostics"}
            | {"primary": i == data.primary}
            for i, estimate in enumerate(estimates)
        ],
        "gate": [_gate(verdict) for verdict in data.gates] or None,
        "policy": dict(data.policy),
        "diagnostics": {
            "estimates": [estimate["diagnostics"] for estimate in estimates],
            "estimates_are_final": data.are_final,
            "target_half_width": data.target_half_width,
            "target_met": data.target_met,
            "declined": None
            if data.refusal is None
            else {
                "hold_nano_usd": data.refusal.hold,
                "free_nano_usd": data.refusal.free,
                "account": data.refusal.account,
            },
            "limit": data.limit or None,
            "flags": dict(counts.flags),
            "billed_without_answer": {"attempts": counts.billed_in_vain, **_charge(counts.in_vain)},
            "units": data.n_units,
            "units_answered": data.n_units_answered,
            "active_s": round(data.active_s, 3),
            **_times(data.times),
            "agreement": [_agreement(agreement) for agreement in data.agreement],
            "places": [_place_effect(effect) for effect in data.places],
            "slots": [_slots(tally) for tally in data.slots],
            **({} if data.pairs is None else {"pairs": asdict(data.pairs)}),
            "without_judge": [_without_judge(left) for left in data.without_judge],
            "steered": [_steered(one) for one in data.steered],
            "n_steered": data.n_steered,
            "suspected": [_suspected(one) for one in data.suspected],
        },
        "judges": [_judge(judge) for judge in data.judges],
        "systems": [_asked(system) for system in data.systems],
        "seed": data.seed,
        "versions": data.versions,
    }


def _gate(verdict: Verdict) -> dict[str, Json]:
    gate = verdict.gate
    return {
        "estimate": gate.estimate,
        "criterion": gate.criterion,
        "arm": gate.arm,
        "rule": str(gate.rule),
        "bar": gate.bar,
        "max_missing": gate.max_missing,
        "on_undecided": gate.on_undecided,
        "outcome": str(verdict.outcome),
        "why": verdict.why,
        "value": _number(verdict.value),
        "lower": _number(verdict.lower),
        "upper": _number(verdict.upper),
        "missing_share": _number(verdict.missing),
    }


def _charge(charge: Charge) -> dict[str, Json]:
    return {"settled_nano_usd": charge.settled, "uncertain_nano_usd": charge.uncertain}


def _charges(charges: Mapping[str, Charge]) -> dict[str, Json]:
    return {name: _charge(charge) for name, charge in charges.items()}


def _arm(arm: ArmTally) -> dict[str, Json]:
    return {
        "told": arm.told,
        "answered": arm.answered,
        "missing": dict(arm.missing),
        "bounds": {
            bound.criterion: {
                "n": bound.n,
                "mean": _number(bound.mean),
                "lowest": _number(bound.lowest),
                "highest": _number(bound.highest),
            }
            for bound in arm.bounds
        },
    }


def _judge(judge: JudgeTally) -> dict[str, Json]:
    return _asked(judge) | {
        "scores": {} if judge.preferences else {s.criterion: _scores(s) for s in judge.scores},
        "preferences": {
            p.criterion: {"n": p.n, "first": p.first, "tie": p.ties, "second": p.second}
            for p in judge.preferences
        },
    }


def _asked(judge: JudgeTally) -> dict[str, Json]:
    return {
        "name": judge.name,
        "adapter": judge.adapter,
        "model": judge.model,
        "asked": judge.asked,
        "answered": judge.answered,
        "missing": dict(judge.missing),
        "parked": judge.parked,
        "unasked": judge.unasked,
        "cut_off": judge.cut_off,
        **_charge(judge.charge),
        "nano_usd_per_answer": judge.per_answer,
        "latency_s": _number(judge.latency_s),
        "served_models": list(judge.served_models),
        "answers_by_model": dict(judge.served_models),
        "route": judge.route or None,
        "cached": judge.cached,
        "keyed": judge.keyed,
        "flags": dict(judge.flags),
        "billed_without_answer": {"attempts": judge.billed_in_vain, **_charge(judge.in_vain)},
        **_times(judge.times),
        "down": judge.down or None,
        "outages": [_outage(outage) for outage in judge.outages],
        "n_outages": judge.n_outages,
    }


def _scores(s: Scores) -> dict[str, Json]:
    return {
        "n": s.n,
        "mean": _number(s.mean),
        "sd": _number(s.sd),
        "repeat_variance": _number(s.repeat_variance),
        "signal": _ranged(s.signal),
        "with_others": _ranged(s.with_others) | {"n_units": s.n_shared},
        "commonest": _number(s.commonest),
        "commonest_share": _number(s.commonest_share),
    }


def _outage(outage: Outage) -> dict[str, Json]:
    return {
        "after_answers": outage.after,
        "at": outage.at,
        "until": outage.until,
        "ended_at": outage.ended_at,
        "why": outage.why,
    }


def _steered(one: Steered) -> dict[str, Json]:
    return {
        "at": one.at,
        "command": one.name,
        "path": one.path or None,
        "value": one.value or None,
        "reason": one.reason,
        "by": one.by,
        "refused": one.refused or None,
    }


def _suspected(one: Suspected) -> dict[str, Json]:
    return {
        "judge": one.judge,
        "n_answers": one.n_answers,
        "n_items": one.n_items,
        "items": list(one.items),
    }


def _times(times: Times) -> dict[str, Json]:
    return {
        "working_s": round(times.working_s, 3),
        "limited_s": round(times.limited_s, 3),
        "waited_s": round(times.waited_s, 3),
    }


def _agreement(agreement: Agreement) -> dict[str, Json]:
    return {
        "criterion": agreement.criterion,
        "metric": agreement.metric,
        "n_judges": agreement.n_judges,
        "n_units": agreement.n_units,
        "alpha": _ranged(agreement.alpha),
    }


def _place_effect(effect: PlaceEffect) -> dict[str, Json]:
    return {
        "judge": effect.judge,
        "things": effect.things,
        "n_answers": effect.n_answers,
        "means": list(effect.means),
        "is_share": effect.is_share,
        "span": effect.span,
        "spread": effect.spread,
        "statistic": effect.statistic,
        "df": effect.df,
        "p": effect.p,
    }


def _slots(tally: SlotTally) -> dict[str, Json]:
    return {
        "judge": tally.judge,
        "n_batches": tally.n_batches,
        "n_missing": tally.n_missing,
        "n_units": tally.n_units,
        "lost": dict(tally.lost),
        "rated": list(tally.rated),
        "means": [_number(mean) for mean in tally.means],
        "is_share": tally.is_share,
        "asked": _evenness(tally.asked),
        "kept": _evenness(tally.kept),
    }


def _evenness(found: Evenness | None) -> dict[str, Json] | None:
    if found is None:
        return None
    return {"per_slot": list(found.per_slot), "per_pair": list(found.per_pair)}


_BRIEF = ("name", "target", "names", "value", "se", "lower", "upper", "status", "flags")


def _without_judge(left: WithoutJudge) -> dict[str, Json]:
    return {
        "judge": left.judge,
        "n_answers": left.n_answers,
        "estimates": [{key: e.as_json()[key] for key in _BRIEF} for e in left.estimates],
    }


def _ranged(x: Ranged) -> dict[str, Json]:
    return {key: _number(end) for key, end in zip(x._fields, x, strict=True)}


def _number(x: float) -> float | None:
    return x if math.isfinite(x) else None
