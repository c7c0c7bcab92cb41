"""Trends of a workload over time: a series for each device and backend, and its steps.

`docs/metrics.md` defines a step. Each point is an experiment, in the order of submission.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from breakeven.runner.protocol.states import FAILED_RUNS
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.runner.specs.workload import workload_of
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.lasting_changes import Level, Step, divide
from breakeven.storage.statistics.parity import WRONG

QUANTITIES = ("speedup", "step_seconds", "compile_seconds", "peak_memory_bytes")
"""Numbers that have trends: names in METRICS and in `BackendSummary`."""
REQUESTED_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
"""Pattern of device names in specifications."""
VERSIONS = ("torch", "transformers", "host")
"""Columns that may explain a step."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One experiment of a series."""

    experiment_id: str
    name: str
    submitted: Any
    """A UTC timestamp, or NaT."""
    value: float
    low: float | None
    """The 95 % interval of a speedup."""
    high: float | None
    parity: str | None
    versions: dict[str, str | None]


@dataclass(frozen=True)
class Failure:
    """The newest experiment of a series, if it has no number."""

    experiment_id: str
    state: str
    """State of the backend's run; even a finished run may lack the number."""
    parity: str | None


@dataclass(frozen=True)
class Series:
    """One workload under one backend on one kind of device, in the order of time."""

    quantity: str
    workload: str
    title: str
    """Model, data, precision and batch size, with their names in lists."""
    device: str
    backend: str
    points: tuple[Point, ...]
    failure: Failure | None = None
    """The failure of an experiment that is newer than all points."""

    @cached_property
    def levels(self) -> list[Level]:
        return divide([point.value for point in self.points])[0]

    @cached_property
    def steps(self) -> list[Step]:
        return divide([point.value for point in self.points])[1]

    @property
    def is_out_of_line(self) -> bool:
        """Whether the newest point is outside the level of the points before it."""
        last = self.levels[-1]
        before = Level(first=last.first, last=last.last - 1, logs=last.logs[:-1])
        return len(last.logs) > 1 and not before.expects(self.points[-1].value)

    def worsening(self, step: Step) -> float:
        """Relative worsening from the old level to the new one; negative if it is better."""
        change = step.ratio - 1
        return -change if METRICS[self.quantity].better == "higher" else change

    def changed(self, step: Step) -> dict[str, tuple[str | None, str | None]]:
        """Versions and host that differ between the end of the level before and the beginning of
        the level after."""
        before, after = (self.points[at].versions for at in (step.before.last, step.index))
        return {
            name: (before[name], after[name]) for name in VERSIONS if before[name] != after[name]
        }

    def regression(self, least: float, within: int) -> Step | None:
        """The step from the best recent level to the present one, if the present level is worse by
        more than the share `least`. Recent levels contain one of the newest `within` points, or the
        point before them.

        Several small steps add up; a level that has recovered is no regression.
        """
        first = len(self.points) - within
        recent = [level for level in self.levels if level.last >= first - 1]
        present = recent.pop()
        steps = [
            Step(index=present.first, before=level, after=present, p_value=self.steps[-1].p_value)
            for level in recent
        ]
        worst = max(steps, key=self.worsening, default=None)
        return worst if worst is not None and self.worsening(worst) > least else None

    def first_experiment_with_regression(self, least: float, within: int) -> str | None:
        """The id of the experiment with which the latest regression was first found; None if it is
        not among the newest `within`. A regression is found some experiments after its step. Later
        experiments may move the step slightly; a moved step is no new regression."""
        first = max(1, len(self.points) - within)
        shown, experiment_id = first - 1, None
        for number in range(first, len(self.points)):
            step = replace(self, points=self.points[: number + 1]).regression(least, within)
            if step is not None and step.index > shown:
                shown, experiment_id = number, self.points[number].experiment_id
        return experiment_id


def trends(rows: pd.DataFrame, quantity: str) -> list[Series]:
    """The series of `backend_rows`, those with the most points first.

    A run that did not finish, or lacks the number, is left out.
    """
    values = pd.to_numeric(rows[quantity])
    has_logarithm = (values > 0) & (values < math.inf)
    is_point = (rows["state"] == "finished") & rows["workload"].notna() & has_logarithm
    failed = rows[~is_point & (rows["state"] != "cancelled")]  # a cancelled run is no failure
    on_any_device = failed["device"].map(REQUESTED_DEVICE.fullmatch).astype(bool)
    all_series = []
    grouped = rows[is_point].groupby(["workload", "device", "backend"], sort=False)
    for (workload, device, backend), of_series in grouped:
        # An experiment that failed early has not recorded its device's name, only the requested
        # one, and may concern any device.
        later = failed[
            (failed["workload"] == workload)
            & (failed["backend"] == backend)
            & (failed.index > of_series.index[-1])
            & (on_any_device | (failed["device"] == device))
        ]
        failure = None if later.empty else _failure_of(later.iloc[-1])
        points = tuple(_point(row, quantity) for row in of_series.to_dict("records"))
        title = workload_title(of_series.iloc[0])
        all_series.append(Series(quantity, workload, title, device, backend, points, failure))
    return sorted(
        all_series,
        key=lambda series: (-len(series.points), series.title, series.device, series.backend),
    )


def _failure_of(row: Mapping[Any, Any]) -> Failure:
    return Failure(row["experiment_id"], row["state"], row["parity"])


def failures_without_series(
    rows: pd.DataFrame, known: Sequence[Series]
) -> Iterator[tuple[str, Failure]]:
    """The title and failure of each backend that failed or broke parity in the newest experiment of
    its workload, and never gave a number on this device."""
    newest = rows.groupby("workload")["experiment_id"].last()
    places = {(series.workload, series.backend, series.device) for series in known}
    anywhere = {place[:2] for place in places}
    for row in rows[rows["experiment_id"] == rows["workload"].map(newest)].to_dict("records"):
        what = (row["workload"], row["backend"])
        is_known = (*what, row["device"]) in places or (
            what in anywhere and REQUESTED_DEVICE.fullmatch(row["device"])
        )
        is_bad = row["state"] in FAILED_RUNS or row["parity"] in WRONG
        if is_bad and not is_known:
            yield f"{row['backend']}: {workload_title(row)}, {row['device']}", _failure_of(row)


def _point(row: Mapping[Any, Any], quantity: str) -> Point:
    return Point(
        experiment_id=row["experiment_id"],
        name=row["name"],
        submitted=row["submitted"],
        value=float(row[quantity]),
        low=row["speedup_low"] if quantity == "speedup" else None,
        high=row["speedup_high"] if quantity == "speedup" else None,
        parity=row["parity"],
        versions={name: row[name] for name in VERSIONS},
    )


def workload_title(row: Mapping[Any, Any]) -> str:
    """`bert-tiny, reviews, bf16, batch 16`; the scenario too, unless it is a training."""
    parts = [row["model"], row["data"]]
    if workload_of(row["task"]).is_specified:
        parts += [row["precision"], f"batch {row['batch']}"]
    is_training = SCENARIOS[row["scenario"]].trains_fully
    return ", ".join(parts if is_training else [row["scenario"], *parts])
