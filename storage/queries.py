"""Reads the store: one function per question, each returning a data frame. No statistics here.

Times of day are UTC timestamps, durations seconds. What was not measured is missing (NaN, NaT or
None). A loss in a result is never missing: there NaN means that the loss itself was not a number.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from runner.run_dir import RunState
from runner.spec import ExperimentSpec, RunSpec
from runner.variants import Variant
from storage.errors import NotInStore
from storage.store import Store

MINE = "starts_with(run_id, $1)"
"""Picks the runs of one experiment by `_prefix`. Unlike a join, DuckDB applies it before it sorts
rows into windows, which makes these queries ten times faster in a large store."""
MAX_POINTS = 1000
"""Points per line that a chart gets, by default."""


def list_experiments(store: Store) -> pd.DataFrame:
    """All experiments, newest first.

    `state` sums up the runs: queued, running (also between two runs), elsewhere, finished,
    cancelled (whatever did not finish was cancelled), partly_failed, failed (none finished).
    """
    frame = store.query("""
        WITH known AS (
            SELECT run_id, max(device_name) AS device_name,
                max(versions->>'torch') AS torch_version
            FROM environments GROUP BY run_id),
        summed AS (
            SELECT experiment_id, max(origin) AS origin, min(claimed) AS submitted,
                array_agg(state) AS state, count(*) AS num_runs, 0 AS num_ended,
                min(spec)::JSON->'experiment' AS spec,
                max(device_name) AS device_name, max(torch_version) AS torch_version
            FROM runs JOIN progress USING (run_id) LEFT JOIN known USING (run_id)
            GROUP BY experiment_id)
        SELECT experiment_id, spec->>'name' AS name, origin, submitted,
            spec->>'$.devices[0]' AS device, device_name, spec->>'schedule' AS schedule,
            spec->>'fallback_of' AS fallback_of, state, num_runs, num_ended,
            spec->>'$.model.source' AS model, spec->>'$.data.source' AS data, torch_version
        FROM summed""")
    states = [[RunState(state) for state in group] for group in frame["state"]]
    frame["state"] = [experiment_state(group) for group in states]
    frame["num_ended"] = [sum(state.is_final for state in group) for group in states]
    # Ids begin with the time of submission; of one made by other means the first claim must do.
    stamps = frame["experiment_id"].str.slice(0, 22)
    submitted = pd.to_datetime(stamps, format="%Y%m%d-%H%M%S-%f", errors="coerce", utc=True)
    frame["submitted"] = submitted.fillna(_timestamp(frame["submitted"]))
    return frame.sort_values(["submitted", "experiment_id"], ascending=False, ignore_index=True)


def experiment_state(states: Sequence[RunState]) -> str:
    """Sums up the states of an experiment's runs; `list_experiments` names the possible answers."""
    if RunState.RUNNING in states:
        return "running"
    if RunState.QUEUED in states:
        begun = any(state not in (RunState.QUEUED, RunState.CANCELLED) for state in states)
        return "running" if begun else "queued"
    if RunState.ELSEWHERE in states:
        return "elsewhere"
    others = {state for state in states if state is not RunState.FINISHED}
    if not others:
        return "finished"
    if others == {RunState.CANCELLED}:
        return "cancelled"
    return "partly_failed" if RunState.FINISHED in states else "failed"


def list_runs(store: Store, experiment_id: str) -> pd.DataFrame:
    """The runs of an experiment in the order of its variants, with how each stands right now.

    `compiling_since` and `compile_trigger` tell of a compilation that a running run is in.
    `last_loss` is None before the first step; NaN is a loss that is not a number.
    """
    frame = store.query(
        f"""
        WITH phase AS (
            SELECT run_id, arg_max(phase, seq) AS phase, arg_max(time, seq) AS phase_started,
                min(time) AS started
            FROM phases WHERE {MINE} GROUP BY run_id),
        compiling AS (
            SELECT run_id, arg_min(time, seq) AS since, arg_min(trigger, seq) AS trigger
            FROM compile_starts s
            WHERE {MINE} AND NOT EXISTS (
                FROM compile_ends e
                WHERE e.run_id = s.run_id AND e.seq > s.seq
                    AND e.compile_id IS NOT DISTINCT FROM s.compile_id
                    AND e.trigger IS NOT DISTINCT FROM s.trigger)
            GROUP BY run_id),
        done AS (
            SELECT run_id, count(*) AS steps_done, arg_max(loss, step) AS last_loss,
                median(seconds) FILTER (steady) AS steady_step_seconds
            FROM judged_steps WHERE {MINE} GROUP BY run_id)
        SELECT run_id, label, role, backend, state, reason, phase, phase_started,
            CASE WHEN state = 'running' THEN since END AS compiling_since,
            CASE WHEN state = 'running' THEN trigger END AS compile_trigger,
            coalesce(steps_done, 0) AS steps_done, num_steps, last_loss, steady_step_seconds,
            coalesce(claimed, started) AS started, ended, folder
        FROM runs JOIN progress USING (run_id) LEFT JOIN phase USING (run_id)
            LEFT JOIN compiling USING (run_id) LEFT JOIN done USING (run_id)
        WHERE {MINE} ORDER BY position""",
        [_prefix(experiment_id)],
    )
    has_loss = frame["steps_done"] > 0
    frame["last_loss"] = frame["last_loss"].astype(object).where(has_loss, None)
    for column in ("phase_started", "compiling_since", "started", "ended"):
        frame[column] = _timestamp(frame[column])
    return frame


def losses(store: Store, experiment_id: str, max_points: int = MAX_POINTS) -> pd.DataFrame:
    """run_id, label, role, step, loss; a long run is thinned to its extremes, all real points."""
    query = f"SELECT run_id, step, loss AS value FROM steps WHERE {MINE} AND loss IS NOT NULL"
    return _thinned(store, experiment_id, max_points, query).rename(columns={"value": "loss"})


def cumulative_times(
    store: Store, experiment_id: str, max_points: int = MAX_POINTS
) -> pd.DataFrame:
    """run_id, label, role, step, seconds: training time up to the end of the step.

    The running sum of step times, compilation included, waiting for turns and evaluation not.
    """
    query = f"""SELECT run_id, step, sum(seconds) OVER (PARTITION BY run_id ORDER BY step) AS value
        FROM steps WHERE {MINE} AND seconds IS NOT NULL"""
    return _thinned(store, experiment_id, max_points, query).rename(columns={"value": "seconds"})


def _thinned(store: Store, experiment_id: str, max_points: int, query: str) -> pd.DataFrame:
    """Keeps, of runs longer than `max_points`, the lowest and highest point per bucket of steps."""
    return store.query(
        f"""
        WITH points AS (
            SELECT p.*, label, role, r.position AS place,
                row_number() OVER (PARTITION BY p.run_id ORDER BY step) - 1 AS number,
                count(*) OVER (PARTITION BY p.run_id) AS total
            FROM ({query}) p JOIN runs r USING (run_id)),
        bucketed AS (
            SELECT *, number * greatest($2 // 2, 1) // total AS bucket FROM points)
        SELECT run_id, label, role, step, value FROM bucketed
        QUALIFY total <= $2
            OR step = arg_min(step, value) OVER (PARTITION BY run_id, bucket)
            OR step = arg_max(step, value) OVER (PARTITION BY run_id, bucket)
        ORDER BY place, step""",
        [_prefix(experiment_id), max_points],
    )


def step_times(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, step, epoch, round, loss, seconds, compiled, steady of every step."""
    columns = "step, epoch, round, loss, seconds, compiled, steady"
    return _rows(store, experiment_id, "judged_steps", columns, "step")


def step_settings(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, step, learning_rate, gradient_norm of every step.

    Either is missing where it was not recorded; a gradient norm may be infinite.
    """
    return _rows(store, experiment_id, "steps", "step, learning_rate, gradient_norm", "step")


def blocks(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every turn's block: round, first_step, num_steps, seconds, compiled, steady, memory."""
    columns = (
        "round, position, first_step, num_steps, seconds, compiled, steady, peak_memory_bytes, "
        "reserved_memory_bytes"
    )
    return _rows(store, experiment_id, "judged_blocks", columns, "first_step")


def evaluations(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each run scored on the held-out samples, after `step` steps."""
    columns = "epoch, step, loss, accuracy, num_samples, seconds"
    return _rows(store, experiment_id, "evaluations", columns, "seq")


def compiles(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every compilation that ended; `phase` is training or evaluating."""
    columns = "step, phase, trigger, compile_id, seconds"
    return _rows(store, experiment_id, "compile_ends", columns, "seq")


def compile_metrics(store: Store, experiment_id: str) -> pd.DataFrame:
    """What Dynamo reports of every frame that it compiled."""
    columns = (
        "step, compile_id, function, file, line, dynamo_seconds, aot_seconds, inductor_seconds, "
        "code_seconds, total_seconds, graph_ops, guards, recompile_reason, failure"
    )
    return _rows(store, experiment_id, "compile_metrics", columns, "seq")


def graph_breaks(store: Store, experiment_id: str) -> pd.DataFrame:
    """Where and why Dynamo split the graph, and how often."""
    return _rows(store, experiment_id, "graph_breaks", "step, reason, location, count", "seq")


def environments(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each run says of its machine and software; `versions`, `variables` are dictionaries."""
    columns = (
        "host, platform, python, versions, device_name, cpu_model, num_cpus, cpu_threads, "
        "gpu_memory_bytes, cuda, driver, variables"
    )
    frame = _rows(store, experiment_id, "environments", columns, "seq")
    return _parsed(frame, "versions", "variables")


def workloads(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each run says of its model and data; `labels` and `notes` are lists."""
    columns = (
        "num_parameters, num_labels, labels, num_train_samples, num_eval_samples, num_steps, "
        "steps_per_epoch, block_steps, samples_per_step, tokens_per_step, majority_share, "
        "weights_sha256, data_sha256, notes"
    )
    return _parsed(_rows(store, experiment_id, "workloads", columns, "seq"), "labels", "notes")


def revision(store: Store, experiment_id: str) -> tuple[int, int]:
    """Differs from every earlier answer if anything of the experiment has changed since.

    The newest write to any of its runs, and how many there are: a write has a number above all
    earlier ones, and a run that is gone makes them fewer.
    """
    query = f"SELECT coalesce(max(revision), 0), count(*) FROM progress WHERE {MINE}"
    newest, num_runs = store.query(query, [_prefix(experiment_id)]).iloc[0]
    return int(newest), int(num_runs)


def unreadable(store: Store) -> pd.DataFrame:
    """Folders that should be run folders and cannot be read, and what is wrong with them."""
    return store.query("SELECT folder, message FROM unreadable ORDER BY folder")


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
    error: str | None
    """The traceback with which the run gave up."""
    folder: Path


def run_record(store: Store, run_id: str) -> RunRecord:
    """Raises `NotInStore` if there is no such run."""
    frame = store.query(
        """SELECT experiment_id, spec, origin, state, reason, folder,
            (SELECT arg_max(coalesce(traceback, message), seq) FROM errors WHERE run_id = $1)
                AS error
        FROM runs JOIN progress USING (run_id) WHERE run_id = $1""",
        [run_id],
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
        error=row.get("error"),
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
    rows = frame[frame["run_id"] == run_id].drop(columns=["run_id", "label", "role"])
    return _present(rows.iloc[-1].to_dict()) if len(rows) else {}


def _rows(store: Store, experiment_id: str, table: str, columns: str, order: str) -> pd.DataFrame:
    return store.query(
        f"""SELECT run_id, label, role, {columns}
        FROM (FROM {table} WHERE {MINE})
        JOIN (SELECT run_id, label, role, position AS place FROM runs) USING (run_id)
        ORDER BY place, {order}""",
        [_prefix(experiment_id)],
    )


def _prefix(experiment_id: str) -> str:
    """How the ids of an experiment's runs begin, and of no other's: ids hold no dot."""
    return f"{experiment_id}."


def _parsed(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    for column in columns:
        texts = frame[column].astype(object)
        frame[column] = [None if pd.isna(text) else json.loads(text) for text in texts]
    return frame


def _timestamp(seconds: pd.Series) -> pd.Series:
    return pd.to_datetime(seconds.astype(float), unit="s", utc=True)
