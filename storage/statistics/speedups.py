"""Computes ratios with intervals, corrected p-values and verdicts: pure functions on arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from breakeven.runner.protocol.states import EarlyEnd
from breakeven.storage.numbers.formats import DASH, format_ratio
from breakeven.storage.statistics.intervals import MIN_PAIRS, p_of_mean, p_of_processes, typical

SIGNIFICANCE = 0.05
MIN_MARGIN = 0.02
"""Differences below this count as the same speed, however narrow the interval is."""
MAX_MARGIN_OF_SAME = 0.05
"""With a margin above this, on a noisy machine, no verdict is "same"."""

DETECTABLE_ERRORS = 1.960 + 0.842
"""Size, in standard errors, of an effect that is found in 80 % of cases at 0.05, two-sided: the sum
of the normal quantiles of 97.5 % and 80 % (Bloom 1995)."""
ERRORS_PER_INTERVAL = 2 * 1.960
"""Width of a 95 % interval in standard errors."""

FEW_ROUNDS = 10
"""From this number on, the sign test alone suffices for 25 backends: 25 x 2 / 2^10 < 0.05."""
MOST_MISSING = 10
"""Rounds are advised if they are fewer than this multiple of those that exist."""

SpeedVerdict = Literal["faster", "slower", "same", "unsure"] | EarlyEnd
SpeedDoubt = Literal["few", "chance", "margin"]
"""Why a speed is unsure: too few pairs for an interval; chance may explain the difference; or the
difference is significant, but about as small as the margin."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Baseline time over other time, paired; above 1 the other one is faster.

    `median` is that of all pairs; for several processes it is the geometric mean of their medians.
    Interval and p-value are None with fewer than `MIN_PAIRS` pairs.
    """

    median: float
    low: float | None
    high: float | None
    p_value: float | None
    n: int
    effect_size: float | None = None
    """Matched-pairs rank-biserial correlation, from -1 (slower in every round) to 1."""

    @property
    def width(self) -> float | None:
        """Width of the interval as a share of its lower end; None without an interval."""
        return self.high / self.low - 1 if self.low and self.high else None

    @property
    def largest_difference(self) -> float | None:
        """The largest change of speed inside the interval, 0.04 for 4 %, faster or slower. None
        without an interval, or if the interval does not include 1."""
        if not self.low or not self.high or not self.low <= 1 <= self.high:
            return None
        return max(self.high, 1 / self.low) - 1

    @property
    def detectable_effect(self) -> float | None:
        """The smallest change of speed, 0.03 for 3 %, that an experiment with this spread detects
        in 80 % of cases, at 0.05. None without an interval."""
        if not self.low or not self.high:
            return None
        standard_error = math.log(self.high / self.low) / ERRORS_PER_INTERVAL
        return math.expm1(DETECTABLE_ERRORS * standard_error)


def paired_ratio(
    baseline: ArrayLike, other: ArrayLike, processes: ArrayLike | None = None
) -> Ratio | None:
    """The ratio of paired times, all above 0 and in the order of time; None without a pair.

    Interval: percentile bootstrap of the median, by blocks of neighbours
    (`storage.statistics.intervals`). p-value: `p_of_rounds` on the logarithms of the ratios, as if
    rounds were independent, so no verdict depends on it alone. Effect size: matched-pairs
    rank-biserial correlation. If the pairs come from several `processes`, their logarithms are
    pooled as in `storage.statistics.intervals`, and the larger of the p-values of rounds and
    processes counts.
    """
    ratios = np.asarray(baseline, dtype=float) / np.asarray(other, dtype=float)
    if not len(ratios):
        return None
    enough, logs = len(ratios) >= MIN_PAIRS, np.log(ratios)
    if processes is None or len(np.unique(np.asarray(processes))) == 1:
        usual, low, high = typical(ratios)
    else:
        usual, low, high = typical(logs, processes)
        usual, low, high = math.exp(usual), _exp(low), _exp(high)
    return Ratio(
        median=usual,
        low=low,
        high=high,
        p_value=max(p_of_rounds(logs), p_of_processes(logs, processes)) if enough else None,
        n=len(ratios),
        effect_size=rank_biserial(logs) if enough else None,
    )


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)


def sign_test_p(differences: NDArray[np.float64]) -> float:
    """Two-sided p-value of the sign test (Dixon and Mood 1946): the chance that coin tosses give a
    split into above and below 0 that is at least as one-sided. Omits zeros; 1 without others."""
    from scipy.special import bdtr  # here, because the import is slow and rarely needed

    above, below = int((differences > 0).sum()), int((differences < 0).sum())
    return min(1.0, 2 * float(bdtr(min(above, below), above + below, 0.5)))


def p_of_rounds(logs: NDArray[np.float64]) -> float:
    """Two-sided p-value of rounds, by the sign test, which ignores the size of differences. If all
    of a few rounds agree, its p-value depends on their number only. Then the smaller one of the
    sign test and Student's t counts, because the latter uses the rounds' distance from 0."""
    by_sign = sign_test_p(logs)
    agree = bool((logs > 0).all() or (logs < 0).all())
    return min(by_sign, p_of_mean(logs)) if agree and len(logs) < FEW_ROUNDS else by_sign


def rounds_missing(ratio: Ratio, num_tested: int) -> int | None:
    """Estimated number of further rounds, with the same spread, that would make this ratio
    significant among `num_tested` backends. With them the detectable effect is as small as the
    ratio, and the sign test passes if the same share of rounds agrees. None if the rounds were
    enough, without an estimate, and from `MOST_MISSING` times the rounds on."""
    from scipy.special import bdtr  # here, because the import is slow and rarely needed

    effect, reach = abs(math.log(ratio.median)), ratio.detectable_effect
    if ratio.p_value is None or reach is None or not effect:
        return None
    num_rounds = np.arange(ratio.n, ratio.n + MOST_MISSING * ratio.n)
    against = np.arange(ratio.n // 2 + 1)
    as_likely = 2 * bdtr(against, ratio.n, 0.5) <= ratio.p_value + 1e-12
    share = against[as_likely].max(initial=0) / ratio.n
    passes = num_tested * 2 * bdtr(np.floor(share * num_rounds), num_rounds, 0.5) < SIGNIFICANCE
    by_spread = math.ceil(ratio.n * (math.log1p(reach) / effect) ** 2)
    if not passes.any():
        return None
    missing = max(by_spread, int(num_rounds[passes.argmax()])) - ratio.n
    return missing if 0 < missing < MOST_MISSING * ratio.n else None


def rank_biserial(differences: NDArray[np.float64]) -> float:
    """Matched-pairs rank-biserial correlation (Kerby 2014): how one-sided the differences are.

    Differences other than 0 are ranked by size; ties share their ranks. The result is the rank sum
    of positive ones minus that of negative ones, over the sum of all ranks; 0 if all are 0.
    """
    nonzero = differences[differences != 0]
    if not len(nonzero):
        return 0.0
    ranks = pd.Series(np.abs(nonzero)).rank().to_numpy()
    return float((np.sign(nonzero) * ranks).sum() / ranks.sum())


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction for testing several hypotheses at once.

    The k-th smallest of m p-values is multiplied by m - k + 1, raised to the largest one before it,
    and limited to 1 (Holm 1979). None, an untested hypothesis, stays None and does not count.
    """
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        corrected[index] = highest
    return corrected


def in_family(p_values: Sequence[float | None], level: float | None) -> list[float | None]:
    """p-values that count below `SIGNIFICANCE` where the given ones count below `level`, that of an
    experiment in its family; as they are without a family."""
    times = 1.0 if level is None else SIGNIFICANCE / level
    return [None if p is None else min(1.0, p * times) for p in p_values]


def ratio_text(ratio: Ratio | None) -> str:
    """`1.32x (1.20 to 1.45)`; `1.32x` without an interval; a dash for None."""
    if ratio is None:
        return DASH
    text = format_ratio(ratio.median)
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} ({ratio.low:.2f} to {ratio.high:.2f})"


def noise_floor(controls: Sequence[Ratio | None]) -> float | None:
    """The largest distance from 1 in a control's interval: smaller differences are noise on this
    machine. For several controls the median, so that more controls do not raise the floor."""
    reaches = [
        max(abs(ratio.low - 1), abs(ratio.high - 1))
        for ratio in controls
        if ratio is not None and ratio.low is not None and ratio.high is not None
    ]
    return float(np.median(reaches)) if reaches else None


def speed_verdict(ratio: Ratio, p_holm: float | None, floor: float | None) -> SpeedVerdict:
    """The verdict: faster or slower only beyond noise and margin, same only inside the margin."""
    if ratio.low is None or ratio.high is None or p_holm is None:
        return "unsure"
    margin = max(MIN_MARGIN, floor or 0.0)
    significant = p_holm < SIGNIFICANCE
    if significant and ratio.low > 1 and ratio.median > 1 + margin:
        return "faster"
    if significant and ratio.high < 1 and ratio.median < 1 / (1 + margin):
        return "slower"
    within_margin = ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin
    if within_margin and margin <= MAX_MARGIN_OF_SAME:
        return "same"
    return "unsure"


def speed_doubt(ratio: Ratio, p_holm: float | None) -> SpeedDoubt:
    """Why `speed_verdict` is unsure, if it is."""
    if ratio.low is None or ratio.high is None or p_holm is None:
        return "few"
    chance = p_holm >= SIGNIFICANCE or ratio.low <= 1 <= ratio.high
    return "chance" if chance else "margin"
