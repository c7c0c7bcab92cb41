"""Ratios with their uncertainty, corrected p-values, verdicts: pure functions on arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from breakeven.runner.folders.states import EarlyEnd
from breakeven.storage.numbers.formats import DASH, format_ratio
from breakeven.storage.statistics.intervals import (
    MIN_PAIRS,
    middle,
    p_of_mean,
    p_of_processes,
    typical,
)

SIGNIFICANCE = 0.05
MIN_MARGIN = 0.02
"""Speeds closer than this are called the same, however exactly they are known."""
MAX_MARGIN_OF_SAME = 0.05
"""On a machine noisier than this nothing is called the same."""

DETECTABLE_ERRORS = 1.960 + 0.842
"""Standard errors that an effect must measure to be found in 80 % of cases at 0.05, two-sided:
the normal quantiles of 97.5 % and 80 % (Bloom 1995)."""
ERRORS_PER_INTERVAL = 2 * 1.960
"""Standard errors that a 95 % interval is wide."""

FEW_ROUNDS = 10
"""From here on the sign test alone tells of 25 backends: 25 x 2 / 2^10 < 0.05."""
MAX_MISSING = 10_000
"""More rounds than that are not advised."""

SpeedVerdict = Literal["faster", "slower", "same", "unsure"] | EarlyEnd
SpeedDoubt = Literal["few", "chance", "margin"]
"""Why a speed is unsure: too few pairs for an interval; equal speeds may come out so by chance; or
it is beyond chance, yet about as small as the margin."""
BreakEvenVerdict = Literal["reached", "never", "unsure"]
BREAK_EVEN_OF: dict[SpeedVerdict | None, BreakEvenVerdict] = {
    "faster": "reached",
    "slower": "never",
    "same": "never",
    "unsure": "unsure",
}
"""What becomes of break-even, by the verdict of the speed; a run that ended early has none."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Baseline time over other time, paired; above 1 the other one is faster.

    `median` is that of all pairs, or of several processes the geometric mean of their medians.
    Interval and p-value are None with fewer than `MIN_PAIRS` pairs: nothing is claimed then.
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
        """How wide the interval is, as a share of its lower end. None without one."""
        return self.high / self.low - 1 if self.low and self.high else None

    @property
    def detectable_effect(self) -> float | None:
        """The smallest change of speed, 0.03 for 3 %, that an experiment which strays like this one
        tells from nothing in 80 % of cases, at 0.05. None without an interval."""
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
    rounds were independent, so no verdict rests on it alone. Effect size: matched-pairs
    rank-biserial correlation. Where `processes` says that the pairs come from several, their
    logarithms are pooled as in `storage.statistics.intervals`, and the larger of the p-values of
    rounds and processes counts.
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


def device_difference(seconds: ArrayLike, num_steps: ArrayLike, devices: ArrayLike) -> float:
    """How many times longer the baseline's steps take on the slowest device than on the fastest, at
    least 1: the median over each device's blocks, given their seconds and numbers of steps."""
    frame = pd.DataFrame({"step": np.asarray(seconds) / np.asarray(num_steps), "device": devices})
    medians = frame.groupby("device")["step"].median()
    return float(medians.max() / medians.min()) if len(medians) else 1.0


def on_any_device(ratio: Ratio, difference: float) -> Ratio:
    """A ratio that was measured on one of several devices, as what it may be on any of them: to
    both sides by as much as the baseline differs between them."""
    if ratio.low is None or ratio.high is None:
        return ratio
    return replace(ratio, low=ratio.low / difference, high=ratio.high * difference)


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)


def sign_test_p(differences: NDArray[np.float64]) -> float:
    """Two-sided p-value of the sign test (Dixon and Mood 1946): how often as one-sided a split into
    above and below 0, or a more one-sided one, comes out of tossing a coin. Zeros are left out; 1
    if nothing else is left."""
    from scipy.special import bdtr  # here, because it takes time that no list of runs needs

    above, below = int((differences > 0).sum()), int((differences < 0).sum())
    return min(1.0, 2 * float(bdtr(min(above, below), above + below, 0.5)))


def p_of_rounds(logs: NDArray[np.float64]) -> float:
    """Two-sided p-value of rounds: the sign test's, which counts rounds and weighs none. Where all
    of a few rounds agree the sign test says no more than their number; then the smaller of its
    p-value and that of Student's t counts, which knows how far the rounds lie from 0."""
    by_sign = sign_test_p(logs)
    agree = bool((logs > 0).all() or (logs < 0).all())
    return min(by_sign, p_of_mean(logs)) if agree and len(logs) < FEW_ROUNDS else by_sign


def rounds_missing(ratio: Ratio, num_tested: int) -> int | None:
    """About how many more rounds that stray like these would tell a ratio as far from 1 among so
    many backends: as many as make the detectable effect as small as the ratio, and as let the sign
    test pass if as large a share of rounds agrees. None where they were enough, and where nothing
    tells."""
    from scipy.special import bdtr  # here, because it takes time that no list of runs needs

    effect, reach = abs(math.log(ratio.median)), ratio.detectable_effect
    if ratio.p_value is None or reach is None or not effect:
        return None
    num_rounds = np.arange(ratio.n, ratio.n + MAX_MISSING)
    against = np.arange(ratio.n // 2 + 1)
    as_likely = 2 * bdtr(against, ratio.n, 0.5) <= ratio.p_value + 1e-12
    share = against[as_likely].max(initial=0) / ratio.n
    passes = num_tested * 2 * bdtr(np.floor(share * num_rounds), num_rounds, 0.5) < SIGNIFICANCE
    by_spread = math.ceil(ratio.n * (math.log1p(reach) / effect) ** 2)
    if not passes.any():
        return None
    missing = max(by_spread, int(num_rounds[passes.argmax()])) - ratio.n
    return missing if 0 < missing <= MAX_MISSING else None


def rank_biserial(differences: NDArray[np.float64]) -> float:
    """Matched-pairs rank-biserial correlation (Kerby 2014): how one-sided the differences are.

    The differences other than 0 are ranked by size, ties share their ranks; the sum of the ranks
    above 0 less that of those below, over the sum of all. 0 if all differences are 0.
    """
    nonzero = differences[differences != 0]
    if not len(nonzero):
        return 0.0
    ranks = pd.Series(np.abs(nonzero)).rank().to_numpy()
    return float((np.sign(nonzero) * ranks).sum() / ranks.sum())


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


def ratio_text(ratio: Ratio | None) -> str:
    """`1.32x (1.20 to 1.45)`; without an interval where none is claimed, a dash for None."""
    if ratio is None:
        return DASH
    text = format_ratio(ratio.median)
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} ({ratio.low:.2f} to {ratio.high:.2f})"


def noise_floor(controls: Sequence[Ratio | None]) -> float | None:
    """How far from 1 a control's interval reaches: what this machine cannot tell apart. Of several
    controls the median, so that asking for more of them makes no machine noisier."""
    reaches = [
        max(abs(one.low - 1), abs(one.high - 1))
        for one in controls
        if one is not None and one.low is not None and one.high is not None
    ]
    return float(np.median(reaches)) if reaches else None


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


def speed_doubt(ratio: Ratio, p_holm: float | None) -> SpeedDoubt:
    """Why `speed_verdict` says unsure, if it does."""
    if ratio.low is None or ratio.high is None or p_holm is None:
        return "few"
    chance = p_holm >= SIGNIFICANCE or ratio.low <= 1 <= ratio.high
    return "chance" if chance else "margin"


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """After how many steps the time saved per step has paid for compiling.

    The verdict follows that of the speed, noise floor included: reached where the run is faster,
    never where it is slower or as fast, unsure where the speed is. Only what is reached has
    finite numbers; never is infinite, and of what is unsure nothing is claimed.
    """

    verdict: BreakEvenVerdict
    steps: float | None
    low: float | None
    """`low` and `high` carry the uncertainty of the saving and the shortest and longest compile
    latency; infinite where the saving may be nothing, None if too few rounds were paired."""
    high: float | None
    seconds: float | None
    """Training time until then, compiling included: where the lines of both runs cross."""
    epochs: float | None
    compile_seconds: float
    """The median of the compile latencies."""
    gain: float
    """Seconds that a step saves, the middle of the rounds; 0 or less where nothing is saved."""
    num_latencies: int
    """Processes whose compile latency was measured: of a single one no interval tells how much
    compile latencies vary."""

    @property
    def steps_if_real(self) -> float | None:
        """Steps that the middle of the rounds asks for, whatever the verdict; None for never."""
        return self.compile_seconds / self.gain if self.gain > 0 else None


def break_even(
    speed: SpeedVerdict | None,
    latencies: ArrayLike,
    gains: ArrayLike,
    baseline_seconds: float,
    steps_per_epoch: int | None,
    processes: ArrayLike | None = None,
    ends: tuple[ArrayLike, ArrayLike] | None = None,
) -> BreakEven | None:
    """From the verdict of the speed, the compile latency of each process, the seconds saved per
    step in each paired round, and the process that each round belongs to where there are several.
    None without a verdict, a latency or a paired round. `baseline_seconds` is a step of the
    baseline. `ends` are the least and the most that may be saved in those rounds, where that is not
    what was measured."""
    saved, compiling = np.asarray(gains, dtype=float), np.asarray(latencies, dtype=float)
    if speed not in BREAK_EVEN_OF or not len(saved) or not len(compiling):
        return None
    usual = middle(saved, processes)
    seconds, verdict = float(np.median(compiling)), BREAK_EVEN_OF[speed]
    steps, low, high = None, None, None
    if verdict == "reached" and usual <= 0:
        verdict = "unsure"
    if verdict == "never":
        steps = low = high = math.inf
    if verdict == "reached":
        steps = seconds / usual
        _, least, most = typical(saved, processes)
        if ends is not None:
            (_, least, _), (_, _, most) = (typical(end, processes) for end in ends)
        low = None if most is None else _steps_to_earn(float(compiling.min()), most)
        high = None if least is None else _steps_to_earn(float(compiling.max()), least)
    return BreakEven(
        verdict=verdict,
        steps=steps,
        low=low,
        high=high,
        seconds=None if steps is None else steps * baseline_seconds,
        epochs=None if steps is None or not steps_per_epoch else steps / steps_per_epoch,
        compile_seconds=seconds,
        gain=usual,
        num_latencies=len(compiling),
    )


def _steps_to_earn(seconds: float, gain: float) -> float:
    return seconds / gain if gain > 0 else math.inf
