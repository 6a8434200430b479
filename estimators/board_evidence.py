"""What findings about a board of strengths are made from: one fit, and what each vote adds to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.special import ndtri

from estimators.bt_cells import Cells, Indices, checked
from estimators.bt_inference import AtEnd, Bound, Gaps, gaps, max_t, watched
from estimators.bt_model import FEW_CLUSTERS, BradleyTerryFit, fit_cells
from estimators.bt_ties import Ties, scores
from estimators.comparisons import Comparisons
from estimators.intervals import Array
from orchestrator.core.wire import Json


class Kind(StrEnum):
    """What a board is audited for."""

    NEIGHBOURS_OPEN = "neighbours_open"
    POSITION = "position"
    TIES = "ties"
    INTRANSITIVE = "intransitive"
    DISCONNECTED = "disconnected"
    COVERAGE = "coverage"
    CLUSTERED = "clustered"
    JUDGE_INFLUENCE = "judge_influence"


MATERIAL_SHIFT = 0.1
"""Log-odds by which a convention or a judge may move a gap: 2.5 points of a win rate. Chosen."""

_LEAST_SPREAD = 0.1
"""A gap's variance is at least so much of the model's: of ties alone, votes' scores have none."""

_SHOWN_BOTH_WAYS = 0.1
"""Of pairs compared more than once, the share in both orders below which "first" is no place: a coin
turns at least half of them, a list sorted by name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of a board.

    Attributes
    ----------
    effect, lower, upper : what was found, with its interval; nan where nothing can be said
    band : size from which on it matters
    unit : of these
    fires : the whole interval lies beyond the band, on one side of 0; a proved circle of three also
        makes INTRANSITIVE fire
    subject : what it is about: the two neighbours; the model that is moved; the two that change places,
        the one that half wins put above first; the circle; all models outside the largest group; the
        least known model; nothing; the judge and the model
    reason : why nothing can be said; empty where something can
    detail : further figures, by name
    """

    kind: Kind
    effect: float
    lower: float
    upper: float
    band: float
    unit: str
    fires: bool
    subject: tuple[int, ...] = ()
    reason: str = ""
    detail: Mapping[str, Json] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        """Give it as plain values; what is not finite is None."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _plain(value) for name, value in plain.items()}


def _plain(value: Json) -> Json:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case StrEnum():
            return value.value
        case list() | tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value


def finding(
    kind: Kind,
    ends: tuple[float, float, float],
    band: float,
    unit: str,
    subject: tuple[int, ...] = (),
    **detail: Json,
) -> Finding:
    """Hold an effect and the ends of its interval against the band."""
    effect, lower, upper = (float(each) for each in ends)
    return Finding(
        kind=kind,
        effect=effect,
        lower=lower,
        upper=upper,
        band=band,
        unit=unit,
        fires=lower > band or upper < -band,
        subject=subject,
        detail=detail,
    )


def silent(kind: Kind, band: float, unit: str, reason: str) -> Finding:
    """Say that a check has nothing to go by."""
    return Finding(
        kind=kind,
        effect=np.nan,
        lower=np.nan,
        upper=np.nan,
        band=band,
        unit=unit,
        fires=False,
        reason=reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """A board and what it rests on.

    Attributes
    ----------
    table : n votes of m models
    level, is_watched : of all findings together; see `half`
    rng : for what is simulated
    cells : the votes counted
    has_order : whether "shown first" is a place, and its advantage determined
    fit : strengths, a tie as half a win, beside the advantage of the first place if there is one
    influence : (n, m + has_order) what each vote adds to the strengths and to that advantage
    groups : (n,) numbers from 0 by what votes may have in common: `judge`, `item`, `cluster`;
        those that say anything
    by : the group whose votes count as one piece of evidence; empty: each vote is one
    cov : (m, m) of strengths, by `by`
    found : gaps
    n_left_out : votes of the board that are not in it, since their gap has no finite estimate
    """

    table: Comparisons
    level: float
    is_watched: bool
    rng: np.random.Generator
    cells: Cells
    has_order: bool
    fit: BradleyTerryFit
    influence: Array
    groups: Mapping[str, Indices]
    by: str
    cov: Array
    found: Gaps
    n_left_out: int = 0

    @classmethod
    def of(
        cls,
        table: Comparisons,
        *,
        n_models: int,
        cluster: ArrayLike | None,
        rng: np.random.Generator,
        level: float,
        is_watched: bool,
    ) -> Evidence:
        """Fit a board, and choose what counts as one piece of evidence.

        Of the single votes and of the groups there are effectively `FEW_CLUSTERS` of, that whose
        covariance is largest: the most careful one.
        """
        cells = cells_of(table, n_models)
        fit = fit_cells(cells, order_effect=True) if _is_place(cells) else fit_cells(cells)
        if fit.slope_ridge:
            fit = fit_cells(cells)
        added = influence(fit, table)
        groups = _groups(table, cluster)
        covs = {"": added.T @ added}
        for name, codes in groups.items():
            if effective(codes) >= FEW_CLUSTERS:
                covs[name] = covariance(summed(added, codes))
        by = max(covs, key=lambda name: float(np.trace(covs[name])))
        cov = covs[by][:n_models, :n_models]
        found, modelled = (
            gaps(fit.theta, each, fit.component, fit.strong) for each in (cov, fit.cov)
        )
        return cls(
            table=table,
            level=level,
            is_watched=is_watched,
            rng=rng,
            cells=cells,
            has_order=fit.order_effect,
            fit=fit,
            influence=added,
            groups=groups,
            by=by,
            cov=cov,
            found=replace(found, se=np.maximum(found.se, np.sqrt(_LEAST_SPREAD) * modelled.se)),
        )

    def settled(self, cluster: ArrayLike | None) -> Evidence | None:
        """Keep votes between models that have beaten each other around a circle; None: there are none.

        Only their gaps have a finite estimate. All others are held by a prior, and their votes say
        nothing of these.
        """
        strong, table = self.fit.strong, self.table
        kept = strong[table.left] == strong[table.right]
        if kept.all():
            return self
        if not kept.any():
            return None
        rest = Evidence.of(
            table.take(kept),
            n_models=self.n_models,
            cluster=None if cluster is None else np.asarray(cluster)[kept],
            rng=self.rng,
            level=self.level,
            is_watched=self.is_watched,
        )
        return replace(rest, n_left_out=int((~kept).sum()))

    @property
    def n_models(self) -> int:
        """Number of models, m."""
        return self.fit.n_models

    @property
    def alpha(self) -> float:
        """Error of one kind of finding: all kinds have the same part."""
        return (1 - self.level) / len(Kind)

    @property
    def votes_in_one(self) -> float:
        """How many votes are worth one that hangs together with no other, at least 1."""
        alone = float((self.influence[:, : self.n_models] ** 2).sum())
        return max(float(np.trace(self.cov)) / alone, 1.0) if alone else 1.0

    @property
    def votes(self) -> Array:
        """Number of votes on each model, (m,)."""
        shown = self.cells.sums.sum(axis=0)
        return np.asarray(shown.sum(axis=0) + shown.sum(axis=1))

    @property
    def chance(self) -> Array:
        """Fitted chance that the model shown first wins, a tie as half, (n,)."""
        theta = self.fit.psi[: self.n_models]
        eta = theta[self.table.left] - theta[self.table.right] + self.fit.gamma
        return np.asarray(1 / (1 + np.exp(-eta)))

    def half(self, se: Array | float, n_claims: int) -> Array:
        """Give the half-width of intervals of which a kind of finding makes so many."""
        known = np.maximum(np.asarray(se, dtype=np.float64), 1e-12)
        bound: Bound
        if self.is_watched:
            bound = watched(len(Kind) * n_claims, level=self.level)
        else:
            bound = AtEnd(self.critical(n_claims))
        return np.asarray(bound.of(known) * known)

    def critical(self, n_claims: int) -> float:
        """Give the bound of |z| at a fixed end for one of so many claims of a kind."""
        return float(-ndtri(self.alpha / n_claims / 2))

    def joint_bound(self) -> Bound:
        """Bound all gaps together, at `level`: what ranks and tiers are made with."""
        m = self.n_models
        if self.is_watched:
            return watched(max(m * (m - 1) // 2, 1), level=self.level)
        draws = int(np.clip(2e7 / max(m, 1) ** 2, 2000, 20_000))
        return AtEnd(max_t(self.cov, self.rng, se=self.found.se, level=self.level, draws=draws))

    def pieces(self, added: Array) -> Array:
        """Sum what votes add by pieces of evidence."""
        return summed(added, self.groups[self.by]) if self.by else added

    def refitted(
        self, *, ties: Ties = Ties.HALF, without_order: bool = False, cells: Cells | None = None
    ) -> BradleyTerryFit | None:
        """Fit under another convention, or other votes; None where more is open, or a prior holds a gap."""
        fit = fit_cells(
            self.cells if cells is None else cells,
            order_effect=self.has_order and not without_order,
            ties=ties,
        )
        is_same = fit.status is self.fit.status and fit.n_strong == self.fit.n_strong
        is_held = fit.n_strong > fit.n_components
        return fit if is_same and not is_held and not fit.slope_ridge else None


def cells_of(table: Comparisons, n_models: int) -> Cells:
    """Count votes."""
    return Cells.of(checked(table.left, table.right, table.outcome, n_models=n_models))


def influence(fit: BradleyTerryFit, of: Comparisons) -> Array:
    """Give what each vote adds to strengths and to the advantage of the first place, (n, m + q).

    To first order in the estimates: a vote's score carried over by the inverse information. Their
    squares add up to the sandwich.
    """
    m = fit.n_models
    q = m + int(fit.order_effect)
    theta = fit.psi[:m]
    eta = theta[of.left] - theta[of.right] + fit.gamma
    tau = float(np.log(fit.nu)) if "nu" in fit.names else None
    score = scores(fit.ties, eta, tau)
    at = (2 * of.outcome).astype(np.int64), np.arange(len(of))
    by_eta = np.broadcast_to(score.e, (3, len(of)))[at]
    if fit.ties is Ties.DROP:
        by_eta = np.where(of.outcome == 0.5, 0.0, by_eta)
    bread = np.nan_to_num(fit.joint)
    along = bread[:m, :q]
    added = along[of.left] - along[of.right]
    if fit.order_effect:
        added += bread[m, :q]
    added *= by_eta[:, None]
    if score.t is not None:
        # The covariance is of nu; d nu = nu d tau.
        added += score.t[at][:, None] * (bread[-1, :q] / fit.nu)
    return added


def summed(added: Array, codes: Indices) -> Array:
    """Sum rows by group, (G, q)."""
    n = len(codes)
    marks = csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, int(codes.max()) + 1))
    total: Array = marks.T @ added
    return total


def covariance(pieces: Array) -> Array:
    """Give the covariance of a sum of independent pieces."""
    return pieces.T @ pieces


def effective(codes: Indices) -> float:
    """Give the effective number of groups, (Σ size)²/Σ size²."""
    sizes = np.bincount(codes).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def _groups(table: Comparisons, cluster: ArrayLike | None) -> dict[str, Indices]:
    """Number what votes have in common, where there are several and some hold several votes."""
    labels = {"judge": table.judge, "item": table.item}
    if cluster is not None:
        given = np.asarray(cluster)
        if given.shape != (len(table),):
            raise ValueError(f"cluster has shape {given.shape}; there are {len(table)} votes")
        labels["cluster"] = given
    found: dict[str, Indices] = {}
    for name, each in labels.items():
        codes = np.unique(each, return_inverse=True)[1].ravel().astype(np.int64)
        is_new = not any(np.array_equal(codes, other) for other in found.values())
        if is_new and 1 < codes.max(initial=0) + 1 < len(codes):
            found[name] = codes
    return found


def _is_place(cells: Cells) -> bool:
    """Say whether the model that stands first was also shown first, as far as votes can tell."""
    shown = cells.sums.sum(axis=0)
    is_repeated = np.triu(shown + shown.T, 1) > 1
    both = np.triu(np.minimum(shown, shown.T) > 0, 1) & is_repeated
    return bool(both.sum() >= _SHOWN_BOTH_WAYS * max(is_repeated.sum(), 1) and both.any())
