"""Verdicts kept between runs: what is the same question, what is stored, when a model has changed."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from judges.rubrics.compare import Compare
from orchestrator import atomic
from orchestrator.caching import (
    About,
    Cache,
    CachedVerdicts,
    Entry,
    Recheck,
    copies,
    entries,
    key,
    log_evidence,
    storable,
)
from orchestrator.core.errors import ConfigError
from orchestrator.core.judge import Judge
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Judged, Kind, MissingReason, Observation, Query
from orchestrator.core.scale import Criterion, Scale, ScaleType
from orchestrator.core.seeds import Seeds
from orchestrator.core.wire import Attempt, Finish, Origin, Reply, Route, Usage

ABOUT = About(adapter="openai", model="acme-std", base_url="https://api.example.com/v1")
REPLY = Reply(
    text='{"score": 4}',
    finish=Finish.STOP,
    usage=Usage(input_tok=900, cached_input_tok=100, output_tok=20, reasoning_tok=7),
    served_model="acme-std-2026-05-01",
    request_id="req_1",
    alternatives=(("4", -0.1), ("5", -2.5)),
)
KEY = key("judge", "request")


def files(cache):
    return [path for path in cache._directory.rglob("*") if path.is_file() and path.suffix != ""]


# --- what is the same question -----------------------------------------------------------------

ASKED = {
    "adapter": "openai",
    "base_url": "https://api.example.com/v1",
    "model": "acme-std",
    "temperature": 0.7,
    "system text": "You are a judge.",
    "rubric": "How good is it?",
    "candidate": "An answer.",
    "order": (0, 1),
    "repeat": 0,
    "max tokens": 400,
    "schema": {"type": "object"},
}
CHANGED = {
    "adapter": "compatible",
    "base_url": "https://api.example.com/v2",
    "model": "acme-big",
    "temperature": 0.0,
    "system text": "You are a strict judge.",
    "rubric": "How good is it? ",
    "candidate": "An answer",
    "order": (1, 0),
    "repeat": 1,
    "max tokens": 800,
    "schema": {"type": "array"},
}
OF_THE_JUDGE = ("adapter", "base_url", "model", "temperature")


def key_of(asked):
    """Name a question as judges and rubrics do: each digests its part."""

    def digest(part):
        return blake2b(repr(part).encode()).hexdigest()

    judge = {name: asked[name] for name in OF_THE_JUDGE}
    return key(digest(judge), digest({k: v for k, v in asked.items() if k not in judge}))


@pytest.mark.parametrize("what", ASKED)
def test_a_change_of_anything_that_is_sent_misses(tmp_path, what):
    """C30: adapter, base_url, model, texts, order, repeat, limits, parameters, schema."""
    cache = Cache(tmp_path)
    cache.put(key_of(ASKED), REPLY, ABOUT)
    assert cache.find(key_of(dict(ASKED))) is not None
    assert cache.find(key_of(ASKED | {what: CHANGED[what]})) is None


@given(a=st.tuples(st.text(), st.text()), b=st.tuples(st.text(), st.text()))
def test_two_questions_never_share_a_key(a, b):
    """Where the judge ends and the request begins counts too."""
    assert (key(*a) == key(*b)) == (a == b)


def test_keys_do_not_change_between_versions():
    """A cache outlives the process: the same question has the same name tomorrow."""
    said = json.dumps([1, "judge", "request", []]).encode()
    assert blake2b(said, digest_size=20).hexdigest() == KEY
    assert key("a", "b\ud800") != key("a", "b")


# --- what is stored ----------------------------------------------------------------------------


def test_a_stored_reply_comes_back_whole(tmp_path):
    """All of it, usage and probabilities too; only where it comes from is now the cache."""
    cache = Cache(tmp_path)
    assert cache.find(KEY) is None
    cache.put(KEY, REPLY, ABOUT)
    assert cache.find(KEY) == replace(REPLY, origin=Origin.CACHE)
    assert Cache(tmp_path).find(KEY) == cache.find(KEY)
    assert cache.find(key("judge", "other")) is None


def test_a_later_reply_takes_the_place(tmp_path):
    cache = Cache(tmp_path)
    cache.put(KEY, REPLY, ABOUT)
    cache.put(KEY, replace(REPLY, text='{"score": 5}'), ABOUT)
    assert cache.find(KEY).text == '{"score": 5}'
    assert len(list(entries(tmp_path))) == 1


CRITERIA = (
    Criterion(name="score", scale=Scale(type=ScaleType.INTEGER, low=1, high=5)),
    Criterion(name="Länge", scale=Scale(type=ScaleType.FLOAT, low=0, high=1)),
    Criterion(name="true", scale=Scale(type=ScaleType.BOOLEAN, low=0, high=1)),
)


def read(reply):
    """Read as a rubric does, for the three criteria; text beside the verdict is allowed here."""
    text = reply.text
    if "<verdict>" in text:
        text = text.partition("<verdict>")[2].partition("</verdict>")[0]
    try:
        said = json.loads(text)
    except ValueError:
        return Unreadable(reason=MissingReason.PARSE_FAILURE)
    values = (said.get(criterion.name) for criterion in CRITERIA)
    return Reading(
        observations=tuple(
            Observation(unit=0, slot=2 - i, criterion=i, value=None if v is None else float(v))
            for i, v in enumerate(values)
        ),
        flags=("coerced",) if "reason" in said else (),
    )


VERBOSE = replace(REPLY, text='{"reason": "CANARY", "score": 4, "L\\u00e4nge": 0.25, "true": true}')


@pytest.mark.parametrize("route", [Route.SCHEMA, Route.TOOL, Route.TEXT])
def test_without_its_words_a_verdict_is_stored_alone(route):
    """With `keep.replies` none or parsed no word of the judge's own reaches the cache."""
    reply = VERBOSE
    if route is Route.TEXT:
        reply = replace(reply, text=f"I think CANARY <verdict>{reply.text}</verdict>")
    bare = storable(reply, read, criteria=CRITERIA, route=route, keeps_text=False)
    assert "CANARY" not in bare.text
    assert read(bare).observations == read(reply).observations
    assert replace(bare, text="") == replace(reply, text="")
    whole = storable(reply, read, criteria=CRITERIA, route=route, keeps_text=True)
    assert whole == reply


values = st.tuples(
    st.none() | st.integers(1, 5).map(float),
    st.none() | st.floats(0, 1),
    st.none() | st.sampled_from([0.0, 1.0]),
)


@given(values=values, route=st.sampled_from([Route.SCHEMA, Route.TEXT]))
def test_every_verdict_survives_being_stored_alone(values, route):
    """To the last digit, "not applicable" too, and in the types that a strict reader wants."""
    said = dict(zip([criterion.name for criterion in CRITERIA], values, strict=True))
    reply = replace(REPLY, text=json.dumps(said | {"reason": "CANARY"}))
    bare = storable(reply, read, criteria=CRITERIA, route=route, keeps_text=False)
    assert read(bare).observations == read(reply).observations
    again = json.loads(bare.text.removeprefix("<verdict>").removesuffix("</verdict>"))
    types = [int, float, bool]
    assert all(v is None or type(v) is t for v, t in zip(again.values(), types, strict=True))


def test_a_label_is_stored_with_its_probabilities():
    label = replace(REPLY, text="4 CANARY")

    def read_label(reply):
        value = sum(float(token) * math.exp(p) for token, p in reply.alternatives)
        return Reading(observations=(Observation(unit=0, value=value, mass=0.99),))

    bare = storable(label, read_label, criteria=CRITERIA, route=Route.LOGPROB, keeps_text=False)
    assert bare == replace(label, text="4")


@pytest.mark.parametrize("keeps_text", [True, False])
@pytest.mark.parametrize("finish", [f for f in Finish if f is not Finish.STOP])
def test_what_is_no_complete_verdict_is_never_stored(finish, keeps_text):
    """C30: refusals, truncations and parse failures are asked again, never served."""
    options = {"criteria": CRITERIA, "route": Route.SCHEMA, "keeps_text": keeps_text}
    assert storable(VERBOSE, read, **options) is not None
    assert storable(replace(VERBOSE, finish=finish), read, **options) is None
    assert storable(replace(VERBOSE, text="I can't."), read, **options) is None
    for origin in (Origin.CACHE, Origin.RECORDED, Origin.IMPORTED):
        assert storable(replace(VERBOSE, origin=origin), read, **options) is None


def test_a_verdict_that_would_not_read_back_is_not_stored():
    def pedantic(reply):
        return read(reply) if "CANARY" in reply.text else Unreadable(reason=MissingReason.EMPTY)

    def shifting(reply):
        found = read(reply)
        return found if "CANARY" in reply.text else replace(found, observations=())

    options = {"criteria": CRITERIA, "route": Route.SCHEMA, "keeps_text": False}
    assert storable(VERBOSE, pedantic, **options) is None
    assert storable(VERBOSE, shifting, **options) is None


# --- age, damage, secrets, other processes -----------------------------------------------------


def test_a_verdict_that_is_too_old_is_a_miss(tmp_path):
    now = [1000.0]
    cache = Cache(tmp_path, max_age_s=60, now=lambda: now[0])
    cache.put(KEY, REPLY, ABOUT)
    now[0] = 1060.0
    assert cache.find(KEY) is not None
    now[0] = 1060.5
    assert cache.find(KEY) is None
    assert Cache(tmp_path, now=lambda: now[0]).find(KEY) is not None
    cache.put(KEY, REPLY, ABOUT)
    assert cache.find(KEY) is not None


def test_a_damaged_verdict_is_a_miss_and_never_another_verdict(tmp_path):
    """Cut anywhere, or with any one bit changed, it is not found; or it is what was stored."""
    cache = Cache(tmp_path)
    cache.put(KEY, REPLY, ABOUT)
    (path,) = files(cache)
    whole = path.read_bytes()
    body = whole.partition(b"\n")[2]
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(damaged)
            found = cache.find(KEY)
            assert found is None or (
                damaged.endswith(body) and found == replace(REPLY, origin=Origin.CACHE)
            )


@pytest.mark.parametrize(
    "body",
    [b"", b"\n", b"null\nnull", b"[]\n{}", b'{"check": 1}\n', b"[" * 50_000, b"\xff\n\xff"],
    ids=lambda body: repr(body[:12]),
)
def test_a_file_that_is_no_verdict_is_a_miss(tmp_path, body):
    cache = Cache(tmp_path)
    cache.put(KEY, REPLY, ABOUT)
    (path,) = files(cache)
    path.write_bytes(body)
    assert cache.find(KEY) is None
    (entry,) = entries(tmp_path)
    assert entry.about is None
    path.unlink()
    path.mkdir()
    assert cache.find(KEY) is None
    cache.put(KEY, REPLY, ABOUT)  # can't be, and is no error
    assert list(entries(tmp_path)) == []


def test_a_verdict_under_another_name_is_a_miss(tmp_path):
    """A file that was renamed does not answer another question."""
    cache = Cache(tmp_path)
    cache.put(KEY, REPLY, ABOUT)
    other = key("judge", "other")
    (tmp_path / other[:2]).mkdir(exist_ok=True)
    files(cache)[0].rename(tmp_path / other[:2] / f"{other[2:]}.jsonl")
    assert cache.find(other) is None


def test_no_password_and_no_key_is_stored(tmp_path):
    """C32: what a URL holds besides the place stays out of the cache."""
    cache = Cache(tmp_path)
    url = "https://user:sk-CANARY@api.example.com:8443/v1?key=sk-CANARY#sk-CANARY"
    cache.put(KEY, REPLY, replace(ABOUT, base_url=url))
    assert b"CANARY" not in files(cache)[0].read_bytes()
    (entry,) = entries(tmp_path)
    assert entry.about.base_url == "https://api.example.com:8443/v1"


def test_many_writers_of_one_verdict_never_show_half_of_it(tmp_path):
    """Several processes may use one folder."""
    long = [replace(REPLY, text=f'{{"score": {n}}}' + " " * 20_000) for n in range(4)]
    stored = {replace(reply, origin=Origin.CACHE) for reply in long}
    cache = Cache(tmp_path)
    cache.put(KEY, long[0], ABOUT)
    with ThreadPoolExecutor(4) as threads:
        jobs = [
            threads.submit(lambda reply: [cache.put(KEY, reply, ABOUT) for _ in range(50)], reply)
            for reply in long
        ]
        while not all(job.done() for job in jobs):
            assert cache.find(KEY) in stored
    assert len(list(entries(tmp_path))) == 1


def test_a_write_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        atomic.write(tmp_path / "taken", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_folder_that_can_not_be_made_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cache\.dir"):
        Cache(tmp_path / "file" / "cache")


def test_a_cache_is_not_committed_by_accident(tmp_path):
    Cache(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / ".gitignore").read_text() == "*\n"


def test_what_was_stored_later_is_not_there_yet(tmp_path):
    """A run sees the cache as it was when the run was opened, also an hour and a crash later."""
    cache = Cache(tmp_path, max_age_s=60, now=lambda: 1000.0)
    cache.put(KEY, REPLY, ABOUT)
    assert cache.find(KEY, as_of=999.9) is None
    assert cache.find(KEY, as_of=1000.0) is not None
    assert cache.find(KEY, as_of=1060.0) is not None
    assert cache.find(KEY, as_of=1060.1) is None


# --- asking again ------------------------------------------------------------------------------


def test_the_share_that_is_asked_again_is_the_share(tmp_path):
    """By key and seed alone: the same ones after a resume, others with another seed."""
    keys = [key("judge", str(n)) for n in range(4000)]
    cache = Cache(tmp_path, recheck=0.1)
    drawn = [cache.is_recheck(k, 7) for k in keys]
    assert drawn == [Cache(tmp_path, recheck=0.1).is_recheck(k, 7) for k in keys]
    assert abs(sum(drawn) - 400) < 4 * math.sqrt(4000 * 0.1 * 0.9)
    assert drawn != [cache.is_recheck(k, 8) for k in keys]
    more = Cache(tmp_path, recheck=0.2)
    assert all(more.is_recheck(k, 7) for k, was in zip(keys, drawn, strict=True) if was)
    assert not any(Cache(tmp_path).is_recheck(k, 7) for k in keys)
    assert all(Cache(tmp_path, recheck=1.0).is_recheck(k, 7) for k in keys)


def test_a_changed_model_ends_the_run_at_once():
    recheck = Recheck(["score"])
    assert recheck.add("big", [4.0], [4.0], "m-01", "m-01") is None
    assert recheck.add("big", [4.0], [4.0], "", "m-02") is None
    assert recheck.add("big", [4.0], [4.0], "m-01", "") is None
    said = recheck.add("big", [4.0], [4.0], "m-01", "m-02")
    assert said.startswith("big: the cache holds verdicts of m-01, and m-02 answers now")


def first_alarm(pairs, criteria=("score",), **options):
    """Count the pairs until one tells; None: none does."""
    recheck = Recheck(criteria, **options)
    for n, (cached, live) in enumerate(pairs, 1):
        if recheck.add("big", cached, live, "m", "m") is not None:
            return n
    return None


@pytest.mark.parametrize("step", [1.0, -1.0])
def test_fourteen_pairs_one_way_are_the_least_that_tells(step):
    """2^14 / 15 is above 1000, 2^13 / 14 is not; with two criteria 2^15 / 16 has to be above 2000."""
    assert first_alarm([([3.0], [3.0 + step])] * 50) == 14
    assert first_alarm([([3.0, 1.0], [3.0 + step, 1.0])] * 50, ("a", "b")) == 15


def test_pairs_that_agree_or_do_not_apply_say_nothing():
    same = [([3.0], [3.0])] * 500
    na = [([None], [3.0]), ([3.0], [None]), ([None], [None])] * 100
    assert first_alarm([*same, *na]) is None
    assert first_alarm([*same, *na, *[([3.0], [4.0])] * 14]) == 500 + 300 + 14


def test_the_sentence_says_what_was_seen_and_what_to_do():
    recheck = Recheck(["style", "score"])
    said = [recheck.add("big", [1.0, 4.0], [1.0, 3.5], "m", "m") for _ in range(15)]
    assert said[:14] == [None] * 14
    assert said[14].startswith(
        "big: of 15 cached verdicts on score that came out otherwise when asked again, 15 came out "
        "lower"
    )
    assert "sortition cache clear" in said[14]


def test_judges_and_criteria_are_watched_apart():
    """A shift of one judge is not diluted by another, nor up on one criterion by down on the next."""
    recheck = Recheck(["a", "b"])
    found = None
    for _ in range(15):
        assert recheck.add("steady", [3.0, 3.0], [3.0, 3.0], "m", "m") is None
        found = recheck.add("moved", [3.0, 3.0], [4.0, 2.0], "m", "m")
    assert found is not None


COUNTS = [(0, 0), (1, 0), (3, 4), (14, 0), (0, 14), (71, 29), (200, 180)]


@pytest.mark.parametrize(("up", "down"), COUNTS)
def test_the_evidence_is_the_averaged_likelihood_ratio(up, down):
    """First witness: the integral, by quadrature."""
    n = up + down
    peak = up / n if n else 0.5
    value, _ = integrate.quad(
        lambda p: math.exp(
            (up * math.log(2 * p) if up else 0.0) + (down * math.log(2 * (1 - p)) if down else 0.0)
        ),
        0,
        1,
        points=[peak] if 0 < peak < 1 else None,
        epsabs=0,
        epsrel=1e-10,
    )
    assert log_evidence(up, down) == pytest.approx(math.log(value), abs=1e-8)


@pytest.mark.parametrize(("up", "down"), COUNTS)
def test_the_evidence_is_the_wealth_of_one_who_bets_by_the_rule_of_succession(up, down):
    """Second witness: bets placed one after another, in exact fractions; the order is of no account."""
    for signs in ([1] * up + [0] * down, [0] * down + [1] * up):
        wealth, seen = Fraction(1), [0, 0]
        for sign in signs:
            wealth *= 2 * Fraction(seen[sign] + 1, sum(seen) + 2)
            seen[sign] += 1
        assert log_evidence(up, down) == pytest.approx(math.log(wealth), abs=1e-9)


def test_the_evidence_is_a_martingale_if_nothing_has_changed():
    """The mean over the next pair is what it is now: that is why one may look at every one."""
    for up, down in COUNTS:
        then = [math.exp(log_evidence(up + 1, down)), math.exp(log_evidence(up, down + 1))]
        assert sum(then) / 2 == pytest.approx(math.exp(log_evidence(up, down)), rel=1e-9)


def likert(rng, mean, n):
    return np.clip(np.rint(rng.normal(mean, 0.8, n)), 1, 5)


def n_alarms(shift, *, alpha, n_pairs, n_runs):
    rng = np.random.default_rng(11)
    found = 0
    for _ in range(n_runs):
        mean = rng.uniform(2, 4.6, n_pairs)
        cached, live = likert(rng, mean, n_pairs), likert(rng, mean + shift, n_pairs)
        pairs = [([c], [v]) for c, v in zip(cached, live, strict=True)]
        found += first_alarm(pairs, alpha=alpha) is not None
    return found


def test_an_unchanged_model_rarely_ends_a_run_however_often_one_looks():
    """Looked at after each of 200 pairs, at alpha 0.05 at most one run in twenty ends."""
    found = n_alarms(0.0, alpha=0.05, n_pairs=200, n_runs=400)
    assert found <= stats.binom.ppf(0.999, 400, 0.05)
    assert found > 0


def test_a_model_that_moved_by_half_a_point_is_found():
    assert n_alarms(0.5, alpha=0.001, n_pairs=400, n_runs=50) >= 48


# --- what a run remembers ----------------------------------------------------------------------

JUDGES = ("acme", "zeta", "unsigned")
TEXTS = ("one", "two", "one", "one")


class Words:
    """A rubric that shows a unit's text and nothing else."""

    def __init__(self, texts=TEXTS):
        self.texts = texts

    def fingerprint(self, query, attempt):
        (unit,) = query.units
        text = self.texts[unit] if self.texts else ""
        return f"{text} {query.replicate} {attempt.widened}"

    def render(self, query, attempt):
        raise AssertionError("nothing is rendered here")

    def read(self, query, reply):
        if reply.finish is not Finish.STOP or not reply.text.startswith("{"):
            return Unreadable(reason=MissingReason.REFUSED)
        (unit,) = query.units
        value = float(json.loads(reply.text)["score"])
        return Reading(observations=(Observation(unit=unit, value=value),))


def remembering(folder, *, opened_at, recheck=0.0, texts=TEXTS, rubric=None):
    """Remember as a run does that was opened then; what it stores is stored a second later."""
    judges = [
        Judge(
            name=name,
            rubric=rubric or Words(texts),
            adapter=None,
            signature="" if name == "unsigned" else name,
        )
        for name in JUDGES
    ]
    return CachedVerdicts(
        Cache(folder, recheck=recheck, now=lambda: opened_at + 1),
        judges,
        [ABOUT] * len(judges),
        CRITERIA[:1],
        [{"candidate": text} for text in texts],
        seed=3,
        opened_at=opened_at,
        keeps_text=True,
    )


def question(unit=0, judge=0, replicate=0):
    return Query(kind=Kind.RATE, judge=judge, units=(unit,), replicate=replicate)


def said(score, *, model="acme-std-2026-05-01", finish=Finish.STOP):
    return replace(
        REPLY, text=f'{{"score": {score}}}', served_model=model, finish=finish, alternatives=()
    )


def kept(memory, query, reply):
    found = Words().read(query, reply)
    observations = () if isinstance(found, Unreadable) else found.observations
    judged = Judged(observations=observations, cost=1, usage=None)
    return memory.keep(query, Attempt(number=2, widened=True), reply, judged)


def test_a_run_remembers_what_earlier_ones_heard(tmp_path):
    """C30: another judge and another repeat are other questions; a widened attempt is not."""
    first = remembering(tmp_path, opened_at=100.0)
    assert first.find(question()) is None
    assert kept(first, question(), said(4)) == ""
    again = remembering(tmp_path, opened_at=200.0)
    assert again.find(question()) == replace(said(4), origin=Origin.CACHE)
    assert again.find(question(judge=1)) is None
    assert again.find(question(replicate=1)) is None


def test_a_run_does_not_remember_itself(tmp_path):
    """Else it would depend on who answers first which questions are asked at all."""
    memory = remembering(tmp_path, opened_at=100.0)
    kept(memory, question(), said(4))
    assert memory.find(question()) is None
    assert remembering(tmp_path, opened_at=100.0).find(question()) is None


def test_units_with_the_same_texts_have_verdicts_of_their_own(tmp_path):
    """Two arms may answer alike: repeated from the cache, the run has the same n and estimates."""
    first = remembering(tmp_path, opened_at=100.0)
    for unit, score in enumerate((1, 2, 3, 4)):
        assert first.find(question(unit)) is None
        kept(first, question(unit), said(score))
    again = remembering(tmp_path, opened_at=200.0)
    found = [again.find(question(unit)) for unit in range(4)]
    assert [reply.text for reply in found] == [said(score).text for score in (1, 2, 3, 4)]


def test_units_are_not_known_by_their_number(tmp_path):
    """Another sample of the items remembers those that it shares."""
    assert copies([{"a": "x"}, {"a": "y"}, {"a": "x"}, {"b": "x"}]) == [0, 0, 1, 0]
    first = remembering(tmp_path, opened_at=100.0)
    kept(first, question(1), said(2))
    fewer = remembering(tmp_path, opened_at=200.0, texts=("two", "one"))
    assert fewer.find(question(0)).text == said(2).text


@pytest.mark.parametrize(
    "reply",
    [said(4, finish=Finish.REFUSED), said(4, finish=Finish.LENGTH), replace(said(4), text="No.")],
    ids=["refused", "truncated", "unparsable"],
)
def test_what_is_no_verdict_is_asked_again(tmp_path, reply):
    """C30: a refusal is followed by a request, not by itself; then the verdict is remembered."""
    kept(remembering(tmp_path, opened_at=100.0), question(), reply)
    second = remembering(tmp_path, opened_at=200.0)
    assert second.find(question()) is None
    kept(second, question(), said(5))
    assert remembering(tmp_path, opened_at=300.0).find(question()).text == said(5).text


def test_what_reads_no_longer_is_asked_again(tmp_path):
    kept(remembering(tmp_path, opened_at=100.0), question(), said(4))

    class Stricter(Words):
        def read(self, query, reply):
            return Unreadable(reason=MissingReason.PARSE_FAILURE)

    assert remembering(tmp_path, opened_at=200.0, rubric=Stricter()).find(question()) is None


def test_what_comes_from_elsewhere_is_not_stored(tmp_path):
    for origin in (Origin.CACHE, Origin.RECORDED):
        memory = remembering(tmp_path, opened_at=100.0)
        assert kept(memory, question(), replace(said(4), origin=origin)) == ""
    assert list(entries(tmp_path)) == []


def test_a_judge_that_can_not_be_told_from_others_is_always_asked(tmp_path):
    """Without a signature, or fingerprints of its words, nothing is known to be the same."""

    class Plain:
        read = Words.read
        render = Words.render

    for memory, judge in (
        (remembering(tmp_path, opened_at=100.0), 2),
        (remembering(tmp_path, opened_at=100.0, rubric=Plain()), 0),
    ):
        assert memory.find(question(judge=judge)) is None
        assert kept(memory, question(judge=judge), said(4)) == ""
    assert list(entries(tmp_path)) == []


def test_units_without_texts_are_told_apart(tmp_path):
    kept(remembering(tmp_path, opened_at=100.0, texts=()), question(0), said(4))
    again = remembering(tmp_path, opened_at=200.0, texts=())
    assert again.find(question(0)) is not None
    assert again.find(question(2)) is None


def test_a_share_is_asked_again_and_compared(tmp_path):
    """What is stored stays, so that a slow drift adds up; the live verdict is what counts."""
    first = remembering(tmp_path, opened_at=100.0)
    for n in range(30):
        kept(first, question(replicate=n), said(2))
    again = remembering(tmp_path, opened_at=200.0, recheck=1.0)
    assert all(again.find(question(replicate=n)) is None for n in range(30))
    stops = [kept(again, question(replicate=n), said(3)) for n in range(14)]
    assert stops[:13] == [""] * 13
    assert "came out higher" in stops[13]
    third = remembering(tmp_path, opened_at=300.0)
    assert {third.find(question(replicate=n)).text for n in range(30)} == {said(2).text}


def test_another_model_behind_the_name_ends_the_run(tmp_path):
    kept(remembering(tmp_path, opened_at=100.0), question(), said(2))
    again = remembering(tmp_path, opened_at=200.0, recheck=1.0)
    assert "acme-std-2026-09-09 answers now" in kept(
        again, question(), said(2, model="acme-std-2026-09-09")
    )


# --- the commands ------------------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path):
    """Three verdicts of two models, one of them 40 days old, and one that can't be read."""
    folder = tmp_path / ".sortition" / "cache"
    old = Cache(folder, now=lambda: time.time() - 40 * 86400)
    new = Cache(folder)
    old.put(key("a", "1"), REPLY, ABOUT)
    new.put(key("a", "2"), REPLY, ABOUT)
    new.put(key("b", "1"), REPLY, About(adapter="anthropic", model="acme-big"))
    (folder / "00").mkdir(exist_ok=True)
    (folder / "00" / "ff.jsonl").write_text("?\n")
    return folder


def listed(sortition, *words):
    code, out, _ = sortition("cache", "ls", "--json", *words)
    assert code == 0
    return json.loads(out)


def test_ls_counts_by_adapter_and_model(sortition, filled):
    found = listed(sortition)
    assert found["verdicts"] == 4
    assert found["bytes"] == sum(entry.n_bytes for entry in entries(filled))
    assert [(g["adapter"], g["model"], g["verdicts"]) for g in found["groups"]] == [
        ("", "", 1),
        ("anthropic", "acme-big", 1),
        ("openai", "acme-std", 2),
    ]
    std = found["groups"][2]
    assert std["newest"] - std["oldest"] == pytest.approx(40 * 86400, abs=60)
    code, out, _ = sortition("cache", "ls")
    assert code == 0
    assert "openai acme-std https://api.example.com/v1: 2 entries" in out
    assert "damaged: 1 entry" in out
    assert out.splitlines()[-1].startswith(f"{Path('.sortition/cache')}: 4 entries")


def test_ls_of_nothing_is_nothing(sortition, tmp_path):
    assert listed(sortition)["verdicts"] == 0
    assert sortition("cache", "ls")[0] == 0
    assert not (tmp_path / ".sortition").exists()


def test_ls_chooses_by_age_and_model(sortition, filled):
    assert listed(sortition, "--older-than", "30d")["verdicts"] == 1
    assert listed(sortition, "--older-than", "50d")["verdicts"] == 0
    assert listed(sortition, "--model", "acme-std")["verdicts"] == 2
    assert listed(sortition, "--model", "acme")["verdicts"] == 0
    assert listed(sortition, "--dir", filled)["verdicts"] == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dir", "nowhere"], "no folder nowhere"),
        (["--older-than", "soon"], "--older-than wants a duration"),
    ],
)
def test_nonsense_is_2(sortition, words, says):
    code, _, err = sortition("cache", "ls", *words)
    assert code == 2
    assert says in err


def test_clear_removes_what_was_chosen_and_nothing_else(sortition, filled):
    (filled / "notes.txt").write_text("mine")
    (filled / "ab").mkdir(exist_ok=True)
    (filled / "ab" / "notes.txt").write_text("mine")
    code, out, _ = sortition("cache", "clear", "-y", "--older-than", "30d", "--json")
    assert code == 0
    assert json.loads(out)["removed"] == 1
    assert sortition("cache", "clear", "-y", "--model", "acme-big")[0] == 0
    assert {e.about and e.about.model for e in entries(filled)} == {None, "acme-std"}
    assert sortition("cache", "clear", "-y")[0] == 0
    assert list(entries(filled)) == []
    kept = sorted(path.name for path in filled.rglob("*") if path.is_file())
    assert kept == [".gitignore", "notes.txt", "notes.txt"]


def test_clear_removes_what_a_crash_left_half_written(sortition, filled):
    """A text that is to go goes, however it came to lie there."""
    half = filled / "00" / ".ee.jsonl.1234abcd.new"
    half.write_text("half a reply")
    assert sortition("cache", "clear", "-y")[0] == 0
    assert not half.exists()


def test_clear_asks_on_a_terminal_and_wants_yes_without_one(sortition, filled):
    code, _, err = sortition("cache", "clear")
    assert code == 2
    assert "--yes" in err
    assert sortition("cache", "clear", answers=["n"])[0] == 2
    assert sortition("cache", "clear", answers=[])[0] == 2
    assert len(list(entries(filled))) == 4
    code, _, err = sortition("cache", "clear", answers=["y"])
    assert code == 0
    assert "Remove from" in err
    assert list(entries(filled)) == []
    assert sortition("cache", "clear")[0] == 0


def test_an_entry_that_another_process_clears_is_passed_over(tmp_path, monkeypatch):
    cache = Cache(tmp_path)
    for n in range(3):
        cache.put(key("a", str(n)), REPLY, ABOUT)
    found = entries(tmp_path)
    assert isinstance(next(found), Entry)
    for path in files(cache):
        path.unlink()
    assert list(found) == []


def test_preferences_that_turn_tell_of_a_changed_model(tmp_path):
    """Second by the cache and first when asked again, time after time: it is another judge.

    Without the judge's own words a preference is written anew, and reads back as the same.
    """
    fields = [{"candidate": f"text {n}"} for n in range(60)]
    overall = Criterion(name="overall", scale=Scale(type=ScaleType.PREFERENCE, ties=True))
    rubric = Compare(None, (overall,), fields, n_arms=2, seeds=Seeds(3), max_output_tok=99)
    judge = Judge(name="acme", rubric=rubric, adapter=None, signature="acme")

    def remembering(opened_at):
        cache = Cache(tmp_path, now=lambda: opened_at + 1)
        options = {"seed": 3, "opened_at": opened_at, "keeps_text": False}
        return CachedVerdicts(cache, [judge], [ABOUT], (overall,), fields, **options)

    def heard(memory, item, said):
        query = Query(kind=Kind.COMPARE, judge=0, units=(2 * item, 2 * item + 1))
        reply = replace(REPLY, text=f'```json\n{{"overall": "{said}"}}```', alternatives=())
        judged = Judged(observations=rubric.read(query, reply).observations, cost=1, usage=None)
        return memory.keep(query, Attempt(), reply, judged)

    first = remembering(100.0)
    assert {heard(first, item, "second") for item in range(30)} == {""}
    again = remembering(200.0)
    query = Query(kind=Kind.COMPARE, judge=0, units=(0, 1))
    assert again.find(query).text == '{"overall": "second"}'
    assert again.find(replace(query, units=(1, 0))) is None
    warnings = [heard(again, item, "tie" if item % 2 else "first") for item in range(30)]
    assert set(warnings[:13]) == {""}
    assert all("came out higher: the model behind it has changed" in said for said in warnings[13:])
