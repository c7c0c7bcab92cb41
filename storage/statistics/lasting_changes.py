"""Finds steps in a series: lasting changes of a number that is measured repeatedly.

The test divides a series where its two parts differ most, or where a stretch differs most from the
values around it, if the difference is significant: it compares the standardized difference of the
means with the largest ones of the same values in random order (permutation test: Antoch and Huskova
2001). It then examines each part in the same way (binary segmentation: Vostrikova 1981; with
stretches it is circular: Olshen, Venkatraman, Lucito and Wigler 2004). A series without a step gets
one with the chance `SIGNIFICANCE`, for every distribution of its values. If neighbours are
correlated, whole blocks of them are permuted (Kirch 2007), because drift of a machine looks like
steps. docs/decisions.md has measurements of false alarms and delays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.storage.statistics.intervals import best_block_length

SIGNIFICANCE = 0.01
"""Chance of a false alarm: half for steps, half for stretches."""
NUM_PERMUTATIONS = 1999
MAX_VALUES = 400
"""Only the newest values of a longer series are examined: comparing all stretches takes O(n^2)."""
EQUAL = 1e-12
MIN_DIFFERENCES = 4
FEWEST = 11
"""Fewest values for a step. With 10 values, 2 of the 252 divisions are as clear as any step, which
is more than half of `SIGNIFICANCE`."""
MIN_SIDE = 2
"""Fewest values on each side of a step: a single outlier is no step."""
CONFIDENCE = 0.95
PREDICTION = 0.99
"""Share of further values of the same level for which `Level.expects` is true."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Level:
    """A part of a series without a step, as logarithms of its values."""

    first: int
    """Index of its first value."""
    last: int
    logs: tuple[float, ...]

    @property
    def value(self) -> float:
        """Geometric mean."""
        return math.exp(sum(self.logs) / len(self.logs))

    def expects(self, value: float) -> bool:
        """Whether a value lies in the prediction interval of this level, by Student's t; true with
        fewer than three values, where that is unknown."""
        from scipy.special import stdtrit  # here, because the import is slow and rarely needed

        n = len(self.logs)
        if n < 3:
            return True
        spread = float(np.std(self.logs, ddof=1)) * math.sqrt(1 + 1 / n)
        half = float(stdtrit(n - 1, (1 + PREDICTION) / 2)) * spread
        return abs(math.log(value) - math.log(self.value)) <= half + 1e-12


@dataclass(frozen=True, kw_only=True)
class Step:
    """A lasting change of a series to another level."""

    index: int
    """Index of the first value of the new level."""
    before: Level
    after: Level
    p_value: float
    """Share of random orders with a step that is at least as clear."""

    @property
    def ratio(self) -> float:
        """New level over old."""
        return self.after.value / self.before.value

    @property
    def ratio_interval(self) -> tuple[float, float]:
        """95 % interval of the ratio, by Welch's t of the logarithms."""
        logs_after, logs_before = np.array(self.after.logs), np.array(self.before.logs)
        if max(np.ptp(logs_after), np.ptp(logs_before)) < EQUAL:
            return self.ratio, self.ratio
        low, high = _welch_interval(logs_after, logs_before)
        return math.exp(low), math.exp(high)


def _welch_interval(after: Floats, before: Floats) -> tuple[float, float]:
    """Interval of the difference of two means with unequal variances (Welch 1947)."""
    from scipy.special import stdtrit  # `scipy.stats` would take 60 MB of a server's memory.

    n, m = len(after), len(before)
    after_variance, before_variance = (
        after.var() * (n / (n - 1)) / n,
        before.var() * (m / (m - 1)) / m,
    )
    freedom = (after_variance + before_variance) ** 2 / (
        after_variance**2 / (n - 1) + before_variance**2 / (m - 1)
    )
    tail = (1 - CONFIDENCE) / 2
    error, difference = math.sqrt(after_variance + before_variance), after.mean() - before.mean()
    low, high = (float(stdtrit(freedom, p)) * error + difference for p in (tail, 1 - tail))
    return low, high


def divide(values: Sequence[float]) -> tuple[list[Level], list[Step]]:
    """The levels of a series of positive numbers, in their order, and the steps between them. Of a
    series longer than `MAX_VALUES`, only the newest part counts."""
    levels, steps = _divide(tuple(values))
    return list(levels), list(steps)


@lru_cache(maxsize=1000)
def _divide(values: tuple[float, ...]) -> tuple[tuple[Level, ...], tuple[Step, ...]]:
    """Divides with a cache, because pages repeat the call, and 400 values take one second."""
    logs = np.log(np.asarray(values, dtype=float))
    skipped = max(0, len(logs) - MAX_VALUES)
    splits = _split(logs[skipped:], skipped)
    bounds = [skipped, *(index for index, _ in splits), len(logs)]
    levels = tuple(
        Level(first=first, last=last - 1, logs=tuple(map(float, logs[first:last])))
        for first, last in pairwise(bounds)
    )
    steps = tuple(
        Step(index=index, before=before, after=after, p_value=p_value)
        for (index, p_value), (before, after) in zip(splits, pairwise(levels), strict=True)
    )
    return levels, steps


def _split(logs: Floats, first: int) -> list[tuple[int, float]]:
    """Index and p-value of every step; `first` is the index of the first value."""
    places, p_value = _clearest(logs)
    steps = [(first + place, p_value) for place in places]
    if places:
        for start, end in pairwise([0, *places, len(logs)]):
            steps += _split(logs[start:end], first + start)
    return sorted(steps)


def _clearest(logs: Floats) -> tuple[list[int], float]:
    """The place of the clearest step, or both ends of the clearest stretch, and the p-value; no
    place if chance explains both."""
    if len(logs) < 2 * MIN_SIDE:
        return [], 1.0
    for best in (_best_step, _best_stretch):
        largest, places = best(logs[np.newaxis])
        # Equal values leave only rounding errors.
        if not places or largest[0] < EQUAL:
            continue
        orders = _orders(len(logs), best_block_length(_correlation(logs, places), len(logs)))
        as_clear = int(np.count_nonzero(best(logs[orders])[0] >= largest[0] * (1 - EQUAL)))
        p_value = 2 * (1 + as_clear) / (1 + NUM_PERMUTATIONS)
        if p_value <= SIGNIFICANCE:
            return places, p_value
    return [], 1.0


def _best_step(rows: Floats) -> tuple[Floats, list[int]]:
    """For each row, the largest square of the difference of means over its variance, up to a factor
    that is equal for all orders; and the place of the first row's step, at least `MIN_SIDE` values
    from both ends."""
    count = rows.shape[1]
    places = np.arange(MIN_SIDE, count - MIN_SIDE + 1)
    sizes = _sums(rows)[:, places] ** 2 * count / (places * (count - places))
    return sizes.max(axis=1), [int(places[sizes[0].argmax()])]


def _best_stretch(rows: Floats) -> tuple[Floats, list[int]]:
    """Like `_best_step`, for the values between two places and the values around them."""
    count = rows.shape[1]
    sums = _sums(rows)
    largest, places = np.zeros(len(rows)), list[int]()
    for length in range(MIN_SIDE, count - 2 * MIN_SIDE + 1):
        starts = np.arange(MIN_SIDE, count - MIN_SIDE - length + 1)
        within = sums[:, starts + length] - sums[:, starts]
        sizes = within**2 * count / (length * (count - length))
        if sizes[0].max() > largest[0]:
            start = int(starts[sizes[0].argmax()])
            places = [start, start + length]
        np.maximum(largest, sizes.max(axis=1), out=largest)
    return largest, places


def _sums(rows: Floats) -> Floats:
    """Sums of the first 0, 1, 2, ... values of each row minus its mean; the last sum is 0."""
    sums: Floats = np.zeros((rows.shape[0], rows.shape[1] + 1))
    np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1, out=sums[:, 1:])
    return sums


def _correlation(logs: Floats, places: Sequence[int]) -> float:
    """Correlation of neighbours apart from steps, corrected for short series (Kendall 1954).

    It is the smaller of two estimates with different weaknesses: further steps or a slope raise the
    one from the values between these places, and noise of neighbours raises the one from
    differences.
    """
    correlation = min(_correlation_within(logs, places), _correlation_by_differences(logs))
    return correlation + (1 + 3 * max(correlation, 0.0)) / len(logs)


def _correlation_within(logs: Floats, places: Sequence[int]) -> float:
    rest = np.concatenate([part - part.mean() for part in np.split(logs, places)])
    square = float(rest @ rest)
    return float(rest[1:] @ rest[:-1]) / square if square > EQUAL else 0.0


def _correlation_by_differences(logs: Floats) -> float:
    """Estimates the correlation r of values from that of neighbours' differences, (r - 1) / 2 with
    or without a slope. It uses ranks, which a few steps hardly change (r = 2 sin(pi r_s / 6) for
    normal values: Pearson 1907)."""
    ranks = pd.Series(np.diff(logs)).rank().to_numpy()
    if len(ranks) < MIN_DIFFERENCES or np.ptp(ranks[1:]) == 0 or np.ptp(ranks[:-1]) == 0:
        return 0.0
    by_rank = float(np.corrcoef(ranks[1:], ranks[:-1])[0, 1])
    return 1 + 4 * math.sin(math.pi * by_rank / 6)


def _orders(count: int, length: int) -> NDArray[np.int64]:
    """Random orders of `count` values in which blocks of `length` neighbours stay together, with a
    fixed seed. Shape (`NUM_PERMUTATIONS`, count)."""
    random = np.random.default_rng(0)
    num_blocks = math.ceil(count / length)
    blocks = random.permuted(np.tile(np.arange(num_blocks), (NUM_PERMUTATIONS, 1)), axis=1)
    places = (blocks[:, :, np.newaxis] * length + np.arange(length)).reshape(NUM_PERMUTATIONS, -1)
    # The last block may be shorter: omits places beyond the end.
    places = places[places < count].reshape(NUM_PERMUTATIONS, count)
    turned = random.integers(count, size=(NUM_PERMUTATIONS, 1))
    orders: NDArray[np.int64] = (places + turned) % count
    return orders
