"""A suite run: what each model comes to under each backend, and what they come to together.

`docs/metrics.md` defines the numbers. Nothing is clipped, no failure is left out silently.
`storage/suite_cells.py` reads them from the experiments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runner.accuracy_spec import Part
from storage.correctness import PASS
from storage.statistics import Ratio, SpeedVerdict
from storage.summary import geometric_mean


class Cell(NamedTuple):
    """What is compared between suite runs: a model under a backend, under the same conditions."""

    model: str
    """As its suite calls it; with a stroke and a number where it was made smaller."""
    precision: str
    part: Part
    backend: str
    """Label of the run."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is known of a cell, of all its scenarios. None is not known, or was not asked for."""

    cell: Cell
    experiments: dict[str, str]
    """Id of the experiment of each scenario."""
    is_over: bool
    status: str | None = None
    """Of the accuracy check, in the harness's words."""
    explanation: str = ""
    """Why the check did not pass."""
    speedup: Ratio | None = None
    speed_verdict: SpeedVerdict | None = None
    compile_seconds: float | None = None
    memory_ratio: float | None = None
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    speed_failure: str | None = None
    """Why there is no speed, though one was asked for."""
    doubts: tuple[str, ...] = ()
    """What befell the device while the cell was timed."""

    @property
    def failure(self) -> str | None:
        """Why the cell gives no speedup that may be averaged: what computes something else has no
        speed. None where it gives one, or where none was asked for."""
        wrong = self.status is not None and self.status != PASS
        if wrong and (self.speedup is not None or self.speed_failure is not None):
            return f"the accuracy check says {self.status}"
        return self.speed_failure

    @property
    def counted_speedup(self) -> float | None:
        return None if self.failure or self.speedup is None else self.speedup.median


@dataclass(frozen=True, kw_only=True)
class Group:
    """All models under one backend in one precision and part: a row of the summary."""

    backend: str
    precision: str
    part: Part
    outcomes: tuple[Outcome, ...]

    @property
    def num_checked(self) -> int:
        return sum(one.status is not None for one in self.outcomes)

    @property
    def num_passed(self) -> int:
        return sum(one.status == PASS for one in self.outcomes)

    @property
    def pass_rate(self) -> float | None:
        return self.num_passed / self.num_checked if self.num_checked else None

    @property
    def speedups(self) -> dict[str, float]:
        """What counts, by model."""
        return {
            one.cell.model: speedup
            for one in self.outcomes
            if (speedup := one.counted_speedup) is not None
        }

    @property
    def geomean_speedup(self) -> float | None:
        return geometric_mean(self.speedups.values())

    @property
    def failures(self) -> dict[str, str]:
        """Models without a speed that counts, and why."""
        return {one.cell.model: one.failure for one in self.outcomes if one.failure}

    @property
    def mean_compile_seconds(self) -> float | None:
        known = [one.compile_seconds for one in self.outcomes if one.compile_seconds is not None]
        return sum(known) / len(known) if known else None

    @property
    def memory_ratio(self) -> float | None:
        known = [one.memory_ratio for one in self.outcomes if one.memory_ratio is not None]
        return geometric_mean(known)

    @property
    def compile_time_saved(self) -> float | None:
        pairs = [
            (one.cold_seconds, one.warm_seconds)
            for one in self.outcomes
            if one.cold_seconds and one.warm_seconds is not None
        ]
        return (
            1 - sum(warm for _, warm in pairs) / sum(cold for cold, _ in pairs) if pairs else None
        )

    @property
    def is_timed(self) -> bool:
        """Whether speedups were asked for."""
        return any("speed" in one.experiments for one in self.outcomes)

    @property
    def num_open(self) -> int:
        return sum(not one.is_over for one in self.outcomes)


def groups(found: Sequence[Outcome]) -> list[Group]:
    """One for each backend, precision and part, in the order of the outcomes."""
    keys = dict.fromkeys((one.cell.backend, one.cell.precision, one.cell.part) for one in found)
    return [
        Group(
            backend=backend,
            precision=precision,
            part=part,
            outcomes=tuple(o for o in found if o.cell[1:] == (precision, part, backend)),
        )
        for backend, precision, part in keys
    ]
