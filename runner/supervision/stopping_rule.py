"""Decides when a speed experiment has measured enough, from the widths of intervals only.

After some rounds it computes the interval of each speedup, and ends the experiment once all are
narrow enough, or the budget is spent: sequential estimation with fixed width (Chow and Robbins
1965). It ignores whether a speedup is above 1, so it cannot wait for a difference by chance.
docs/decisions.md has the measurements behind this rule.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.endings import Cause, Ending
from breakeven.runner.protocol.events import JournalPosition, read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm, Role
from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from breakeven.runner.supervision.decision import Decision

LOOK_GROWTH = 1.2
"""Factor between the rounds of two looks: few looks mean few chances that an interval is narrow by
luck."""
CONFIDENCE = 0.95
MAX_PERSISTENCE = 0.9
"""Largest autocorrelation of neighbouring rounds; a larger one would need endless rounds."""


class StoppingRule:
    """Decides after each round whether the next one is the last."""

    def __init__(
        self,
        speed: SpeedSpec,
        roles: Mapping[str, Role],
        max_seconds: float,
        environments: Mapping[str, str | None] | None = None,
    ) -> None:
        """`roles`: role of each run that is alive at the same time, by label.
        `environments`: that of each run, by label, which has a baseline of its own; None if there
        is one for all."""
        self._speed = speed
        self._roles = roles
        environments = environments or {}
        baselines = {
            environments.get(label): label for label, role in roles.items() if role == "baseline"
        }
        first = next(iter(baselines.values()), None)
        self._beside = {
            label: first if role == "baseline" else baselines.get(environments.get(label))
            for label, role in roles.items()
            if label != first
        }
        """The baseline that each run is compared with; a further environment's baseline with that
        of the first one."""
        self._max_seconds = max_seconds
        self._blocks: dict[str, dict[int, float]] = {label: {} for label in roles}
        self._seconds = 0.0
        self._next_look = speed.min_rounds

    def add(self, label: str, round: int, seconds: float) -> None:
        """Records a block that counts."""
        self._blocks[label][round] = seconds
        self._seconds += seconds

    def ending(self, living: Collection[str]) -> Ending | None:
        """Why the next round is the last one; None if the measurement continues."""
        compared = [label for label in living if self._beside.get(label) in living]
        if len(self._roles) > 1 and not compared:
            return self._ending("nothing_left")
        num_rounds = len(set().union(*self._blocks.values()))
        if num_rounds + 1 >= self._speed.max_rounds:
            return self._spent("rounds", self._speed.max_rounds, compared)
        if self._seconds >= self._max_seconds:
            return self._spent("seconds", self._max_seconds, compared)
        if num_rounds < self._next_look:
            return None
        self._next_look = max(num_rounds + 1, math.ceil(LOOK_GROWTH * num_rounds))
        return self._ending("exact") if compared and not self._too_wide(compared) else None

    def _spent(self, cause: Cause, budget: float, compared: Sequence[str]) -> Ending:
        """The ending by a spent budget. A single run has no intervals."""
        too_wide = None if len(self._roles) == 1 else self._too_wide(compared)
        return self._ending(cause, budget=budget, too_wide=too_wide)

    def _ending(self, cause: Cause, **figures: Any) -> Ending:
        return Ending(cause=cause, target_width=self._speed.target_width, **figures)

    def _too_wide(self, compared: Sequence[str]) -> dict[str, float | None]:
        """Widths of the intervals that are too wide, by label; None if missing or not finite."""
        return {
            run: width if width is not None and math.isfinite(width) else None
            for run, width in self._widths(compared).items()
            if width is None or not width < self._speed.target_width
        }

    def _widths(self, compared: Sequence[str]) -> dict[str, float | None]:
        """Widths of the speedups of these runs; None without an interval."""
        widths = {}
        for label in compared:
            baseline = self._blocks.get(self._beside[label] or "", {})
            ratios = [
                baseline[number] / seconds
                for number, seconds in self._blocks[label].items()
                if seconds > 0 and baseline.get(number, 0) > 0
            ]
            widths[label] = width_of_median(ratios)
        return widths


class JournalTails:
    """Reads the journals of runs, each event once."""

    def __init__(self) -> None:
        self._offsets: dict[RunDir, int] = {}
        self._positions: dict[RunDir, JournalPosition] = {}

    def read(self, run: RunDir) -> Sequence[Mapping[str, Any]]:
        """The new events of the run since the last call. Damaged lines are left out; a journal that
        cannot be read has no events."""
        with suppress(RunnerError):
            position = self._positions.setdefault(run, JournalPosition())
            events, self._offsets[run] = read_events(
                run.events_file, self._offsets.get(run, 0), position
            )
            return events
        return ()


class JournalWatch:
    """Feeds a stopping rule with the recorded blocks of the runs of one repeat."""

    def __init__(self, spec: ExperimentSpec, runs: Mapping[RunDir, Arm]) -> None:
        """`runs`: the runs that are alive at the same time; they get their share of the budget."""
        self._labels = {run: arm.label for run, arm in runs.items()}
        self._tails = JournalTails()
        roles = {arm.label: arm.role for arm in runs.values()}
        share = len(runs) * spec.speed.repeats / len(spec.arms)
        seconds = share * spec.speed.max_seconds
        self._rule = StoppingRule(spec.speed, roles, seconds, spec.environment_by_label)

    def decide(self, living: Sequence[str]) -> Decision:
        """Whether the next round is the last one."""
        for run in self._labels:
            for event in self._tails.read(run):
                with suppress(KeyError, TypeError, ValueError):
                    self._take(self._labels[run], event)
        return Decision(over=self._rule.ending(living))

    def _take(self, label: str, event: Mapping[str, Any]) -> None:
        if event["kind"] == "block" and not (event.get("warm_up") or event["compiled"]):
            seconds = float(event["seconds"])
            if 0 < seconds < math.inf:
                self._rule.add(label, int(event["round"]), seconds)


def width_of_median(ratios: Sequence[float]) -> float | None:
    """Width of the 95 % interval of the median, as a share of its lower end; None if there are too
    few ratios. `ratios` are in order of time."""
    interval = interval_of_median(ratios)
    return interval and interval[1] / interval[0] - 1


def interval_of_median(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median; None if there are too few ratios. `ratios` are in order of
    time.

    The interval reaches from the k-th smallest ratio to the k-th largest. It misses the median only
    if fewer than k ratios lie on one side of it. Fair coin tosses give this probability: no
    distribution is assumed. With an autocorrelation r of neighbours, n ratios count as
    n (1 - r) / (1 + r) independent ones, which widens the interval by the root of that factor.
    """
    rank = _rank(len(ratios))
    if not rank:
        return None
    ordered, middle = sorted(ratios), median(ratios)
    persistence = min(max(_persistence(ratios, middle), 0.0), MAX_PERSISTENCE)
    stretch = math.sqrt((1 + persistence) / (1 - persistence))
    low, high = ordered[rank - 1], ordered[-rank]
    return middle * math.pow(low / middle, stretch), middle * math.pow(high / middle, stretch)


def _persistence(values: Sequence[float], middle: float) -> float:
    """Autocorrelation at lag 1 of the sides of the median on which the values lie."""
    sides = [(value > middle) - (value < middle) for value in values]
    mean = sum(sides) / len(sides)
    square = sum((side - mean) ** 2 for side in sides)
    if not square:
        return 0.0
    return sum((side - mean) * (next - mean) for side, next in pairwise(sides)) / square


@cache
def _rank(count: int) -> int:
    """The largest k such that fewer than k heads in `count` tosses have probability <= 1/40."""
    rank, tail = 0, 0.0
    while (tail := tail + math.comb(count, rank) / 2**count) <= (1 - CONFIDENCE) / 2:
        rank += 1
    return rank
