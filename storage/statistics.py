"""Ratios with their uncertainty, corrected p-values, verdicts: pure functions on arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_PAIRS = 6
"""With fewer pairs no two-sided rank test can reach p < 0.05 (5 pairs: 2 / 2^5 = 0.0625)."""
NUM_RESAMPLES = 2000
CONFIDENCE = 0.95
SIGNIFICANCE = 0.05
MIN_MARGIN = 0.02
"""Speeds closer than this are called the same, however exactly they are known."""
MAX_MARGIN_OF_SAME = 0.05
"""On a machine noisier than this nothing is called the same."""

SpeedVerdict = Literal["faster", "slower", "same", "unsure"]
BreakEvenVerdict = Literal["reached", "never", "unsure"]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Baseline time over other time, paired; above 1 the other one is faster.

    Interval and p-value are None with fewer than `MIN_PAIRS` pairs: nothing is claimed then.
    """

    median: float
    low: float | None
    high: float | None
    p_value: float | None
    n: int


def paired_ratio(baseline: ArrayLike, other: ArrayLike) -> Ratio | None:
    """The ratio of paired times, all above 0; None without a pair.

    Interval: percentile bootstrap of the median. p-value: two-sided Wilcoxon signed-rank test on
    the logarithms of the ratios.
    """
    ratios = np.asarray(baseline, dtype=float) / np.asarray(other, dtype=float)
    if not len(ratios):
        return None
    low, high = median_interval(ratios)
    return Ratio(
        median=float(np.median(ratios)),
        low=low,
        high=high,
        p_value=_signed_rank_p(np.log(ratios)) if len(ratios) >= MIN_PAIRS else None,
        n=len(ratios),
    )


def median_interval(values: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Percentile bootstrap interval (95 %) of the median; Nones with fewer than `MIN_PAIRS`.

    The resampling is seeded: the same values always give the same interval.
    """
    if len(values) < MIN_PAIRS:
        return None, None
    random = np.random.default_rng(0)
    chunk = max(1, min(NUM_RESAMPLES, 1_000_000 // len(values)))
    medians: list[float] = []
    while len(medians) < NUM_RESAMPLES:
        picks = random.integers(len(values), size=(chunk, len(values)))
        medians.extend(np.median(values[picks], axis=1))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians[:NUM_RESAMPLES], [tail, 1 - tail])
    return float(low), float(high)


def _signed_rank_p(differences: NDArray[np.float64]) -> float:
    from scipy.stats import wilcoxon  # here, because it takes a second that no list of runs needs

    if not np.any(differences):
        return 1.0
    return float(wilcoxon(differences).pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction for testing several hypotheses at once.

    The k-th smallest of m p-values is multiplied by m - k + 1, made no smaller than the ones before
    it, and cut at 1 (Holm 1979). None, an untested hypothesis, stays None and is not counted.
    """
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        corrected[index] = highest
    return corrected


def noise_floor(control: Ratio | None) -> float | None:
    """How far from 1 the control's interval reaches: what this machine cannot tell apart."""
    if control is None or control.low is None or control.high is None:
        return None
    return max(abs(control.low - 1), abs(control.high - 1))


def speed_verdict(ratio: Ratio, p_holm: float | None, floor: float | None) -> SpeedVerdict:
    """Says faster or slower only beyond noise and margin, same only inside the margin."""
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


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """After how many steps the time saved per step has paid for compiling.

    `steps` is None if that never happens. `low` and `high` carry the uncertainty of the saving,
    infinite where it may be nothing; None if too few rounds were paired to tell. `seconds` is the
    training time until then, compiling included.
    """

    steps: float | None
    low: float | None
    high: float | None
    seconds: float | None
    epochs: float | None
    never: bool


def break_even(
    compile_seconds: float, gains: ArrayLike, step_seconds: float, steps_per_epoch: int | None
) -> BreakEven | None:
    """From the seconds saved per step in each paired round; None without a paired round."""
    saved = np.asarray(gains, dtype=float)
    if not len(saved):
        return None
    least, most = median_interval(saved)
    steps = _steps_to_earn(compile_seconds, float(np.median(saved)))
    never = math.isinf(steps)
    return BreakEven(
        steps=None if never else steps,
        low=None if most is None else _steps_to_earn(compile_seconds, most),
        high=None if least is None else _steps_to_earn(compile_seconds, least),
        seconds=None if never else compile_seconds + steps * step_seconds,
        epochs=None if never or not steps_per_epoch else steps / steps_per_epoch,
        never=never,
    )


def _steps_to_earn(seconds: float, gain: float) -> float:
    return seconds / gain if gain > 0 else math.inf
