"""The interval of a mean, and its p-value: how far a few observations tell where all would lie.

Each observation, a process or a model, is one of many that might have been taken, and may be known
no better than to an error of its own.
"""

import math

import numpy as np
from numpy.typing import NDArray

from breakeven.storage.statistics.resampling import CONFIDENCE

Floats = NDArray[np.float64]
NORMAL_QUANTILE = 1.960
"""Standard errors from the middle of a 95 % interval to its end."""


def half_width(values: Floats, own_error: float = 0.0) -> float:
    """How far the 95 % interval of the mean of at least two values reaches to both sides.

    Student's t on the values themselves: their spread holds what they differ by and the error of
    each alike, so the latter need not be known. Yet it is never less than `own_error` makes it, the
    standard error of the mean if the values differed by nothing else: few may agree by luck.
    """
    from scipy.special import stdtrit  # here, because it takes time that no list of runs needs

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return max(NORMAL_QUANTILE * own_error, quantile * standard_error(values))


def p_of_mean(values: Floats, own_error: float = 0.0) -> float:
    """Two-sided p-value of the mean of at least two values being 0: below 0.05 exactly where
    `half_width` does not reach 0."""
    from scipy.special import ndtr, stdtr  # here for the same reason

    mean, error = abs(float(values.mean())), standard_error(values)
    if not mean:
        return 1.0
    by_spread = 2 * float(stdtr(len(values) - 1, -mean / error)) if error else 0.0
    by_own_error = 2 * float(ndtr(-mean / own_error)) if own_error else 0.0
    return max(by_spread, by_own_error)


def standard_error(values: Floats) -> float:
    """Of the mean of at least two values, by their spread."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def sampling_margin(share: float, num_samples: int) -> float:
    """Two standard errors of the difference of two shares among so many samples.

    Shares of tokens are counted as if each sample had only one, because the tokens of a text do
    not err independently.
    """
    return 2 * math.sqrt(2 * share * (1 - share) / num_samples)
