"""Reads series of runs over their steps: losses, times, samples of the device."""

from typing import Any

import numpy as np
import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.recorded import step_times
from breakeven.storage.queries.rows import IN_EXPERIMENT, rows, timestamp
from breakeven.storage.queries.thinning import MAX_POINTS, thinned_runs
from breakeven.storage.result_caches import memo, revision

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
        return thinned_runs(losses(store, experiment_id, max_points=None), "loss", max_points)
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
        return thinned_runs(every, "seconds", max_points)
    steps = step_times(store, experiment_id)
    steps = steps.loc[steps["seconds"].notna(), ["run_id", "label", "role", "step", "seconds"]]
    done = steps.groupby("run_id", observed=True)["seconds"].cumsum()
    return steps.assign(seconds=done).reset_index(drop=True)


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
