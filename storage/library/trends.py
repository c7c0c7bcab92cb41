"""How one workload fared over time: a series for each device and backend, and its steps.

`docs/metrics.md` says what a step is. Points are the experiments, in the order of their submission.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from storage.numbers.metrics import METRICS
from storage.statistics.steps import Level, Step, divide

QUANTITIES = ("speedup", "step_seconds", "compile_seconds", "peak_memory_bytes")
"""What a trend can be told of: names in METRICS and in `BackendSummary`."""
VERSIONS = ("torch", "transformers", "host")
"""What may explain a step."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One experiment of a series."""

    experiment_id: str
    name: str
    submitted: Any
    """A UTC timestamp, or NaT."""
    value: float
    low: float | None
    """The 95 % interval, of a speedup."""
    high: float | None
    versions: dict[str, str | None]


@dataclass(frozen=True)
class Series:
    """One workload under one backend on one kind of device, in the order of time."""

    quantity: str
    workload: str
    title: str
    """Model, data, precision and batch size, as lists call them."""
    device: str
    backend: str
    points: tuple[Point, ...]

    @cached_property
    def _divided(self) -> tuple[list[Level], list[Step]]:
        return divide([point.value for point in self.points])

    @property
    def levels(self) -> list[Level]:
        return self._divided[0]

    @property
    def steps(self) -> list[Step]:
        return self._divided[1]

    @property
    def is_out_of_line(self) -> bool:
        """Whether the newest point is none of the level that the ones before it have."""
        last = self.levels[-1]
        before = Level(first=last.first, last=last.last - 1, logs=last.logs[:-1])
        return len(last.logs) > 1 and not before.expects(self.points[-1].value)

    def worsening(self, step: Step) -> float:
        """How much worse the new level is, as a share of the old one; negative if it is better."""
        change = step.ratio - 1
        return -change if METRICS[self.quantity].better == "higher" else change

    def changed(self, step: Step) -> dict[str, tuple[str | None, str | None]]:
        """Versions and host, before and after, that changed just at a step."""
        before, after = (self.points[step.index + back].versions for back in (-1, 0))
        return {name: (before[name], after[name]) for name in VERSIONS
                if before[name] != after[name]}  # fmt: skip

    def regressions(self, least: float = 0.0, within: int | None = None) -> list[Step]:
        """Steps to a worse level, by more than a share, among the newest so many points."""
        first = 0 if within is None else len(self.points) - within
        return [step for step in self.steps if step.index >= first and self.worsening(step) > least]


def trends(rows: pd.DataFrame, quantity: str) -> list[Series]:
    """The series of `backend_rows`, those with the most points first.

    A run that did not finish, or has no such number, is no point of any.
    """
    grouped: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows.to_dict("records"):
        if row["state"] == "finished" and _is_known(row[quantity]) and row["workload"]:
            grouped.setdefault((row["workload"], row["device"], row["backend"]), []).append(row)
    found = [_series(quantity, *key, mine) for key, mine in grouped.items()]
    return sorted(found, key=lambda one: (-len(one.points), one.title, one.device, one.backend))


def _series(
    quantity: str, workload: str, device: str, backend: str, rows: Iterable[dict[str, Any]]
) -> Series:
    points = tuple(
        Point(
            experiment_id=row["experiment_id"],
            name=row["name"],
            submitted=row["submitted"],
            value=float(row[quantity]),
            low=row["speedup_low"] if quantity == "speedup" else None,
            high=row["speedup_high"] if quantity == "speedup" else None,
            versions={name: row[name] for name in VERSIONS},
        )
        for row in rows
    )
    return Series(quantity, workload, workload_title(next(iter(rows))), device, backend, points)


def workload_title(row: dict[str, Any]) -> str:
    """`bert-tiny, reviews, bf16, batch 16`; the scenario too, unless it is a training."""
    parts = [row["model"], row["data"], row["precision"], f"batch {row['batch']}"]
    return ", ".join(parts if row["scenario"] == "train" else [row["scenario"], *parts])


def _is_known(value: Any) -> bool:
    """Logarithms are taken of it."""
    return value is not None and 0 < float(value) < math.inf
