"""Verdicts kept between runs, and the watch over whether the model behind them has changed.

One small file a verdict, `DIR/ab/cdef….jsonl`, named by the digest of all that the answer depends on:
a first line for people (when, from whom), a second one with the reply. Files appear whole, so any
number of processes may use one folder, and a crash costs at most the verdict that was being written.

The digest has no salt: caches can be merged and moved. Who knows a text and the rest of its request
can therefore tell whether it was asked about; texts can't be read out of digests.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit, urlunsplit

from orchestrator import atomic
from orchestrator.core.errors import ConfigError
from orchestrator.core.judge import Judge
from orchestrator.core.ports import Reading, Unreadable
from orchestrator.core.query import Judged, Observation, Preference, Query, Role
from orchestrator.core.scale import Criterion, ScaleType
from orchestrator.core.wire import FIRST_ATTEMPT, Attempt, Chat, Finish, Json, Origin, Reply, Route
from orchestrator.store.codec import decode_reply, digest, encode_reply

DEFAULT_DIR = Path(".sortition/cache")
FORMAT = 1
"""Of the files and of the key; others are misses."""


def key(signature: str, fingerprint: str, copy: Sequence[int | str] = ()) -> str:
    """Name what is stored for a judge (`Judge.signature`) and a request (the rubric's fingerprint).

    `copy` tells units apart that hold the same texts, so that each has a verdict of its own.
    """
    said = json.dumps([FORMAT, signature, fingerprint, list(copy)])
    return blake2b(said.encode(), digest_size=20).hexdigest()


def storable(
    reply: Reply,
    read: Callable[[Reply], Reading | Unreadable],
    *,
    criteria: Sequence[Criterion],
    route: Route,
    keeps_text: bool,
) -> Reply | None:
    """Give what may be stored of a live reply: nothing unless it is a complete verdict.

    Refusals, truncations and parse failures are never stored, so that asking again asks. Without
    `keeps_text` (`output.keep.replies` other than `full`) the verdict alone is written anew, without
    a word of the judge's own. What would not read back as the same verdict is not stored, and so
    neither are verdicts on several units then, nor an answer that leaves units out.
    """
    if reply.finish is not Finish.STOP or reply.origin is not Origin.LIVE:
        return None
    reading = read(reply)
    if isinstance(reading, Unreadable) or any(f.startswith("partial:") for f in reading.flags):
        return None
    if keeps_text:
        return reply
    if len(reading.observations) > len(criteria):
        return None
    bare = replace(reply, text=_verdict(reply, reading.observations, criteria, route))
    again = read(bare)
    if isinstance(again, Unreadable) or again.observations != reading.observations:
        return None
    return bare


def _verdict(
    reply: Reply, observations: Sequence[Observation], criteria: Sequence[Criterion], route: Route
) -> str:
    if route is Route.LOGPROB:
        return "".join(reply.text.split(maxsplit=1)[:1])  # the label; the rest is in `alternatives`
    said = {
        criteria[seen.criterion].name: seen.preference
        or _value(seen.value, criteria[seen.criterion].scale.type)
        for seen in observations
    }
    text = json.dumps(said, ensure_ascii=False)
    return f"<verdict>{text}</verdict>" if route is Route.TEXT else text


def _value(value: float | None, kind: ScaleType) -> Json:
    match kind:
        case _ if value is None:
            return None
        case ScaleType.BOOLEAN:
            return bool(value)
        case ScaleType.INTEGER:
            return int(value)
        case _:
            return value


# --- the folder --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Whose verdict it is, for `sortition cache ls`; neither key nor password."""

    adapter: str
    model: str = ""
    base_url: str = ""


class Cache:
    """Finds and keeps verdicts in a folder, which it makes.

    Parameters
    ----------
    directory : shared by any number of processes
    max_age_s : older verdicts are misses; None: none is too old
    recheck : share of the verdicts found that is asked live all the same, 0 to 1
    now : the clock, POSIX seconds

    Raises
    ------
    ConfigError
        The folder can't be made.
    """

    def __init__(
        self,
        directory: Path,
        *,
        max_age_s: float | None = None,
        recheck: float = 0.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._max_age_s = math.inf if max_age_s is None else max_age_s
        self._recheck = recheck
        self._now = now
        try:
            directory.mkdir(parents=True, exist_ok=True)
            ignored = directory / ".gitignore"
            if not ignored.exists():
                atomic.write(ignored, b"*\n")
        except OSError as exc:
            raise ConfigError(f"cache.dir: {directory} can't be used: {exc.strerror}") from exc

    def find(self, key: str, as_of: float | None = None) -> Reply | None:
        """Find what was stored; what is too old or can't be read is not there.

        `as_of` (POSIX seconds) is when one looks, now if it is None: what was stored later is not
        there yet.
        """
        try:
            head, _, body = _path(self._directory, key).read_bytes().partition(b"\n")
            about = json.loads(head)
            if about["check"] != _check(key, body):
                return None
            if not 0 <= (as_of or self._now()) - about["stored_at"] <= self._max_age_s:
                return None
            return replace(decode_reply(body), origin=Origin.CACHE)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, key: str, reply: Reply, about: About) -> None:
        """Store what `storable` gave. A folder that can't be written is one that finds nothing."""
        body = encode_reply(reply)
        head = {
            "format": FORMAT,
            "stored_at": self._now(),
            "adapter": about.adapter,
            "model": about.model,
            "base_url": _without_secrets(about.base_url),
            "check": _check(key, body),
        }
        path = _path(self._directory, key)
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            atomic.write(path, json.dumps(head).encode() + b"\n" + body)

    def is_recheck(self, key: str, seed: int) -> bool:
        """Say whether a verdict found is asked live all the same; draws by key and seed alone."""
        drawn = blake2b(f"{seed}:{key}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn) < self._recheck * 2**64


def _path(directory: Path, key: str) -> Path:
    return directory / key[:2] / f"{key[2:]}.jsonl"


def _check(key: str, body: bytes) -> str:
    return digest(key.encode() + body)


def _without_secrets(url: str) -> str:
    """Leave the user, the password and what follows the path out of a URL."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of a cache. `about` None: it can't be read, and `stored_at` is the file's time."""

    path: Path
    n_bytes: int
    stored_at: float
    about: About | None


def entries(directory: Path) -> Iterator[Entry]:
    """List the files of a cache, what a crash left half written included; others are passed over."""
    for path in sorted(directory.glob("[0-9a-f][0-9a-f]/*.jsonl*")):
        with suppress(FileNotFoundError, IsADirectoryError):  # another process clears; not ours
            yield _entry(path)


def _entry(path: Path) -> Entry:
    stat = path.stat()
    with path.open("rb") as file:
        head = file.readline()
    try:
        said = json.loads(head)
        about = About(**{name: str(said[name]) for name in ("adapter", "model", "base_url")})
        stored_at = float(said["stored_at"])
    except (ValueError, KeyError, TypeError, RecursionError):
        about, stored_at = None, stat.st_mtime
    return Entry(path=path, n_bytes=stat.st_size, stored_at=stored_at, about=about)


# --- whether the model has changed -------------------------------------------------------------


class Recheck:
    """Compares stored verdicts with live ones on the same questions, as they come.

    If the model is the same, the stored and the live verdict are two draws of one law, so that among
    pairs that differ either is the higher one with probability 1/2, whatever the scale and the noise.
    Of n such pairs, u went up. The likelihood of a share p, averaged over all p alike, against that
    of 1/2 is::

        E = 2^n · ∫ p^u (1-p)^(n-u) dp = 2^n · u! (n-u)! / (n+1)!

    Under the null it is a martingale that begins at 1, so it *ever* reaches 1/alpha with probability
    at most alpha: one may look after each pair and stop at the first that tells. A t test would need
    a correction for its looks, and a law of the noise that five labels do not have.

    `alpha` is that of one judge, split over its criteria. It takes at least 14 pairs that all go the
    same way (at 0.001 and one criterion); a hundred that split 71 to 29 tell too. Pairs that agree,
    and those where a side says "not applicable", say nothing of a direction.

    Source: [R70], the inequality for binomial probabilities.
    """

    def __init__(self, criteria: Sequence[str], *, alpha: float = 0.001) -> None:
        self._criteria = tuple(criteria)
        self._bar = math.log(len(self._criteria) / alpha)
        self._counts: dict[tuple[str, int], tuple[int, int]] = {}

    def add(
        self,
        judge: str,
        cached_values: Sequence[float | None],
        live_values: Sequence[float | None],
        cached_model: str,
        live_model: str,
    ) -> str | None:
        """Take in one question that was asked again; say why the run must end, if it must.

        Values stand in the order of the criteria, unit by unit. A served model that is not named is not compared.
        """
        if cached_model and live_model and cached_model != live_model:
            return (
                f"{judge}: the cache holds verdicts of {cached_model}, and {live_model} answers now; "
                f"they are not verdicts of one judge: {_REMEDY}"
            )
        pairs = zip(cached_values, live_values, strict=True)
        for index, (cached, live) in enumerate(pairs):
            if cached is None or live is None or cached == live:
                continue
            criterion = index % len(self._criteria)
            up, down = self._counts.get((judge, criterion), (0, 0))
            up, down = (up + 1, down) if live > cached else (up, down + 1)
            self._counts[judge, criterion] = (up, down)
            if log_evidence(up, down) >= self._bar:
                way, n = ("higher", up) if up > down else ("lower", down)
                return (
                    f"{judge}: of {up + down} cached verdicts on {self._criteria[criterion]} that came "
                    f"out otherwise when asked again, {n} came out {way}: the model behind it has "
                    f"changed: {_REMEDY}"
                )
        return None


_REMEDY = "clear the cache (sortition cache clear) or set cache.max_age, and start a new run"


def log_evidence(up: int, down: int) -> float:
    """Weigh, as a natural logarithm, that up and down are not equally likely; see `Recheck`."""
    n = up + down
    return n * math.log(2) + math.lgamma(up + 1) + math.lgamma(down + 1) - math.lgamma(n + 2)


# --- what a run remembers ----------------------------------------------------------------------


@runtime_checkable
class Fingerprinted(Protocol):
    """A rubric whose answers can be kept between runs."""

    def fingerprint(self, query: Query, attempt: Attempt) -> str:
        """Digest all that an answer depends on in the words."""
        ...


class CachedVerdicts:
    """What a run remembers of earlier ones: the `Memory` of its crew.

    It remembers what was stored before the run was opened. So whether a question is asked does not
    depend on how fast others are answered, and units with the same texts, of which two arms may hold
    many, get verdicts of their own: the run that is repeated from the cache has the same ones.

    A question is named by its first attempt: an answer that took a second one with twice the output
    limit answers the same question.

    Parameters
    ----------
    judges : of the run; one without a `signature`, or whose rubric has no fingerprints, is always
        asked
    about : of each judge
    criteria : in the order of the study
    fields : what judges are shown of each unit; empty where units have no texts
    systems : whose answers are judged, one an arm of each item; `fields` then lack the answer
    seed : draws which questions are asked again
    opened_at : when the run was opened, POSIX seconds
    keeps_text : whether replies are kept whole
    """

    def __init__(
        self,
        cache: Cache,
        judges: Sequence[Judge],
        about: Sequence[About],
        criteria: Sequence[Criterion],
        fields: Sequence[Mapping[str, str | Chat]],
        *,
        systems: Sequence[str] = (),
        seed: int,
        opened_at: float,
        keeps_text: bool,
    ) -> None:
        self._cache = cache
        self._judges = judges
        self._about = about
        self._criteria = criteria
        self._systems = systems
        n_arms = max(1, len(systems))
        # Each system is shown an item once, whoever else is.
        own = copies(fields[::n_arms])
        self._copies = [copy for copy in own for _ in range(n_arms)]
        self._seed = seed
        self._opened_at = opened_at
        self._keeps_text = keeps_text
        self._recheck = Recheck([criterion.name for criterion in criteria])

    def find(self, query: Query) -> Reply | None:
        """Give the verdict on a question that was stored, unless it is to be asked again."""
        key = self._key(query)
        is_verdict = query.role is Role.JUDGE
        if key is None or (is_verdict and self._cache.is_recheck(key, self._seed)):
            return None
        found = self._stored(query, key)
        return None if found is None else found[0]

    def keep(self, query: Query, attempt: Attempt, reply: Reply, judged: Judged) -> str:  # noqa: ARG002  # of the port
        """Store an answer, or compare it with the one that is stored, which then stays.

        Gives why what is stored is of another model, "" if it is not.
        """
        key = self._key(query)
        if key is None or reply.origin is not Origin.LIVE:
            return ""
        judge = self._judges[query.judge]
        found = self._stored(query, key)
        if found is None:
            kept = storable(
                reply,
                partial(judge.rubric.read, query),
                criteria=self._criteria,
                route=judge.route,
                keeps_text=self._keeps_text,
            )
            if kept is not None:
                self._cache.put(key, kept, self._about[query.judge])
            return ""
        stored, reading = found
        before, now = (self._values(o) for o in (reading.observations, judged.observations))
        both = [key for key in before if key in now]
        said = self._recheck.add(
            judge.name,
            [before[key] for key in both],
            [now[key] for key in both],
            stored.served_model,
            reply.served_model,
        )
        return said or ""

    def _key(self, query: Query) -> str | None:
        judge = self._judges[query.judge]
        if not judge.signature or not isinstance(judge.rubric, Fingerprinted):
            return None
        words = judge.rubric.fingerprint(query, FIRST_ATTEMPT)
        copy: list[int | str] = [
            self._copies[unit] if self._copies else unit for unit in query.units
        ]
        if self._systems and query.role is Role.JUDGE:
            # Two systems that say the same have verdicts of their own.
            copy += [self._systems[unit % len(self._systems)] for unit in query.units]
        return key(judge.signature, words, copy)

    def _stored(self, query: Query, key: str) -> tuple[Reply, Reading] | None:
        reply = self._cache.find(key, self._opened_at)
        if reply is None:
            return None
        reading = self._judges[query.judge].rubric.read(query, reply)
        return None if isinstance(reading, Unreadable) else (reply, reading)

    def _values(self, observations: Sequence[Observation]) -> dict[tuple[int, int], float | None]:
        """Give the verdicts by unit and criterion, those of one unit in the order of criteria.

        A preference is what it is worth to the answer shown first.
        """
        return {
            (seen.unit, seen.criterion): (
                seen.value if seen.preference is None else _WORTH[seen.preference]
            )
            for seen in sorted(observations, key=lambda seen: (seen.unit, seen.criterion))
        }


_WORTH = {Preference.FIRST: 1.0, Preference.TIE: 0.5, Preference.SECOND: 0.0}


def copies(fields: Sequence[Mapping[str, str | Chat]]) -> list[int]:
    """Number the units that hold the same texts, from 0, in their order."""
    seen: Counter[Hashable] = Counter()
    numbers = []
    for given in fields:
        texts = frozenset(given.items())
        numbers.append(seen[texts])
        seen[texts] += 1
    return numbers
