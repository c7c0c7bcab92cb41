"""Measures whether and how much a training learned; without learning, agreement proves nothing.

`loss_excess` is the check of PyTorch's benchmarks/dynamo/training_loss.py, corrected. It only tests
whether a backend's loss ends at most 0.1 above the baseline's. A backend without gradients may pass
if the baseline learned little, and each fault that lowers the loss passes. Breakeven shows the
result next to `storage.statistics.parity`; it is not parity.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.storage.statistics.outcomes import MIN_WINDOW_STEPS, NUM_WINDOWS

NUM_STANDARD_ERRORS = 3.0
"""Standard errors by which the baseline must have learned for agreement with it to count."""
MIN_TENTH = 3
"""Fewest steps whose mean loss represents the start or end of a training."""

Floats = NDArray[np.float64]
WINDOW_STEPS = 100
MAX_WINDOWS = 10
ALLOWED_EXCESS = 0.1
LossCheck = Literal["passes", "fails"]


def learned_by_loss(equals: Sequence[pd.Series]) -> float | None:
    """The largest fall of the losses of baseline and controls, from their first steps to their
    lowest window; None if the baseline's loss did not fall clearly."""
    if not _loss_fell(equals[0].to_numpy(dtype=float)):
        return None
    return max(filter(math.isfinite, map(_fall, equals)), default=None)


@np.errstate(invalid="ignore")  # Infinite losses of both signs have no mean: NaN.
def _fall(losses: pd.Series) -> float:
    size = max(MIN_WINDOW_STEPS, len(losses) // NUM_WINDOWS)
    windows = losses.rolling(size).mean()
    return float(losses.iloc[:MIN_WINDOW_STEPS].mean() - windows.min())


def learned_by_accuracy(
    accuracies: Sequence[pd.Series], majority_share: float | None
) -> float | None:
    """The difference of the best accuracy to always guessing one label; None if not above 0."""
    best = max((float(one.max()) for one in accuracies if one.notna().any()), default=math.nan)
    if majority_share is None or not best > majority_share:
        return None
    return best - majority_share


def has_learned(losses: Floats, accuracy: float | None, majority_share: float | None,
                num_samples: int | None) -> bool:  # fmt: skip
    """Whether the loss fell clearly, or the accuracy is clearly above always guessing one label.

    Clearly means by three standard errors: of the difference between the means of the first and the
    last tenth of the losses, or of a share among `num_samples`.
    """
    return _loss_fell(losses) or _beats_guessing(accuracy, majority_share, num_samples)


def _loss_fell(losses: Floats) -> bool:
    size = max(MIN_TENTH, len(losses) // 10)
    if len(losses) < 2 * size:
        return False
    first, last = losses[:size], losses[-size:]
    if not (np.isfinite(first).all() and np.isfinite(last).all()):
        return False
    error = math.sqrt((first.var(ddof=1) + last.var(ddof=1)) / size)
    return bool(last.mean() < first.mean() - NUM_STANDARD_ERRORS * error)


def _beats_guessing(
    accuracy: float | None, majority_share: float | None, num_samples: int | None
) -> bool:
    if accuracy is None or majority_share is None or not num_samples:
        return False
    error = math.sqrt(majority_share * (1 - majority_share) / num_samples)
    return accuracy > majority_share + NUM_STANDARD_ERRORS * error


@np.errstate(invalid="ignore")  # Infinite losses of both signs have no mean: NaN.
def loss_excess(baseline: pd.Series, backend: pd.Series) -> float | None:
    """Mean loss over the last windows of 100 steps, the backend's minus the baseline's.

    Losses are indexed by step. Windows are complete, and ten at most; None if the runs have none in
    common. The original always divides by ten: with one window it allows 1.0 instead of 0.1, and
    without a window everything passes.
    """
    common = baseline.index.intersection(backend.index).sort_values()
    num_windows = len(common) // WINDOW_STEPS
    if num_windows == 0:
        return None
    end = num_windows * WINDOW_STEPS
    last = common[max(0, end - MAX_WINDOWS * WINDOW_STEPS) : end]
    mine, theirs = backend.loc[last].mean(skipna=False), baseline.loc[last].mean(skipna=False)
    return float(mine) - float(theirs)


def check_loss(excess: float | None) -> LossCheck | None:
    """Whether the loss ends low enough; NaN fails."""
    if excess is None:
        return None
    return "passes" if excess <= ALLOWED_EXCESS else "fails"
