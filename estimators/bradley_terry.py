"""The estimator `bradley_terry`: strengths of arms from comparisons, with what they prove.

It keeps the comparisons as they are told and fits them at looks, always from the same start: so a
look says the same whether the run went through or was taken up again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import expit, logit

from estimators.bt_cells import Missingness, missing_by_pair
from estimators.bt_family import family_advantage, kinship
from estimators.bt_inference import (
    AtEnd,
    Bound,
    Gaps,
    gap_intervals,
    is_ranking_separated,
    leader,
    proved,
    rank_intervals,
    tiers,
    watched,
)
from estimators.bt_judges import JudgesFit, fit_judges
from estimators.bt_model import BradleyTerryFit, Status, fit_bradley_terry
from estimators.bt_pair_bounds import claims, student, win_chances
from estimators.bt_strengths import Strengths, strengths
from estimators.bt_weighting import Fitted, WeightedShift, weighted_shift
from estimators.comparisons import (
    Comparisons,
    Index,
    Told,
    balanced_weights,
    by_judge,
    criterion_of,
)
from estimators.intervals import Array, Interval
from estimators.score_means import DIFFERS
from orchestrator.core import estimate as core
from orchestrator.core.errors import DidNotConverge
from orchestrator.core.estimate import Estimate
from orchestrator.core.ports import Plugin
from orchestrator.core.records import Record
from orchestrator.core.seeds import Stream
from orchestrator.core.study import Study
from orchestrator.core.wire import Json


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class GapContrast(_Config):
    """One arm against another; `paired` is what comparisons are anyway."""

    arm: str
    baseline: str
    paired: Literal[True] = True


class Covariate(_Config):
    """A property of answers whose difference is controlled for, and the field or column it is of."""

    name: str
    source: str | None = Field(default=None, alias="from")


class Families(_Config):
    """Who made judges and arms, by name: a judge may favour its own kind."""

    judges: dict[str, str]
    arms: dict[str, str]


class BradleyTerryConfig(_Config):
    """The keys of an estimate of kind `bradley_terry`.

    Parameters
    ----------
    criterion : whose verdicts; None: the only one
    order_effect : whether the answer shown first has an advantage of its own
    judge_effects : what judges differ in: nothing, their `bias` for the first place, or also their
        `discrimination`
    ties : `half` counts a tie as half a win; `davidson` and `rao_kupper` model it, `drop` leaves it
        out. Each has a scale of its own
    covariates, report : properties that are controlled for, and whether strengths are given without
        (`raw`) or with them (`controlled`); the first is the estimate that rules and gates read
    families : makers of judges and arms; the advantage that a judge's own kind has is then estimated
    misspecification : `expected` weighs comparisons by 1/propensity, so that all pairs count alike
        though one strength an arm is not the truth
    contrast : two arms whose gap is estimated, beside all strengths
    check, target_half_width : None follows the stop rule
    """

    name: str
    kind: Literal["bradley_terry"] = "bradley_terry"
    criterion: str | None = None
    order_effect: bool = True
    judge_effects: Literal["none", "bias", "discrimination"] = "none"
    ties: Literal["half", "davidson", "rao_kupper", "drop"] = "half"
    covariates: tuple[Covariate, ...] = ()
    report: tuple[Literal["raw", "controlled"], ...] = ("raw",)
    families: Families | None = None
    misspecification: Literal["unexpected", "expected"] = "unexpected"
    contrast: GapContrast | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    check: Literal["end", "anytime", "group_sequential"] | None = None
    target_half_width: float | None = None


class _Fit(NamedTuple):
    fit: BradleyTerryFit
    judges: JudgesFit | None


class _Fitted(NamedTuple):
    """Strengths, and what judges differ in where that is fitted."""

    strengths: Strengths
    judges: JudgesFit | None

    @property
    def fit(self) -> BradleyTerryFit:
        return self.strengths.fit

    @property
    def gaps(self) -> Gaps:
        return self.strengths.gaps


class BradleyTerry:
    """Fits strengths to comparisons, and says which gaps, ranks and leads they prove.

    Comparisons of one item hang together: their covariance is by clusters of items where any item
    was compared twice. With less than thirty clusters that is itself unreliable: the wider one of it
    and the rows' stands then, by Student's law, and is flagged.

    Raises
    ------
    ValueError
        The study compares nothing, or lacks a criterion, an arm or a covariate.
    """

    def __init__(self, config: BradleyTerryConfig, study: Study) -> None:
        self._config, self._study = config, study
        self._told = Told(study, criterion_of(study, config.criterion))
        self._arms = study.frame.arms
        self._sides = sides_of(config.contrast, self._arms)
        self._covariates = _columns(config, study)
        _check_families(config.families, study)
        if config.judge_effects != "none" and not config.order_effect:
            raise ValueError(
                "order_effect: judges' effects are deviations from it, so it is needed"
            )
        if config.judge_effects == "discrimination" and config.covariates:
            raise ValueError(
                "judge_effects: discrimination can't be told apart from covariates' slopes"
            )
        if config.check == "group_sequential":
            raise ValueError("stop.check: bradley_terry takes end or anytime")

    def update(self, record: Record) -> None:
        """Take in one told question."""
        self._told.update(record)

    def take(self, table: Comparisons, missing: Index) -> None:
        """Take in a table of comparisons; `missing` (n_arms, n_arms) counts those without a verdict."""
        self._told.take(table, missing)

    def estimate(self) -> tuple[Estimate, ...]:
        """Give the contrast if one is asked for, and all strengths."""
        table = self._told.table
        if not len(table):
            return (self._nothing(core.Status.EMPTY),)
        found: list[Estimate] = []
        for version in self._config.report:
            try:
                fitted = self._fitted(table, is_controlled=version == "controlled")
            except DidNotConverge:
                found.append(self._nothing(core.Status.FAILED))
                continue
            if self._sides is not None and not found:
                found.append(self._of_gap(fitted, table))
            found.append(self._of_strengths(fitted, table, version))
        return tuple(found)

    # --- fits -------------------------------------------------------------------------------------

    def _fitted(
        self, table: Comparisons, *, is_controlled: bool = False, is_weighted: bool | None = None
    ) -> _Fitted:
        if is_weighted is None:
            is_weighted = self._config.misspecification == "expected"
        weights = self._weights(table, is_weighted=is_weighted)
        covariates = self._differences(table) if is_controlled else None
        whole = self._fit(table, weights, covariates)

        def of(rows: NDArray[np.bool_]) -> BradleyTerryFit:
            part = None if weights is None else weights[rows]
            measured = None if covariates is None else covariates[rows]
            return self._fit(table.take(rows), part, measured).fit

        return _Fitted(strengths(whole.fit, of, table.left, table.right), whole.judges)

    def _fit(self, table: Comparisons, weights: Array | None, covariates: Array | None) -> _Fit:
        config = self._config
        votes = (table.left, table.right, table.outcome)
        cluster = self._study.frame.cluster[table.item]
        names = () if covariates is None else tuple(self._covariates)
        if config.judge_effects != "none" and self._n_judges > 1:
            judges = fit_judges(
                *votes,
                table.judge,
                n_models=len(self._arms),
                n_judges=self._n_judges,
                effect=config.judge_effects,
                weights=weights,
                cluster=cluster,
                ties=config.ties,
                covariates=covariates,
                covariate_names=names,
            )
            return _Fit(judges.fit, judges)
        fit = fit_bradley_terry(
            *votes,
            n_models=len(self._arms),
            order_effect=config.order_effect,
            weights=weights,
            cluster=cluster,
            ties=config.ties,
            covariates=covariates,
            covariate_names=names,
        )
        return _Fit(fit, None)

    def _weights(self, table: Comparisons, *, is_weighted: bool) -> Array | None:
        """Weigh items by their weight and, if so wished, comparisons by 1/propensity, all pairs alike."""
        weight: Array = self._study.frame.weight[table.item]
        if is_weighted and not np.isnan(table.propensity).all():
            weight = weight * balanced_weights(table, len(self._arms))
        return None if (weight == weight[0]).all() else weight / weight.mean()

    @property
    def _lost(self) -> Missingness:
        """Questions without a verdict, by pair; judgments of earlier runs don't count."""
        told = self._told
        return missing_by_pair(told.asked.astype(np.float64), told.missing.astype(np.float64))

    def _differences(self, table: Comparisons) -> Array:
        """Give each covariate's value of the left answer less that of the right one, (n, q)."""
        n_arms = len(self._arms)
        left, right = table.item * n_arms + table.left, table.item * n_arms + table.right
        return np.stack([of[left] - of[right] for of in self._covariates.values()], axis=1)

    # --- intervals --------------------------------------------------------------------------------

    @property
    def _is_watched(self) -> bool:
        return self._config.check == "anytime"

    def _bound(self, fitted: _Fitted) -> Bound:
        """Bound one gap."""
        if self._is_watched:
            level, gap = self._config.confidence, self._planned_gap
            return watched(1, planned_gap=gap, level=level, df=fitted.strengths.df)
        return AtEnd(student(self._config.confidence, fitted.strengths.df))

    def _decisive(self, table: Comparisons) -> Array:
        """Count how often the row's arm beat the column's, (n_arms, n_arms): one trial an item.

        An item's comparisons of a pair count once, for whom most of them prefer.
        """
        n_arms = len(self._arms)
        low, high = np.minimum(table.left, table.right), np.maximum(table.left, table.right)
        is_low = table.left == low
        points = np.where(is_low, table.outcome, 1 - table.outcome) - 0.5
        pair = low * n_arms + high
        cluster = self._study.frame.cluster[table.item]
        cells, cell = np.unique(np.stack((pair, cluster)), axis=1, return_inverse=True)
        lead = np.sign(np.bincount(cell.ravel(), points, cells.shape[1]))
        wins = np.zeros((n_arms, n_arms))
        a, b = np.divmod(cells[0], n_arms)
        np.add.at(wins, (a, b), lead > 0)
        np.add.at(wins, (b, a), lead < 0)
        return wins

    def _even(self, table: Comparisons) -> Array:
        """Give the largest chance to win that an arm equal to the other can have, (n_arms, n_arms).

        If the first place decided everything, it would be the share of the order it had more often.
        An order that is one ahead counts as balanced.
        """
        n_arms = len(self._arms)
        if not self._config.order_effect:
            return np.full((n_arms, n_arms), 0.5)
        ordered = np.bincount(table.left * n_arms + table.right, minlength=n_arms**2)
        ordered = ordered.reshape(n_arms, n_arms)
        n = np.maximum(ordered + ordered.T, 1)
        share: Array = np.maximum(ordered, ordered.T) / n
        return np.where(np.abs(ordered - ordered.T) > 1, share, 0.5)

    @property
    def _planned_gap(self) -> float:
        return self._config.target_half_width or USUAL_GAP

    @property
    def _method(self) -> str:
        return "confidence sequence in information" if self._is_watched else "Wald"

    # --- estimates --------------------------------------------------------------------------------

    def _of_gap(self, fitted: _Fitted, table: Comparisons) -> Estimate:
        """Estimate the gap of two arms; where it has no finite estimate, bound it by counts."""
        assert self._sides is not None
        config, fit = self._config, fitted.fit
        a, b = self._sides
        relation = fit.relation(a, b)
        interval = gap_intervals(fitted.gaps, self._bound(fitted))
        lower, upper = float(interval.lower[a, b]), float(interval.upper[a, b])
        value, method, status = float(fitted.gaps.est[a, b]), self._method, core.Status.OK
        flags = set(self._flags(fitted))
        if relation is not Status.OK or math.isnan(fitted.gaps.se[a, b]):
            lower = upper = math.nan
            status = core.Status.NOT_IDENTIFIED
        if relation is Status.SEPARATED:
            wins = self._decisive(table)
            chance = win_chances(wins, config.confidence, is_watched=self._is_watched)
            lower, upper = float(logit(chance.lower[a, b])), float(logit(chance.upper[a, b]))
            if (
                even := float(self._even(table)[a, b])
            ) > 0.5:  # of the gap only a sign can be known
                lower = 0.0 if chance.lower[a, b] > even else -math.inf
                upper = 0.0 if 1 - chance.upper[a, b] > even else math.inf
            method = "beta-binomial sequence of the pair" if self._is_watched else "Clopper-Pearson"
            value = float(np.clip(fit.theta[a] - fit.theta[b], lower, upper))
            flags.add("separated")
        return Estimate(
            name=config.name,
            kind="bradley_terry",
            target="difference",
            estimand=f"gap of strengths in log-odds, {self._whose}",
            names=(f"{self._arms[a]} - {self._arms[b]}",),
            value=(value,),
            se=(float(fitted.gaps.se[a, b]),),
            lower=(lower,),
            upper=(upper,),
            level=config.confidence,
            interval=method,
            watching_covered=self._is_watched,
            alpha_split="none",
            family="one contrast",
            n_items=len(np.unique(table.item)),
            n_answers=len(table),
            status=status,
            flags=tuple(sorted(flags)),
            diagnostics={"scale": "logit", "missing_share": self._told.missing_share()},
        )

    def _of_strengths(self, fitted: _Fitted, table: Comparisons, version: str) -> Estimate:
        config, fit = self._config, fitted.fit
        theta, se = fitted.strengths.theta, fitted.strengths.se
        half = self._bound(fitted).of(se) * se
        n_known = int((~np.isnan(se)).sum())
        among = "the arms" if fit.n_components == 1 else "the arms that it is comparable with"
        status = (
            core.Status.OK
            if n_known == len(theta) and fit.n_components == 1
            else core.Status.PARTIAL
            if n_known
            else core.Status.NOT_IDENTIFIED
        )
        return Estimate(
            name=config.name,
            kind="bradley_terry",
            target="strengths" if version == "raw" else f"{version} strengths",
            estimand=f"strength in log-odds above the mean of {among}, {self._whose}",
            names=self._arms,
            value=tuple(theta.tolist()),
            se=tuple(se.tolist()),
            lower=tuple((theta - half).tolist()),
            upper=tuple((theta + half).tolist()),
            level=config.confidence,
            interval=self._method,
            watching_covered=self._is_watched,
            alpha_split="none",
            family="each name by itself",
            n_items=len(np.unique(table.item)),
            n_answers=len(table),
            status=status,
            flags=tuple(sorted(set(self._flags(fitted)))),
            diagnostics=core.plain(self._about(fitted, table)),
        )

    def _about(self, fitted: _Fitted, table: Comparisons) -> dict[str, Json]:
        """Say what the strengths prove, and what they rest on."""
        config, fit, n_arms = self._config, fitted.fit, len(self._arms)
        above, bound = claims(
            fitted.gaps,
            fitted.strengths.cov,
            self._decisive(table),
            self._study.seeds.stream(Stream.BOOTSTRAP, 0),
            level=config.confidence,
            is_watched=self._is_watched,
            planned_gap=self._planned_gap,
            df=fitted.strengths.df,
            even=self._even(table),
            draws=int(np.clip(5e6 / n_arms**2, 1000, 20_000)),
        )
        ranks = rank_intervals(above)
        leads = above
        if self._is_watched:  # a leader's claims are fewer than those of all pairs
            own = watched(
                n_arms - 1,
                planned_gap=self._planned_gap,
                level=config.confidence,
                df=fitted.strengths.df,
            )
            leads = above | proved(fitted.gaps, own)
        theta = np.nan_to_num(fitted.strengths.theta, nan=-np.inf)
        first = leader(theta, leads)
        order = np.lexsort((-theta, fit.component))
        return {
            "scale": "logit",
            "ties": config.ties,
            "nu": fit.nu,
            "order_effect": self._slope(fitted, "gamma"),
            "covariates": {name: self._slope(fitted, name) for name in self._covariates},
            "by_name": {
                "rank_lower": ranks.best.tolist(),
                "rank_upper": ranks.worst.tolist(),
                "tier": (1 + tiers(fitted.strengths.theta, above)).tolist(),
                "component": fit.component.tolist(),
            },
            "ranks_hold_watched": self._is_watched,
            "leader": self._arms[first.model],
            "rivals": [self._arms[r] for r in first.rivals.tolist()],
            "is_separated": {
                "leader": first.is_separated,
                "ranking": is_ranking_separated(above),
            },
            "neighbours": list(self._neighbours(fitted, order, bound)),
            "components": _groups(fit.component, self._arms),
            "separated": fit.n_strong > fit.n_components,
            "judges": list(self._judges(table, fitted.judges)),
            "weighted": self._by_weights(fitted, table),
            "fit": {
                "loglik": fit.loglik,
                "iterations": fit.iterations,
                "ridge": fit.ridge,
                "status": str(fit.status),
                "covariance": fitted.strengths.used,
                "n_clusters": fit.n_clusters,
            },
            "family": self._family(table),
            "n_prior": self._told.n_prior,
            "n_not_applicable": self._told.n_not_applicable,
            "missing_share": self._told.missing_share(),
        }

    def _neighbours(
        self, fitted: _Fitted, order: np.ndarray, bound: Bound
    ) -> Iterator[dict[str, Json]]:
        """Give the gap between each comparable arm and the next, by itself and as one of all."""
        component = fitted.fit.component
        one, all_of = (gap_intervals(fitted.gaps, b) for b in (self._bound(fitted), bound))
        for a, b in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
            if component[a] != component[b]:
                continue
            yield {
                "above": self._arms[a],
                "below": self._arms[b],
                "gap": float(fitted.gaps.est[a, b]),
                "se": float(fitted.gaps.se[a, b]),
                "alone": _ends(one, a, b),
                "together": _ends(all_of, a, b),
            }

    @property
    def _n_judges(self) -> int:
        """The panel, and one for all judges of earlier runs that are not in it."""
        return len(self._study.panel) + bool(self._study.prior)

    def _judges(self, table: Comparisons, fit: JudgesFit | None) -> Iterator[dict[str, Json]]:
        """Say of each judge how it compares, and what the fit found it to differ in."""
        names = [*(panelist.name for panelist in self._study.panel), "earlier judges"]
        rows = by_judge(table, self._n_judges)
        for j, (name, row) in enumerate(zip(names, rows, strict=False)):
            if row.n:
                own: dict[str, Json] = {}
                if fit is not None:
                    own = {
                        "bias": float(fit.delta[j]),
                        "discrimination": float(fit.beta[j]),
                        "agreement": float(fit.agreement[j]),
                        "votes_against": j in fit.reversed,
                    }
                yield {
                    "judge": name,
                    "n": row.n,
                    "ties": row.n_ties,
                    "first_share": row.first_share,
                    "turned": row.turned._asdict(),
                    **own,
                }

    def _family(self, table: Comparisons) -> dict[str, Json] | None:
        """Say what arms gain before judges of their own family; None where none are named."""
        families = self._config.families
        if families is None:
            return None
        names = [*(panelist.name for panelist in self._study.panel), ""]
        kin = kinship(
            [families.judges.get(name, "") for name in names],
            [families.arms.get(arm, "") for arm in self._arms],
            table.left,
            table.right,
            table.judge,
        )
        try:
            found = family_advantage(
                table.left,
                table.right,
                table.outcome,
                kin,
                n_models=len(self._arms),
                order_effect=self._config.order_effect,
                cluster=self._study.frame.cluster[table.item],
                level=self._config.confidence,
            )
        except DidNotConverge:
            return None
        return {**found._asdict(), "is_shown": found.is_shown}

    def _by_weights(self, fitted: _Fitted, table: Comparisons) -> dict[str, Json] | None:
        """Give the strengths by the weights that were not declared, to see whether it matters."""
        is_declared = self._config.misspecification == "expected"
        weights = self._weights(table, is_weighted=True)
        if weights is None:
            return None
        try:
            other = self._fitted(table, is_weighted=not is_declared)
        except DidNotConverge:
            return None
        plain, weighted = (other, fitted) if is_declared else (fitted, other)
        ess, n = weighted.fit.ess, len(table)
        return {
            "is_declared": is_declared,
            "effective": ess,
            "n": n,
            "is_thin": "few_effective" in weighted.fit.flags,
            "value": other.strengths.theta.tolist(),
            "se": other.strengths.se.tolist(),
            "shift": self._shift(plain.fit, weighted.fit, table, weights),
        }

    def _shift(
        self, plain: BradleyTerryFit, weighted: BradleyTerryFit, table: Comparisons, weights: Array
    ) -> dict[str, Json] | None:
        """Say whether weighted and unweighted strengths estimate the same."""
        is_simple = self._config.judge_effects == "none" and not plain.names[1:]
        is_even = len(np.unique(self._study.frame.weight)) == 1
        if (
            plain.status is not Status.OK
            or self._config.ties != "half"
            or not (is_simple and is_even)
        ):
            return None
        chances = [
            Fitted(fit.theta, expit(fit.theta[table.left] - fit.theta[table.right] + fit.gamma))
            for fit in (plain, weighted)
        ]
        found: WeightedShift = weighted_shift(
            table.left,
            table.right,
            table.outcome,
            weights,
            *chances,
            extra=np.ones((len(table), 1)) if self._config.order_effect else None,
            cluster=np.unique(self._study.frame.cluster[table.item], return_inverse=True)[1],
        )
        return {
            "largest": found.largest,
            "critical": found.critical,
            "arm": self._arms[found.model],
            "is_apart": found.is_apart,
        }

    def _slope(self, fitted: _Fitted, name: str) -> dict[str, Json] | None:
        """Give a parameter beside the strengths with its interval."""
        fit = fitted.fit
        if name not in fit.names:
            return None
        slope = fit.slope(name)
        se = {
            "model": slope.se,
            "rows": slope.se_sandwich,
            "clusters": slope.se_cluster,
        }[fitted.strengths.used]
        if not se > 0:  # a property in which no two answers differ
            return None
        half = float(self._bound(fitted).of(np.array(se))) * se
        return {"est": slope.est, "se": se, "lower": slope.est - half, "upper": slope.est + half}

    def _flags(self, fitted: _Fitted) -> Iterator[str]:
        fit = fitted.fit
        if fit.n_components > 1:
            yield "disconnected"
        if fit.n_strong > fit.n_components:
            yield "separated"
        if fit.slope_ridge:
            yield "undetermined"
        if fit.ridge or fit.slope_ridge:
            yield "prior_holds"
        if math.isfinite(fitted.strengths.df):
            yield "few_clusters"
        if fitted.judges is not None and fitted.judges.reversed:
            yield "judge_votes_against"
        if "few_effective" in fit.flags:
            yield "few_effective"
        if self._lost.p < DIFFERS:
            yield "missing_differs_by_pair"

    @property
    def _whose(self) -> str:
        n = len(self._study.panel)
        return f"items like these, judged by {'this judge' if n == 1 else 'this panel'}"

    def _nothing(self, status: core.Status) -> Estimate:
        config = self._config
        return Estimate.nothing(
            name=config.name,
            kind="bradley_terry",
            target="strengths" if self._sides is None else "difference",
            level=config.confidence,
            n_answers=len(self._told),
            status=status,
            diagnostics={"missing_share": self._told.missing_share()},
        )


def _groups(labels: np.ndarray, arms: Sequence[str]) -> list[list[str]]:
    return [
        [arms[i] for i in np.flatnonzero(labels == part).tolist()] for part in np.unique(labels)
    ]


def _ends(interval: Interval, a: int, b: int) -> list[float]:
    return [float(interval.lower[a, b]), float(interval.upper[a, b])]


def sides_of(contrast: GapContrast | None, arms: Sequence[str]) -> tuple[int, int] | None:
    """Number the two arms of a contrast.

    Raises
    ------
    ValueError
        There is no arm of that name.
    """
    if contrast is None:
        return None
    for arm in (contrast.arm, contrast.baseline):
        if arm not in arms:
            raise ValueError(f"contrast: no arm is named {arm!r}; there are {', '.join(arms)}")
    return arms.index(contrast.arm), arms.index(contrast.baseline)


def _check_families(families: Families | None, study: Study) -> None:
    if families is None:
        return
    for part, known in (
        ("judges", tuple(panelist.name for panelist in study.panel)),
        ("arms", study.frame.arms),
    ):
        for name in getattr(families, part):
            if name not in known:
                raise ValueError(f"families.{part}: {name!r} is none of {', '.join(known)}")


def _columns(config: BradleyTerryConfig, study: Study) -> Mapping[str, Array]:
    """Find the covariates, (n_units,) each."""
    if "controlled" in config.report and not config.covariates:
        raise ValueError("covariates: missing; report: controlled wants some")
    found = {}
    for covariate in config.covariates:
        if covariate.name not in study.covariates:
            raise ValueError(f"covariates: nothing is known of {covariate.name!r}")
        found[covariate.name] = study.covariates[covariate.name]
    return found


USUAL_GAP = 0.4
"""Half-width of a gap, log-odds, at which intervals that hold watched are tightest, unless said."""

PLUGIN = Plugin(config=BradleyTerryConfig, build=BradleyTerry)

__all__ = ["PLUGIN", "BradleyTerry", "BradleyTerryConfig", "fit_bradley_terry"]
