"""How backends stand against no compile: the facts behind the headline of a comparison.

Every backend is in exactly one group, so that a headline leaves none out. Speed counts of what came
to its end, or is still on its way, and computes the right thing.
"""

from dataclasses import dataclass
from typing import Literal

from breakeven.runner.folders.states import RunState
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.roles import of_role


@dataclass(frozen=True, kw_only=True)
class Standings:
    """The backends of a comparison by what may be said of their speed, the fastest first."""

    counted: tuple[Result, ...]
    """They have a speed and a verdict."""
    broken: tuple[Result, ...]
    """Parity is broken: whatever the speed, it is that of something else."""
    unfinished: tuple[Result, ...]
    """Ended before the last step."""
    unmeasured: tuple[Result, ...]
    """No round is paired with the baseline, yet or ever."""
    baseline: Result | None

    @property
    def num_backends(self) -> int:
        return sum(map(len, (self.counted, self.broken, self.unfinished, self.unmeasured)))

    @property
    def baseline_ended_early(self) -> bool:
        return self.baseline is not None and ended_early(self.baseline)


def standings(comparison: Comparison) -> Standings:
    """Each backend in the first group that it fits, in the order broken, unfinished, unmeasured."""
    backends = sorted(
        (result for result in comparison.results if result.role == "backend"),
        key=lambda result: 0.0 if result.speedup is None else -result.speedup.median,
    )
    groups = {result.label: _group(result) for result in backends}

    def of(group: Group) -> tuple[Result, ...]:
        return tuple(result for result in backends if groups[result.label] == group)

    return Standings(
        counted=of("counted"),
        broken=of("broken"),
        unfinished=of("unfinished"),
        unmeasured=of("unmeasured"),
        baseline=of_role(comparison.results, "baseline"),
    )


Group = Literal["counted", "broken", "unfinished", "unmeasured"]


def _group(result: Result) -> Group:
    if result.parity is not None and result.parity.verdict == "broken":
        return "broken"
    if ended_early(result):
        return "unfinished"
    is_rated = result.speedup is not None and result.speed_verdict is not None
    return "counted" if is_rated else "unmeasured"


def ended_early(result: Result) -> bool:
    return RunState(result.state).ended_early
