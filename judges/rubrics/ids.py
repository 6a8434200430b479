"""Names for the units of one question: random letters, by which a judge says which unit it rates.

They tell nothing of a unit, its place or its quality, and are drawn anew for each question.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

from orchestrator.core.query import Query
from orchestrator.core.seeds import Seeds, Stream

VERDICTS, ID = "verdicts", "id"
"""The keys of the list of verdicts, and of what names a unit in it."""

# Without vowels and the commonest consonants three letters make no word and hardly an abbreviation.
_NAMES = tuple(map("".join, permutations("BDJKQVWXZ", 3)))

MOST_UNITS = len(_NAMES)
"""How many units a question can name."""


@lru_cache(maxsize=4096)
def unit_ids(seeds: Seeds, query: Query) -> tuple[str, ...]:
    """Name the units of a question, in presentation order and all different.

    Draws from `stream(LAYOUT, judge, units, replicate)`.
    """
    rng = seeds.stream(Stream.LAYOUT, query.judge, *query.units, query.replicate)
    return tuple(_NAMES[name] for name in rng.permutation(MOST_UNITS)[: len(query.units)])
