from dataclasses import replace

from orchestrator.core.query import Judged, Kind, Missing, MissingReason, Query
from orchestrator.core.wire import FIRST_ATTEMPT, Request
from orchestrator.engine.attempts import Arrival, Job
from orchestrator.engine.dispatch import Dispatcher
from orchestrator.testing.fakes import NANO_TOKEN, FakeAdapter, fake_crew


def judges(n, concurrency=8):
    return fake_crew([FakeAdapter(None)] * n, concurrency=concurrency).judges


def job(q, judge=0):
    query = Query(kind=Kind.RATE, judge=judge, units=(q,))
    request = Request(query=query, attempt=FIRST_ATTEMPT, parts=(), max_output_tok=1, schema={})
    return Job(q=q, query=query, request=request, hold=1, judge=None, card=NANO_TOKEN)


def arrival(at, *, lost=False):
    outcome = (
        Missing(reason=MissingReason.TIMEOUT, cost=0, uncertain=1, attempts=1)
        if lost
        else Judged(observations=(), cost=1, usage=None)
    )
    return Arrival(job=at, attempt=FIRST_ATTEMPT, outcome=outcome, took_s=1.0)


def test_a_judge_starts_with_one_call_and_doubles_with_each_reply():
    """A wrong key or model name costs one request."""
    dispatcher = Dispatcher(judges(1), max_in_flight=100)
    for q in range(40):
        dispatcher.put(job(q))
    sizes = []
    started = dispatcher.start()
    while started:
        sizes.append(dispatcher.in_flight)
        for at in started:
            dispatcher.ended(at, arrival(at))
        started = dispatcher.start()
    assert sizes[:4] == [1, 2, 8, 8]
    assert sum(sizes) == 40


def test_all_judges_together_keep_the_common_limit_the_longest_asked_first():
    dispatcher = Dispatcher(judges(3), max_in_flight=2)
    for q in range(6):
        dispatcher.put(job(q, judge=2 - q % 3))
    assert [at.q for at in dispatcher.start()] == [0, 1]
    assert dispatcher.start() == []


def test_attempts_lost_in_a_row_bring_back_one_call_at_a_time():
    dispatcher = Dispatcher(judges(1), max_in_flight=100)
    lane = dispatcher.lanes[0]
    lane.limit = 8
    for q in range(3):
        dispatcher.put(job(q))
    for at in dispatcher.start():
        assert lane.limit == 8
        dispatcher.ended(at, arrival(at, lost=True))
    assert lane.limit == 1


def test_a_question_that_was_taken_back_frees_its_place():
    dispatcher = Dispatcher(judges(1), max_in_flight=1)
    dispatcher.put(job(0))
    dispatcher.put(job(1))
    (first,) = dispatcher.start()
    dispatcher.ended(first, None)
    assert [at.q for at in dispatcher.start()] == [1]


def test_a_dropped_judge_gets_nothing_more():
    dispatcher = Dispatcher(judges(2), max_in_flight=9)
    dispatcher.put(job(0, judge=0))
    dispatcher.put(job(1, judge=1))
    dispatcher.drop(0)
    assert [at.q for at in dispatcher.start()] == [1]
    dispatcher.put(replace(job(2, judge=1), hold=3))
    dispatcher.drop_all()
    assert dispatcher.start() == []
