"""A suite run: what each model comes to under each backend, and what they come to together.

`docs/metrics.md` defines the numbers. Nothing is clipped, no failure is left out silently.
`storage/suite/cells.py` reads them from the experiments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from breakeven.runner.specs.scenarios import Part
from breakeven.runner.specs.variants import Settings
from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.statistics.speedups import Ratio, SpeedVerdict
from breakeven.storage.suite.means import MeanSpeedup, judge_means, mean_ratio

UNDER_HARNESS = " (harness)"
"""Ends the name of a backend that ran under the settings of PyTorch's Dynamo harness."""


def backend_under(settings: Settings, label: str) -> str:
    """How a suite run calls a backend, so that both settings stand beside each other."""
    return label if settings == "plain" else f"{label}{UNDER_HARNESS}"


class Cell(NamedTuple):
    """What is compared between suite runs: a model under a backend, under the same conditions."""

    model: str
    """As its suite calls it; with a stroke and a number where it was made smaller."""
    precision: str
    part: Part
    backend: str
    """Label of the run, and the settings of torch unless they are the plain ones: `inductor
    (harness)`."""

    @property
    def label(self) -> str:
        return self.backend.removesuffix(UNDER_HARNESS)


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
    control: Ratio | None = None
    """Speedup of the first control, which tells this machine's noise."""
    compile_seconds: float | None = None
    memory_ratio: float | None = None
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    speed_failure: str | None = None
    """Why there is no speed, though one was asked for."""
    doubts: tuple[Caution, ...] = ()
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
    def counted_speedup(self) -> Ratio | None:
        return None if self.failure else self.speedup

    @property
    def is_known(self) -> bool:
        """Whether all that was asked for was found out; a check that somebody stopped was not."""
        return self.is_over and (self.status is not None or "accuracy" not in self.experiments)


class Row(NamedTuple):
    """What is averaged together: all models under one backend in one precision and part."""

    backend: str
    precision: str
    part: Part


@dataclass(frozen=True, kw_only=True)
class Group:
    """A row of the summary."""

    row: Row
    outcomes: tuple[Outcome, ...]
    mean: MeanSpeedup | None
    """Of the speedups that count; None if none does."""

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
    def speedup(self) -> Ratio | None:
        """Geometric mean of the speedups that count."""
        return None if self.mean is None else self.mean.ratio

    @property
    def num_counted(self) -> int:
        """Models in the mean."""
        return 0 if self.mean is None else self.mean.ratio.n

    @property
    def failures(self) -> dict[str, str]:
        """Models without a speed that counts, and why."""
        return {one.cell.model: one.failure for one in self.outcomes if one.failure}

    @property
    def compile_seconds(self) -> tuple[float, ...]:
        """Of the cells that have a compile latency."""
        return tuple(
            one.compile_seconds for one in self.outcomes if one.compile_seconds is not None
        )

    @property
    def mean_compile_seconds(self) -> float | None:
        known = self.compile_seconds
        return sum(known) / len(known) if known else None

    @property
    def memory(self) -> Ratio | None:
        """Mean memory ratio, with what models differ by as its interval."""
        return mean_ratio(
            [
                Ratio(median=one.memory_ratio, low=None, high=None, p_value=None, n=1)
                for one in self.outcomes
                if one.memory_ratio is not None
            ]
        )

    @property
    def _cold_and_warm(self) -> list[tuple[float, float]]:
        return [
            (one.cold_seconds, one.warm_seconds)
            for one in self.outcomes
            if one.cold_seconds and one.warm_seconds is not None
        ]

    @property
    def compile_time_saved(self) -> float | None:
        pairs = self._cold_and_warm
        return (
            1 - sum(warm for _, warm in pairs) / sum(cold for cold, _ in pairs) if pairs else None
        )

    @property
    def saved_by_model(self) -> tuple[float, ...]:
        """Share of its own compile time that warm caches save each model."""
        return tuple(1 - warm / cold for cold, warm in self._cold_and_warm)

    @property
    def is_timed(self) -> bool:
        """Whether speedups were asked for."""
        return any("speed" in one.experiments for one in self.outcomes)

    @property
    def num_open(self) -> int:
        return sum(not one.is_over for one in self.outcomes)


def groups(found: Sequence[Outcome]) -> list[Group]:
    """One for each backend, precision and part, in the order of the outcomes."""
    rows: dict[Row, list[Outcome]] = {}
    for one in found:
        rows.setdefault(row_of(one.cell), []).append(one)
    speedups = [
        {one.cell.model: ratio for one in row if (ratio := one.counted_speedup) is not None}
        for row in rows.values()
    ]
    controls = [
        {one.cell.model: one.control for one in row if one.control is not None}
        for row in rows.values()
    ]
    means = judge_means(speedups, controls)
    return [
        Group(row=row, outcomes=tuple(mine), mean=mean)
        for (row, mine), mean in zip(rows.items(), means, strict=True)
    ]


def row_of(cell: Cell) -> Row:
    return Row(cell.backend, cell.precision, cell.part)
