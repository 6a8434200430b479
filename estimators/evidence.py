"""What the answers say at a look: sums read once, from which every number is made."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from estimators.calibration import (
    Agreement,
    Correction,
    agreement,
    to_first_judge,
    to_labels,
)
from estimators.cells import Cells, Mask, Panel, Sums
from estimators.disagreement import (
    Disagreement,
    Interaction,
    cochran_test,
    judge_interaction,
)
from estimators.intervals import Array, Interval, worst_case
from estimators.offsets import Offsets, judge_offsets
from estimators.targets import Design, proportional

_CHANCE = 0.05
"""Level at which judges are said to differ by more than their noise."""


class Evidence:
    """The sums of a look, and what they say of cells, judges and missing verdicts.

    Attributes
    ----------
    every : all answers; they tell the judges' noise
    explored : those that offsets and interaction are read from: exploration, where a policy keeps
        it apart, so that how many later answers a cell has can't depend on them; else all
    counted : those that enter values
    own, own_explored : `every` and `explored` without what a key decided, which no judge has said
    noise : (n_judges,) variance of an answer, nan where unknown
    whole, sums : the sums of all, and of those that enter values
    is_anchored, is_calibrated : whether scores are put on the labels' scale; on that or on the first
        judge's level
    """

    def __init__(self, design: Design, cells: Cells) -> None:
        self.design, self.cells = design, cells
        scoring, reuse = design.scoring, design.config.reuse_exploration
        self.whole = cells.main if cells.pilot is None else cells.main + cells.pilot
        self.every = Panel(self.whole, scoring)
        self.explored = self.counted = self.every
        self.sums = self.whole
        if cells.pilot is not None and reuse is not None:
            self.explored = Panel(cells.pilot, scoring)
            if reuse == "none":
                self.sums, self.counted = cells.main, Panel(cells.main, scoring)
        explored = self.whole if self.explored is self.every else cells.pilot
        self.own = self._own(self.whole, self.every)
        self.own_explored = self._own(explored, self.explored)
        self.is_reused = reuse == "pooled" and bool(
            cells.pilot is not None and cells.pilot.count.any()
        )
        self.is_anchored = design.is_anchored
        self.is_calibrated = self.is_anchored or (
            design.target == "common"
            and design.config.calibration == "relative"
            and len(design.judges) > 1
        )
        self._weight_noise = self.every.shrunk_noise()
        self.noise = self.every.noise
        if design.target != "panel":
            # Judges that say the same are as good as one another where nothing else is known.
            self.noise = np.where(np.isnan(self.noise), self._weight_noise, self.noise)

    def _own(self, sums: Sums | None, panel: Panel) -> Panel:
        left = None if sums is None else self.cells.judged(sums)
        return panel if left is None or left is sums else Panel(left, self.design.scoring)

    # --- judges ------------------------------------------------------------------------------

    @cached_property
    def offsets(self) -> Offsets:
        """How far judges lie above the first one."""
        return judge_offsets(self.explored, self.design.clusters, self.design.arm_pairs)

    @cached_property
    def bias(self) -> Offsets | None:
        """How far judges lie above the labels; None without labels."""
        design = self.design
        if design.labels is None:
            return None
        return judge_offsets(self.own_explored, design.clusters, design.arm_pairs, design.labels)

    @cached_property
    def agreement(self) -> Agreement | None:
        """How judges go with the labels; None without labels."""
        design = self.design
        if design.labels is None or self.bias is None:
            return None
        return agreement(self.own_explored, design.labels, self.bias, design.config.confidence)

    @cached_property
    def interaction(self) -> Interaction:
        """How far judges differ on single units."""
        design = self.design
        return judge_interaction(
            self.explored, self.noise, design.clusters, design.config.confidence
        )

    @cached_property
    def disagreement(self) -> Disagreement:
        """Whether judges differ by more than their noise."""
        return cochran_test(self.explored, self._weight_noise, float(self.every.noise_df.sum()))

    @cached_property
    def exceeds_noise(self) -> bool:
        """Whether judges' own views of units outweigh the noise that is left in the cells' means.

        They must be there beyond chance: by their interval, or by the test of disagreement.
        """
        counted, found = self.counted, self.interaction
        rest = np.where(
            counted.answered, self.noise[:, None, None] / np.maximum(counted.count, 1), 0
        )
        left = float(rest.sum() / max(counted.answered.sum(), 1))
        is_there = found.lower > 0 or self.disagreement.p < _CHANCE
        return is_there and found.variance > left

    @cached_property
    def offset_depends_on_arm(self) -> bool:
        """Whether offsets depend on the arm."""
        return self.offsets.arms.depends(self.design.scoring.span)

    @cached_property
    def bias_depends_on_arm(self) -> bool:
        """Whether judges lie above the labels by more in one arm than in another."""
        return self.bias is not None and self.bias.arms.depends(self.design.scoring.span)

    @cached_property
    def differs_by_arm(self) -> bool:
        """Whether a common score of two arms can't be compared."""
        return self.offset_depends_on_arm or (self.is_anchored and self.bias_depends_on_arm)

    # --- values ------------------------------------------------------------------------------

    @cached_property
    def correction(self) -> Correction:
        """What puts judges on one level; only where scores are calibrated."""
        design = self.design
        if design.labels is None or not design.is_anchored:
            return to_first_judge(self.offsets)
        return to_labels(self.explored, design.labels, self.every.noise, design.clusters)

    @cached_property
    def mean(self) -> Array:
        """Cell means, on one level where scores are calibrated."""
        if not self.is_calibrated:
            return self.counted.mean
        return np.where(self.answered, self.correction.of(self.counted.mean), 0.0)

    @cached_property
    def slope(self) -> Array:
        """What a point of each judge's scores is worth in its values, over cells."""
        n_judges = len(self.design.judges)
        slope = self.correction.slope if self.is_calibrated else np.ones(n_judges)
        return slope[:, None, None]

    @cached_property
    def has_offset(self) -> Mask:
        """Judges whose answers can enter values, (n_judges,).

        On the first one's level these are the judges that share units with it. Without labels to
        correct a judge by, its answers stand.
        """
        if self.is_calibrated and not self.is_anchored:
            return self.correction.is_fitted
        return np.ones(len(self.design.judges), dtype=bool)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Give the least and the greatest value that a cell's mean can have."""
        scoring = self.design.scoring
        if not self.is_calibrated:
            return scoring.low, scoring.high
        n_judges = len(self.design.judges)
        low, high = (self.correction.of(np.full(n_judges, x)) for x in (scoring.low, scoring.high))
        return float(low.min()), float(high.max())

    @cached_property
    def counts(self) -> Array:
        """Answers by cell that enter values."""
        count = self.counted.count
        return count if self.has_offset.all() else count * self.has_offset[:, None, None]

    @cached_property
    def answered(self) -> Mask:
        """Cells that enter values."""
        return self.counts > 0

    def weigh(self, counts: Array) -> Array:
        """Weigh judges in each item by the answers that they gave, (n_judges, n_items).

        Panel: the weights asked for. Common: by the precision of the noise, n/σ². Population: by
        the precision as one of many judges, 1/(η² + σ²/n). σ² is a judge's noise over all its
        cells, never a cell's own: that would follow its scores, and pull values to the scale's
        ends.
        """
        noise = self._weight_noise[:, None]
        match self.design.target:
            case "common":
                # Without repeats no judge is known to be noisier than another.
                return counts / np.where(np.isnan(noise), 1.0, noise)
            case "population" if not np.isnan(self.interaction.variance):
                own = max(self.interaction.variance, 0.0)
                return counts / (counts * own + noise)
            case _:
                return self.design.weights[:, None] * (counts > 0)

    def shares_of(self, counts: Array) -> Array:
        """Say how each unit's value is made of its judges' means: over cells."""
        flat = proportional(self.weigh(counts.reshape(len(counts), -1)))
        shares: Array = flat.reshape(counts.shape)
        return shares

    # --- missing -----------------------------------------------------------------------------

    @cached_property
    def has_missing(self) -> bool:
        """Whether verdicts are missing among those that would enter values."""
        return bool(self.sums.missing.any())

    @cached_property
    def asked(self) -> Array:
        """Questions by cell that would enter values if all were answered."""
        asked: Array = self.sums.count + self.sums.missing
        return asked if self.has_offset.all() else asked * self.has_offset[:, None, None]

    @cached_property
    def worst(self) -> Interval:
        """Between which ends missing verdicts could move the cells' means."""
        low = self.design.scoring.low
        worst = worst_case(
            self.sums.total, self.sums.count, self.sums.missing, self.design.scoring.span
        )
        ends = Interval(low + worst.lower, low + worst.upper)
        return Interval(*map(self.correction.of, ends)) if self.is_calibrated else ends
