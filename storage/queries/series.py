"""Reads series of steps and blocks, and samples of the device and its CPUs."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.storage.index.store import Store
from breakeven.storage.memo import at_hand, memo, revision
from breakeven.storage.queries.recorded import step_times
from breakeven.storage.queries.rows import MINE, ends_of_runs, rows, timestamp

MAX_POINTS = 1000
"""Default number of points per line of a chart."""
LISTS = ("throttled_by", "processes")
"""Columns of lists. Nearly all lists are empty, but fetching an empty one takes as long."""
THROTTLED, PROCESSES = (
    f"CASE WHEN len({one}) > 0 THEN {one} END AS {one}, {one} IS NOT NULL AS {one}_known"
    for one in LISTS
)
OF_SAMPLES = (
    "time, round + 1 AS round, first_step, steady, sm_clock_mhz, memory_clock_mhz, "
    f"temperature_celsius, power_watts, energy_joules, num_steps, utilization, {THROTTLED}, "
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
    steps = at_hand(step_times, revision, store, experiment_id)
    # A missing loss in these rows may be NaN or unrecorded.
    if steps is not None and steps["loss"].notna().all():
        return steps[["run_id", "label", "role", "step", "loss"]]
    table = f"(SELECT run_id, step, loss FROM steps WHERE {MINE} AND loss IS NOT NULL)"
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
    # The rows of a run are consecutive and in the order of its steps.
    seconds = steps["seconds"].to_numpy(dtype=float)
    parts = [np.cumsum(seconds[begin:end]) for begin, end in pairwise(ends_of_runs(steps))]
    done = np.concatenate(parts) if parts else seconds
    return steps.assign(seconds=done).reset_index(drop=True)


def _thinned(frame: pd.DataFrame, column: str, max_points: int) -> pd.DataFrame:
    """Reduces runs longer than `max_points` to the lowest and highest point of each bucket of
    steps, the first of equal ones. NaN is above all numbers. The rows of a run are consecutive."""
    values = frame[column].to_numpy(dtype=float)
    parts = [
        begin + (np.arange(end - begin) if end - begin <= max_points
                 else _extremes(values[begin:end], max(max_points // 2, 1)))
        for begin, end in pairwise(ends_of_runs(frame))
    ]  # fmt: skip
    return frame.iloc[np.concatenate(parts) if parts else []].reset_index(drop=True)


def _extremes(values: NDArray[np.float64], num_buckets: int) -> NDArray[np.intp]:
    """The indices of the lowest and the highest value of each bucket."""
    buckets = np.arange(len(values)) * num_buckets // len(values)
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    found = []
    for extreme in (np.fmin.reduceat(values, starts), np.maximum.reduceat(values, starts)):
        of_bucket = extreme[buckets]
        at = np.flatnonzero((values == of_bucket) | (np.isnan(values) & np.isnan(of_bucket)))
        found.append(at[np.diff(buckets[at], prepend=-1) != 0])
    return np.union1d(*found)


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
