"""When a speed experiment has measured enough: a stopping rule that looks at widths alone.

After some rounds it asks how exactly each speedup is known by now, and ends measuring once all are
known exactly enough, or the budget is spent: sequential estimation with fixed width (Chow and
Robbins 1965). On which side of 1 a speedup lies it never asks, so that it cannot wait for chance to
make a difference. docs/decisions.md has the measurements behind it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.events import Order, read_events
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from breakeven.runner.specs.fields import Spec, require
from breakeven.runner.specs.scenarios import MIN_ROUNDS, AddedRounds
from breakeven.runner.specs.variants import Role, Variant

Cause = Literal["exact", "rounds", "seconds", "nothing_left", "loses", "equal", "wrong", "searched"]
CAUSES: dict[Cause, str] = {
    "exact": "every interval is narrower than {target}",
    "rounds": "the budget of {budget:.0f} rounds is spent",
    "seconds": "the budget of {budget:.4g} s is spent",
    "nothing_left": "nothing is left to compare: the baseline, or all other runs, ended before",
    "loses": "for {budget:,.0f} steps it surely takes longer than {to}",
    "equal": "{budget:.0f} rounds show no gain over {to}",
    "wrong": "its losses leave the band of equal trainings",
    "searched": "no candidate is left that differs from the best in one setting",
}


@dataclass(frozen=True, kw_only=True)
class Ending(Spec, path="ending."):
    """What the supervisor decided by; runs write it into their journals."""

    cause: Cause
    target_width: float
    """How wide intervals may be, as a share of their lower ends."""
    budget: float | None = None
    """The rounds, or seconds of steps, that are spent; of a candidate that loses, the steps of the
    planned training."""
    to: str | None = None
    """Label of the run to which a candidate is compared."""
    too_wide: dict[str, float | None] | None = None
    """Labels and widths of the speedups whose intervals are wider, None for one without an
    interval; None altogether without a requested width."""

    def check_rules(self) -> None:
        is_spent = self.cause in ("rounds", "seconds", "loses", "equal")
        rule = "must be given for what is spent, and only then"
        require((self.budget is not None) == is_spent, "ending.budget", self.budget, rule)

    @property
    def why(self) -> str:
        """What holds whatever became of the intervals since."""
        target = percent(self.target_width)
        text = CAUSES[self.cause].format(budget=self.budget, target=target, to=self.to)
        if self.cause != "exact" and self.too_wide == {}:
            text += f", and {CAUSES['exact'].format(target=target)}"
        return text

    @property
    def reason(self) -> str:
        """The same with the intervals that were too wide at that moment."""
        if not self.too_wide:
            return self.why
        listed = ", ".join(
            f"{label} {'unknown' if width is None else percent(width)}"
            for label, width in self.too_wide.items()
        )
        target = percent(self.target_width)
        return f"{self.why}; intervals are wider than the requested {target}: {listed}"


def percent(share: float) -> str:
    """Two digits: 0.15 %, 2 %, 13 %, 130 %."""
    return f"{float(f'{100 * share:.2g}'):g} %"


LOOK_GROWTH = 1.2
"""Each look comes after so many times the rounds of the one before: few looks, few chances that an
interval seems narrow by luck."""
CONFIDENCE = 0.95
MAX_PERSISTENCE = 0.9
"""Of neighbouring rounds; a higher one would ask for rounds without end."""


class StoppingRule:
    """Says after a round whether the next one shall be the last."""

    def __init__(
        self,
        speed: SpeedSpec,
        roles: Mapping[str, Role],
        max_seconds: float,
        least_rounds: int = 0,
    ) -> None:
        """`roles` are those of the runs that are alive at once, by label. `least_rounds`: measured
        however many seconds they take."""
        self._speed = speed
        self._roles = roles
        self._max_seconds = max_seconds
        self._least_rounds = least_rounds
        self._blocks: dict[str, dict[int, float]] = {label: {} for label in roles}
        self._seconds = 0.0
        self._next_look = speed.min_rounds

    def add(self, label: str, round: int, seconds: float) -> None:
        """Takes note of a block that counts."""
        self._blocks[label][round] = seconds
        self._seconds += seconds

    def ending(self, living: Collection[str]) -> Ending | None:
        """Why the next round shall be the last one; None if measuring goes on."""
        compared = [label for label in living if self._roles[label] != "baseline"]
        if len(self._roles) > 1 and not (compared and len(compared) < len(living)):
            return self._ending("nothing_left")
        num_rounds = len(set().union(*self._blocks.values()))
        if num_rounds + 1 >= self._speed.max_rounds:
            return self._spent("rounds", self._speed.max_rounds, compared)
        if self._seconds >= self._max_seconds and num_rounds >= self._least_rounds:
            return self._spent("seconds", self._max_seconds, compared)
        if num_rounds < self._next_look:
            return None
        self._next_look = max(num_rounds + 1, math.ceil(LOOK_GROWTH * num_rounds))
        return self._ending("exact") if compared and not self._too_wide(compared) else None

    def _spent(self, cause: Cause, budget: float, compared: Sequence[str]) -> Ending:
        """A single run has no intervals."""
        too_wide = None if len(self._roles) == 1 else self._too_wide(compared)
        return self._ending(cause, budget=budget, too_wide=too_wide)

    def _ending(self, cause: Cause, **figures: Any) -> Ending:
        return Ending(cause=cause, target_width=self._speed.target_width, **figures)

    def _too_wide(self, compared: Sequence[str]) -> dict[str, float | None]:
        """Widths of the speedups that are not known exactly enough; None for one that is no
        number."""
        return {
            run: width if width is not None and math.isfinite(width) else None
            for run, width in self._widths(compared).items()
            if not self._is_narrow(width)
        }

    def _widths(self, compared: Sequence[str]) -> dict[str, float | None]:
        """Of the speedups of these runs; None without an interval."""
        (baseline,) = [label for label, role in self._roles.items() if role == "baseline"] or [""]
        theirs = self._blocks.get(baseline, {})
        return {
            label: width_of_median([theirs[r] / mine for r, mine in self._blocks[label].items()
                                    if mine > 0 and theirs.get(r, 0) > 0])
            for label in compared
        }  # fmt: skip

    def _is_narrow(self, width: float | None) -> bool:
        return width is not None and width < self._speed.target_width


class JournalTails:
    """Reads what runs write into their journals, each event once."""

    def __init__(self) -> None:
        self._offsets: dict[RunDir, int] = {}
        self._orders: dict[RunDir, Order] = {}

    def read(self, run: RunDir) -> Sequence[Mapping[str, Any]]:
        """What the run wrote since the last time. A journal with lines that no run wrote stops
        nothing; these lines are left out."""
        with suppress(RunnerError):
            order = self._orders.setdefault(run, Order())
            events, self._offsets[run] = read_events(
                run.events_file, self._offsets.get(run, 0), order
            )
            return events
        return ()


class JournalWatch:
    """Feeds a stopping rule with the blocks that the runs of one repeat write down."""

    def __init__(
        self,
        spec: ExperimentSpec,
        runs: Mapping[RunDir, Variant],
        added: AddedRounds | None = None,
    ) -> None:
        """`runs` are those that are alive at once; their share of the budget is theirs. `added`:
        for how long runs that have finished add rounds; what their journals hold already does not
        count."""
        self._labels = {run: variant.label for run, variant in runs.items()}
        self._tails = JournalTails()
        roles = {variant.label: variant.role for variant in runs.values()}
        if added is not None:
            speed = replace(spec.speed, target_width=added.target_width)
            # Fewer rounds of a process have no interval, and the first is not steady.
            self._rule = StoppingRule(speed, roles, added.max_seconds_each, MIN_ROUNDS)
            for run in runs:
                self._tails.read(run)
            return
        share = len(runs) * spec.speed.repeats / len(spec.variants)
        self._rule = StoppingRule(spec.speed, roles, share * spec.speed.max_seconds)

    def ending(self, living: Collection[RunDir]) -> Ending | None:
        """Why the next round shall be the last one; None if measuring goes on."""
        for run in self._labels:
            for event in self._tails.read(run):
                with suppress(KeyError, TypeError, ValueError):
                    self._take(self._labels[run], event)
        return self._rule.ending([self._labels[run] for run in living])

    def _take(self, label: str, event: Mapping[str, Any]) -> None:
        if event["kind"] == "block" and not (event.get("warm_up") or event["compiled"]):
            seconds = float(event["seconds"])
            if 0 < seconds < math.inf:
                self._rule.add(label, int(event["round"]), seconds)


def width_of_median(ratios: Sequence[float]) -> float | None:
    """How wide the 95 % interval of the median is, as a share of its lower end; None if too few
    tell. `ratios` are in the order of time.

    The interval reaches from the k-th smallest ratio to the k-th largest. It misses the median only
    if fewer than k of all lie on one side of it, which a fair coin says how often happens: no
    distribution is assumed. Where neighbours are alike, n ratios tell as much as
    n (1 - r) / (1 + r) independent ones, and the interval is the wider by the root of that.
    """
    rank = _rank(len(ratios))
    if not rank:
        return None
    ordered = sorted(ratios)
    persistence = min(max(_persistence(ratios, median(ordered)), 0.0), MAX_PERSISTENCE)
    stretch = math.sqrt((1 + persistence) / (1 - persistence))
    return math.pow(ordered[-rank] / ordered[rank - 1], stretch) - 1


def _persistence(values: Sequence[float], middle: float) -> float:
    """Autocorrelation at lag 1 of values' lying on the same side of the median."""
    sides = [(value > middle) - (value < middle) for value in values]
    mean = sum(sides) / len(sides)
    square = sum((side - mean) ** 2 for side in sides)
    if not square:
        return 0.0
    return sum((side - mean) * (next - mean) for side, next in pairwise(sides)) / square


@cache
def _rank(count: int) -> int:
    """The largest k such that fewer than k heads in `count` tosses are rarer than 1 in 40."""
    rank, tail = 0, 0.0
    while (tail := tail + math.comb(count, rank) / 2**count) <= (1 - CONFIDENCE) / 2:
        rank += 1
    return rank
