"""Computes when compiling has paid off: pure functions on arrays."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from breakeven.storage.statistics.intervals import middle, typical
from breakeven.storage.statistics.speedups import Ratio, SpeedVerdict

BreakEvenVerdict = Literal["reached", "never", "unsure"]

BREAK_EVEN_OF: dict[SpeedVerdict | None, BreakEvenVerdict] = {
    "faster": "reached",
    "slower": "never",
    "same": "never",
    "unsure": "unsure",
}
"""The verdict of break-even by that of the speed; a run that ended early has none."""


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """The number of steps after which the time saved per step has paid for compiling.

    The verdict follows that of the speed, which includes the noise floor: "reached" if the run is
    faster, "never" if it is slower or the same, "unsure" if the speed is unsure. The numbers are
    finite for "reached", infinite for "never", None for "unsure".
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
    gain: float
    """Seconds saved per step, the middle of the rounds; 0 or less if nothing is saved."""
    num_latencies: int
    """Number of processes with a measured compile latency; with only one, the interval does not
    include the variation of compile latencies."""

    @property
    def steps_if_real(self) -> float | None:
        """Steps to break-even for the middle of the rounds, for any verdict; None if no saving."""
        return self.compile_seconds / self.gain if self.gain > 0 else None


def break_even(
    speed: SpeedVerdict | None,
    latencies: ArrayLike,
    gains: ArrayLike,
    baseline_seconds: float,
    steps_per_epoch: int | None,
    processes: ArrayLike | None = None,
) -> BreakEven | None:
    """Break-even from the verdict of the speed, the compile latency of each process, the seconds
    saved per step in each paired round, and the process of each round if there are several. None
    without a verdict, a latency or a paired round. `baseline_seconds` is the step time of the
    baseline."""
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
        shortest, longest = float(compiling.min()), float(compiling.max())
        low, high = repaid_within((shortest, longest), saved, processes)
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
    return seconds / gain if gain > 0 else math.inf


def with_ends(name: str, estimate: Ratio | BreakEven | None) -> dict[str, float | None]:
    """Columns for a ratio or a break-even, and the ends of its interval."""
    if estimate is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    value = estimate.median if isinstance(estimate, Ratio) else estimate.steps
    return {name: value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
