"""Reads a run: specification, machine, workload, resumptions, errors, and series over its steps."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.errors import OF_COMPILERS, OWN_ERRORS, short_cause
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arms import Arm
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.queries.recorded import environments, step_times, workloads
from breakeven.storage.queries.rows import IN_EXPERIMENT, OF_RUNS, ends_of_runs, rows, timestamp
from breakeven.storage.result_caches import memo, revision


@memo(revision)
def resumptions(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done before), attempt (2, 3, ...), time, file (the checkpoint), num_devices (from
    then on) and num_devices_before, both missing if not recorded; adds_rounds, whether the run had
    finished. Added rounds have no checkpoint, nor has a script that starts again from step 0."""
    columns = "step, attempt, time, file, num_devices, num_devices_before"
    frame = rows(store, experiment_id, "attempts($1)", columns, "seq", event_tables=["resumptions"])
    frame["time"] = timestamp(frame["time"])
    frame["adds_rounds"] = frame["file"].isna() & (frame["step"] > 0)
    return frame


@dataclass(frozen=True, kw_only=True)
class RunError:
    """The error that ended a run; texts are empty if the journal has none."""

    name: str
    """Name of its class."""
    message: str
    traceback: str

    @property
    def says_what_to_do(self) -> bool:
        """Whether Breakeven raised the error on purpose, so that its message suffices."""
        return self.name in OWN_ERRORS

    @property
    def sentence(self) -> str:
        """The whole message, after the class if the error was not raised on purpose; for a
        compiler's error the cause."""
        if self.name in OF_COMPILERS:
            return short_cause(self.name, self.message)
        name = "" if self.says_what_to_do else self.name
        return ": ".join(filter(None, (name, self.message.strip())))


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """All data of one run except its series."""

    run_id: str
    experiment_id: str
    spec: ExperimentSpec
    arm: Arm
    origin: str
    state: RunState
    reason: str | None
    environment: dict[str, Any]
    """Fields of the `environment` event; empty before it is written."""
    workload: dict[str, Any]
    """Fields of the `workload` event; empty before it is written."""
    error: RunError | None
    folder: Path


def run_record(store: Store, run_id: str) -> RunRecord:
    """The record of a run; raises `NotInStore`."""
    record = _records(store, run_id.partition(".")[0]).get(run_id)
    if record is None:
        raise NotInStore(f"no run {run_id!r} in {store.data_dir.runs} or among the examples")
    return record


@memo(revision)
def _records(store: Store, experiment_id: str) -> dict[str, RunRecord]:
    rows = store.rows(
        f"""SELECT run_id, spec, origin, state, reason, folder, error
        FROM (FROM runs WHERE {IN_EXPERIMENT}) JOIN progress USING (run_id)
        LEFT JOIN (
            SELECT run_id, arg_max({{'name': coalesce(error, ''), 'message': coalesce(message, ''),
                'traceback': coalesce(traceback, '')}}, seq) AS error
            FROM errors WHERE {IN_EXPERIMENT} GROUP BY run_id
        ) USING (run_id)""",
        [store.number_of(experiment_id)],
    )
    environment = fields_by_run(environments(store, experiment_id))
    workload = fields_by_run(workloads(store, experiment_id))
    records = {}
    for run_id, text, origin, state, reason, folder, error in rows:
        spec = RunSpec.from_json(text)
        records[run_id] = RunRecord(
            run_id=run_id,
            experiment_id=experiment_id,
            spec=spec.experiment,
            arm=spec.arm,
            origin=origin,
            state=RunState(state),
            reason=reason,
            environment=environment.get(run_id, {}),
            workload=workload.get(run_id, {}),
            error=None if error is None else RunError(**error),
            folder=Path(folder),
        )
    return records


def fields_of(frame: pd.DataFrame, run_id: str) -> dict[str, Any]:
    """The fields of one run in a frame of `environments` or `workloads`; empty without a row."""
    return fields_by_run(frame[frame["run_id"] == run_id]).get(run_id, {})


def fields_by_run(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The same for every run with a row, by its id; only fields with a value."""
    columns = {str(name): frame[name].tolist() for name in frame.columns if name not in OF_RUNS}
    return {
        str(run_id): {
            name: values[row]
            for name, values in columns.items()
            if isinstance(values[row], list | dict) or not pd.isna(values[row])
        }
        for row, run_id in enumerate(frame["run_id"])
    }


MAX_POINTS = 1000
"""Default number of points per line of a chart."""
LISTS = ("throttled_by", "processes")
"""Columns of lists. Nearly all lists are empty, but fetching an empty one takes as long."""
THROTTLED, PROCESSES = (
    f"CASE WHEN len({column}) > 0 THEN {column} END AS {column}, "
    f"{column} IS NOT NULL AS {column}_known"
    for column in LISTS
)
OF_SAMPLES = (
    "time, round + 1 AS round, first_step, steady, sm_clock_mhz, memory_clock_mhz, "
    "temperature_celsius, power_watts, energy_joules, energy_devices, num_steps, utilization, "
    f"{THROTTLED}, "
    f"device_memory_used_bytes, {PROCESSES}, "
    "others_memory_bytes, cpu_frequency_mhz, load_average, wall_seconds, cpus, "
    "own_cpu_seconds, busy_cpu_seconds, stolen_cpu_seconds, throttled_periods, "
    "others_cpu_share, stolen_cpu_share"
)


@memo(revision)
def losses(store: Store, experiment_id: str, max_points: int | None = MAX_POINTS) -> pd.DataFrame:
    """run_id, label, role, step, loss. Long runs are reduced to lowest and highest losses.

    With None for `max_points` the result has all steps, as for a download.
    """
    if max_points is not None:
        return _thinned(losses(store, experiment_id, max_points=None), "loss", max_points)
    table = f"(SELECT run_id, step, loss FROM steps WHERE {IN_EXPERIMENT} AND loss IS NOT NULL)"
    return rows(store, experiment_id, table, "step, loss", "step", many=True)


@memo(revision)
def cumulative_times(
    store: Store, experiment_id: str, max_points: int | None = MAX_POINTS
) -> pd.DataFrame:
    """run_id, label, role, step, seconds: training time up to the end of the step.

    The sum of step times, including compiling, excluding evaluation and waiting for turns.
    Reduced like `losses`.
    """
    if max_points is not None:
        every = cumulative_times(store, experiment_id, max_points=None)
        return _thinned(every, "seconds", max_points)
    steps = step_times(store, experiment_id)
    steps = steps.loc[steps["seconds"].notna(), ["run_id", "label", "role", "step", "seconds"]]
    done = steps.groupby("run_id", observed=True)["seconds"].cumsum()
    return steps.assign(seconds=done).reset_index(drop=True)


def _thinned(frame: pd.DataFrame, column: str, max_points: int) -> pd.DataFrame:
    """Every run of a frame, `thinned`."""
    values = frame[column].to_numpy(dtype=float)
    kept = [
        begin + _extremes(values[begin:end], max_points)
        for begin, end in pairwise(ends_of_runs(frame))
    ]
    return frame.iloc[np.concatenate(kept)].reset_index(drop=True) if kept else frame


def thinned(run: pd.DataFrame, column: str, max_points: int = MAX_POINTS) -> pd.DataFrame:
    """The rows of a run; of more than `max_points` the lowest and the highest of each stretch, the
    first of equal ones. A value that is not finite counts as 0, so that a line shows it."""
    return run.iloc[_extremes(run[column].to_numpy(dtype=float), max_points)]


def _extremes(values: NDArray[np.float64], max_points: int) -> NDArray[np.intp]:
    """The places of the values that `thinned` keeps."""
    count, num_stretches = len(values), max(max_points // 2, 1)
    if count <= max_points:
        return np.arange(count)
    stretch = np.arange(count) * num_stretches // count
    begins = np.searchsorted(stretch, np.arange(num_stretches))
    values = np.where(np.isfinite(values), values, 0.0)
    kept = []
    for extreme in (np.minimum, np.maximum):
        places = np.flatnonzero(values == extreme.reduceat(values, begins)[stretch])
        kept.append(places[np.unique(stretch[places], return_index=True)[1]])
    return np.unique(np.concatenate(kept))


@memo(revision)
def device_samples(store: Store, experiment_id: str) -> pd.DataFrame:
    """One row per block, and one from before the first block, without `round` and `first_step`.

    `throttled_by` lists why the device reduced its clocks in this block; None if unknown.
    `processes` lists dictionaries (pid, name, memory_bytes) of other processes: on CUDA those on
    the device, on the CPU those that were busy if much of it was used; None if unknown. `steady` is
    whether the block is steady.
    """
    return _samples(store, experiment_id, "judged_device_samples($1)")


@memo(revision)
def latest_device_samples(store: Store, experiment_id: str, count: int) -> pd.DataFrame:
    """The latest `count` samples of blocks over all runs, as in `device_samples`, and the latest
    `count` samples with known processes."""
    newest = "row_number() OVER (PARTITION BY {} ORDER BY time DESC, seq DESC) <= $2"
    table = f"""(FROM judged_device_samples($1) WHERE round IS NOT NULL
        QUALIFY {newest.format("NULL")}
            OR (processes IS NOT NULL AND {newest.format("processes IS NULL")}))"""
    return _samples(store, experiment_id, table, count)


def _samples(store: Store, experiment_id: str, table: str, *parameters: int) -> pd.DataFrame:
    frame = rows(store, experiment_id, table, OF_SAMPLES, "seq", *parameters, many=True)
    frame["time"] = timestamp(frame["time"])
    for column in LISTS:
        values, known = frame[column].to_numpy(dtype=object), frame.pop(f"{column}_known")
        nothing: list[Any] = []  # Shared: tens of thousands would burden the garbage collector.
        lists: list[list[Any] | None] = [nothing if is_known else None for is_known in known]
        for at in np.flatnonzero(frame[column].notna().to_numpy()):
            lists[at] = list(values[at])
        frame[column] = pd.Series(lists, index=frame.index, dtype=object)
    return frame
