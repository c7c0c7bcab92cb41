"""Reads a run: specification, machine, workload, resumptions, errors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.errors import OF_COMPILERS, OWN_ERRORS, short_cause
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.queries.recorded import environments, workloads
from breakeven.storage.queries.rows import IN_EXPERIMENT, OF_RUNS, rows, timestamp
from breakeven.storage.result_caches import memo, revision


@memo(revision)
def resumptions(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done before), attempt (2, 3, ...), time, file (the checkpoint), num_devices (from
    then on) and num_devices_before, both missing if not recorded; caches, missing unless the
    process began with filled compile caches; only_times, whether the run had finished. Further
    rounds have no checkpoint, nor has a script that starts again from step 0."""
    columns = "step, attempt, time, file, num_devices, num_devices_before, caches"
    frame = rows(store, experiment_id, "attempts($1)", columns, "seq", event_tables=["resumptions"])
    frame["time"] = timestamp(frame["time"])
    frame["only_times"] = frame["file"].isna() & (frame["step"] > 0)
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
