"""Which rank: by BIC, or by votes held out, beside strengths of every context for itself.

Too low a rank ruins the coverage of intervals, too high a one costs a little width. So where criteria
disagree, take the higher.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from estimators.intervals import Array
from estimators.markov_model import FitStatus
from estimators.tensor_cells import Cells, Integers, Votes, votes
from estimators.tensor_fit import by_context, maximise
from estimators.tensor_model import FOLD_RIDGE, WORST_CONDITION, fit_votes
from estimators.tensor_one_step import fold_labels
from estimators.tensor_tangent import dimension, full_rank
from orchestrator.core.errors import DidNotConverge

Criterion = Literal["bic", "held_out"]


class Loss(NamedTuple):
    """Mean log-loss of held-out votes, in nats, and its standard error over votes."""

    mean: float
    se: float


class Candidate(NamedTuple):
    """One rank.

    Attributes
    ----------
    rank, dimension : of the tensor
    loglik, bic : of the fit of all votes
    held_out : loss of votes that fits had not seen
    excess : paired loss above that of the best rank; nan: no such figure
    reason : why it can't be chosen; empty: it can
    flags : of the fit of all votes
    """

    rank: tuple[int, ...]
    dimension: int
    loglik: float
    bic: float
    held_out: Loss
    excess: Loss
    reason: str
    flags: tuple[str, ...]


class RankChoice(NamedTuple):
    """What was chosen, and from what.

    Attributes
    ----------
    rank : None: no rank can be read, and models are to be compared over all contexts together
    criterion : `bic`: least -2 loglik + D log n. `held_out`: the lowest dimension whose loss is
        within one standard error, of the paired difference, of the least
    candidates : in the order asked
    apart : loss of strengths fitted in each context for itself
    gain : paired loss of these above the chosen rank's: positive where contexts inform each other
    """

    rank: tuple[int, ...] | None
    criterion: Criterion
    candidates: tuple[Candidate, ...]
    apart: Loss
    gain: Loss


def choose_rank(
    left: ArrayLike,
    right: ArrayLike,
    context: ArrayLike,
    outcome: ArrayLike,
    *,
    shape: Sequence[int],
    ranks: Iterable[int | Sequence[int]] = (1, 2, 3, 4),
    criterion: Criterion = "bic",
    folds: int | ArrayLike = 5,
    by: ArrayLike | None = None,
    ridge: float = 0.0,
    fold_ridge: float = FOLD_RIDGE,
    order_effect: bool = False,
    weights: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> RankChoice:
    """Fit each rank to all votes and without each fold, and choose.

    Parameters
    ----------
    ranks : those of the shape are tried; a rank that no tensor of the shape has is passed over
    folds : how many, or (n,) the fold of each vote; 0: none, BIC alone
    by : (n,) votes of one value stay in one fold
    ridge, fold_ridge : of the fits of all votes, and of the folds'

    See `tensor_model.fit_bt_tensor`.

    Raises
    ------
    ValueError
        The votes are malformed, no rank is of the shape, or held-out loss is wanted of no folds.
    """
    lengths = tuple(int(d) for d in shape)
    rng = np.random.default_rng(0) if rng is None else rng
    source = votes(left, right, context, outcome, shape=lengths, weights=weights)
    tried = _of_shape(lengths, ranks)
    if isinstance(folds, int):
        if criterion == "held_out" and not folds:
            raise ValueError("held-out loss needs folds")
        labels = fold_labels(len(source), folds, rng, by) if folds else None
    else:
        labels = np.asarray(folds, dtype=np.int64)
    losses: list[Array] = []
    rows: list[Candidate] = []
    for rank in tried:
        reason, loglik, bic = "", math.nan, math.nan
        flags: tuple[str, ...] = ()
        try:
            fit = fit_votes(source, rank=rank, ridge=ridge, order_effect=order_effect, rng=rng)
        except DidNotConverge as exc:
            reason = str(exc)
        else:
            reason, flags, loglik, bic = fit.reason, fit.flags, fit.loglik, fit.bic
            if fit.status is FitStatus.OK and not fit.condition <= WORST_CONDITION:
                reason = f"the information's condition number is {fit.condition:.1e}"
        loss = np.full(len(source), np.nan)
        if labels is not None and not reason:
            loss = _held_out(source, labels, rank, fold_ridge, order_effect, rng)
        losses.append(loss)
        size = dimension(lengths, rank)
        nothing = Loss(math.nan, math.nan)
        row = Candidate(rank, size, loglik, bic, _loss(source, loss), nothing, reason, flags)
        rows.append(row)
    apart = np.full(len(source), np.nan)
    if labels is not None:
        apart = _held_out(source, labels, None, fold_ridge, order_effect, rng)
    can = [i for i, row in enumerate(rows) if not row.reason]
    chosen: int | None = None
    if labels is not None and can:
        least = min(can, key=lambda i: rows[i].held_out.mean)
        for i in can:
            rows[i] = rows[i]._replace(excess=_loss(source, losses[i] - losses[least]))
    if can and criterion == "bic":
        chosen = min(can, key=lambda i: rows[i].bic)
    elif can:
        near = [i for i in can if not rows[i].excess.mean > rows[i].excess.se]
        chosen = min(near, key=lambda i: rows[i].dimension)
    gain = apart - losses[chosen] if chosen is not None else np.full(len(source), np.nan)
    return RankChoice(
        rank=None if chosen is None else rows[chosen].rank,
        criterion=criterion,
        candidates=tuple(rows),
        apart=_loss(source, apart),
        gain=_loss(source, gain),
    )


def _of_shape(
    shape: tuple[int, ...], ranks: Iterable[int | Sequence[int]]
) -> list[tuple[int, ...]]:
    found = []
    for rank in ranks:
        try:
            found.append(full_rank(shape, rank))
        except ValueError as exc:
            wrong = exc
    if not found:
        raise ValueError(f"no rank can be tried; {wrong}")
    return found


def _held_out(
    source: Votes,
    labels: Integers,
    rank: tuple[int, ...] | None,
    ridge: float,
    order_effect: bool,  # noqa: FBT001 - as asked
    rng: np.random.Generator,
) -> Array:
    """Give each vote's log-loss by the fit that has not seen it, (n,); no rank: contexts apart."""
    found = np.empty(len(source))
    for fold in np.unique(labels):
        told = labels == fold
        cells = source.cells(~told)
        eta = _predicted(cells, source.shape, rank, ridge, order_effect, rng)[source.cell[told]]
        found[told] = np.logaddexp(0.0, eta) - source.outcome[told] * eta
    return found


def _predicted(
    cells: Cells,
    shape: tuple[int, ...],
    rank: tuple[int, ...] | None,
    ridge: float,
    order_effect: bool,  # noqa: FBT001 - as asked
    rng: np.random.Generator,
) -> Array:
    """Fit cells; give the logits of all cells."""
    if rank is None:
        return cells.eta(by_context(cells, ridge=ridge))
    top = maximise(cells, shape=shape, rank=rank, ridge=ridge, order_effect=order_effect, rng=rng)
    return cells.eta(top.tensor, top.gamma)


def _loss(source: Votes, of_votes: Array) -> Loss:
    """Give the weighted mean over votes, and its standard error."""
    w = source.weights / source.weights.sum()
    mean = float(w @ of_votes)
    return Loss(mean, float(np.sqrt(w * w @ (of_votes - mean) ** 2)))
