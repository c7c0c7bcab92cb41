"""What a run is besides its series: its specification, machine, workload and files, and how it
went on."""

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
from breakeven.storage.queries.rows import MINE, parsed, rows, timestamp


@memo(revision)
def environments(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each run says of its machine and software; `notes` is a list, `versions` and
    `variables` are dictionaries."""
    columns = (
        "host, platform, python, versions, device_type, device_name, cpu_model, num_cpus, "
        "cpu_threads, gpu_memory_bytes, cuda, driver, variables, usable_cpus, cpu_threads_reason, "
        "interop_threads, max_sm_clock_mhz, power_limit_watts, notes, cpus, devices"
    )
    frame = rows(store, experiment_id, _latest("environments"), columns, "seq")
    return parsed(frame, "versions", "variables", "notes", "devices")


@memo(revision)
def workloads(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each run says of its model and data; `labels`, `uncounted` and `notes` are lists."""
    columns = (
        "task, num_parameters, num_labels, labels, num_train_samples, num_eval_samples, "
        "num_test_samples, num_steps, steps_per_epoch, block_steps, samples_per_step, "
        "tokens_per_step, padding_share, flops_per_step, majority_share, weights_sha256, "
        "data_sha256, precision, code_sha256, uncounted, notes"
    )
    frame = rows(store, experiment_id, _latest("workloads"), columns, "seq")
    return parsed(frame, "labels", "uncounted", "notes")


def _latest(table: str) -> str:
    """A resumed run records its environment again; the last record counts."""
    return f"(FROM {table} WHERE {MINE} QUALIFY seq = max(seq) OVER (PARTITION BY run_id))"


@memo(revision)
def inputs(store: Store, experiment_id: str) -> pd.DataFrame:
    """Of scripts: step, sha256 of what the compiled function was called with (null without a
    tensor) but for floats, tensors of numbers with a fraction (sha256, rough: numbers that hardly
    change when the tensor's do), random (a map: generator to a hash of where it stood)."""
    return rows(store, experiment_id, "inputs", "step, sha256, floats, random", "step")


@memo(revision)
def sources(store: Store, experiment_id: str) -> pd.DataFrame:
    """The Python files of a person's own that each run executed: source, file (the copy), sha256.

    A file that was changed before the run was resumed is there in both versions.
    """
    table = f"""(SELECT run_id, source, file, sha256, min(seq) AS seq FROM sources WHERE {MINE}
        GROUP BY run_id, source, file, sha256)"""
    return rows(store, experiment_id, table, "source, file, sha256", "seq", of=["sources"])


@memo(revision)
def checkpoints(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done), file, bytes, seconds, value, removed.

    `value` is that of the metric that ranks them, missing where the model was not evaluated.
    `removed` says whether a later checkpoint took this one's place.
    """
    table = f"""(SELECT c.* REPLACE (EXISTS (
            FROM checkpoints later
            WHERE later.{MINE} AND later.run_id = c.run_id AND later.seq > c.seq
                AND list_contains(later.removed, c.file)) AS removed)
        FROM checkpoints c WHERE c.{MINE})"""
    columns = "step, file, bytes, seconds, value, removed"
    return rows(store, experiment_id, table, columns, "seq", of=["checkpoints"])


@memo(revision)
def resumptions(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done when the run went on), attempt (2, 3, ...), time, file (the checkpoint),
    num_devices from then on, num_devices_before, both missing where a journal does not say;
    adds_rounds, whether the run had finished. Rounds need no checkpoint, and neither does a script
    that starts again, from step 0."""
    columns = "step, attempt, time, file, num_devices, num_devices_before"
    frame = rows(store, experiment_id, "attempts($1)", columns, "seq", of=["resumptions"])
    frame["time"] = timestamp(frame["time"])
    frame["adds_rounds"] = frame["file"].isna() & (frame["step"] > 0)
    return frame


@memo(revision)
def stops(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done), reason of training that ended before its last step by its own rules; of
    measuring that ended by itself also `ending`, as JSON, missing in older journals."""
    return rows(store, experiment_id, "stops", "step, reason, ending", "seq")


@dataclass(frozen=True, kw_only=True)
class RunError:
    """With what a run gave up; texts are empty where the journal has none."""

    name: str
    """Of its class."""
    message: str
    traceback: str

    @property
    def says_what_to_do(self) -> bool:
        """Whether it was raised on purpose, so that its message is all one needs."""
        return self.name in OWN_ERRORS

    @property
    def sentence(self) -> str:
        """All of the message, after the class of an error that was not raised on purpose; of a
        compiler's the cause."""
        if self.name in OF_COMPILERS:
            return cause_of(self.name, self.message)
        name = "" if self.says_what_to_do else self.name
        return ": ".join(filter(None, (name, self.message.strip())))


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """All that is known of one run besides its series."""

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
    """Raises `NotInStore` if there is no such run."""
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
    """What one run has in a frame of `environments` or `workloads`; empty if nothing."""
    return fields_by_run(frame[frame["run_id"] == run_id]).get(run_id, {})


def fields_by_run(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The same of every run that has any, by its id."""
    records = frame.drop(columns=["run_id", "label", "role"]).to_dict("records")
    return {
        str(run_id): _present({str(name): value for name, value in fields.items()})
        for run_id, fields in zip(frame["run_id"], records, strict=True)
    }
