"""Whether a training learned anything, and how much: what agreement with it is worth.

`loss_excess` is the check of PyTorch's benchmarks/dynamo/training_loss.py, corrected. It asks only
whether a backend's loss ends at most 0.1 above the baseline's. What computes no gradients at all
may pass it, where the baseline has not learned much either, and so does every fault that lowers the
loss. It shows its answer next to that of `storage.statistics.parity`, and is no parity.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.storage.statistics.outcomes import MIN_WINDOW_STEPS, NUM_WINDOWS

NUM_STANDARD_ERRORS = 3.0
"""How clearly the baseline must have learned for equality with it to prove anything."""
MIN_TENTH = 3
"""Fewest steps whose mean loss is taken as the start or end of a training."""

Floats = NDArray[np.float64]
WINDOW_STEPS = 100
MAX_WINDOWS = 10
ALLOWED_EXCESS = 0.1
LossCheck = Literal["passes", "fails"]


def learned_by_loss(equals: Sequence[pd.Series]) -> float | None:
    """How far losses fell at most from their first steps to their lowest window, of baseline and
    controls; None if the baseline's did not fall clearly."""
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
    """How far the best accuracy of all lies above always guessing one label; None if not."""
    best = max((float(one.max()) for one in accuracies if one.notna().any()), default=math.nan)
    if majority_share is None or not best > majority_share:
        return None
    return best - majority_share


def has_learned(losses: Floats, accuracy: float | None, majority_share: float | None,
                num_samples: int | None) -> bool:  # fmt: skip
    """Whether the loss fell clearly, or the accuracy is clearly above always guessing one label.

    Clearly: by three standard errors, of the difference of the means of first and last tenth of
    the losses, or of a share among `num_samples`.
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

    Losses are indexed by step. Windows are whole, and ten of them at most; None if the runs have
    none in common. The original divides by ten whatever their number, so that with one window 1.0
    is allowed for 0.1, and passes whatever has no window at all.
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
    """Whether the loss ends low enough; one that is not a number does not."""
    if excess is None:
        return None
    return "passes" if excess <= ALLOWED_EXCESS else "fails"
