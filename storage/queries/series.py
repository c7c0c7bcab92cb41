"""What a run recorded of its steps and blocks."""

import pandas as pd

from storage.index.store import Store
from storage.queries.kept import kept
from storage.queries.rows import MINE, rows, with_runs

MAX_POINTS = 1000
"""Points per line that a chart gets, by default."""


@kept
def losses(store: Store, experiment_id: str, max_points: int | None = MAX_POINTS) -> pd.DataFrame:
    """run_id, label, role, step, loss; a long run is thinned to its extremes, all real points.

    With None for `max_points` every step is there, as a download needs it.
    """
    table = f"(SELECT run_id, step, loss FROM steps WHERE {MINE} AND loss IS NOT NULL)"
    return _points(store, experiment_id, table, "loss", max_points)


@kept
def cumulative_times(
    store: Store, experiment_id: str, max_points: int | None = MAX_POINTS
) -> pd.DataFrame:
    """run_id, label, role, step, seconds: training time up to the end of the step.

    The running sum of step times, compilation included, waiting for turns and evaluation not.
    Thinned like `losses`.
    """
    table = f"""(SELECT run_id, step,
            sum(seconds) OVER (PARTITION BY run_id ORDER BY step) AS seconds
        FROM steps WHERE {MINE} AND seconds IS NOT NULL)"""
    return _points(store, experiment_id, table, "seconds", max_points)


def _points(
    store: Store, experiment_id: str, table: str, column: str, max_points: int | None
) -> pd.DataFrame:
    """Keeps, of runs longer than `max_points`, the lowest and highest point per bucket of steps."""
    if max_points is None:
        return rows(store, experiment_id, table, f"step, {column}", "step")
    found = store.query(
        f"""
        WITH points AS (
            SELECT p.*, r.position AS place,
                row_number() OVER (PARTITION BY p.run_id ORDER BY step) - 1 AS number,
                count(*) OVER (PARTITION BY p.run_id) AS total
            FROM {table} p JOIN runs r USING (run_id)),
        bucketed AS (
            SELECT *, number * greatest($2 // 2, 1) // total AS bucket FROM points)
        SELECT place, step, {column} FROM bucketed
        QUALIFY total <= $2
            OR step = arg_min(step, {column}) OVER (PARTITION BY run_id, bucket)
            OR step = arg_max(step, {column}) OVER (PARTITION BY run_id, bucket)
        ORDER BY place, step""",
        [store.number_of(experiment_id), max_points],
    )
    return with_runs(store, experiment_id, found)


@kept
def step_times(store: Store, experiment_id: str) -> pd.DataFrame:
    """step, epoch, round, loss, seconds, compiled, attempt, steady of every step."""
    columns = (
        "step, epoch + 1 AS epoch, round + 1 AS round, loss, seconds, compiled, attempt, steady"
    )
    return rows(store, experiment_id, "judged_steps($1)", columns, "step")


@kept
def step_settings(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, step, learning_rate, gradient_norm of every step.

    Either is missing where it was not recorded; a gradient norm may be infinite.
    """
    return rows(store, experiment_id, "steps", "step, learning_rate, gradient_norm", "step")


@kept
def blocks(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every turn's block: round, first_step, num_steps, seconds, compiled, steady, memory.

    `attempt` is 1 for a run's first process and one more after each resumption.
    """
    columns = (
        "round + 1 AS round, position, first_step, num_steps, seconds, compiled, attempt, steady, "
        "peak_memory_bytes, reserved_memory_bytes"
    )
    return rows(store, experiment_id, "judged_blocks($1)", columns, "first_step")


@kept
def loss_terms(store: Store, experiment_id: str) -> pd.DataFrame:
    """step, name, value of every term of the loss, before weighing; empty where there is one."""
    table = f"""(SELECT run_id, step, unnest(map_entries(losses), recursive := true)
        FROM steps WHERE {MINE})"""
    return rows(store, experiment_id, table, "step, key AS name, value", "step, name")


@kept
def gradient_statistics(store: Store, experiment_id: str) -> pd.DataFrame:
    """One row per step and parameter: step, name, norm, mean, deviation, largest, zeros.

    `zeros` is the share of elements that are exactly 0.
    """
    table = f"""(SELECT run_id, step, generate_subscripts(tensors, 1) AS number,
            unnest(tensors, recursive := true)
        FROM gradient_statistics WHERE {MINE})"""
    columns = "step, name, norm, mean, deviation, largest, zeros"
    return rows(store, experiment_id, table, columns, "step, number")


@kept
def own_values(store: Store, experiment_id: str) -> pd.DataFrame:
    """step, name, value of the numbers that callbacks recorded; the last one of a step counts."""
    table = f"""(FROM own_values WHERE {MINE}
        QUALIFY seq = max(seq) OVER (PARTITION BY run_id, step, name))"""
    return rows(store, experiment_id, table, "step, name, value", "name, step")
