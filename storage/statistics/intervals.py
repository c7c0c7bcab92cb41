"""Intervals of medians and means, and prediction intervals, from few observations.

The bootstrap resamples the rounds of one process in blocks of neighbours, because neighbours are
correlated. Each process is one observation: two processes of the same program differ in speed,
because of memory layout and the compiler's choices, and the rounds of one process do not show by
how much. A prediction is wider than an interval, because the second measurement has an error too:
the 95 % interval of the first contains a second with equal normal errors in 83 % of cases. The
scale of a prediction is the observed spread of equal processes (docs/decisions.md).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.signedinteger]

MIN_PAIRS = 6
"""With fewer pairs no two-sided sign test can reach p < 0.05 (5 pairs: 2 / 2^5 = 0.0625)."""
NUM_RESAMPLES = 2000
CONFIDENCE = 0.95
MAX_KEPT_COUNT = 2_000
"""Number of values up to which resamples are cached: at most 8 MB for each number of values."""
MAX_CORRELATION = 0.9
"""A higher correlation would need blocks as long as the series."""
NORMAL_QUANTILE = 1.960
"""Half width of a 95 % interval in standard errors."""


def median_interval(values: Floats) -> tuple[float | None, float | None]:
    """Percentile bootstrap interval (95 %) of the median; Nones with fewer than `MIN_PAIRS`.

    `values` are in the order of time. The bootstrap draws blocks of `block_length` neighbours; the
    first value follows the last one (circular bootstrap: Politis and Romano 1992). A disturbance
    lasts for several rounds, which then contain less information than as many independent ones.
    The seed is fixed: the same values always give the same interval.
    """
    count = len(values)
    if count < MIN_PAIRS:
        return None, None
    if (values == values[0]).all():  # as for the baseline compared with itself
        return float(values[0]), float(values[0])
    length = block_length(values)
    # NumPy partitions integers of 32 bits twice as fast as the values, and 8 times as fast as
    # integers of 16 bits.
    ordered = np.sort(values)
    ranks = np.searchsorted(ordered, values).astype(np.int32)
    blocks = sliding_window_view(np.concatenate([ranks, ranks[: length - 1]]), length)
    keeps = count <= MAX_KEPT_COUNT
    starts_of_all: Iterable[Places] = (_kept_starts if keeps else _starts)(count, length)
    medians: list[Floats] = []
    for starts in starts_of_all:
        picked = blocks.take(starts, axis=0, mode="clip").reshape(len(starts), -1)
        medians.append(ordered[_middle(picked[:, :count])].mean(axis=0))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(medians)[:NUM_RESAMPLES], [tail, 1 - tail])
    return float(low), float(high)


@lru_cache(maxsize=4)
def _kept_starts(count: int, length: int) -> list[Places]:
    """The cached result of `_starts`: runs of one experiment have similar numbers of pairs, and
    drawing takes most of the time."""
    return [starts.astype(_small(count)) for starts in _starts(count, length)]


def _starts(count: int, length: int) -> Iterator[Places]:
    """The first index of each block, for some resamples at a time."""
    random = np.random.default_rng(0)
    chunk = max(1, min(NUM_RESAMPLES, 100_000 // count))  # few enough for the CPU's cache
    size = (chunk, math.ceil(count / length))
    for _ in range(math.ceil(NUM_RESAMPLES / chunk)):
        yield random.integers(count, size=size)


def _small(count: int) -> type[np.signedinteger]:
    return np.int16 if count < 2**15 else np.int32


def _middle(samples: Places) -> Places:
    """The middle value of each sample, or the two middle values if their number is even."""
    count = samples.shape[1]
    parted = np.partition(samples, count // 2, axis=1)
    upper = parted[:, count // 2]
    return np.stack([upper] if count % 2 else [parted[:, : count // 2].max(axis=1), upper])


def block_length(values: Floats) -> int:
    """The number of neighbours to resample together, from their `persistence`."""
    return best_block_length(persistence(values), len(values))


def best_block_length(correlation: float, count: int) -> int:
    """Block length for `count` values: 1 for independent neighbours, at most a third of `count`.

    (sqrt(6) r / (1 - r^2))^(2/3) n^(1/3), the best length for a first-order autoregression (Hall,
    Horowitz and Jing 1995, after Carlstein 1986).
    """
    r = min(max(correlation, 0.0), MAX_CORRELATION)
    length = (math.sqrt(6) * r / (1 - r * r)) ** (2 / 3) * count ** (1 / 3)
    return max(1, min(int(length + 0.5), count // 3))


def persistence(values: Floats) -> float:
    """Correlation between neighbours of being above the median; robust against single outliers."""
    above = (values > np.median(values)).astype(float)
    above -= above.mean()
    square = float(above @ above)
    return float(above[1:] @ above[:-1]) / square if square > 0 else 0.0


def half_width(values: Floats, own_error: float = 0.0) -> float:
    """Half width of the 95 % interval of the mean of at least two values.

    It uses Student's t on the values: their spread includes both their differences and the error of
    each, so the errors need not be known. It is at least the width from `own_error`, the standard
    error of the mean from the values' own errors alone, because few values may agree by chance.
    """
    from scipy.special import stdtrit  # here, because the import is slow and rarely needed

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return max(NORMAL_QUANTILE * own_error, quantile * standard_error(values))


def p_of_mean(values: Floats, own_error: float = 0.0) -> float:
    """Two-sided p-value that the mean of at least two values is 0: below 0.05 exactly if the
    interval of `half_width` excludes 0."""
    from scipy.special import ndtr, stdtr  # here for the same reason

    mean, error = abs(float(values.mean())), standard_error(values)
    if not mean:
        return 1.0
    by_spread = 2 * float(stdtr(len(values) - 1, -mean / error)) if error else 0.0
    by_own_error = 2 * float(ndtr(-mean / own_error)) if own_error else 0.0
    return max(by_spread, by_own_error)


def standard_error(values: Floats) -> float:
    """Standard error of the mean of at least two values, from their spread."""
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def sampling_margin(share: float, num_samples: int) -> float:
    """Two standard errors of the difference of two shares among `num_samples` samples.

    Each sample counts once even for shares of tokens, because the errors of the tokens of a text
    are not independent.
    """
    return 2 * math.sqrt(2 * share * (1 - share) / num_samples)


def typical(
    values: ArrayLike, processes: ArrayLike | None = None
) -> tuple[float, float | None, float | None]:
    """The middle of at least one value, and the ends of its 95 % interval; None for ends without
    enough values. Values are in the order of time; `processes` has the process of each value.

    One process: the median and its bootstrap interval. Several processes: the mean of their medians
    and an interval by Student's t, where each median is one observation. This covers differences of
    processes and of rounds. The interval is at least as wide as the rounds' bootstrap implies,
    because few processes may agree by chance. A process with fewer than `MIN_PAIRS` values does not
    count if another one has enough.
    """
    parts = list(_parts(np.asarray(values, dtype=float), processes))
    usual = middle(values, processes)
    if len(parts) == 1:
        return usual, *median_interval(parts[0])
    within = _error_of_rounds(parts)
    if within is None:
        return usual, None, None
    half = half_width(_medians(parts), within)
    return usual, usual - half, usual + half


def middle(values: ArrayLike, processes: ArrayLike | None = None) -> float:
    """The middle of `typical`, without its interval and much faster."""
    return float(_medians(_parts(np.asarray(values, dtype=float), processes)).mean())


def _medians(parts: Iterable[Floats]) -> Floats:
    return np.array([np.median(part) for part in parts])


def p_of_processes(values: ArrayLike, processes: ArrayLike | None) -> float:
    """Two-sided p-value of Student's t-test that the medians of the processes are 0 on average; 0
    for a single process, which allows no test."""
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
    """Standard error of the mean of medians that comes from the rounds within processes."""
    ends = [median_interval(part) for part in parts]
    errors = [
        (high - low) / (2 * NORMAL_QUANTILE)
        for low, high in ends
        if low is not None and high is not None
    ]
    if len(errors) < len(parts):
        return None
    return math.sqrt(sum(error**2 for error in errors)) / len(errors)
