"""How many batches a campaign of batched ratings asks each judge for, fixed when it is opened.

Policy, estimates and stop rule count in the same batches, so the number is reckoned here once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from orchestrator.core.study import Panelist, Study

FEWEST_PER_LOOK = 10
MOST_LOOKS = 10


def most_batches(study: Study, blocks: int | Literal["auto"], block_length: int) -> int:
    """Say how many batches each judge is asked for, at most.

    A number of blocks is meant for each judge. `auto` is what the cap that the run was opened with
    pays for at the expected price of a round of batches, one to each judge, with room for the worst
    case of the last round; what is left of it after whole blocks counts too. A judge with a cap of
    its own must be able to pay for its part: all judges are asked for as many batches.

    Raises
    ------
    ValueError
        `auto`, and there is no cap, all judges are free, or a cap does not pay for a block.
    """
    if blocks != "auto":
        return blocks * block_length
    if study.cap is None:
        raise ValueError("policy.blocks: auto wants budget.usd; or give the number of blocks")
    purses = [_Purse("the cap", "each judge", study.cap, study.panel)]
    purses += [
        _Purse(f"the cap of {judge.name}", judge.name, judge.cap, (judge,))
        for judge in study.panel
        if judge.cap is not None and not judge.card.is_free
    ]
    purse = min((purse for purse in purses if purse.price), key=_Purse.n_rounds, default=None)
    if purse is None:
        raise ValueError("policy.blocks: auto wants prices, and the judges are free; give a number")
    n_batches = purse.n_rounds()
    if n_batches < block_length:
        raise ValueError(
            f"policy.blocks: {purse.name} pays for {n_batches} batches of {purse.whose}, at some "
            f"{purse.price / 1e9:.4f} USD a round, and a block has {block_length}"
        )
    return n_batches


class _Purse(NamedTuple):
    """Money (nano-USD) that pays some judges for a batch each, round after round; both in words."""

    name: str
    whose: str
    cap: int
    judges: Sequence[Panelist]

    @property
    def price(self) -> int:
        """What a round is expected to cost."""
        return sum(judge.planning for judge in self.judges)

    def n_rounds(self) -> int:
        """Say how many rounds it pays for, with room for the worst case of the last one."""
        room = sum(max(0, judge.worst - judge.planning) for judge in self.judges)
        return int(max(0, self.cap - room) // self.price)


def batches_per_look(n_batches: int, block_length: int) -> int:
    """Say after how many batches of each judge there is a look: whole blocks, some ten looks."""
    wanted = max(FEWEST_PER_LOOK, -(-n_batches // MOST_LOOKS))
    return min(-(-wanted // block_length) * block_length, n_batches)
