"""How far a median may stray by chance: a bootstrap for rounds of which neighbours are alike."""

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.signedinteger]

MIN_PAIRS = 6
"""With fewer pairs no two-sided sign test can reach p < 0.05 (5 pairs: 2 / 2^5 = 0.0625)."""
NUM_RESAMPLES = 2000
CONFIDENCE = 0.95
MAX_KEPT_COUNT = 2_000
"""Values up to which the places of resamples are kept: 8 MB at most for each number of values."""
MAX_CORRELATION = 0.9
"""A higher one would ask for blocks as long as the series."""


def median_interval(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Percentile bootstrap interval (95 %) of the median; Nones with fewer than `MIN_PAIRS`.

    `values` are in the order of time. Resampled are blocks of `block_length` neighbours, the first
    value following the last one (the circular bootstrap of Politis and Romano, 1992): what disturbs
    a machine lasts for several rounds, which then tell less than as many independent ones. The
    resampling is seeded: the same values always give the same interval.
    """
    count = len(values)
    if count < MIN_PAIRS:
        return None, None
    if (values == values[0]).all():  # as of the baseline beside itself
        return float(values[0]), float(values[0])
    length = block_length(values)
    # Small whole numbers in the place of the values: the same resamples, several times as fast.
    ordered = np.sort(values)
    ranks = np.searchsorted(ordered, values).astype(_small(count))
    ranks = np.concatenate([ranks, ranks[: length - 1]])
    keeps = count <= MAX_KEPT_COUNT
    starts_of_all: Iterable[Places] = (_kept_starts if keeps else _starts)(count, length)
    medians: list[Floats] = []
    for starts in starts_of_all:
        picked = np.empty((len(starts), starts.shape[1] * length), ranks.dtype)
        for place in range(length):
            picked[:, place::length] = ranks[place : place + count].take(starts)
        medians.append(ordered[_middle(picked[:, :count])].mean(axis=0))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(medians)[:NUM_RESAMPLES], [tail, 1 - tail])
    return float(low), float(high)


@lru_cache(maxsize=4)
def _kept_starts(count: int, length: int) -> list[Places]:
    """The same, kept: runs of one experiment have about as many pairs, and drawing takes longer
    than what is done with it."""
    return [starts.astype(_small(count)) for starts in _starts(count, length)]


def _starts(count: int, length: int) -> Iterator[Places]:
    """Where the blocks of all resamples begin, some resamples at a time."""
    random = np.random.default_rng(0)
    chunk = max(1, min(NUM_RESAMPLES, 1_000_000 // count))
    size = (chunk, math.ceil(count / length))
    for _ in range(math.ceil(NUM_RESAMPLES / chunk)):
        yield random.integers(count, size=size)


def _small(count: int) -> type[np.signedinteger]:
    return np.int16 if count < 2**15 else np.int32


def _middle(samples: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    """The middle one of each sample, or the two that an even number of values has."""
    count = samples.shape[1]
    parted = np.partition(samples, count // 2, axis=1)
    upper = parted[:, count // 2]
    return np.stack([upper] if count % 2 else [parted[:, : count // 2].max(axis=1), upper])


def block_length(values: NDArray[np.float64]) -> int:
    """Neighbours to resample together, by their `persistence`."""
    return best_block_length(persistence(values), len(values))


def best_block_length(correlation: float, count: int) -> int:
    """Of so many values as much alike as neighbours: 1 where they are independent; at most a third.

    (sqrt(6) r / (1 - r^2))^(2/3) n^(1/3), the best length for a first-order autoregression (Hall,
    Horowitz and Jing 1995, after Carlstein 1986).
    """
    r = min(max(correlation, 0.0), MAX_CORRELATION)
    length = (math.sqrt(6) * r / (1 - r * r)) ** (2 / 3) * count ** (1 / 3)
    return max(1, min(int(length + 0.5), count // 3))


def persistence(values: NDArray[np.float64]) -> float:
    """Correlation of neighbours' being above the median: single outliers do not sway it."""
    above = (values > np.median(values)).astype(float)
    above -= above.mean()
    square = float(above @ above)
    return float(above[1:] @ above[:-1]) / square if square > 0 else 0.0
