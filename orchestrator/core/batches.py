"""How many batches a campaign of batched ratings asks each judge for, fixed when it is opened.

Policy, estimates and stop rule count in the same batches, so the number is reckoned here once.
"""

from __future__ import annotations

from typing import Literal

from orchestrator.core.study import Study

FEWEST_PER_LOOK = 10
MOST_LOOKS = 10


def most_batches(study: Study, blocks: int | Literal["auto"], block_length: int) -> int:
    """Say how many batches each judge is asked for, at most.

    A number of blocks is meant for each judge. `auto` is what the cap that the run was opened with
    pays for at the expected price of a round of batches, one to each judge, with room for the worst
    case of the last round; what is left of it after whole blocks counts too.

    Raises
    ------
    ValueError
        `auto`, and there is no cap, or it does not pay for a block.
    """
    if blocks != "auto":
        return blocks * block_length
    if study.cap is None:
        raise ValueError("policy.blocks: auto wants budget.usd; or give the number of blocks")
    price = sum(panelist.planning for panelist in study.panel)
    room = sum(max(0, panelist.worst - panelist.planning) for panelist in study.panel)
    n_batches = max(0, study.cap - room) // price if price else 0
    if n_batches < block_length:
        raise ValueError(
            f"policy.blocks: the cap pays for {n_batches} batches of each judge, at some "
            f"{price / 1e9:.4f} USD a round, and a block has {block_length}"
        )
    return int(n_batches)


def batches_per_look(n_batches: int, block_length: int) -> int:
    """Say after how many batches of each judge there is a look: whole blocks, some ten looks."""
    wanted = max(FEWEST_PER_LOOK, -(-n_batches // MOST_LOOKS))
    return min(-(-wanted // block_length) * block_length, n_batches)
