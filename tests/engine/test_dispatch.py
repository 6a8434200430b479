from dataclasses import replace

from orchestrator.core.errors import Overloaded, RateLimited, TimedOut, Unreachable
from orchestrator.core.query import Kind, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Finish, Reply, Request
from orchestrator.engine.attempts import Job
from orchestrator.engine.dispatch import Dispatcher
from orchestrator.testing.fakes import NANO_TOKEN, FakeAdapter, fake_crew


def judges(n, concurrency=8):
    return fake_crew([FakeAdapter(None)] * n, concurrency=concurrency).judges


def job(q, judge=0):
    query = Query(kind=Kind.RATE, judge=judge, units=(q,))
    request = Request(query=query, attempt=FIRST_ATTEMPT, parts=(), max_output_tok=1, schema={})
    (doer,) = judges(1)
    return Job(q=q, query=query, request=request, hold=1, judge=doer, card=NANO_TOKEN)


GOOD = Reply(text="1", finish=Finish.STOP, usage=None)


def test_a_judge_starts_with_one_call_and_doubles_with_each_reply():
    """A wrong key or model name costs one request."""
    dispatcher = Dispatcher(judges(1), max_in_flight=100)
    for q in range(40):
        dispatcher.put(job(q))
    sizes = []
    started = dispatcher.start(0.0)
    while started:
        sizes.append(dispatcher.in_flight)
        for at in started:
            dispatcher.ended(at, GOOD, 0.0)
        started = dispatcher.start(0.0)
    assert sizes[:4] == [1, 2, 8, 8]
    assert sum(sizes) == 40


def test_all_judges_together_keep_the_common_limit_the_longest_asked_first():
    dispatcher = Dispatcher(judges(3), max_in_flight=2)
    for q in range(6):
        dispatcher.put(job(q, judge=2 - q % 3))
    assert [at.q for at in dispatcher.start(0.0)] == [0, 1]
    assert dispatcher.start(0.0) == []


def test_attempts_lost_in_a_row_bring_back_one_call_at_a_time():
    dispatcher = Dispatcher(judges(1), max_in_flight=100)
    lane = dispatcher.lanes[0]
    lane.limit = 8
    for q in range(3):
        dispatcher.put(job(q))
    for at in dispatcher.start(0.0):
        assert lane.limit == 8
        dispatcher.ended(at, TimedOut(), 0.0)
    assert lane.limit == 1


def test_a_question_that_failed_frees_its_place():
    dispatcher = Dispatcher(judges(1), max_in_flight=1)
    dispatcher.put(job(0))
    dispatcher.put(job(1))
    (first,) = dispatcher.start(0.0)
    dispatcher.ended(first, Unreachable(), 0.0)
    assert [at.q for at in dispatcher.start(0.0)] == [1]


def test_a_dropped_judge_gets_nothing_more():
    dispatcher = Dispatcher(judges(2), max_in_flight=9)
    dispatcher.put(job(0, judge=0))
    dispatcher.put(job(1, judge=1))
    dispatcher.drop(0)
    assert [at.q for at in dispatcher.start(0.0)] == [1]


def grown(limit, **options):
    """A dispatcher with one lane that may have so many calls, all of them under way."""
    dispatcher = Dispatcher(judges(1, concurrency=16), max_in_flight=100, **options)
    dispatcher.lanes[0].limit = float(limit)
    for q in range(3 * limit):
        dispatcher.put(job(q))
    return dispatcher, dispatcher.lanes[0], dispatcher.start(0.0)


def test_a_burst_of_refusals_cuts_once_and_the_limit_grows_by_one_again():
    """C14: calls that left before the cut can't cut again; then one more place per round."""
    dispatcher, lane, jobs = grown(8)
    for at in jobs:
        dispatcher.ended(at, RateLimited(retry_after_s=2.0), 1.0)
    assert lane.limit == 4
    assert dispatcher.start(2.9) == []
    second = dispatcher.start(3.0)
    assert len(second) == 4
    for at in second:
        dispatcher.ended(at, GOOD, 4.0)
    assert lane.limit == 5
    dispatcher.ended(dispatcher.start(5.0)[0], RateLimited(retry_after_s=0.0), 6.0)
    assert lane.limit == 2


def test_a_refusal_makes_all_judges_of_its_account_wait_and_no_other():
    """C14: two judges share a key, a third has its own."""
    first, second, third = judges(3)
    crew = (replace(first, account="a"), replace(second, account="a"), replace(third, account="b"))
    dispatcher = Dispatcher(crew, max_in_flight=9)
    for q in range(6):
        dispatcher.put(job(q, judge=q % 3))
    jobs = dispatcher.start(0.0)
    for at in jobs:
        dispatcher.ended(at, RateLimited(retry_after_s=7.0) if at.q == 0 else GOOD, 0.0)
    assert [at.q for at in dispatcher.start(6.99)] == [5]
    assert dispatcher.wakes_at(6.99) == 7.0
    assert dispatcher.lanes[1].waits_for(6.0) == "429, server asked 7 s: waiting 1.0 s"
    assert [at.q for at in dispatcher.start(7.0)] == [3, 4]


def test_only_refusals_for_the_rate_cut_the_limit():
    """An overloaded server makes its judge wait as long as it says, and keeps the limit."""
    dispatcher, lane, jobs = grown(8)
    for at in jobs:
        dispatcher.ended(at, Overloaded(retry_after_s=5.0), 0.0)
    assert lane.limit == 16
    assert dispatcher.start(4.9) == []
    assert len(dispatcher.start(5.0)) == 16


def test_a_limit_on_requests_spaces_them_out():
    """60 a minute: ten at once, then one a second; the wait is on record with the question."""
    dispatcher, _lane, _ = grown(1)
    (judge,) = judges(1, concurrency=100)
    dispatcher = Dispatcher([replace(judge, limits=replace(judge.limits, rpm=60))], 100)
    dispatcher.lanes[0].limit = 100.0
    for q in range(20):
        dispatcher.put(job(q))
    assert len(dispatcher.start(0.0)) == 10
    assert dispatcher.wakes_at(0.0) == 1.0
    assert dispatcher.lanes[0].waits_for(0.25) == "rate limit: next in 0.8 s"
    (late,) = dispatcher.start(1.0)
    assert late.limited_s == 1.0
    assert len(dispatcher.start(4.0)) == 3


def test_lost_attempts_bring_pauses_that_grow():
    """One probe at a time, and each waits longer for the next."""
    dispatcher, _lane, jobs = grown(3, backoff=lambda n: 2.0**n)
    for at in jobs:
        dispatcher.ended(at, TimedOut(), 10.0)
    assert dispatcher.start(11.9) == []
    (probe,) = dispatcher.start(12.0)
    dispatcher.ended(probe, TimedOut(), 20.0)
    assert dispatcher.wakes_at(20.0) == 24.0
    (probe,) = dispatcher.start(24.0)
    dispatcher.ended(probe, GOOD, 25.0)
    assert len(dispatcher.start(25.0)) == 2
