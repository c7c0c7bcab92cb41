"""Reads a run without its series: specification, machine, workload, resumptions and errors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.errors import OF_COMPILERS, OWN_ERRORS, cause_of
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.variants import Variant
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo, revision
from breakeven.storage.queries.recorded import environments, workloads
from breakeven.storage.queries.rows import MINE, rows, timestamp


@memo(revision)
def resumptions(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done before), attempt (2, 3, ...), time, file (the checkpoint), num_devices (from
    then on) and num_devices_before, both missing if not recorded; adds_rounds, whether the run had
    finished. Added rounds have no checkpoint, nor has a script that starts again from step 0."""
    columns = "step, attempt, time, file, num_devices, num_devices_before"
    frame = rows(store, experiment_id, "attempts($1)", columns, "seq", of=["resumptions"])
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
            return cause_of(self.name, self.message)
        name = "" if self.says_what_to_do else self.name
        return ": ".join(filter(None, (name, self.message.strip())))


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """All data of one run except its series."""

    run_id: str
    experiment_id: str
    spec: ExperimentSpec
    variant: Variant
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
    frame = store.query(
        f"""SELECT experiment_id, spec, origin, state, reason, folder,
            (SELECT arg_max({{'name': coalesce(error, ''), 'message': coalesce(message, ''),
                'traceback': coalesce(traceback, '')}}, seq)
                FROM errors WHERE {MINE} AND run_id = $2) AS error
        FROM runs JOIN progress USING (run_id) WHERE run_id = $2""",
        [store.number_of(run_id.partition(".")[0]), run_id],
    )
    if frame.empty:
        raise NotInStore(f"no run {run_id!r} in {store.data_dir.runs} or among the examples")
    row = _present(frame.iloc[0].to_dict())
    spec = RunSpec.from_json(row["spec"])
    return RunRecord(
        run_id=run_id,
        experiment_id=row["experiment_id"],
        spec=spec.experiment,
        variant=spec.variant,
        origin=row["origin"],
        state=RunState(row["state"]),
        reason=row.get("reason"),
        environment=fields_of(environments(store, row["experiment_id"]), run_id),
        workload=fields_of(workloads(store, row["experiment_id"]), run_id),
        error=RunError(**row["error"]) if "error" in row else None,
        folder=Path(row["folder"]),
    )


def _present(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row that have a value."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, (list, dict)) or not pd.isna(value)
    }


def fields_of(frame: pd.DataFrame, run_id: str) -> dict[str, Any]:
    """The fields of one run in a frame of `environments` or `workloads`; empty without a row."""
    return fields_by_run(frame[frame["run_id"] == run_id]).get(run_id, {})


def fields_by_run(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The same for every run with a row, by its id."""
    records = frame.drop(columns=["run_id", "label", "role"]).to_dict("records")
    return {
        str(run_id): _present({str(name): value for name, value in fields.items()})
        for run_id, fields in zip(frame["run_id"], records, strict=True)
    }
