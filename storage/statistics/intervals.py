"""How far a few observations tell where all would lie: medians, means and predictions.

Rounds of one process are resampled, neighbours together, because neighbours are alike. Processes
are observations of their own: two of the same program differ in speed, by where their memory lies
and what the compiler chose, and no round within one tells by how much. A second measurement errs
as the first does, so a prediction is wider than an interval: one of 95 % around the first holds a
second with equal normal errors in 83 %. Its scale is what equal processes were seen to differ by
(docs/decisions.md).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

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
"""Values up to which the places of resamples are kept: 8 MB at most for each number of values."""
MAX_CORRELATION = 0.9
"""A higher one would ask for blocks as long as the series."""
NORMAL_QUANTILE = 1.960
"""Standard errors from the middle of a 95 % interval to its end."""


def median_interval(values: Floats) -> tuple[float | None, float | None]:
    """Percentile bootstrap interval (95 %) of the median; Nones with fewer than `MIN_PAIRS`.

    `values` are in the order of time. Resampled are blocks of `block_length` neighbours, the first
    value following the last one (the circular bootstrap of Politis and Romano, 1992): what disturbs
    a machine lasts for several rounds, which then tell less than as many independent ones. The
    resampling is seeded: the same values always give the same interval.
    """
    count = len(values)
    if count < MIN_PAIRS:
        return None, None
    if (values == values[0]).all():  # as for the baseline compared with itself
        return float(values[0]), float(values[0])
    length = block_length(values)
    # Small whole numbers in the place of the values: the same resamples, several times as fast.
    ordered = np.sort(values)
    ranks = np.searchsorted(ordered, values).astype(_small(count))
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


def _middle(samples: Places) -> Places:
    """The middle one of each sample, or the two that an even number of values has."""
    count = samples.shape[1]
    parted = np.partition(samples, count // 2, axis=1)
    upper = parted[:, count // 2]
    return np.stack([upper] if count % 2 else [parted[:, : count // 2].max(axis=1), upper])


def block_length(values: Floats) -> int:
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


def persistence(values: Floats) -> float:
    """Correlation of neighbours' being above the median: single outliers do not sway it."""
    above = (values > np.median(values)).astype(float)
    above -= above.mean()
    square = float(above @ above)
    return float(above[1:] @ above[:-1]) / square if square > 0 else 0.0


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
    """The first of `typical`, in a small part of the time."""
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
    """Standard error of the mean of medians as far as rounds within processes make it."""
    ends = [median_interval(part) for part in parts]
    errors = [(high - low) / (2 * NORMAL_QUANTILE)
              for low, high in ends if low is not None and high is not None]  # fmt: skip
    if len(errors) < len(parts):
        return None
    return math.sqrt(sum(error**2 for error in errors)) / len(errors)


@dataclass(frozen=True)
class Spread:
    """What equal things differ by, as far as a few of them tell."""

    variance: float
    freedom: int
    """Degrees of freedom of the estimate, at least 1."""

    @classmethod
    def pooled(cls, groups: Iterable[Sequence[float]]) -> Self | None:
        """From several groups, each of things that are equal but for chance: the sum of squares
        about their means over as many as there are values less groups. None if no group has two."""
        several = [np.asarray(group, dtype=float) for group in groups if len(group) > 1]
        freedom = sum(len(group) - 1 for group in several)
        if not freedom:
            return None
        squares = sum(float(((group - group.mean()) ** 2).sum()) for group in several)
        return cls(squares / freedom, freedom)

    def half_width(self, variances: float) -> float:
        """How far from 0, in 95 % of cases, lies a normal value with a mean of 0 and so many times
        the variance: a prediction interval (Hahn and Meeker 1991, section 4.7), with Student's t
        because the variance itself is an estimate."""
        from scipy.special import stdtrit  # here, because it takes time that no list of runs needs

        quantile = float(stdtrit(self.freedom, (1 + CONFIDENCE) / 2))
        return quantile * math.sqrt(variances * self.variance)
