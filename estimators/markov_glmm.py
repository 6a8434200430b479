"""The estimator `markov_glmm`: batched ratings with the carry-over of the order modelled.

It keeps the ratings as they are told and fits them at looks, each judge by itself, always from the
same start: so a look says the same whether the run went through or was taken up again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from scipy.special import ndtr, ndtri, stdtrit

from estimators.batches import Rating
from estimators.confidence_sequences import sequence_bound
from estimators.group_sequential import bounds
from estimators.judge_pool import (
    PooledContrast,
    PooledQualities,
    holm,
    pool_judges,
    pool_qualities,
)
from estimators.markov_inference import (
    SCALES,
    Inference,
    at_scales,
    group_contrast,
    group_weights,
    position_profile,
    sandwich,
    welch,
)
from estimators.markov_model import (
    Contrast,
    FitStatus,
    MarkovFit,
    fit_markov_glmm,
    fit_sequences,
)
from estimators.markov_naive import naive_contrast, naive_limit
from estimators.markov_prediction import predictive_check
from estimators.markov_ranking import first_chances, lead, naive_safety, ranking
from orchestrator.core.batches import batches_per_look, most_batches
from orchestrator.core.errors import DidNotConverge
from orchestrator.core.estimate import Estimate, Status
from orchestrator.core.ports import Plugin
from orchestrator.core.query import Judged, Kind
from orchestrator.core.records import Record
from orchestrator.core.scale import ScaleType
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import Json

TRUNCATED = "partial:truncated"
"""Flag of an answer that was cut: the units behind its last verdict were not rated."""


def _count_or_auto(value: object) -> object:
    if value in (None, "auto") or (type(value) is int and value > 0):
        return value
    raise ValueError(f"wants a whole number above 0 or auto, not {value!r}")


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GroupContrast(_Config):
    """One group of items, or one arm, against another."""

    group: str | None = None
    arm: str | None = None
    baseline: str

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.group is None) == (self.arm is None):
            raise ValueError("wants group or arm, one of them")
        return self


class MarkovGlmmConfig(_Config):
    """The keys of an estimate of kind `markov_glmm`.

    Parameters
    ----------
    lags : depth of the judge's memory
    quadrature : nodes of the integral over batch effects
    penalty : scale in logits of the prior of qualities; None: none
    contrast : groups or arms to compare; without one the units are ranked
    inference : `panel` is about these items, `items` about items like these
    accept_from : on a number scale, the lowest verdict that accepts; that of the task if None
    check, blocks, block_length : None follows the stop rule and the policy
    """

    name: str
    kind: Literal["markov_glmm"] = "markov_glmm"
    lags: Annotated[int, Field(ge=0, le=5)] = 1
    quadrature: Annotated[int, Field(ge=1, le=41)] = 15
    penalty: Annotated[float, Field(gt=0)] | None = 5.0
    contrast: GroupContrast | None = None
    inference: Literal["panel", "items"] = "panel"
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    accept_from: float | None = None
    check: Literal["end", "anytime", "group_sequential"] | None = None
    blocks: Annotated[int | Literal["auto"] | None, BeforeValidator(_count_or_auto)] = None
    block_length: Annotated[int, Field(gt=0)] | None = None


@dataclass(frozen=True, slots=True)
class _Course:
    """What is planned: batches of each judge at most, and after how many there is a look."""

    n_batches: int
    per_look: int

    def looks(self, n_done: int) -> list[int]:
        """List the looks so far, in batches of each judge, the planned end included."""
        last = min(n_done, self.n_batches)
        found = list(range(self.per_look, last + 1, self.per_look))
        return found if last < self.n_batches or found[-1:] == [last] else [*found, last]


_UNPLANNED = _Course(n_batches=100, per_look=10)
"""What a sequence expects where nothing is planned: ten times what the first ten batches of each
judge say. A wrong guess makes it wider, not wrong."""


class _Interval(NamedTuple):
    factor: float
    method: str
    holds_watched: bool


class MarkovGlmm:
    """Fits each judge's batches with its memory, compares groups or ranks units, and pools judges.

    Raises
    ------
    ValueError
        The study is not one of batches, has another scale than one with a yes and a no, or lacks a
        group; `group_sequential` without a planned number of batches.
    """

    def __init__(self, config: MarkovGlmmConfig, study: Study) -> None:
        if study.kind is not Kind.RATE_BATCH:
            hint = _OF_PAIRS if study.kind is Kind.COMPARE else ""
            raise ValueError(f"kind: markov_glmm reads rate_batch, not {study.kind}{hint}")
        self._config, self._study = config, study
        (criterion,) = study.criteria
        self._accepts = _threshold(criterion.scale.type, config.accept_from)
        self._names = [study.frame.unit_name(u) for u in range(study.frame.n_units)]
        self._sides = _sides(config.contrast, study, self._names)
        self._course = self._course_planned()
        self._batches: list[tuple[int, list[Rating]]] = []
        """Judge and ratings of each told question, in turn; no ratings where it brought none."""
        self._fits: dict[tuple[int, int], MarkovFit | None] = {}
        self._n_missing = 0
        self._seen: dict[int, Contrast] = {}
        self._qualities: dict[int, PooledQualities] = {}

    def update(self, record: Record) -> None:
        """Take in one told question."""
        ratings: list[Rating] = []
        match record.outcome:
            case Judged() as judged:
                ratings = list(self._ratings(record, judged))
            case _:
                self._n_missing += 1
        self._batches.append((record.query.judge, ratings))

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the contrast if one is asked for, and the units' qualities."""
        fits = self._at(len(self._batches))
        if not any(fits):
            return tuple(self._nothing())
        parts = [] if self._sides is None else [self._of_groups()]
        return (*parts, self._of_units(fits))

    # --- data -------------------------------------------------------------------------------------

    def _ratings(self, record: Record, judged: Judged) -> Sequence[Rating]:
        """Say what was said in each slot that was shown, as far as the answer goes."""
        said = {o.slot: o.value for o in judged.observations}
        last = max(said, default=-1)
        found: list[Rating] = []
        for slot, unit in enumerate(record.query.units):
            if TRUNCATED in judged.flags and slot > last:
                break
            # Nobody can tell what the judge thought of a unit that its answer leaves out.
            y = self._verdict(said[slot]) if slot in said else math.nan
            found.append((record.q, slot, unit, y))
        return found

    def _verdict(self, value: float | None) -> float | None:
        if value is None:
            return None
        return 1.0 if value >= self._accepts else 0.0

    def _course_planned(self) -> _Course | None:
        config = self._config
        if config.blocks is None or config.block_length is None:
            if config.check == "group_sequential":
                raise ValueError("check: group_sequential wants the policy batch_design")
            return None
        n_batches = most_batches(self._study, config.blocks, config.block_length)
        return _Course(n_batches, batches_per_look(n_batches, config.block_length))

    def _at(self, n_told: int) -> list[MarkovFit | None]:
        """Fit each judge to the first so many told questions; None where it rated nothing."""
        return [self._fit(judge, n_told) for judge in range(len(self._study.panel))]

    def _fit(self, judge: int, n_told: int) -> MarkovFit | None:
        key = (judge, n_told)
        if key not in self._fits:
            config = self._config
            ratings = [r for j, rows in self._batches[:n_told] if j == judge for r in rows]
            try:
                self._fits[key] = (
                    fit_markov_glmm(
                        ratings,
                        lags=config.lags,
                        quadrature=config.quadrature,
                        penalty=config.penalty,
                    )
                    if ratings
                    else None
                )
            except DidNotConverge:
                self._fits[key] = None
            for old in [k for k in self._fits if k[0] == judge and k != key]:
                del self._fits[old]
        return self._fits[key]

    # --- groups -----------------------------------------------------------------------------------

    def _of_groups(self) -> Estimate:
        """Compare the groups: with planned looks, as of the last of them."""
        assert self._sides is not None
        config, names = self._config, [p.name for p in self._study.panel]
        n_all = len(self._batches)
        n_done = self._n_at_look(n_all)
        later = None if n_done == n_all else self._contrast_at(n_all)
        fits = self._at(n_done)
        pooled = self._pooled(fits)
        found = pooled.pooled
        is_known = _is_known(found)
        interval = (
            self._interval(found, n_done)
            if is_known
            else _Interval(math.nan, "none", holds_watched=False)
        )
        half = interval.factor * found.se if is_known else math.nan
        first, second = self._sides
        rated = _rated_by_any(fits, self._sides)
        n_rated = sum(map(len, rated))
        label = f"{config.contrast.group or config.contrast.arm} - {config.contrast.baseline}"  # type: ignore[union-attr]
        rows, flags = [], set[str]()
        scaled = _by_scale(fits, self._sides)
        if scaled is None or not self._is_conclusive(fits, scaled, found, n_done):
            flags.add("prior_inconclusive")
        for judge, (name, fit) in enumerate(zip(names, fits, strict=True)):
            if fit is None:
                continue
            sensitivity = (scaled or {}).get(judge, ())
            rows.append(self._row(name, fit, first, second, flags, sensitivity))
        # A judge that says the same of most units, whatever comes before, can't tell groups apart.
        is_saturated = bool(rows) and all(row["saturated"] for row in rows)
        is_open = is_saturated or "prior_inconclusive" in flags
        if n_rated < len(first) + len(second):
            flags.add("items_unrated")
            # The mean of these items holds those that nobody has rated: wherever they lie, they move
            # it, and nothing here says where that is. A claim about items like these rests on a
            # sample of them; what orders or money leave out makes it smaller, not another one.
            is_open |= config.inference == "panel"
        if pooled.disagree:
            flags.add("contrast_differs_by_judge")
        if found.prior_sensitive:
            flags.add("prior_sensitive")
        items = "items like these" if config.inference == "items" else "these items"
        return Estimate(
            name=config.name,
            kind="markov_glmm",
            target="groups",
            estimand=f"difference of mean quality in logits, {items}, judged by this panel",
            names=(label,),
            value=(found.est,),
            se=(found.se if is_known else math.nan,),
            lower=(found.est - half,),
            upper=(found.est + half,),
            level=config.confidence,
            interval=interval.method,
            watching_covered=interval.holds_watched,
            alpha_split="none",
            family="one contrast",
            n_items=n_rated,
            n_answers=self._n_answers(n_done),
            status=Status.OK if is_known and not is_open else Status.NOT_IDENTIFIED,
            flags=tuple(sorted(flags)),
            diagnostics={
                "scale": "logit",
                "unrated": self._unrated([*first, *second], {*rated[0], *rated[1]}),
                "z": found.z,
                "p": found.p,
                "judges": rows,
                "pool": {
                    "q": pooled.q,
                    "df": pooled.df,
                    "p": pooled.q_p,
                    "holm": dict(pooled.holm),
                },
                "left_out": list(pooled.left_out),
                "reason": found.reason,
                "looks": self._looks_so_far(n_done),
                "after_last_look": None
                if later is None
                else {"n_batches": n_all, "est": later.est, "se": later.se, "z": later.z},
                **self._missing(),
            },
        )

    def _n_at_look(self, n_told: int) -> int:
        """Say how many told questions the verdict reads: what came after the last look is left out.

        To look where no look is planned, as where money ends, would spend error that is not there.
        """
        if self._config.check != "group_sequential" or self._course is None:
            return n_told
        n_judges = len(self._study.panel)
        looks = self._course.looks(n_told // n_judges)
        return looks[-1] * n_judges if looks else n_told

    def _pooled(self, fits: Sequence[MarkovFit | None]) -> PooledContrast:
        """Pool the judges' contrasts, all of the units that some judge has rated.

        A judge that lacks one of these has no such contrast: its own is that of other units. Then
        the contrast is that of the qualities over judges. For items like these it always is: items
        are the same for all judges, so the sample is that of their qualities, not one a judge.
        """
        assert self._sides is not None
        how, sides = Inference(self._config.inference), _rated_by_any(fits, self._sides)
        found: dict[str, Contrast] = {}
        p: dict[str, float] = {}
        used = [fit for fit in fits if fit is not None and not fit.reason]
        for panelist, fit in zip(self._study.panel, fits, strict=True):
            if fit is None:
                found[panelist.name] = _unknown("it rated nothing, or its fit found no maximum")
                continue
            own = first, second = _rated(fit, self._sides)
            if not (first and second):
                found[panelist.name] = _unknown("a group has no rated items")
            elif own != sides and not fit.reason:
                found[panelist.name] = _unknown("it lacks items that another judge has rated")
            else:
                found[panelist.name] = group_contrast(fit, first, second)
                p[panelist.name] = group_contrast(fit, first, second, how).p
        pool = pool_judges(found)
        is_shared = all(_rated(fit, self._sides) == sides for fit in used)
        if not (used and all(sides)) or (how is Inference.PANEL and is_shared):
            return pool
        qualities = pool_qualities(used)
        pooled = qualities.contrast(group_weights(*sides))
        if how is Inference.ITEMS and _is_known(pooled):
            value = dict(zip(qualities.items, qualities.value.tolist(), strict=True))
            pooled = welch(*(np.array([value[unit] for unit in side]) for side in sides))
        is_sensitive = any(fit.unanimous.keys() & {*sides[0], *sides[1]} for fit in used)
        return replace(
            pool,
            pooled=pooled._replace(prior_sensitive=is_sensitive),
            holm=holm({name: p[name] for name in pool.holm}),
        )

    def _is_conclusive(
        self,
        fits: Sequence[MarkovFit | None],
        scaled: Mapping[int, Sequence[MarkovFit]],
        found: Contrast,
        n_done: int,
    ) -> bool:
        """Say whether the interval finds the same at all scales of the penalty.

        That of the pool, not of each judge: its error holds what the penalty does to all of them
        alike. And that which is declared: a test at another level would answer another question.
        """
        if not (scaled and _is_known(found)):
            return True
        verdicts = {self._sign(found, n_done)}
        for k in range(len(SCALES)):
            again = [scaled[j][k] if j in scaled else fit for j, fit in enumerate(fits)]
            verdicts.add(self._sign(self._pooled(again).pooled, n_done))
        return len(verdicts) == 1

    def _sign(self, found: Contrast, n_done: int) -> int:
        """Give the sign of a contrast whose interval is on one side of 0; else 0."""
        if not (
            _is_known(found) and abs(found.est) > self._interval(found, n_done).factor * found.se
        ):
            return 0
        return 1 if found.est > 0 else -1

    def _interval(self, found: Contrast, n_done: int) -> _Interval:
        """Say how many standard errors the interval is wide, and by which method."""
        alpha = 1 - self._config.confidence
        bound = self._bound(n_done, 1 / found.se**2, self._information_at, alpha)
        match self._config.check:
            case "group_sequential":
                method, is_watched = "repeated, O'Brien-Fleming spending", True
            case "anytime":
                method, is_watched = "confidence sequence in information", True
            case _:
                method, is_watched = "Wald", False
        if self._config.inference == "items":
            # The bound at as small an error of Student's law: the items' spread is estimated too.
            bound = float(-stdtrit(found.df, ndtr(-bound))) if math.isfinite(bound) else bound
            method = f"{method}, Welch over items" if is_watched else "Welch over items"
        return _Interval(bound, method, is_watched)

    def _bound(
        self, n_done: int, information: float, at: Callable[[int], float], alpha: float
    ) -> float:
        """Bound |z| of an estimate after so many told questions, in the way that is declared.

        `information` is its 1/se² now, and `at` gives that after any number of told questions.
        """
        match self._config.check:
            case "group_sequential":
                looks = self._boundary(n_done, at, alpha)
                return looks[-1] if looks else math.inf
            case "anytime":
                planned = self._planned(n_done, at)
                return sequence_bound(information, 1 - alpha, planned) if planned else math.inf
            case _:
                return float(-ndtri(alpha / 2))

    def _boundary(self, n_done: int, at: Callable[[int], float], alpha: float) -> tuple[float, ...]:
        """Give the bound at each look so far; looks come at planned numbers of batches alone."""
        assert self._course is not None
        n_judges = len(self._study.panel)
        looks = self._course.looks(n_done // n_judges)
        information = [at(n * n_judges) for n in looks]
        known = [(n, i) for n, i in zip(looks, information, strict=True) if i > 0]
        if not known:
            return ()
        times = [n / self._course.n_batches for n, _ in known]
        return bounds(times, [i for _, i in known], alpha=alpha)

    def _contrast_at(self, n_told: int) -> Contrast:
        """Give the contrast after so many told questions."""
        if n_told not in self._seen:
            self._seen[n_told] = self._pooled(self._at(n_told)).pooled
        return self._seen[n_told]

    def _information_at(self, n_told: int) -> float:
        """Give 1/se² of the contrast after so many told questions; 0 where it was not estimable."""
        found = self._contrast_at(n_told)
        return 1 / found.se**2 if _is_known(found) else 0.0

    def _planned(self, n_done: int, at: Callable[[int], float]) -> float:
        """Expect the information of the planned end from that of the first look; 0: none yet.

        It stays what it is from then on: a sequence that is tuned anew at each look is a constant
        bound, which looks pass sooner or later. Nothing is claimed before that look.
        """
        course, n_judges = self._course or _UNPLANNED, len(self._study.panel)
        for n in course.looks(n_done // n_judges):
            if (seen := at(n * n_judges)) > 0:
                return seen * course.n_batches / n
        return 0.0

    def _looks_so_far(self, n_done: int) -> list[Json]:
        if self._config.check != "group_sequential" or self._course is None:
            return []
        n_judges = len(self._study.panel)
        looks = self._course.looks(n_done // n_judges)
        known = [n for n in looks if self._information_at(n * n_judges)]
        return [
            {
                "batches": n,
                "of": self._course.n_batches,
                "z": self._contrast_at(n * n_judges).z,
                "bound": bound,
            }
            for n, bound in zip(
                known,
                self._boundary(n_done, self._information_at, 1 - self._config.confidence),
                strict=True,
            )
        ]

    def _row(
        self,
        name: str,
        fit: MarkovFit,
        first: Sequence[int],
        second: Sequence[int],
        flags: set[str],
        scaled: Sequence[MarkovFit],
    ) -> dict[str, Json]:
        """Say what one judge's fit says, and what raw verdicts would have said."""
        row = self._about(name, fit, flags)
        above, below = _rated(fit, (first, second))
        if not (above and below):
            return row
        own = group_contrast(fit, above, below, Inference(self._config.inference))
        naive = naive_contrast(fit.source, above, below)
        limit = naive_limit(fit, above, below) if not fit.reason else None
        if limit is not None and limit.warns:
            flags.add("naive_biased")
        again = [each.contrast(group_weights(above, below)) for each in scaled]
        sensitivity: list[Json] = [
            {"scale": scale, "est": one.est, "se": one.se, "p": one.p}
            for scale, one in zip(SCALES, again, strict=bool(again))
        ]
        return row | {
            "contrast": {"est": own.est, "se": own.se, "z": own.z, "p": own.p},
            "naive": {"est": naive.est, "se": naive.se, "z": naive.z, "p": naive.p},
            "naive_limit": None if limit is None else limit._asdict(),
            "prior_sensitivity": sensitivity,
        }

    # --- units ------------------------------------------------------------------------------------

    def _of_units(self, fits: Sequence[MarkovFit | None]) -> Estimate:
        """Give each unit's quality, centred at the mean of all, pooled over judges by precision."""
        config, n_units = self._config, len(self._names)
        chances: list[Json] = []
        flags, rows = set[str](), []
        rng = self._study.seeds.stream(Stream.BOOTSTRAP, 0)
        for judge, (panelist, fit) in enumerate(zip(self._study.panel, fits, strict=True)):
            if fit is None:
                continue
            chance = self._study.seeds.stream(Stream.BOOTSTRAP, 1 + judge)
            prediction = _predicted(fit, chance)
            rows.append(self._about(panelist.name, fit, flags) | {"prediction": prediction})
            if prediction is not None and not prediction["passes"]:
                flags.add("prediction_misses")
            if fit.reason:
                continue
            units = np.asarray(fit.items, dtype=np.int64)
            ranked = ranking(fit, rng, level=config.confidence)
            first = {self._names[u]: p for u, p in zip(units, ranked.p_first.tolist(), strict=True)}
            safety = naive_safety(fit)
            chances.append(
                {
                    "judge": panelist.name,
                    "first": first,
                    "order": [self._names[units[i]] for i in ranked.order],
                    "naive_is_safe": safety.is_safe,
                    "gap": safety.gap,
                    "needed": safety.needed,
                }
            )
            if not safety.is_safe:
                flags.add("naive_ranking_unsafe")
        pooled = self._qualities_at(len(self._batches))
        value, se = np.full(n_units, np.nan), np.full(n_units, np.nan)
        # Above the mean of these items is a comparison with all of them: of the largest part's.
        is_first = pooled.component == 0
        there = np.asarray(pooled.items, dtype=np.int64)[is_first]
        value[there], se[there] = pooled.value[is_first], np.sqrt(np.diag(pooled.cov)[is_first])
        rated = {unit for fit in fits if fit is not None and not fit.reason for unit in _shown(fit)}
        if len(rated) < n_units:
            flags.add("items_unrated")
        if rated - {*there.tolist()}:
            flags.add("items_unconnected")
        half = float(-ndtri((1 - config.confidence) / 2)) * se
        n_known = int(np.isfinite(se).sum())
        status = Status.OK if n_known == n_units else Status.PARTIAL if n_known else Status.EMPTY
        return Estimate(
            name=config.name,
            kind="markov_glmm",
            target="units",
            estimand="quality in logits above the mean of these items, judged by this panel",
            names=tuple(self._names),
            value=tuple(value.tolist()),
            se=tuple(se.tolist()),
            lower=tuple((value - half).tolist()),
            upper=tuple((value + half).tolist()),
            level=config.confidence,
            interval="Wald",
            watching_covered=False,
            alpha_split="none",
            family="each name by itself",
            n_items=n_known,
            n_answers=self._n_answers(),
            status=status,
            flags=tuple(sorted(flags)),
            diagnostics={
                "scale": "logit",
                "judges": rows,
                "ranking": chances,
                "first": self._first(pooled, rng),
                **({} if self._sides is not None else self.leader()),
                **self._missing(),
            },
        )

    def _qualities_at(self, n_told: int) -> PooledQualities:
        """Pool the units' qualities after so many told questions."""
        if n_told not in self._qualities:
            fits, n_judges = self._at(n_told), len(self._study.panel)
            looks = (self._course or _UNPLANNED).looks(n_told // n_judges)
            again = {n * n_judges for n in looks}  # planned looks alone are read again
            self._qualities = {n: q for n, q in self._qualities.items() if n in again}
            self._qualities[n_told] = pool_qualities([fit for fit in fits if fit is not None])
        return self._qualities[n_told]

    def _first(self, pooled: PooledQualities, rng: np.random.Generator) -> dict[str, Json]:
        """Give each unit's chance of being first by the whole panel; empty where none has one."""
        if not (pooled.items and pooled.is_connected and np.isfinite(pooled.value).all()):
            return {}
        chances = first_chances(pooled.value, pooled.cov, rng).tolist()
        return {self._names[_unit(u)]: p for u, p in zip(pooled.items, chances, strict=True)}

    def leader(self) -> dict[str, Json]:
        """Say who leads, and whether that unit is proved above each other one, as diagnostics.

        With planned looks as of the last one. Unanimous verdicts don't hurry it: the penalty pulls
        such a unit towards the others, and the bound holds for an error with its part.
        """
        n_done = self._n_at_look(len(self._batches))
        pooled, n_units = self._qualities_at(n_done), len(self._names)
        is_ranked = len(pooled.items) == n_units > 1 and np.isfinite(pooled.value).all()
        if not (is_ranked and pooled.is_connected):
            return {"leader": None, "rivals": [], "is_separated": {"leader": False}}
        found, alpha = lead(pooled.value, pooled.cov), (1 - self._config.confidence) / (n_units - 1)
        bound = np.full(n_units, np.nan)
        for other, se in zip(found.others.tolist(), found.se.tolist(), strict=True):

            def at(n_told: int, pair: tuple[int, int] = (found.leader, other)) -> float:
                return self._lead_information(n_told, *pair)

            bound[other] = self._bound(n_done, 1 / se**2, at, alpha) if se > 0 else math.inf
        est, se = np.full(n_units, np.nan), np.full(n_units, np.nan)
        est[found.others], se[found.others] = found.est, found.se
        is_above = est > bound * se
        rivals = [other for other in found.others.tolist() if not is_above[other]]
        # A judge that says the same of most units, or knows one order, can't tell who is first.
        fits = [fit for fit in self._at(n_done) if fit is not None]
        is_open = any(map(_stands_still, fits)) or all("saturated" in fit.flags for fit in fits)
        return {
            "leader": self._names[found.leader],
            "rivals": [self._names[other] for other in rivals],
            "is_separated": {"leader": not rivals and not is_open},
            "ranks_hold_watched": self._config.check in {"anytime", "group_sequential"},
            "by_name": {"lead": est.tolist(), "lead_se": se.tolist(), "lead_bound": bound.tolist()},
        }

    def _lead_information(self, n_told: int, first: int, second: int) -> float:
        """Give 1/se² of a difference of two units after so many told questions; 0: unknown."""
        pooled = self._qualities_at(n_told)
        if first not in pooled.items or second not in pooled.items:
            return 0.0
        found = pooled.contrast({first: 1.0, second: -1.0})
        return 1 / found.se**2 if _is_known(found) else 0.0

    def _about(self, name: str, fit: MarkovFit, flags: set[str]) -> dict[str, Json]:
        """Say what a judge is like: its memory, its spread, what it can't tell apart."""
        flags |= set(fit.flags)
        if fit.boundary:
            flags.add("boundary")
        if _stands_still(fit):
            flags.add("fixed_order")
        slopes = fit.slopes
        errors = dict(zip(fit.coef_names, fit.se.tolist(), strict=True))
        robust = None if fit.reason else sandwich(fit)
        if robust is not None and robust.disagrees:
            flags.add("robust_disagrees")
        n_slots = fit.source.order.shape[1] if len(fit.source) else 0
        return {
            "judge": name,
            "n_batches": len(fit.source),
            "n_ratings": int(fit.source.is_rated.sum()),
            "n_items": int(fit.data.shown.any(axis=0).sum()),
            "carry_over": {k: {"est": v, "se": errors.get(k)} for k, v in slopes.items()},
            "sigma_b": fit.sigma_b,
            "boundary": fit.boundary,
            "loglik": fit.loglik,
            "reason": fit.reason,
            "saturated": "saturated" in fit.flags,
            "unanimous": {self._names[_unit(u)]: how for u, how in fit.unanimous.items()},
            "profile": [] if fit.reason else position_profile(fit, n_slots).tolist(),
            "robust_ratio": None
            if robust is None or not robust.is_usable
            else float(robust.ratio.max()),
            "gradient_max": fit.gradient_max,
            "iterations": fit.iterations,
        }

    # --- the rest -----------------------------------------------------------------------------------

    def _n_answers(self, n_told: int | None = None) -> int:
        """Count the verdicts, or those of the first told questions."""
        told = self._batches[:n_told]
        return sum(1 for _, rows in told for *_, y in rows if y is not None and y == y)  # noqa: PLR0124  # nan

    def _unrated(self, of: Sequence[int], rated: AbstractSet[Hashable]) -> list[Json]:
        """Name the units that no judge has rated, as far as they are listed."""
        return [self._names[unit] for unit in of if unit not in rated][:_LISTED]

    def _missing(self) -> dict[str, Json]:
        n_told = len(self._batches)
        share = self._n_missing / n_told if n_told else 0.0
        arms = self._study.frame.arms
        return {"n_batches_missing": self._n_missing, "missing_share": dict.fromkeys(arms, share)}

    def _nothing(self) -> Sequence[Estimate]:
        config = self._config
        status = Status.EMPTY if not self._n_answers() else Status.FAILED
        return [
            Estimate.nothing(
                name=config.name,
                kind="markov_glmm",
                target="units" if self._sides is None else "groups",
                level=config.confidence,
                n_answers=self._n_answers(),
                status=status,
                diagnostics=self._missing(),
            )
        ]


def _threshold(scale: ScaleType, accept_from: float | None) -> float:
    if scale is ScaleType.BOOLEAN:
        return 0.5
    if accept_from is None:
        raise ValueError("task.accept_from: markov_glmm wants a yes and a no; give the lowest yes")
    return accept_from


def _sides(
    contrast: GroupContrast | None, study: Study, names: Sequence[str]
) -> tuple[list[int], list[int]] | None:
    """Give the units of both sides of a contrast."""
    if contrast is None:
        return None
    frame = study.frame
    is_group = contrast.group is not None
    labels = frame.groups if is_group else frame.arms
    wanted = (contrast.group if is_group else contrast.arm, contrast.baseline)
    for label in wanted:
        if label not in labels:
            what = "group" if is_group else "arm"
            raise ValueError(
                f"contrast: no {what} is named {label!r}; there are {', '.join(labels)}"
            )
    units = np.arange(len(names))
    code = frame.group[units // frame.n_arms] if is_group else units % frame.n_arms
    first, second = (np.flatnonzero(code == labels.index(str(label))).tolist() for label in wanted)
    return first, second


def _by_scale(
    fits: Sequence[MarkovFit | None], sides: tuple[Sequence[int], Sequence[int]]
) -> dict[int, tuple[MarkovFit, ...]] | None:
    """Fit judges with unanimous units on a side at other scales of the penalty, by judge.

    None where a weaker penalty leaves a direction open.
    """
    compared = {*sides[0], *sides[1]}
    try:
        return {
            judge: at_scales(fit)
            for judge, fit in enumerate(fits)
            if fit is not None and not fit.reason and fit.unanimous.keys() & compared
        }
    except DidNotConverge:
        return None


def _rated(
    fit: MarkovFit, sides: tuple[Sequence[int], Sequence[int]]
) -> tuple[list[Hashable], list[Hashable]]:
    """Keep the units of each side that a judge has rated."""
    return _kept(_shown(fit), sides)


def _rated_by_any(
    fits: Sequence[MarkovFit | None], sides: tuple[Sequence[int], Sequence[int]]
) -> tuple[list[Hashable], list[Hashable]]:
    """Keep the units of each side that some judge has rated whose fit can be read."""
    there = [fit for fit in fits if fit is not None]
    used = [fit for fit in there if not fit.reason] or there
    return _kept({unit for fit in used for unit in _shown(fit)}, sides)


def _kept(
    rated: AbstractSet[Hashable], sides: tuple[Sequence[int], Sequence[int]]
) -> tuple[list[Hashable], list[Hashable]]:
    first, second = ([unit for unit in side if unit in rated] for side in sides)
    return list(first), list(second)


def _shown(fit: MarkovFit) -> set[Hashable]:
    """Give the units with a rating; others were shown, and refused or not read."""
    return {fit.items[i] for i in np.flatnonzero(fit.data.shown.any(axis=0)).tolist()}


def _predicted(fit: MarkovFit, rng: np.random.Generator) -> dict[str, Json] | None:
    """Say whether a fit to the first two thirds of a judge's batches predicts the last third.

    None where there are few batches, or so many that it would hold a look up.
    """
    n, size = fit.source.order.shape
    n_train = 2 * n // 3
    if fit.reason or n < ENOUGH_TO_SPLIT or n * size > _MOST_PREDICTED:
        return None
    rows = np.arange(n)
    try:
        train = fit_sequences(
            fit.source.take(rows[:n_train]),
            lags=fit.lags,
            quadrature=fit.quadrature,
            penalty=fit.penalty,
            near=fit,
        )
    except DidNotConverge:
        return None
    if train.reason:
        return None
    test = fit.source.take(rows[n_train:])
    found = predictive_check(train, test, rng, copies=_COPIES)
    terms = (*found.joint, *found.entropy)
    return {
        "n_held_out": len(test),
        "n_terms": len(terms),
        "missed": [one.name for one in terms if not one.is_inside],
        "passes": found.passes,
    }


ENOUGH_TO_SPLIT = 30
"""Batches of a judge from which on a third of them is predicted from the others."""

_LISTED = 20
_MOST_PREDICTED = 20_000
_COPIES = 400


def _stands_still(fit: MarkovFit) -> bool:
    """Say whether each unit stands in one slot in all batches, several of them."""
    order = fit.source.order
    if len(order) < 2:
        return False
    places = {(item, slot) for row in order.tolist() for slot, item in enumerate(row) if item >= 0}
    return len(places) == len({item for item, _ in places})


def _unit(item: Hashable) -> int:
    assert isinstance(item, int)  # ratings here name units
    return item


def _is_known(found: Contrast) -> bool:
    return found.status is FitStatus.OK and math.isfinite(found.se)


def _unknown(reason: str) -> Contrast:
    nan = math.nan
    return Contrast(nan, nan, nan, nan, FitStatus.NOT_ESTIMABLE, reason)


_OF_PAIRS = "; bradley_terry and bt_tensor read comparisons"

PLUGIN = Plugin(config=MarkovGlmmConfig, build=MarkovGlmm)

__all__ = ["PLUGIN", "MarkovGlmm", "MarkovGlmmConfig", "fit_markov_glmm"]
