"""The rule by which another training is called as good, better or worse than equal trainings.

`storage.statistics.as_good` measures the difference and its interval. `runner.open_outcomes`
estimates both from the journals, to see whether more controls may decide (docs/parity.md#outcome).
"""

import math
from dataclasses import dataclass
from typing import Literal

from breakeven.runner.specs.experiment_fields import CONTROLS_FOR_WORSE

OutcomeVerdict = Literal["as good", "better", "worse", "not decided"]
Quantity = Literal["loss", "evaluation loss", "accuracy"]
SIGNIFICANCE = 0.05
"""Chance that an interval misses, shared by all arms of an experiment that are judged so: of forty
equal ones, one would else be called worse."""
UNTOLD_LIMIT = 2.0
"""Excess of a loss, in units of the learned amount, above which it is a fault even if the spread of
equal trainings is unknown. A training that learned nothing has 1, and correct ones reach that
(docs/decisions.md)."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of another training, beside that of equal trainings."""

    quantity: Quantity
    step: int
    """Number of the baseline's steps after which all are compared."""
    value: float
    expected: float
    """Mean of baseline and controls."""
    interval: float
    """Half width of the interval of the difference, which holds for all `num_judged` at once with
    95 %; infinite if it is unknown."""
    margin: float
    """The largest difference that counts as as good, in the unit of the quantity."""
    num_controls: int
    num_judged: int
    """Arms of the experiment that may be judged by their outcome."""
    learned: float | None
    """Progress of equal trainings since their start; None if it is not clear, or of an accuracy."""

    @property
    def excess(self) -> float:
        """How much worse it is; below 0 it is better."""
        difference = self.value - self.expected
        return -difference if self.quantity == "accuracy" else difference

    @property
    def low(self) -> float:
        """The least that it is worse."""
        return self.excess - self.interval

    @property
    def high(self) -> float:
        """The most that it is worse."""
        return self.excess + self.interval

    @property
    def seems_worse(self) -> bool:
        """Whether it is worse than the equal trainings were by more than the margin, and surely by
        more than half of it."""
        is_worse = self.excess > self.margin and self.low > self.margin / 2
        return is_worse or not math.isfinite(self.value)

    @property
    def is_surely_worse(self) -> bool:
        """Whether it is also unlike equal trainings that a few controls do not show: they may end
        in one of several states. A loss that is far above all that was learned is."""
        is_far = self.learned is not None and self.excess > UNTOLD_LIMIT * self.learned
        is_known = self.num_controls >= CONTROLS_FOR_WORSE or is_far
        return self.seems_worse and (is_known or not math.isfinite(self.value))

    @property
    def is_lower(self) -> bool:
        """Whether it is better by more than the margin, and surely better."""
        return self.high < 0 and self.excess < -self.margin

    @property
    def is_too_low(self) -> bool:
        """Whether a training loss is lower by more than the margin, which does not show that a
        training is better: one that repeats samples, or leaves some out, has a lower loss, too."""
        return self.quantity == "loss" and self.is_lower

    @property
    def asks_for_controls(self) -> bool:
        """Whether more equal trainings may decide. They show nothing of a loss that is too low."""
        return self.verdict == "not decided" and not self.is_too_low

    @property
    def verdict(self) -> OutcomeVerdict:
        if self.seems_worse:
            return "worse" if self.is_surely_worse else "not decided"
        if self.quantity == "loss":
            is_within = -self.margin <= self.low and self.high <= self.margin
            return "as good" if is_within else "not decided"
        if self.is_lower:
            return "better"
        return "as good" if self.high <= self.margin else "not decided"
