"""What is typical of several processes: how much they differ is part of the interval.

Two processes of the same program differ in speed, by where their memory lies and what the compiler
chose; rounds within one process cannot tell by how much.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from breakeven.storage.statistics.means import NORMAL_QUANTILE, Floats, half_width, p_of_mean
from breakeven.storage.statistics.resampling import MIN_PAIRS, median_interval


def typical(
    values: ArrayLike, processes: ArrayLike | None = None
) -> tuple[float, float | None, float | None]:
    """The middle of the values, at least one, and the ends of its 95 % interval, None where too few
    tell. Values are in the order of time; `processes` says which process each comes from.

    Of one process: the median, and its bootstrap interval. Of several: the mean of their medians,
    and as far to both sides as Student's t for as many processes makes it, each of their medians
    being one observation. That covers what processes differ by as well as what rounds do; yet it is
    never less than the bootstrap of the rounds says, in case few processes agree by luck. A process
    with fewer than `MIN_PAIRS` values does not count if any has more.
    """
    numbers = np.asarray(values, dtype=float)
    parts = list(_parts(numbers, processes))
    if len(parts) == 1:
        return float(np.median(parts[0])), *median_interval(parts[0])
    medians = np.array([np.median(part) for part in parts])
    middle = float(medians.mean())
    within = _error_of_rounds(parts)
    if within is None:
        return middle, None, None
    half = half_width(medians, within)
    return middle, middle - half, middle + half


def p_of_processes(values: ArrayLike, processes: ArrayLike | None) -> float:
    """Two-sided p-value of Student's t-test that the medians of the processes are 0 on average; 0
    for one process alone, which cannot be asked."""
    medians = np.array([np.median(part) for part in _parts(np.asarray(values), processes)])
    return p_of_mean(medians) if len(medians) > 1 else 0.0


def _parts(values: Floats, processes: ArrayLike | None) -> Iterator[Floats]:
    """The values of each process that counts."""
    if processes is None:
        yield values
        return
    owners = np.asarray(processes)
    parts = [values[owners == owner] for owner in np.unique(owners)]
    enough = [part for part in parts if len(part) >= MIN_PAIRS]
    yield from enough or [values]


def _error_of_rounds(parts: Sequence[Floats]) -> float | None:
    """Standard error of the mean of medians as far as rounds within processes make it."""
    ends = [median_interval(part) for part in parts]
    errors = [(high - low) / (2 * NORMAL_QUANTILE)
              for low, high in ends if low is not None and high is not None]  # fmt: skip
    if len(errors) < len(parts):
        return None
    return math.sqrt(sum(error**2 for error in errors)) / len(errors)
