"""The audit of a board beside arenakit's, on the same votes: which defects each finds, and what it costs.

Three sets of boards: those of `orchestrator.experiments.board_worlds`, one defect each; the planted
boards that arenakit ships; and recorded votes, where they are beside the checkout. A board with a
defect is right if the matching check fires, a sound one if none does; whatever fires is listed. That
arenakit says when being shown first brings anything, moved or not, never counts as wrong: on most of
these boards it does. Without arenakit only ours runs.

    python benchmarks/board_audit.py [draws] [recorded data]
"""

from __future__ import annotations

import csv
import gzip
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from estimators.board_audit import audit
from estimators.comparisons import Comparisons
from orchestrator.experiments.board_worlds import FINDS, SOUND, WORLDS

MATCHES = {
    "neighbours_open": {"separation", "rank_volatility"},
    "position": {"position_reordering"},
    "ties": {"tie_convention"},
    "intransitive": {"intransitivity"},
    "disconnected": {"connectivity"},
    "coverage": {"coverage_imbalance"},
    "clustered": {"vote_clustering"},
    "judge_influence": {"annotator_influence"},
}
"""What arenakit calls the defects that our checks are for."""

PLANTED = {
    "too-few-votes": "neighbours_open",
    "first-slot-favoured": "position",
    "draw-prone-model": "ties",
    "rock-paper-scissors": "intransitive",
    "two-separate-pools": "disconnected",
    "lopsided-budget": "coverage",
    "a-few-power-voters": "clustered",
    "one-loud-annotator": "judge_influence",
}
"""What is planted in arenakit's own boards, by our names."""

RECORDED = ("llmfao", "llmbar", "posbias_mtbench")


class Board(NamedTuple):
    """Votes, and how many models they are about."""

    votes: Comparisons
    n_models: int


class Audited(NamedTuple):
    """What fired, and the CPU seconds it took."""

    fired: set[str]
    seconds: float


Auditor = Callable[[Board, int], Audited]


def ours(board: Board, seed: int) -> Audited:
    began = time.process_time()
    found = audit(board.votes, n_models=board.n_models, rng=np.random.default_rng(seed))
    seconds = time.process_time() - began
    return Audited({each.kind.value for each in found.fired}, seconds)


def of_arenakit(board: Board, seed: int) -> Audited:
    import arenakit  # noqa: PLC0415  # a peer that may be absent

    votes = board.votes
    said = {1.0: "a", 0.5: "tie", 0.0: "b"}
    names = [f"m{i:03}" for i in range(board.n_models)]
    battles = [
        arenakit.Battle(
            model_a=names[left],
            model_b=names[right],
            winner=said[outcome],
            item_id=f"i{item}",
            voter_id=f"v{judge}",
        )
        for left, right, outcome, item, judge in zip(
            *(of.tolist() for of in (votes.left, votes.right, votes.outcome)),
            *(of.tolist() for of in (votes.item, votes.judge)),
            strict=True,
        )
    ]
    began = time.process_time()
    found = arenakit.run_audit(arenakit.Arena(battles), seed=seed)
    return Audited(set(found.flags), time.process_time() - began)


def planted() -> Iterator[tuple[str, str | None, Callable[[int], Board]]]:
    """Give arenakit's own boards."""
    from arenakit.demo import DEMOS  # noqa: PLC0415  # a peer that may be absent

    for demo in DEMOS:

        def draw(seed: int, demo: object = demo) -> Board:
            arena = demo.build(seed)  # type: ignore[attr-defined]
            votes = Comparisons(
                left=arena.a.astype(np.int64),
                right=arena.b.astype(np.int64),
                outcome=np.array([1.0, 0.0, 0.5])[arena.y],
                item=arena.item.astype(np.int64),
                judge=arena.voter.astype(np.int64),
                replicate=np.zeros(len(arena.a), dtype=np.int64),
                propensity=np.full(len(arena.a), np.nan),
            )
            return Board(votes, arena.n_models)

        yield demo.key, PLANTED.get(demo.key), draw


def recorded(path: Path) -> Board:
    with gzip.open(path / "pairwise.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    value = {"left": 1.0, "tie": 0.5, "right": 0.0}
    columns = (
        [r["left"] for r in rows],
        [r["right"] for r in rows],
        [value[r["winner"]] for r in rows],
        [r["item_id"] for r in rows],
        [r["judge"] for r in rows],
    )
    return Board(*_table(*columns))


def _table(
    left: Sequence[str],
    right: Sequence[str],
    outcome: Sequence[float],
    item: Sequence[str],
    judge: Sequence[str],
) -> tuple[Comparisons, int]:
    """Number names; give the votes and the number of models."""
    n = len(outcome)
    models, both = np.unique([*left, *right], return_inverse=True)
    votes = Comparisons(
        left=both[:n],
        right=both[n:],
        outcome=np.array(outcome, dtype=np.float64),
        item=np.unique(item, return_inverse=True)[1],
        judge=np.unique(judge, return_inverse=True)[1],
        replicate=np.zeros(n, dtype=np.int64),
        propensity=np.full(n, np.nan),
    )
    return votes, len(models)


def side_by_side(
    title: str,
    auditors: dict[str, Auditor],
    boards: Iterator[tuple[str, str | None, Callable[[int], Board]]],
    n_draws: int,
) -> None:
    """Draw boards and print what each auditor finds."""
    print(f"\n{title}, {n_draws} draws each")
    for name, defect, draw in boards:
        fired = {auditor: Counter[str]() for auditor in auditors}
        hits, seconds = Counter[str](), Counter[str]()
        for seed in range(n_draws):
            board = draw(seed)
            for auditor, run in auditors.items():
                found = run(board, seed)
                fired[auditor].update(found.fired)
                seconds[auditor] += found.seconds
                hits[auditor] += _is_right(defect, found.fired, is_ours=run is ours)
        print(f"  {name}: {defect or 'nothing amiss'}")
        for auditor in auditors:
            each = ", ".join(f"{what} {n}" for what, n in fired[auditor].most_common())
            ms = 1e3 * seconds[auditor] / n_draws
            print(
                f"    {auditor:9} right {hits[auditor]}/{n_draws}  {ms:7.0f} ms  fired: {each or '-'}"
            )


def _is_right(defect: str | None, fired: set[str], *, is_ours: bool) -> bool:
    if defect is None:
        return not fired - {"position_bias"}
    return bool(fired & ({defect} if is_ours else MATCHES[defect]))


def main() -> None:
    n_draws = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    shared = (
        Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parents[2] / "shared" / "data"
    )
    auditors: dict[str, Auditor] = {"ours": ours}
    if find_spec("arenakit") is None:
        print("arenakit is not installed: its side, and its own boards, are left out")
    else:
        auditors["arenakit"] = of_arenakit

    def worlds() -> Iterator[tuple[str, str | None, Callable[[int], Board]]]:
        for name, world in {**WORLDS, **SOUND}.items():

            def draw(seed: int, world: object = world) -> Board:
                rng = np.random.default_rng([seed, 3])
                return Board(world.draw(rng), world.n_models)  # type: ignore[attr-defined]

            yield name, FINDS.get(name), draw  # type: ignore[call-overload]

    side_by_side("boards with one defect, and sound ones", auditors, worlds(), n_draws)
    if "arenakit" in auditors:
        side_by_side("arenakit's own boards", auditors, planted(), n_draws)
    for name in RECORDED:
        if not (shared / name).is_dir():
            print(f"{name}: not beside this checkout")
            continue
        board = recorded(shared / name)
        print(f"\n{name}: {len(board.votes):,} votes, {board.n_models} models")
        for auditor, run in auditors.items():
            found = run(board, 0)
            fired = ", ".join(sorted(found.fired)) or "-"
            print(f"    {auditor:9} {1e3 * found.seconds:7.0f} ms  fired: {fired}")


if __name__ == "__main__":
    main()
