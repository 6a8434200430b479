"""Every number of a report follows from the events that stand in the log."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import pytest

from orchestrator.core.errors import BadCredentials, CorruptLog, TimedOut
from orchestrator.core.events import (
    CapChanged,
    Commanded,
    Declined,
    Forfeited,
    JudgeDown,
    JudgeUp,
    Late,
    LimitReached,
    Looked,
    Parked,
    PriceChanged,
    Reopened,
    Started,
    Withdrawn,
)
from orchestrator.core.money import Nano, PriceCard
from orchestrator.core.query import Kind, Observation, Purpose, Query, outcome_digest
from orchestrator.core.stopping import StopReason, StopRule
from orchestrator.core.wire import Finish, Origin
from orchestrator.report import summary
from orchestrator.report.data import Charge, State, Times, state_of
from orchestrator.report.summary import read_estimate, summarise
from orchestrator.testing.fakes import FakeAdapter, Script, fake_crew
from orchestrator.testing.virtual import run_virtually

HOLD = 22_000_000


def money(data):
    return data.spend.settled, data.spend.uncertain, data.spend.held


def charge(settled, uncertain=0):
    return Charge(settled=Nano(settled), uncertain=Nano(uncertain))


def test_an_answer_is_held_when_asked_and_settled_when_told(log, make):
    log.opened().ask(0)
    assert money(summarise(log.rows)) == (0, 0, HOLD)
    log.send(0).arrive(0, make.scored(4))
    assert money(summarise(log.rows)) == (0, 0, HOLD)
    log.tell(0, make.scored(4))
    assert money(summarise(log.rows)) == (5_000_000, 0, 0)


def test_a_missing_verdict_is_counted_and_never_a_score(log):
    """C28: 4, a refusal, 4 have the mean 4.0 over two verdicts; one is missing."""
    log.opened().judged(0, 4.0, unit=0).missed(1, "refused", unit=1, cost=1_000_000)
    log.judged(2, 4.0, unit=2)
    data = summarise(log.rows)
    (bound,) = data.arms[0].bounds
    assert (bound.n, bound.mean) == (2, 4.0)
    assert (bound.lowest, bound.highest) == (3.0, pytest.approx(13 / 3))
    assert data.counts.missing == {"refused": 1}
    assert (data.counts.answered, data.counts.told) == (2, 3)
    assert data.judges[0].scores[0].mean == 4.0
    assert data.n_units_answered == 2


def test_missing_verdicts_are_counted_by_arm(log):
    """C28: arm A misses none of 5, arm B two of 5; both bounds follow from the scale's ends."""
    log.opened(arms=("A", "B"), items=tuple("abcde"))
    for item in range(5):
        log.judged(2 * item, 4.0, unit=2 * item)
        if item < 2:
            log.missed(2 * item + 1, "blocked", unit=2 * item + 1)
        else:
            log.judged(2 * item + 1, 4.0, unit=2 * item + 1)
    a, b = summarise(log.rows).arms
    assert (a.told, a.n_lost, b.told, b.n_lost) == (5, 0, 5, 2)
    assert b.missing == {"blocked": 2}
    assert (a.bounds[0].lowest, a.bounds[0].highest) == (4.0, 4.0)
    assert (b.bounds[0].lowest, b.bounds[0].highest) == (
        pytest.approx((12 + 2) / 5),
        pytest.approx((12 + 10) / 5),
    )


def test_what_a_recording_cannot_repeat_is_left_out_of_the_comparison_of_arms(log):
    log.opened().judged(0, 4.0).missed(1, "exhausted")
    (arm,) = summarise(log.rows).arms
    assert (arm.told, arm.n_lost, arm.missing) == (1, 0, {"exhausted": 1})
    assert arm.bounds[0].lowest == arm.bounds[0].highest == 4.0


def test_a_criterion_that_does_not_apply_leaves_its_mean_alone(log, make):
    """C28: not applicable leaves both numerator and denominator."""
    criteria = (
        {"name": "right", "type": "boolean", "low": 0, "high": 1},
        {"name": "style", "type": "float", "low": 0, "high": 10},
    )
    log.opened(criteria=criteria)
    for q, style in enumerate((6.0, None, 8.0)):
        said = replace(
            make.scored(1.0),
            observations=(
                Observation(unit=0, criterion=0, value=1.0),
                Observation(unit=0, criterion=1, value=style),
            ),
        )
        log.ask(q).send(q).arrive(q, said).tell(q, said)
    right, style = summarise(log.rows).judges[0].scores
    assert (right.n, right.mean, right.sd) == (3, 1.0, 0.0)
    assert (style.n, style.mean, style.sd) == (2, 7.0, pytest.approx(math.sqrt(2)))


def test_an_earlier_attempt_is_charged_when_the_question_is_asked_again(log, make):
    cut = make.lost("truncated", cost=7_000_000)
    log.opened().ask(0).send(0).arrive(0, cut).reask(0, outcome_digest(cut), hold=44_000_000)
    assert money(summarise(log.rows)) == (7_000_000, 0, 44_000_000)
    log.send(0, attempt=2).arrive(0, make.scored(3), attempt=2).tell(0, make.scored(3))
    data = summarise(log.rows)
    assert money(data) == (12_000_000, 0, 0)
    assert data.spend.by_class == {"answers": charge(5_000_000), "retries": charge(7_000_000)}
    assert data.judges[0].billed_in_vain == 1
    assert data.judges[0].in_vain == charge(7_000_000)
    assert data.counts.billed_in_vain == 1
    assert data.counts.in_vain.settled == 7_000_000
    assert data.counts.missing == {}


def test_an_attempt_lost_in_a_crash_charges_its_hold_as_uncertain(log, make):
    log.opened().ask(0).send(0).reask(0, "lost")
    assert money(summarise(log.rows)) == (0, HOLD, HOLD)
    log.send(0, attempt=2).arrive(0, make.scored(3), attempt=2).tell(0, make.scored(3))
    assert money(summarise(log.rows)) == (5_000_000, HOLD, 0)


def test_after_the_stop_money_still_moves_and_counts_do_not(log, make):
    log.opened().judged(0, 4).ask(1).send(1).ask(2).send(2).ask(3)
    log.stop(StopReason.PRECISION)
    log.add(Late(q=1, outcome=make.scored(5)), Forfeited(q=2), Withdrawn(q=3))
    data = summarise(log.rows)
    assert money(data) == (10_000_000, HOLD, 0)
    assert data.spend.by_class["late"] == charge(5_000_000, HOLD)
    counts = data.counts
    assert (counts.asked, counts.answered, counts.late, counts.withdrawn) == (4, 1, 1, 1)
    assert counts.billed_in_vain == 1
    assert data.judges[0].scores[0].n == 1


def test_late_money_is_counted_once_when_a_run_goes_on(log, make):
    log.opened().ask(0).send(0).stop(StopReason.USER).add(Late(q=0, outcome=make.scored(5)))
    log.add(Reopened(settled=Nano(5_000_000), uncertain=Nano(0)))
    data = summarise(log.rows)
    assert data.spend.settled == 5_000_000
    assert data.state is State.INTERRUPTED


def test_parked_questions_release_their_hold_and_are_not_missing(log):
    log.opened().ask(0).add(JudgeDown(judge=0, until=None, why="key revoked"), Parked(q=0))
    data = summarise(log.rows)
    assert money(data) == (0, 0, 0)
    assert (data.counts.parked, data.counts.n_missing) == (1, 0)
    assert data.judges[0].down == "key revoked"
    log.add(JudgeUp(judge=0))
    assert not summarise(log.rows).judges[0].down


def test_spend_is_split_by_judge_role_and_purpose(log, make):
    log.opened().judged(0, 4, judge=0).missed(1, "timeout", judge=1, uncertain=3_000_000)
    log.ask(2, purpose=Purpose.PILOT).send(2).arrive(2, make.scored(1)).tell(2, make.scored(1))
    spend = summarise(log.rows).spend
    assert {k: (c.settled, c.uncertain) for k, c in spend.by_judge.items()} == {
        "large": (10_000_000, 0),
        "small": (0, 3_000_000),
    }
    assert set(spend.by_role) == {"judge"}
    assert spend.by_role["judge"].settled == spend.settled
    assert {k: c.settled for k, c in spend.by_purpose.items()} == {
        "pilot": 5_000_000,
        "policy": 5_000_000,
    }
    assert spend.unspent == 100_000_000 - 13_000_000


def test_a_bill_past_its_hold_is_named_with_its_judge(log):
    log.opened(cap=25_000_000).judged(0, 4, cost=30_000_000, judge=1)
    spend = summarise(log.rows).spend
    assert spend.overrun == 5_000_000
    assert spend.above_hold == {"small": 8_000_000}
    assert spend.unspent == 0


def test_the_last_refusal_says_what_was_needed_and_what_was_left(log):
    """C03: the next call needs $0.022 and $0.020 are left."""
    log.opened()
    for q in range(16):
        log.judged(q, 3)
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    log.add(Declined(query=query, hold=Nano(HOLD), account="campaign")).stop(StopReason.BUDGET)
    data = summarise(log.rows)
    assert (data.spend.settled, data.counts.answered) == (80_000_000, 16)
    assert (data.refusal.hold, data.refusal.free) == (HOLD, 20_000_000)
    assert (data.state, data.stop_reason) == (State.STOPPED, StopReason.BUDGET)


def test_a_real_run_to_the_end_of_its_budget_says_what_the_next_call_needs():
    """C03 on C01 as the engine ran it: 16 answers, $0.080 settled, nothing missing."""
    crew = fake_crew([FakeAdapter(lambda _: Script(latency_s=1.0))])
    identity = dict(crew.opened.identity) | {"criteria": [{"name": "score", "low": 0, "high": 6}]}
    run = run_virtually(replace(crew, opened=replace(crew.opened, identity=identity)))
    data = summarise(run.store.read())
    assert money(data) == (80_000_000, 0, 0)
    assert (data.counts.answered, data.counts.n_missing) == (16, 0)
    assert (data.refusal.hold, data.refusal.free) == (HOLD, 20_000_000)
    assert data.stop_reason is StopReason.BUDGET


@pytest.mark.parametrize(
    ("account", "free"), [("judge:small", 4_000_000), ("role:judge", 41_000_000)]
)
def test_a_refusal_names_what_its_own_account_has_left(log, account, free):
    log.opened(judge_caps=(None, Nano(9_000_000)), role_caps={"judge": Nano(46_000_000)})
    log.judged(0, 3, judge=1)
    query = Query(kind=Kind.RATE, judge=1, units=(0,))
    log.add(Declined(query=query, hold=Nano(HOLD), account=account))
    assert summarise(log.rows).refusal.free == free


def test_a_raised_cap_forgets_the_refusal_and_keeps_the_spend(log):
    """C53: earlier costs are unchanged."""
    log.opened().judged(0, 3)
    query = Query(kind=Kind.RATE, judge=0, units=(0,))
    log.add(Declined(query=query, hold=Nano(HOLD), account="campaign"))
    log.add(CapChanged(cap=Nano(200_000_000)))
    data = summarise(log.rows)
    assert (data.spend.cap, data.spend.settled, data.refusal) == (200_000_000, 5_000_000, None)


def test_judges_are_described_by_what_they_did(log, make):
    log.opened()
    log.judged(0, 2, served_model="large-1-0801", flags=("usage_missing",))
    log.judged(1, 4, served_model="large-1-0802", cost=7_000_000)
    log.missed(2, "parse_failure", detail="no number")
    log.ask(3).send(3).arrive(3, make.scored(5), took_s=10.0)
    data = summarise(log.rows)
    large, small = data.judges
    assert (large.asked, large.answered, large.missing) == (4, 2, {"parse_failure": 1})
    assert large.per_answer == 6_000_000
    assert large.latency_s == pytest.approx((2 + 2 + 2 + 10) / 4)
    assert large.served_models == {"large-1-0801": 1, "large-1-0802": 1}
    assert small.per_answer is None
    assert math.isnan(small.latency_s)
    assert data.counts.flags == {"usage_missing": 1}
    assert data.examples == {"parse_failure": "no number"}


def test_money_of_questions_without_a_verdict_is_a_class_of_its_own(log):
    log.opened().missed(0, "refused", cost=3).missed(1, "timeout", uncertain=4).judged(2, 5)
    spend = summarise(log.rows).spend
    assert spend.by_class == {"answers": charge(5_000_000), "missing": charge(3, 4)}


def test_working_and_both_kinds_of_waiting_are_three_numbers(log, make):
    """C17: the time of calls, by what it went for."""
    log.opened()
    for q, judge in enumerate((0, 0, 1)):
        log.ask(q, unit=q, judge=judge).send(q)
        log.arrive(q, make.scored(3, unit=q), took_s=2.0, limited_s=0.5 * q, waited_s=7.0 * judge)
    data = summarise(log.rows)
    assert data.times == Times(working_s=6.0, limited_s=1.5, waited_s=7.0)
    assert data.judges[0].times == Times(working_s=4.0, limited_s=0.5, waited_s=0.0)


def test_flags_are_counted_by_judge(log):
    """C11: answers without a usage block are counted; so is all else that is odd."""
    log.opened()
    log.judged(0, 3, flags=("usage_missing", "coerced:score"))
    log.judged(1, 3, judge=1, flags=("usage_missing",))
    data = summarise(log.rows)
    assert data.judges[0].flags == {"coerced:score": 1, "usage_missing": 1}
    assert data.judges[1].flags == {"usage_missing": 1}
    assert data.counts.flags == {"coerced:score": 1, "usage_missing": 2}


def test_details_of_flags_are_not_kept_without_end(log):
    log.opened()
    for q in range(60):
        log.judged(q, 3, flags=(f"dropped:{q}",))
    flags = summarise(log.rows).judges[0].flags
    assert (len(flags), sum(flags.values()), flags["dropped"]) == (51, 60, 10)


def test_an_outage_says_after_how_many_answers_and_why(log, make):
    """C54: a judge that goes down while a question of its own is still to be told."""
    log.opened().judged(0, 4).judged(1, 3, unit=1).ask(2).send(2)
    log.add(JudgeDown(judge=0, until=None, why="401: bad key\x1b[2J"))
    log.arrive(2, make.scored(5)).tell(2, make.scored(5))
    judge = summarise(log.rows).judges[0]
    (outage,) = judge.outages
    assert (judge.answered, outage.after, judge.n_outages) == (3, 2, 1)
    assert (outage.at, outage.until, outage.ended_at) == (log.rows[12].at, None, None)
    assert outage.why == judge.down == "401: bad key\N{REPLACEMENT CHARACTER}[2J"


def test_a_judge_that_is_up_again_has_an_outage_with_an_end(log):
    log.opened().add(JudgeDown(judge=0, until=1_000_900.0, why="quota"))
    log.add(JudgeDown(judge=0, until=1_000_950.0, why="quota"), JudgeUp(judge=0))
    judge = summarise(log.rows).judges[0]
    (outage,) = judge.outages
    assert (judge.down, outage.until) == ("", 1_000_950.0)
    assert outage.ended_at == log.rows[-1].at


def test_why_a_limit_ended_the_run_is_kept_until_it_goes_on(log):
    log.opened().judged(0, 4).add(LimitReached(which="user", why="seen\x1b enough"))
    log.stop(StopReason.USER)
    assert summarise(log.rows).limit_why == "seen\N{REPLACEMENT CHARACTER} enough"
    log.add(Reopened(settled=Nano(0), uncertain=Nano(0)))
    assert summarise(log.rows).limit_why == ""


def test_answers_of_the_cache_say_nothing_of_the_model_served_now(log, make):
    log.opened().judged(0, 4, served_model="new")
    log.judged(1, 4, unit=1, cost=0, served_model="old", origin=Origin.CACHE)
    assert summarise(log.rows).judges[0].served_models == {"new": 1}


def test_a_judge_s_questions_add_up_and_those_never_asked_again_are_told_apart(log):
    log.opened().judged(0, 4).missed(1, "judge_down", unit=1).ask(2, unit=2).ask(3, unit=3)
    log.add(JudgeDown(judge=0, until=None, why="401"), Parked(q=2), Parked(q=3))
    log.add(JudgeUp(judge=0)).ask(4, unit=2, propensity=0.5).ask(5, unit=1, replicate=1)
    log.stop(StopReason.USER).add(Withdrawn(q=4), Withdrawn(q=5))
    judge = summarise(log.rows).judges[0]
    assert (judge.parked, judge.unasked, judge.cut_off) == (2, 1, 2)
    assert judge.asked == judge.answered + judge.n_missing + judge.parked + judge.cut_off


def test_an_outage_counts_answers_that_had_come_though_not_told_yet(log, make):
    log.opened().ask(0).send(0).ask(1, unit=1).send(1)
    log.arrive(1, make.scored(3, unit=1))
    log.add(JudgeDown(judge=0, until=None, why="401"))
    (outage,) = summarise(log.rows).judges[0].outages
    assert outage.after == 1


def test_money_without_known_usage_is_told_apart(log):
    log.opened().judged(0, 4, cost=22_000_000, flags=("usage_missing",)).judged(1, 4, unit=1)
    log.judged(2, 4, unit=2, cost=7, flags=("coerced", "usage_inconsistent"))
    data = summarise(log.rows)
    assert (data.counts.unmetered, data.spend.unmetered) == (2, 22_000_007)
    assert data.spend.settled == 27_000_007


def test_suspected_items_are_named_up_to_five(log):
    items = tuple("abcdefg")
    log.opened(items=items, arms=("A", "B"))
    for q in range(14):
        log.judged(q, 4, unit=q, flags=("suspected_injection",) if q > 1 else ())
    (found,) = summarise(log.rows, get_blob=log.get_blob).suspected
    assert (found.judge, found.n_answers, found.n_items) == ("large", 12, 6)
    assert found.items == tuple("bcdef")
    assert summarise(log.rows).suspected[0].items[0] == "item 1"


def test_commands_are_kept_in_order_and_counted(log):
    told = {"name": "set", "path": "budget.usd", "value": "3", "reason": "", "by": "me@box"}
    log.opened().add(Commanded(command=told | {"refused": "too low"}))
    for _ in range(120):
        log.add(Commanded(command={"name": "pause", "reason": "lunch\n", "by": "me@box"}))
    data = summarise(log.rows)
    assert (len(data.steered), data.n_steered) == (100, 121)
    first, second = data.steered[:2]
    assert (first.path, first.value, first.refused) == ("budget.usd", "3", "too low")
    assert (second.name, second.reason, second.at) == ("pause", "lunch ", log.rows[3].at)


def test_outages_are_counted_also_when_no_more_are_kept(log):
    log.opened()
    for _ in range(23):
        log.add(JudgeDown(judge=1, until=None, why="429"), JudgeUp(judge=1))
    judge = summarise(log.rows).judges[1]
    assert (len(judge.outages), judge.n_outages) == (20, 23)
    assert all(outage.ended_at is not None for outage in judge.outages)


def test_the_commonest_verdict_is_kept_on_a_float_scale_too(log):
    log.opened(criteria=({"name": "score", "type": "float", "low": 0, "high": 1000},))
    for q in range(200):
        log.judged(q, 7.5 if q % 2 else q + 0.25)
    (said,) = summarise(log.rows).judges[0].scores
    assert (said.commonest, said.commonest_share) == (7.5, 0.5)


def test_judges_are_held_against_each_other_by_item(log):
    """Two arms of an item go together; the metric is that of the scale."""
    log.opened(arms=("A", "B"), items=tuple("abcde"))
    q = 0
    for unit in range(10):
        for judge in range(2):
            log.judged(q, float(unit % 5 + 1), unit=unit, judge=judge)
            q += 1
    log.judged(q, 1.0, unit=4, judge=0)
    data = summarise(log.rows)
    (found,) = data.agreement
    assert (found.metric, found.n_judges, found.n_units) == ("ordinal", 2, 10)
    assert found.alpha.value == 1.0
    large = data.judges[0].scores[0]
    assert (large.with_others.value, large.n_shared) == (pytest.approx(1.0), 10)
    # One repeat of unit 4, that differs by 4: 8 over one degree of freedom.
    assert large.repeat_variance == 8.0


def test_of_very_many_units_the_first_ones_are_compared(log, monkeypatch):
    monkeypatch.setattr(summary, "_KEPT_CELLS", 6)
    log.opened()
    for q in range(8):
        log.judged(q, float(q // 2), unit=q // 2, judge=q % 2)
    data = summarise(log.rows)
    assert data.agreement[0].n_units == 3
    assert data.judges[0].scores[0].n == 4


TWO = ({"name": "a", "low": 0, "high": 10}, {"name": "b", "low": 0, "high": 10})


def test_an_effect_of_the_place_is_found_and_adjusted_over_the_judges(log):
    """The judge `large` gives 3 more at the second place, `small` nothing."""
    log.opened(criteria=TWO, items=tuple(map(str, range(40))))
    for unit in range(40):
        swapped = unit % 3 == 0
        a, b = (5.0, 1.0) if swapped else (2.0, 4.0)
        log.both(2 * unit, (a, b), swapped=swapped, unit=unit, judge=0)
        log.both(2 * unit + 1, (2.0, 4.0), swapped=swapped, unit=unit, judge=1)
    large, small = summarise(log.rows).places
    assert large.means == pytest.approx((1.5, 4.5))
    assert (large.spread, large.span, large.n_answers) == (pytest.approx(3.0), 10.0, 40)
    assert (large.is_significant, small.is_significant) == (True, False)
    assert small.spread == pytest.approx(0, abs=1e-12)


def test_criteria_of_different_scales_are_compared_by_shares_of_them(log):
    criteria = (TWO[0], {"name": "b", "low": 1, "high": 3})
    log.opened(criteria=criteria)
    log.both(0, (5.0, 3.0)).both(1, (10.0, 2.0), swapped=True)
    (effect,) = summarise(log.rows).places
    assert (effect.is_share, effect.span) == (True, 1.0)
    assert effect.means == pytest.approx((0.5, 1.0))


def test_an_answer_with_a_gap_says_nothing_of_places(log):
    log.opened(criteria=TWO).both(0, (5.0, None)).both(1, (4.0, 2.0)).both(2, (3.0, 2.0))
    assert summarise(log.rows).places == ()


def test_a_changed_price_is_the_one_reported(log):
    card = PriceCard(per_call=3_300_000)
    log.opened().add(PriceChanged(judge=1, card=card))
    assert summarise(log.rows).judges[1].card == card


def test_cached_answers_are_counted_when_asked(log, make):
    log.opened().ask(0, hold=0)
    event = replace(log.rows[-1].event, origin=Origin.CACHE)
    log.rows[-1] = log.rows[-1]._replace(event=event)
    log.arrive(0, make.scored(4, origin=Origin.CACHE), took_s=9.0)
    log.tell(0, make.scored(4, origin=Origin.CACHE)).judged(1, 4, unit=1)
    data = summarise(log.rows)
    assert (data.counts.cached, data.judges[0].cached) == (1, 1)
    # What the cache answers took no time of a judge's.
    assert data.judges[0].latency_s == 2.0


@pytest.mark.parametrize("reason", StopReason)
def test_every_stop_reason_has_a_state(reason):
    """Each stop reason belongs to one state."""
    finished = {"finished", "precision", "separated", "gate_decided"}
    others = {"interrupted": State.INTERRUPTED, "storage": State.FAILED}
    expected = State.FINISHED if reason in finished else others.get(reason, State.STOPPED)
    assert state_of(reason) is expected


@pytest.mark.parametrize(
    ("unstopped", "reason"),
    [
        (State.RUNNING, None),
        (State.INTERRUPTED, StopReason.INTERRUPTED),
        (State.FAILED, StopReason.STORAGE),
    ],
)
def test_a_log_without_a_stop_is_what_its_reader_knows_of_the_process(log, unstopped, reason):
    data = summarise(log.opened().rows, unstopped=unstopped)
    assert (data.state, data.stop_reason) == (unstopped, reason)


def test_estimates_are_those_of_the_stop(log, make):
    log.opened().judged(0, 4)
    log.look(make.estimate(value=(3.0,)))
    assert not summarise(log.rows).are_final
    unknown = make.estimate(se=(math.nan,), lower=(math.nan,), upper=(math.nan,))
    log.stop(StopReason.FINISHED).look(unknown, make.difference(), is_final=True)
    data = summarise(log.rows)
    assert data.are_final
    assert [e.name for e in data.estimates] == ["scores", "effect"]
    assert math.isnan(data.estimates[0].se[0])
    assert data.answer is data.estimates[0]


def test_estimates_read_back_as_they_were_written(make):
    estimate = make.difference(diagnostics={"by_name": {"n_items": [4]}}, flags=("few_clusters",))
    assert read_estimate(estimate.as_json() | {"of_a_later_version": 1}) == estimate


def test_the_primary_estimate_is_the_first_unless_one_says_so(log, make):
    entries = [{"name": "scores"}, {"name": "effect", "primary": True}]
    log.opened(estimate=entries).stop(StopReason.FINISHED)
    log.look(make.estimate(), make.difference(), is_final=True)
    assert summarise(log.rows).answer.name == "effect"


def test_there_is_no_answer_while_only_lesser_estimates_are_known(log, make):
    """Before the stop a look holds only estimates of few names."""
    log.opened(estimate=[{"name": "big"}, {"name": "effect"}]).look(make.difference())
    assert summarise(log.rows).answer is None


@pytest.mark.parametrize(("target", "is_met"), [(None, None), (0.1, False), (0.5, True)])
def test_the_target_is_met_by_the_primary_half_width(log, make, target, is_met):
    stop = {} if target is None else {"target_half_width": target}
    log.opened(stop=stop, estimate=[{"name": "effect"}]).stop(StopReason.BUDGET)
    log.look(make.difference(), is_final=True)
    assert summarise(log.rows).target_met is is_met


def test_looks_give_the_curve_of_width_against_money(log, make):
    log.opened()
    for q, half in enumerate((2.0, 1.0, 0.5)):
        log.judged(q, 3).look(
            make.estimate(lower=(3 - half,), upper=(3 + half,)), settled=5_000_000 * (q + 1)
        )
    curve = summarise(log.rows).half_widths
    assert [(look.settled, w) for look, w in curve] == [
        (5_000_000, 2.0),
        (10_000_000, 1.0),
        (15_000_000, 0.5),
    ]


def test_the_curve_of_a_long_run_is_thinned_and_keeps_its_ends(log):
    log.opened()
    for n in range(9_001):
        look = Looked(n_told=n, settled=n, uncertain=0, held=0, half_widths=(1.0,), estimates=())
        log.add(look)
    told = [look.n_told for look in summarise(log.rows).curve]
    assert len(told) <= 2_002
    assert (told[0], told[-1]) == (0, 9_000)
    steps = {b - a for a, b in pairwise(told[:-1])}
    assert len(steps) == 1


def test_time_between_processes_and_clocks_set_back_are_not_work(log):
    """C46: a clock set back makes no time negative."""
    log.opened()
    log.add(LimitReached(which="max_requests"), after=5.0)
    log.add(Started(about={"host": "other"}), after=86_400.0)
    log.add(LimitReached(which="wall_clock"), after=-3_600.0)
    log.add(LimitReached(which="wall_clock"), after=7.0)
    data = summarise(log.rows)
    assert data.active_s == 12.0
    assert data.n_starts == 2
    assert data.about["host"] == "other"
    assert data.versions == {"sortition": "0.1.0"}
    assert data.limit == "wall_clock"


def test_a_log_begins_with_its_opening(log):
    with pytest.raises(CorruptLog, match="opening"):
        summarise([])


def _whims(request):
    """Fail in every way that costs money, by the unit's number and the attempt."""
    unit, attempt = request.query.units[0], request.attempt.number
    match unit % 9, attempt:
        case 1, _:
            return Script(error=TimedOut(), latency_s=1.0)
        case 2, 1:
            return Script(finish=Finish.LENGTH)
        case 3, _:
            return Script(finish=Finish.REFUSED, latency_s=unit / 10)
        case 4, _:
            return Script(finish=Finish.EMPTY)
        case _:
            return Script(latency_s=0.5 + unit / 20)


@pytest.mark.parametrize(
    "setting",
    [
        {"cap": 10**12, "stop": StopRule(every=5, target_half_width=0.5)},
        {"cap": 900_000_000},
        {"cap": 10**12, "max_requests": 70},
    ],
)
def test_the_summary_agrees_with_the_ledger_of_the_run(setting):
    """Two witnesses: the engine's ledger, live, and the report's fold over the log."""
    dying = FakeAdapter(
        lambda r: Script(error=BadCredentials()) if r.query.units[0] == 20 else _whims(r)
    )
    crew = fake_crew([FakeAdapter(_whims), dying], n_units=60, window=16, **setting)
    identity = dict(crew.opened.identity) | {
        "criteria": [{"name": "score", "low": 0, "high": 6}],
        "arms": [""],
    }
    run = run_virtually(replace(crew, opened=replace(crew.opened, identity=identity)))
    data, ledger = summarise(run.store.read()), run.state.ledger
    campaign = ledger.campaign
    assert money(data) == (campaign.settled, campaign.uncertain, campaign.held)
    assert data.spend.overrun == campaign.overrun
    for name, account in zip(("judge0", "judge1"), ledger.judges, strict=True):
        charge = data.spend.by_judge[name]
        assert (charge.settled, charge.uncertain) == (account.settled, account.uncertain)
    for tally, judge in zip(data.judges, run.state.judges, strict=True):
        assert (tally.asked, tally.answered) == (judge.asked, judge.answered)
        assert tally.missing == judge.missing
    assert (data.counts.asked, data.counts.told) == (run.state.n_asked, run.state.n_told)
    assert data.stop_reason is run.state.stopped
    assert data.counts.late + data.counts.parked + data.counts.n_missing > 10
    for field in ("settled", "uncertain"):
        parts = data.spend.by_class.values()
        assert sum(getattr(part, field) for part in parts) == getattr(data.spend, field)
        vain = sum(getattr(judge.in_vain, field) for judge in data.judges)
        assert vain == getattr(data.counts.in_vain, field)
    assert data.answer.as_json() == run.state.last_look.estimates[0]
    assert data.are_final


def _stream(log, n):
    """Rows of n answers of 1,000 items, made as they are read."""
    yield from log.opened(items=tuple(map(str, range(1_000)))).rows
    for q in range(n):
        log.rows.clear()
        yield from log.judged(q, float(q % 5 + 1), unit=q % 1_000, judge=q % 2).rows


@pytest.mark.slow
def test_a_hundred_thousand_answers_need_little_memory(log):
    """C33: the report folds a long log in one pass, counters only."""
    tracemalloc.start()
    data = summarise(_stream(log, 100_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert data.counts.answered == 100_000
    assert peak < 20_000_000


def test_memory_does_not_grow_with_the_answers(log):
    """C33: four times the answers, the same memory."""
    peaks = []
    for n in (1_000, 4_000):
        tracemalloc.start()
        summarise(_stream(log, n))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        log.rows.clear()
    assert peaks[1] < 1.2 * peaks[0]
