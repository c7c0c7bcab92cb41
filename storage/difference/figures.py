"""Where the numbers of a run should come out when it is measured again, but for chance.

`docs/metrics.md` says under `replayed` how far each may stray.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.storage.comparison.results import Result
from breakeven.storage.difference.comparable import comparable
from breakeven.storage.difference.sides import Side
from breakeven.storage.difference.speedups import ratio_of_speedups
from breakeven.storage.statistics.intervals import Spread
from breakeven.storage.statistics.parity import LOSS_FLOORS, SAFETY_FACTORS
from breakeven.storage.statistics.speedups import MIN_MARGIN

Verdict = Literal["inside", "outside", "not judged"]
Reason = Literal["missing", "no control", "yardstick", "compiled once", "not known yet",
                 "other training", "other work"]  # fmt: skip
"""Why a figure is not judged: one of the two has none; nothing tells how far equal processes stray;
it is what shows how fast the machine is; nothing else was compiled twice on it, or that is still
being looked up; weights or data are others; the model is."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number, recorded and measured again; named as in METRICS. None is unmeasured."""

    name: str
    recorded: float | None
    again: float | None
    low: float | None = None
    """Where it was to be expected in 95 % of cases; None where nobody knows."""
    high: float | None = None
    reason: Reason | None = None

    @property
    def verdict(self) -> Verdict:
        if self.again is None or self.low is None or self.high is None:
            return "not judged"
        return "inside" if self.low <= self.again <= self.high else "outside"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A run as it was recorded and as it came out again, each within its experiment."""

    sides: tuple[Side, Side]
    results: tuple[Result, Result]
    compiling: Spread | Reason
    """How far the logarithm of compile latency strays on this machine, or why nobody knows."""

    def figures(self) -> list[Figure]:
        """Those numbers that either of the two has."""
        made = (self._speedup(), self._step_seconds(), self._compile_seconds(),
                self._peak_memory(), self._final_loss())  # fmt: skip
        return [one for one in made if (one.recorded, one.again) != (None, None)]

    def _speedup(self) -> Figure:
        """Four processes stand behind the quotient of two speedups, each of which strays as equal
        ones do; and never is it better known than the rounds of both measurements tell it."""
        before, after = (one.speedup.median if one.speedup else None for one in self.results)
        spread = Spread.pooled(map(_paces, self.sides))
        below, above = self._by_rounds()
        return self._judged("speedup", before, after, spread, 4, least=(below, above))

    def _step_seconds(self) -> Figure:
        """As much slower or faster as the equal processes of the same experiment have become."""
        before, after = (one.measured.step_seconds for one in self.results)
        equals = [_logs(side, "step_seconds") for side in self.sides]
        variances = 2 + sum(1 / len(group) for group in equals if group)
        if self.results[0].role != "backend":
            return Figure(name="step_seconds", recorded=before, again=after, reason="yardstick")
        # Rounds in which the run is slower make its speedup lower and its step time higher.
        above, below = self._by_rounds()
        return self._judged("step_seconds", before, after, Spread.pooled(equals), variances,
                            least=(below, above), pace=pace(self.sides) or 1.0)  # fmt: skip

    def _compile_seconds(self) -> Figure:
        """As far as what else was compiled twice on this machine strayed."""
        before, after = (one.measured.compile_seconds for one in self.results)
        if not isinstance(self.compiling, Spread):
            return self._judged("compile_seconds", before, after, None, 2, unknown=self.compiling)
        return self._judged("compile_seconds", before, after, self.compiling, 2)

    def _peak_memory(self) -> Figure:
        """As far as that of equal processes strays, though differences as small as those of speeds
        that are called the same are none."""
        before, after = (one.measured.peak_memory_bytes for one in self.results)
        spread = Spread.pooled(_logs(side, "peak_memory_bytes") for side in self.sides)
        least = math.log1p(MIN_MARGIN)
        return self._judged("peak_memory_bytes", before, after, spread, 2, least=(least, least))

    def _final_loss(self) -> Figure:
        """As far as trainings from minutely other weights end apart, and at least as rounding
        does."""
        name = "final_loss"
        before, after = (one.measured.final_loss for one in self.results)
        spread = Spread.pooled(_equals(side, name) for side in self.sides)
        reason = self._why_not(before, after) or (None if spread else "no control")
        if reason is None and not comparable(*self.sides).learning:
            reason = "other training"
        if reason is not None or spread is None or before is None:
            return Figure(name=name, recorded=before, again=after, reason=reason)
        half = max(spread.half_width(2), _rounding(self.sides[0]))
        return Figure(name=name, recorded=before, again=after, low=before - half,
                      high=before + half)  # fmt: skip

    def _judged(
        self,
        name: str,
        before: float | None,
        after: float | None,
        spread: Spread | None,
        variances: float,
        *,
        least: tuple[float, float] = (0.0, 0.0),
        pace: float = 1.0,
        unknown: Reason = "no control",
    ) -> Figure:
        """On logarithms: as far as so many variances of the spread let it stray, and at `least`
        this far below and above what was recorded, `pace` times as much now."""
        reason = self._why_not(before, after) or (None if spread else unknown)
        if reason is not None or spread is None or before is None:
            return Figure(name=name, recorded=before, again=after, reason=reason)
        below, above = (max(spread.half_width(variances), one) for one in least)
        middle = before * pace
        return Figure(name=name, recorded=before, again=after, low=middle * math.exp(-below),
                      high=middle * math.exp(above))  # fmt: skip

    def _why_not(self, *values: float | None) -> Reason | None:
        """A loss that diverged, or a latency of 0, is no number that another one could be near."""
        if any(value is None or not math.isfinite(value) or value == 0 for value in values):
            return "missing"
        return None if comparable(*self.sides).speed else "other work"

    def _by_rounds(self) -> tuple[float, float]:
        """How far below and above the recorded speedup the new one may lie as far as rounds tell:
        the ends of the interval of their quotient, seen from the quotient. On logarithms; 0 where
        one of them has no interval."""
        before, after = (one.speedup for one in self.results)
        if before is None or after is None:
            return 0.0, 0.0
        quotient, low, high = ratio_of_speedups(before, after)
        if low is None or high is None:
            return 0.0, 0.0
        # Too low is what has even the upper end below 1, too high what has the lower one above.
        return math.log(high / quotient), math.log(quotient / low)


def pace(sides: tuple[Side, Side]) -> float | None:
    """Times longer that a step of baseline and controls took on the second side: the geometric
    means of their step times, over each other. None without them."""
    logs = [_logs(side, "step_seconds") for side in sides]
    if not all(logs):
        return None
    before, after = (sum(group) / len(group) for group in logs)
    return math.exp(after - before)


def _equals(side: Side, name: str) -> list[float]:
    """A number of the equal processes of a side, baseline and controls, as far as it is known."""
    values = [getattr(one.measured, name) for one in side.comparison.results
              if one.role in ("baseline", "control")]  # fmt: skip
    return [value for value in values if value is not None and math.isfinite(value)]


def _logs(side: Side, name: str) -> list[float]:
    return [math.log(value) for value in _equals(side, name) if value > 0]


def _paces(side: Side) -> Sequence[float]:
    """Logarithms of the step times of baseline and controls over the baseline's, by rounds."""
    controls = [one.speedup.median for one in side.comparison.results
                if one.role == "control" and one.speedup]  # fmt: skip
    return [0.0, *(-math.log(median) for median in controls)]


def _rounding(side: Side) -> float:
    """What rounding alone may change of a loss: the least half width of the band of parity."""
    band, precision = side.comparison.loss_band, side.spec.training.precision
    first_loss = abs(float(band["baseline"].iloc[0])) if len(band) else 0.0
    return SAFETY_FACTORS[precision] * LOSS_FLOORS[precision] * first_loss
