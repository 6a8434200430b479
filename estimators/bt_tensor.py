"""The estimator `bt_tensor`: strengths by category, and judge, as a tensor of low rank.

Votes in one category inform the others, as far as a few traits of the arms account for all. Where
there are too few votes for that, the strengths over all categories together stand, and it is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from estimators.bradley_terry import USUAL_GAP, GapContrast, sides_of
from estimators.bt_inference import watched
from estimators.bt_model import FEW_CLUSTERS, BradleyTerryFit, fit_bradley_terry
from estimators.bt_strengths import Strengths, strengths
from estimators.comparisons import Comparisons, Index, Told, criterion_of
from estimators.intervals import Array, Interval
from estimators.markov_model import FitStatus
from estimators.tensor_functionals import Estimates, Functional, linear, score, win_probability
from estimators.tensor_model import TensorFit, fit_bt_tensor
from estimators.tensor_rank import RankChoice, choose_rank
from orchestrator.core.errors import DidNotConverge
from orchestrator.core.estimate import Estimate, Status, plain
from orchestrator.core.ports import Plugin
from orchestrator.core.records import Record
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import Json


def _rank(value: object) -> object:
    if value == "auto" or (type(value) is int and value > 0):
        return value
    raise ValueError(f"wants a whole number above 0 or auto, not {value!r}")


MOST_SE = 100.0
"""A standard error from which on a direction counts as open, in logits."""

Method = Literal["plug_in", "efficient", "whitened", "isotropic", "forward"]


class BtTensorConfig(BaseModel):
    """The keys of an estimate of kind `bt_tensor`.

    Parameters
    ----------
    context : the column that `data.strata` names: what strengths differ by
    by_judge : whether judges are a mode of their own
    rank : `auto` takes that of the least BIC, or with `rank_by: held_out` the smallest whose loss
        on votes held out is within one standard error of the least
    method : `efficient`, one step from fits that leave each fold out; `whitened` and `isotropic`,
        which lean less on the model; `plug_in`, the fit itself; `forward`, one step from fits of
        earlier votes. None: efficient, or forward where intervals have to hold watched
    misspecification : `expected` weighs comparisons by 1/propensity. `isotropic` weighs its steps so
        anyway, and pairs in all categories alike
    contrast : two arms whose gap is estimated, over all categories by their items
    check, target_half_width : None follows the stop rule
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Literal["bt_tensor"] = "bt_tensor"
    context: str
    by_judge: bool = False
    criterion: str | None = None
    rank: Annotated[int | Literal["auto"], BeforeValidator(_rank)] = "auto"
    rank_by: Literal["bic", "held_out"] = "bic"
    method: Method | None = None
    folds: Annotated[int, Field(ge=2, le=20)] = 5
    order_effect: bool = True
    misspecification: Literal["unexpected", "expected"] = "unexpected"
    contrast: GapContrast | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    check: Literal["end", "anytime", "group_sequential"] | None = None
    target_half_width: float | None = None


class _Part(NamedTuple):
    """Functionals that make one estimate: its target and estimand, and the names along it."""

    target: str
    estimand: str
    names: tuple[str, ...]
    functionals: tuple[Functional, ...]


class BtTensor:
    """Fits strengths by category at looks, and estimates scores, means and win probabilities.

    Comparisons of one item, and of items of one cluster, hang together, and errors are by clusters.
    With less than thirty that is itself unreliable: of errors by clusters and by comparisons the larger
    one stands then, by Student's law, and is flagged.

    Raises
    ------
    ValueError
        The study compares nothing, has fewer than two categories, or lacks a criterion or an arm.
    """

    def __init__(self, config: BtTensorConfig, study: Study) -> None:
        self._config, self._study = config, study
        self._told = Told(study, criterion_of(study, config.criterion))
        frame = study.frame
        self._arms, self._sides = frame.arms, sides_of(config.contrast, frame.arms)
        if len(frame.strata) < 2:
            raise ValueError(
                "context: wants two categories or more; data.strata names their column"
            )
        if config.check == "group_sequential":
            raise ValueError("stop.check: bt_tensor takes end or anytime")
        self._is_watched = config.check == "anytime"
        self._method: Method = config.method or ("forward" if self._is_watched else "efficient")
        if self._is_watched and self._method != "forward":
            raise ValueError(
                f"method: {self._method} has no interval that holds watched; forward has"
            )
        self._judges = tuple(p.name for p in study.panel) if config.by_judge else ("",)
        contexts = [(s, j) for s in range(len(frame.strata)) for j in range(len(self._judges))]
        self._contexts = tuple(
            f"{frame.strata[s]}, {self._judges[j]}" if config.by_judge else frame.strata[s]
            for s, j in contexts
        )
        # A category counts by its items, and judges alike.
        of_strata = np.bincount(frame.stratum, frame.weight, len(frame.strata))
        self._share = np.repeat(of_strata / of_strata.sum(), len(self._judges)) / len(self._judges)

    @property
    def _shape(self) -> tuple[int, ...]:
        strata = len(self._study.frame.strata)
        modes = (strata, len(self._judges)) if self._config.by_judge else (strata,)
        return (len(self._arms), *modes)

    def update(self, record: Record) -> None:
        """Take in one told question."""
        self._told.update(record)

    def take(self, table: Comparisons, missing: Index) -> None:
        """Take in a table of comparisons; `missing` (n_arms, n_arms) counts those without a verdict."""
        self._told.take(table, missing)

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the contrast if one is asked for, then means, scores and win probabilities."""
        table = self._told.table
        if self._config.by_judge:  # judges of earlier runs have no place in the tensor
            table = table.take(table.judge < len(self._judges))
        if not len(table):
            return (self._nothing(Status.EMPTY),)
        try:
            return self._estimated(table)
        except DidNotConverge:
            return (self._nothing(Status.FAILED),)

    def _estimated(self, table: Comparisons) -> tuple[Estimate, ...]:
        if thin := self._too_thin(table):
            return self._pooled(table, None, thin)
        rank, choice = self._chosen(table)
        if rank is None:
            return self._pooled(table, choice)
        fit = self._fit(table, rank, is_clustered=True)
        if fit.status is not FitStatus.OK:
            return self._pooled(table, choice, fit.reason)
        parts = list(self._parts())
        found = self._found(fit, table, [f for part in parts for f in part.functionals])
        interval = self._interval(found, self._df(table))
        about = self._about(fit, found, choice, table)
        made: list[Estimate] = []
        at = 0
        for part in parts:
            rows = slice(at, at + len(part.names))
            at += len(part.names)
            own = {} if part.target == "win probabilities" else {"scale": "logit"}
            made.append(self._made(part, found, interval, rows, own if made else about, table))
        return tuple(made)

    # --- fits -------------------------------------------------------------------------------------

    def _context(self, table: Comparisons) -> Index:
        stratum = self._study.frame.stratum[table.item]
        return stratum * len(self._judges) + table.judge if self._config.by_judge else stratum

    def _fit(
        self, table: Comparisons, rank: int | tuple[int, ...], *, is_clustered: bool
    ) -> TensorFit:
        return fit_bt_tensor(
            table.left,
            table.right,
            self._context(table),
            table.outcome,
            shape=self._shape,
            rank=rank,
            order_effect=self._config.order_effect,
            weights=self._weights_of_fit(table),
            cluster=self._study.frame.cluster[table.item] if is_clustered else None,
            rng=self._rng(1),
        )

    def _weights(self, table: Comparisons) -> Array | None:
        """Weigh items by their weight and, where that is declared, comparisons by 1/propensity."""
        weights: Array = self._study.frame.weight[table.item]
        if self._config.misspecification == "expected":
            weights = weights * _odds(table)
        return None if (weights == weights[0]).all() else weights / weights.mean()

    def _weights_of_fit(self, table: Comparisons) -> Array | None:
        """Weigh fits as the steps from them are, where what they are the best fit of matters."""
        is_expected = self._config.misspecification == "expected"
        if is_expected and self._kind(table) == "isotropic":
            return self._even(table)
        return self._weights(table)

    def _even(self, table: Comparisons) -> Array:
        """Weigh by 1/(propensity · items of the category): all pairs in all contexts count alike.

        1/propensity alone makes a category count by its items.
        """
        frame = self._study.frame
        of_items = frame.weight / np.bincount(frame.stratum, frame.weight)[frame.stratum]
        weights = of_items[table.item] * _odds(table)
        found: Array = weights / weights.mean()
        return found

    def _kind(self, table: Comparisons) -> Method:
        """Give the method that can be had: without all propensities nothing is known to be isotropic."""
        if self._method == "isotropic" and np.isnan(table.propensity).any():
            return "whitened"
        return self._method

    def _df(self, table: Comparisons) -> float:
        """Give the degrees of freedom of errors by clusters, infinite unless these are few."""
        n_clusters = len(np.unique(self._study.frame.cluster[table.item]))
        is_few = n_clusters < min(FEW_CLUSTERS, len(table))
        return max(n_clusters - 1, 1) if is_few else math.inf

    def _n_folds(self, table: Comparisons) -> int:
        """Give as many folds as asked, or as there are clusters of items: each is in one fold."""
        clusters = self._study.frame.cluster[table.item]
        return min(self._config.folds, len(np.unique(clusters)))

    def _too_thin(self, table: Comparisons) -> str:
        """Say which category has votes of too few items to be fitted without a fold of them."""
        if self._method == "plug_in":
            return ""
        frame, n_folds = self._study.frame, self._config.folds
        stratum, cluster = frame.stratum[table.item], frame.cluster[table.item]
        pairs = np.unique(np.stack((stratum, cluster)), axis=1)[0]
        n_items = np.bincount(pairs, minlength=len(frame.strata))
        least = int(n_items.argmin())
        if n_items[least] >= n_folds:
            return ""
        return (
            f"{frame.strata[least]} has votes of {n_items[least]} items, and to leave out one fold in "
            f"{n_folds} wants as many"
        )

    def _rng(self, number: int) -> np.random.Generator:
        return self._study.seeds.spawn(Stream.BOOTSTRAP, number)

    def _chosen(self, table: Comparisons) -> tuple[int | tuple[int, ...] | None, RankChoice | None]:
        config = self._config
        if config.rank != "auto":
            return config.rank, None
        choice = choose_rank(
            table.left,
            table.right,
            self._context(table),
            table.outcome,
            shape=self._shape,
            criterion=config.rank_by,
            folds=self._n_folds(table) if config.rank_by == "held_out" else 0,
            by=self._study.frame.cluster[table.item],
            order_effect=config.order_effect,
            weights=self._weights_of_fit(table),
            rng=self._rng(2),
        )
        return choice.rank, choice

    def _parts(self, over: str = "over categories by their items") -> Iterator[_Part]:
        """List what is estimated, the contrast first."""
        arms, contexts, share, whose = self._arms, self._contexts, self._share, self._whose
        if self._sides is not None:
            a, b = self._sides
            label = f"{arms[a]} - {arms[b]}"
            places = [
                (arm, k, sign * w)
                for arm, sign in ((a, 1.0), (b, -1.0))
                for k, w in enumerate(share)
            ]
            yield _Part(
                "difference",
                f"gap of strengths in log-odds, {over}, {whose}",
                (label,),
                (linear(label, places),),
            )
        yield _Part(
            "strengths",
            f"strength in log-odds above the mean of the arms, {over}, {whose}",
            arms,
            tuple(
                linear(arm, [(a, k, w) for k, w in enumerate(share)]) for a, arm in enumerate(arms)
            ),
        )
        names = tuple(f"{arm} in {context}" for arm in arms for context in contexts)
        cells = [(a, k) for a in range(len(arms)) for k in range(len(contexts))]
        yield _Part(
            "scores",
            f"strength in log-odds above the mean of the arms in a category, {whose}",
            names,
            tuple(score(a, k) for a, k in cells),
        )
        everyone = range(len(arms))
        yield _Part(
            "win probabilities",
            f"chance to be preferred to another arm, all alike, in a category, {whose}",
            names,
            tuple(win_probability(a, k, [b for b in everyone if b != a]) for a, k in cells),
        )

    @property
    def _whose(self) -> str:
        n = len(self._study.panel)
        return f"items like these, judged by {'this judge' if n == 1 else 'this panel'}"

    def _found(self, fit: TensorFit, table: Comparisons, of: Sequence[Functional]) -> Estimates:
        """Estimate functionals; where clusters are few, the larger of two errors is each one's."""
        found = self._stepped(fit, table, of)
        kind, flags = self._kind(table), found.flags
        if kind != self._method:
            flags = (*flags, "propensity_unknown")
        found = replace(found, method=kind, flags=flags)
        if math.isinf(self._df(table)):
            return found
        alone = self._stepped(self._fit(table, fit.rank, is_clustered=False), table, of)
        own, other = np.diag(found.covariance), np.diag(alone.covariance)
        larger = np.sqrt(np.divide(np.fmax(own, other), own, out=np.ones_like(own), where=own > 0))
        return replace(
            found,
            covariance=found.covariance * np.outer(larger, larger),
            flags=(*flags, "few_clusters"),
        )

    def _stepped(self, fit: TensorFit, table: Comparisons, of: Sequence[Functional]) -> Estimates:
        match self._kind(table):
            case "plug_in":
                return fit.plug_in(*of)
            case "forward":
                return fit.forward(*of, rng=self._rng(3))
            case kind:
                return fit.one_step(
                    *of,
                    folds=self._n_folds(table),
                    by=self._study.frame.cluster[table.item],
                    kind=kind,
                    weights=self._even(table) if kind == "isotropic" else None,
                    rng=self._rng(3),
                )

    @property
    def _law(self) -> str:
        return "confidence sequence in information" if self._is_watched else "Wald"

    def _interval(self, found: Estimates, df: float) -> Interval:
        if not self._is_watched:
            return found.interval(self._config.confidence, df)
        planned = self._config.target_half_width or USUAL_GAP
        bound = watched(1, planned_gap=planned, level=self._config.confidence, df=df)
        half = bound.of(found.se) * found.se
        lower, upper = found.value - half, found.value + half
        is_share = found.is_probability
        return Interval(
            np.where(is_share, np.maximum(lower, 0), lower),
            np.where(is_share, np.minimum(upper, 1), upper),
        )

    # --- estimates --------------------------------------------------------------------------------

    def _made(
        self,
        part: _Part,
        found: Estimates,
        interval: Interval,
        rows: slice,
        about: dict[str, Json],
        table: Comparisons,
    ) -> Estimate:
        config = self._config
        se = found.se[rows]
        is_known = (found.status is FitStatus.OK) & (se > 0) & (se < MOST_SE)
        # A step may lead out of [0, 1]; the interval is cut there, and so is the value.
        is_share, value = found.is_probability[rows], found.value[rows]
        value = np.where(is_share, np.clip(value, 0.0, 1.0), value)
        value, se, lower, upper = (
            np.where(is_known, of, np.nan)
            for of in (value, se, interval.lower[rows], interval.upper[rows])
        )
        n_known = int(is_known.sum())
        status = Status.PARTIAL if n_known else Status.NOT_IDENTIFIED
        return Estimate(
            name=config.name,
            kind="bt_tensor",
            target=part.target,
            estimand=part.estimand,
            names=part.names,
            value=tuple(value.tolist()),
            se=tuple(se.tolist()),
            lower=tuple(lower.tolist()),
            upper=tuple(upper.tolist()),
            level=config.confidence,
            interval=", ".join(filter(None, (found.method.replace("_", " "), self._law))),
            watching_covered=self._is_watched,
            alpha_split="none",
            family="one contrast" if part.target == "difference" else "each name by itself",
            n_items=len(np.unique(table.item)),
            n_answers=len(table),
            status=Status.OK if n_known == len(se) else status,
            flags=found.flags,
            diagnostics=plain({"missing_share": self._told.missing_share(), **about}),
        )

    def _about(
        self, fit: TensorFit, found: Estimates, choice: RankChoice | None, table: Comparisons
    ) -> dict[str, Json]:
        return {
            "scale": "logit",
            "categories": list(self._contexts),
            "n_by_category": np.bincount(
                self._context(table), minlength=len(self._contexts)
            ).tolist(),
            "rank": list(fit.rank),
            "choice": None if choice is None else _choice(choice),
            "parameters": fit.dimension,
            "condition": fit.condition,
            "inverse_growth": fit.inverse_growth,
            "gamma": fit.gamma,
            "clipped_share": found.clipped_share,
            "effective": found.effective,
            "loglik": fit.loglik,
            "reason": found.reason,
        }

    def _pooled(
        self, table: Comparisons, choice: RankChoice | None, reason: str = ""
    ) -> tuple[Estimate, ...]:
        """Give strengths over all categories together, where there is no tensor to be had."""
        config = self._config
        if not reason and choice is not None:
            reason = "; ".join(
                dict.fromkeys(each.reason for each in choice.candidates if each.reason)
            )
        weights = self._weights(table)
        cluster = self._study.frame.cluster[table.item]

        def of(rows: NDArray[np.bool_]) -> BradleyTerryFit:
            return fit_bradley_terry(
                table.left[rows],
                table.right[rows],
                table.outcome[rows],
                n_models=len(self._arms),
                order_effect=config.order_effect,
                weights=None if weights is None else weights[rows],
                cluster=cluster[rows],
            )

        whole = strengths(of(np.ones(len(table), dtype=bool)), of, table.left, table.right)
        about: dict[str, Json] = {
            "scale": "logit",
            "reason": reason,
            "choice": None if choice is None else _choice(choice),
        }
        made: list[Estimate] = []
        for part in self._parts("over all categories together"):
            if part.target == "difference":
                assert self._sides is not None
                est, error = whole.gaps.est, whole.gaps.se
                value, se = np.array([est[self._sides]]), np.array([error[self._sides]])
            elif part.target == "strengths":
                value, se = whole.theta, whole.se
            else:  # of single categories nothing is known
                continue
            found = _apart(part, value, se, whole, n=len(table), reason=reason)
            interval = self._interval(found, whole.df)
            own: dict[str, Json] = {"scale": "logit"} if made else about
            each = self._made(part, found, interval, slice(0, len(se)), own, table)
            is_partial = found.status is FitStatus.OK and bool(np.isnan(se).any())
            made.append(replace(each, status=Status.PARTIAL) if is_partial else each)
        return tuple(made)

    def _nothing(self, status: Status) -> Estimate:
        config = self._config
        return Estimate.nothing(
            name=config.name,
            kind="bt_tensor",
            target="strengths" if self._sides is None else "difference",
            level=config.confidence,
            n_answers=len(self._told),
            status=status,
            diagnostics={"missing_share": self._told.missing_share()},
        )


def _odds(table: Comparisons) -> Array:
    """Give 1/propensity, (n,); what nobody knows it of is like the mean of the others, or 1."""
    is_known = ~np.isnan(table.propensity)
    odds = 1 / table.propensity
    found: Array = np.where(is_known, odds, odds[is_known].mean() if is_known.any() else 1.0)
    return found


def _apart(
    part: _Part, value: Array, se: Array, pooled: Strengths, *, n: int, reason: str
) -> Estimates:
    """Give estimates over all categories together; what has no error has no value."""
    is_known = ~np.isnan(se)
    fit, flags = pooled.fit, ["pooled"]
    if fit.n_components > 1:
        flags.append("disconnected")
    if fit.n_strong > fit.n_components:
        flags.append("separated")
    if math.isfinite(pooled.df):
        flags.append("few_clusters")
    return Estimates(
        names=part.names,
        value=np.where(is_known, value, np.nan),
        covariance=np.diag(se**2),
        is_probability=np.zeros(len(se), dtype=bool),
        method="",
        n=n,
        effective=fit.ess,
        status=FitStatus.OK if is_known.any() else FitStatus.NOT_ESTIMABLE,
        reason=reason,
        flags=tuple(flags),
    )


def _choice(choice: RankChoice) -> dict[str, Json]:
    return {
        "by": choice.criterion,
        "ranks": [
            {
                "rank": list(each.rank),
                "parameters": each.dimension,
                "bic": each.bic,
                "held_out": each.held_out.mean,
                "reason": each.reason,
            }
            for each in choice.candidates
        ],
        "held_out_by_category": choice.apart.mean,
        "gain": {"mean": choice.gain.mean, "se": choice.gain.se},
    }


PLUGIN = Plugin(config=BtTensorConfig, build=BtTensor)

__all__ = ["PLUGIN", "BtTensor", "BtTensorConfig", "fit_bt_tensor"]
