"""From the baseline's step time to a run's, class by class: parts that add up to the difference."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from breakeven.storage.profile.profiles import IDLE, Profile
from breakeven.storage.statistics.means import half_width


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """What makes the difference between two runs' step times."""

    baseline: Profile
    run: Profile
    parts: pd.DataFrame
    """work_class, baseline, run, difference: seconds a step, in the order of `CLASSES`, idle time
    last. The differences add up to that of the step times."""

    @property
    def difference(self) -> float:
        """Seconds that the run's step takes more than the baseline's."""
        return float(self.parts["difference"].sum())


@dataclass(frozen=True, kw_only=True)
class OwnSpeedup:
    """Speedup of the device's own time: the baseline's kernels over the run's."""

    ratio: float
    low: float | None
    """95 % interval; None with a single turn."""
    high: float | None
    num_turns: int


def bridge(baseline: Profile, run: Profile) -> Bridge | None:
    """None unless both were timed and profiled."""
    if not (baseline.is_known and run.is_known):
        return None
    if baseline.step_seconds is None or run.step_seconds is None:
        return None
    parts = pd.DataFrame({"baseline": baseline.by_class, "run": run.by_class})
    if hides_optimizer(baseline, run):  # Its arithmetic is among the others', and is set beside it.
        parts.loc["elementwise"] += parts.loc["optimizer"]
        parts.loc["optimizer"] = 0.0
    parts["difference"] = parts["run"] - parts["baseline"]
    is_there = (parts[["baseline", "run"]] != 0).any(axis=1) | (parts.index == IDLE)
    parts = parts[is_there].rename_axis("work_class").reset_index()
    return Bridge(baseline=baseline, run=run, parts=parts)


def hides_optimizer(baseline: Profile, run: Profile) -> bool:
    """Whether a run compiled its optimizer with the rest of the step, so that nothing tells what of
    its work the optimizer's is."""
    before, after = (float(one.by_class["optimizer"]) for one in (baseline, run))
    return before > 0 and after == 0


def own_speedup(baseline: Profile, run: Profile) -> OwnSpeedup | None:
    """Of the kernels alone, without the gaps in which the device waited for the host. None where
    the CPUs are the device, whose own time is the clock's.

    The geometric mean over turns; its interval is Student's for the mean of the logarithms of
    ratios paired turn by turn (Student 1908). It tells how these turns differ, not other processes.
    """
    if not (baseline.is_known and run.is_known and run.works_by_itself):
        return None
    pairs = zip(baseline.turns["busy_seconds"], run.turns["busy_seconds"], strict=False)
    logs = np.array([math.log(before / after) for before, after in pairs])
    middle = float(logs.mean())
    width = half_width(logs) if len(logs) > 1 else None
    return OwnSpeedup(
        ratio=math.exp(middle),
        low=None if width is None else math.exp(middle - width),
        high=None if width is None else math.exp(middle + width),
        num_turns=len(logs),
    )
