"""The check of PyTorch's benchmarks/dynamo/training_loss.py, corrected; it is not parity.

It asks only whether a backend's loss ends at most 0.1 above the baseline's. What computes no
gradients at all may pass it, where the baseline has not learned much either, and so does every
fault that lowers the loss. It is here so that its answer can be seen beside
`storage.statistics.parity`'s.
"""

from typing import Literal

import numpy as np
import pandas as pd

WINDOW_STEPS = 100
MAX_WINDOWS = 10
ALLOWED_EXCESS = 0.1

LossCheck = Literal["passes", "fails"]


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
