"""Computes when compiling has paid off: pure functions on arrays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from breakeven.storage.statistics.intervals import middle, typical
from breakeven.storage.statistics.speedups import Ratio, SpeedVerdict

BreakEvenVerdict = Literal["reached", "until", "never", "unsure"]

BREAK_EVEN_OF: dict[SpeedVerdict | None, BreakEvenVerdict] = {
    "faster": "reached",
    "slower": "never",
    "same": "never",
    "unsure": "unsure",
}
"""The verdict of break-even by that of the speed, for a run that compiles longer than its baseline;
a run that ended early has none."""


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """The number of steps after which the time saved per step has paid for compiling, as far as it
    takes longer than the baseline's.

    The verdict follows that of the speed, which includes the noise floor: "reached" if the run is
    faster, "never" if it is slower or the same, "unsure" if the speed is unsure. The numbers are
    finite for "reached", infinite for "never", None for "unsure".

    A run that surely compiles for less time than its baseline is ahead from the first step: for
    good ("reached" after 0 steps) if it is faster or the same, else "until" its steps have taken
    this lead away.
    """

    verdict: BreakEvenVerdict
    steps: float | None
    low: float | None
    """`low` and `high` include the uncertainty of the saving and the shortest and longest compile
    latency; infinite if the saving may be 0, None if too few rounds were paired."""
    high: float | None
    seconds: float | None
    """Training time until break-even, including compiling: where the lines of both runs cross."""
    epochs: float | None
    compile_seconds: float
    """The median of the compile latencies."""
    further_seconds: float
    """How much longer than the baseline's they are; negative if they are shorter."""
    gain: float
    """Seconds saved per step, the middle of the rounds; 0 or less if nothing is saved."""
    num_latencies: int
    """Number of processes with a measured compile latency; with only one, the interval does not
    include the variation of compile latencies."""

    @property
    def steps_if_real(self) -> float | None:
        """Steps to break-even for the middle of the rounds, for any verdict; None if no saving."""
        return max(0.0, self.further_seconds) / self.gain if self.gain > 0 else None


def break_even(
    speed: SpeedVerdict | None,
    latencies: ArrayLike,
    gains: ArrayLike,
    baseline_seconds: float,
    steps_per_epoch: int | None,
    processes: ArrayLike | None = None,
    *,
    baseline_latencies: Sequence[float] = (),
    floor: float = 0.0,
) -> BreakEven | None:
    """Break-even from the verdict of the speed, the compile latency of each process, the seconds
    saved per step in each paired round, and the process of each round if there are several. None
    without a verdict, a paired round, or a latency of the run or of its baseline.
    `baseline_seconds` is the step time of the baseline, `floor` the share of it by which steps of
    unsure speed may be slower for no reason."""
    saved, compiling = np.asarray(gains, dtype=float), np.asarray(latencies, dtype=float)
    if speed not in BREAK_EVEN_OF or not len(saved):
        return None
    if not len(compiling) and not baseline_latencies:
        return None
    own, base = (compiling if len(compiling) else np.zeros(1)), baseline_latencies or (0.0,)
    further = float(own.min()) - max(base), float(own.max()) - min(base)
    usual, verdict = middle(saved, processes), BREAK_EVEN_OF[speed]
    if further[1] < 0 and speed == "same":
        usual, verdict = 0.0, "reached"
    elif further[1] < 0 and verdict != "reached":
        verdict = "until"
    elif verdict == "reached" and usual <= 0:
        verdict = "unsure"
    seconds, of_baseline = float(np.median(own)), float(np.median(base))
    steps, low, high = None, None, None
    match verdict:
        case "never":
            steps = low = high = math.inf
        case "reached" if speed == "same":
            steps = low = high = 0.0
        case "reached":
            steps = max(0.0, seconds - of_baseline) / usual
            low, high = repaid_within(further, saved, processes)
        case "until":
            steps = _steps_to_earn(of_baseline - seconds, -usual)
            slack = floor * baseline_seconds if speed == "unsure" else 0.0
            lead = -further[1], -further[0]
            low, _ = repaid_within(lead, slack - saved, processes)
            _, high = repaid_within(lead, -slack - saved, processes)
            verdict, steps = ("unsure", None) if low is None else (verdict, steps)
    return BreakEven(
        verdict=verdict,
        steps=steps,
        low=low,
        high=high,
        seconds=None if steps is None else of_baseline + steps * baseline_seconds,
        epochs=None if steps is None or not steps_per_epoch else steps / steps_per_epoch,
        compile_seconds=seconds,
        further_seconds=seconds - of_baseline,
        gain=usual,
        num_latencies=len(own),
    )


def repaid_within(
    latencies: tuple[float, float], gains: ArrayLike, processes: ArrayLike | None = None
) -> tuple[float | None, float | None]:
    """The interval of the steps that repay a compile latency between the shortest and the longest
    one; the other values are those of `break_even`. Nones if too few rounds were paired."""
    _, least, most = typical(gains, processes)
    low = None if most is None else _steps_to_earn(latencies[0], most)
    high = None if least is None else _steps_to_earn(latencies[1], least)
    return low, high


def _steps_to_earn(seconds: float, gain: float) -> float:
    return max(0.0, seconds) / gain if gain > 0 else math.inf


def with_ends(name: str, estimate: Ratio | BreakEven | None) -> dict[str, float | None]:
    """Columns for a ratio or a break-even, and the ends of its interval."""
    if estimate is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    value = estimate.median if isinstance(estimate, Ratio) else estimate.steps
    return {name: value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
