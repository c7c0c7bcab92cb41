"""Decides between compiled and uncompiled steps from pairs of blocks of one training."""

from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from breakeven.runner.protocol.sequential_test import stake

Way = Literal["compiled", "uncompiled"]

SURE = 2 / 0.05
"""Stake at which a direction is sure: each of both directions is wrong in 2.5 % of trainings."""
FEWEST_PAIRS = 3
LEAST_GAIN = 0.01
"""A smaller gain is none: the training stays as it is written."""


@dataclass
class Trial:
    """The pairs of blocks so far."""

    budget_seconds: float
    """Longest time of all blocks, beyond the fewest pairs."""
    ratios: list[float] = field(default_factory=list)
    """Seconds of a compiled step over those of the uncompiled steps beside it."""
    seconds: float = 0.0

    def add(self, uncompiled: float, compiled: float, steps: int) -> None:
        """Adds the seconds of a step of two neighbouring blocks of so many steps."""
        self.ratios.append(compiled / uncompiled)
        self.seconds += (uncompiled + compiled) * steps

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    def decision(self) -> Way | None:
        """The way to go on; None if more pairs are needed."""
        if len(self.ratios) < FEWEST_PAIRS:
            return None
        if self.seconds >= self.budget_seconds:
            return "compiled" if self.ratio < 1 - LEAST_GAIN else "uncompiled"
        if self._surely(sum(ratio < 1 - LEAST_GAIN for ratio in self.ratios)):
            return "compiled"
        if self._surely(sum(ratio > 1 - LEAST_GAIN for ratio in self.ratios)):
            return "uncompiled"
        return None

    def _surely(self, wins: int) -> bool:
        return stake(wins, len(self.ratios)) >= SURE
