"""Boards with one defect each, and a sound one.

Every world has models at even distances, an advantage of the first place, voters who differ a little
in which models they like, and 12 % ties; orders are a coin's. A defect is what its world changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from estimators.comparisons import Comparisons

Defect = Literal[
    "none",
    "scarce",
    "slot",
    "drawer",
    "circle",
    "halves",
    "top",
    "handful",
    "opinion",
]
DEFECTS: tuple[Defect, ...] = get_args(Defect)

FINDS: Mapping[Defect, str] = {
    "scarce": "neighbours_open",
    "slot": "position",
    "drawer": "ties",
    "circle": "intransitive",
    "halves": "disconnected",
    "top": "coverage",
    "handful": "clustered",
    "opinion": "judge_influence",
}
"""The finding that each defect has to bring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How votes come about.

    Attributes
    ----------
    n_models, n_votes, n_voters, n_items : sizes
    spread : log-odds between the best model and the mean
    near : the third and fourth model are as good as equal
    tied : chance of a tie
    order : advantage of the first place, log-odds
    first : chance that the second model stands first in its pairs
    taste : standard deviation of a voter's liking of a model
    drawn : chance of a tie in the pairs of the last model but one
    circle : by how much models 2, 3 and 4 beat each other in a circle, log-odds; 0: they don't
    is_split : the two halves of the models never meet
    decay : a model's chance of being asked is e^-decay of the one before it
    quality, together : standard deviation of models' answers to an item, and votes on each pair of them
    heavy, heavy_share, heavy_taste : voters who cast that share of all votes, and their taste
    opinion, opinion_share : by how much one voter likes the fourth model, and its share of votes
    """

    n_models: int = 6
    n_votes: int = 6000
    n_voters: int = 300
    n_items: int = 500
    spread: float = 1.2
    near: bool = False
    tied: float = 0.12
    order: float = 0.2
    first: float = 0.5
    taste: float = 0.1
    drawn: float | None = None
    circle: float = 0.0
    is_split: bool = False
    decay: float = 0.0
    quality: float = 0.0
    together: int = 1
    heavy: int = 0
    heavy_share: float = 0.0
    heavy_taste: float = 0.0
    opinion: float = 0.0
    opinion_share: float = 0.0

    def draw(self, rng: np.random.Generator) -> Comparisons:
        """Draw a board."""
        m, n = self.n_models, self.n_votes
        theta = np.linspace(self.spread, -self.spread, m)
        if self.near:
            theta[3] = theta[2]
        a, b = (np.repeat(each, self.together) for each in self._pairs(rng))
        item = np.repeat(rng.integers(0, self.n_items, n // self.together), self.together)
        quality = theta + rng.normal(0, self.quality, (self.n_items, m))
        voter = rng.integers(0, self.n_voters, n)
        taste = rng.normal(0, self.taste, (self.n_voters, m))
        if self.heavy:
            is_heavy = rng.random(n) < self.heavy_share
            voter = np.where(is_heavy, rng.integers(0, self.heavy, n), voter)
            taste[: self.heavy] = rng.normal(0, self.heavy_taste, (self.heavy, m))
        if self.opinion:
            voter = np.where(rng.random(n) < self.opinion_share, 0, voter)
            taste[0] = self.opinion * (np.arange(m) == 3)
        is_turned = rng.random(n) < 0.5
        for model, other in ((a, b), (b, a)):
            is_second = (model == 1) & (other != 1)
            chance = self.first if model is a else 1 - self.first
            is_turned = np.where(is_second, rng.random(n) >= chance, is_turned)
        left, right = np.where(is_turned, b, a), np.where(is_turned, a, b)
        gap = quality[item, left] - quality[item, right] + taste[voter, left] - taste[voter, right]
        if self.circle:
            step = (right - left) % 3
            is_in = (np.minimum(left, right) >= 1) & (np.maximum(left, right) <= 3)
            gap = np.where(is_in, np.where(step == 1, self.circle, -self.circle), gap)
        outcome = (rng.random(n) < expit(gap + self.order)).astype(np.float64)
        tied = np.full(n, self.tied)
        if self.drawn is not None:
            tied[(left == m - 2) | (right == m - 2)] = self.drawn
        outcome[rng.random(n) < tied] = 0.5
        return Comparisons(
            left=left,
            right=right,
            outcome=outcome,
            item=item,
            judge=voter,
            replicate=np.zeros(n, dtype=np.int64),
            propensity=np.full(n, np.nan),
        )

    def _pairs(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw who meets whom."""
        m = self.n_models
        weight = np.exp(-self.decay * np.arange(m))
        share = np.triu(np.outer(weight, weight), 1)
        if self.is_split:
            share[: m // 2, m // 2 :] = 0.0
        pair = rng.choice(m * m, self.n_votes // self.together, p=share.ravel() / share.sum())
        return np.divmod(pair, m)


_SOUND = World()

WORLDS: Mapping[Defect, World] = {
    "none": _SOUND,
    "scarce": replace(_SOUND, n_votes=250),
    "slot": replace(_SOUND, order=0.8, first=0.95),
    "drawer": replace(_SOUND, drawn=0.85),
    "circle": replace(_SOUND, circle=0.8),
    "halves": replace(_SOUND, is_split=True),
    "top": replace(_SOUND, decay=0.7),
    "handful": replace(_SOUND, heavy=6, heavy_share=0.4, heavy_taste=0.8),
    "opinion": replace(_SOUND, n_voters=40, opinion=2.5, opinion_share=0.15),
}
"""One world a defect."""

SOUND: Mapping[str, World] = {
    "6 models, 6,000 votes": _SOUND,
    "6 models, two of them equal": replace(_SOUND, near=True),
    "6 models, no order effect, no ties": replace(_SOUND, order=0.0, tied=0.0),
    "6 models, a third of votes ties": replace(_SOUND, tied=0.33),
    "5 models, 2,000 votes of 3 judges": replace(
        _SOUND, n_models=5, n_votes=2000, n_voters=3, taste=0.0
    ),
    "12 models, 12,000 votes": replace(_SOUND, n_models=12, n_votes=12_000, spread=1.8),
    "30 models, 20,000 votes": replace(_SOUND, n_models=30, n_votes=20_000, spread=2.0),
}
"""Boards on which nothing has to fire."""
