"""After how many samples another training reaches the same loss as equal trainings.

An arm may be slower per step and learn more in each. The losses of both are smoothed by windows of
a tenth of the steps, as an outcome's are (`storage.statistics.as_good`), and a loss counts as
reached where the mean stays below it until the end: a dip reaches nothing. The interval inverts
that of the difference of losses (Fieller 1954): it has the steps at which the other training's loss
does not differ surely from the common one.
"""

import math
from dataclasses import dataclass

import numpy as np

from breakeven.runner.judged_outcome import Outcome
from breakeven.storage.statistics.as_good import common_losses, own_error
from breakeven.storage.statistics.intervals import NORMAL_QUANTILE
from breakeven.storage.statistics.outcomes import MIN_WINDOW_STEPS, NUM_WINDOWS, Floats, Trainings

DIGITS = 3
"""The common loss has so many significant digits, so that people read the loss that counts."""


@dataclass(frozen=True, kw_only=True)
class StepsToLoss:
    """Amounts of samples, in steps of the baseline, after which a loss is reached for good."""

    loss: float
    expected: float
    """Of the mean of baseline and controls."""
    steps: float
    """Of the other training."""
    low: float
    """95 % interval of `steps`; 0 if the loss may have been reached from the start."""
    high: float
    """Infinite if the loss may not be reached within the training."""
    surely: float
    """The upper end for a loss that is lower by the margin, too: a training whose losses are as
    good, or that reports them lower by less than the margin, has not learned faster."""


def find_steps_to_loss(trainings: Trainings, by_loss: Outcome) -> StepsToLoss | None:
    """The steps to a loss near the end, which both reach beyond chance and margin; None if there is
    no such loss. `trainings`: on one scale of samples; `by_loss`: its `outcome_of_losses`."""
    steps, losses = common_losses(trainings)
    size = max(MIN_WINDOW_STEPS, len(steps) // NUM_WINDOWS)
    if len(steps) < 2 * size or not np.isfinite(losses).all():
        return None
    curves = [losses[:-1].mean(axis=0), losses[-1]]
    # Samples of other steps are harder or easier, which trainings side by side have in common.
    chance = NORMAL_QUANTILE * math.hypot(*(_window_error(curve, size) for curve in curves))
    apart = math.hypot(by_loss.interval, chance)
    if not math.isfinite(apart):
        return None
    equal, own = (_smoothed(curve, size) for curve in curves)
    middles = steps[: 1 - size] + (steps[size - 1] - steps[0] + 1) / 2
    loss = _rounded_up(max(equal[-1], own[-1]) + apart + by_loss.margin)
    expected = _reached(middles, equal, loss)
    at, low, high, surely = (
        _reached(middles, own, loss - below)
        for below in (0.0, -apart, apart, apart + by_loss.margin)
    )
    if not 0 < expected < math.inf or not 0 < at < math.inf:
        return None
    return StepsToLoss(loss=loss, expected=expected, steps=at, low=low, high=high, surely=surely)


def _smoothed(losses: Floats, size: int) -> Floats:
    """Means of all windows of so many steps."""
    sums = np.cumsum(np.append(0.0, losses))
    means: Floats = (sums[size:] - sums[:-size]) / size
    return means


def _window_error(losses: Floats, size: int) -> float:
    """Standard error of a window's mean, from the losses of the second half around their trend."""
    trend = _smoothed(losses, size)
    strayed = (losses[size // 2 :][: len(trend)] - trend)[len(trend) // 2 :]
    return own_error(strayed) * math.sqrt(len(strayed) / size)


def _reached(steps: Floats, means: Floats, loss: float) -> float:
    """The step from which on no mean is above a loss; infinite if the last one is, 0 if none is."""
    (above,) = np.nonzero(means > loss)
    if not len(above):
        return 0.0
    return float(steps[above[-1] + 1]) if above[-1] + 1 < len(means) else math.inf


def _rounded_up(loss: float) -> float:
    if loss == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(loss))) + 1 - DIGITS)
    return round(math.ceil(loss / unit) * unit, 12)
