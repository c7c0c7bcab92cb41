"""How the device and its CPUs fared while blocks ran."""

from typing import Any

import numpy as np
import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import rows, timestamp

LISTS = ("throttled_by", "processes")
"""Columns of lists. Nearly all are empty, and an empty one takes as long to fetch as a full one."""
THROTTLED, PROCESSES = (
    f"CASE WHEN len({one}) > 0 THEN {one} END AS {one}, {one} IS NOT NULL AS {one}_known"
    for one in LISTS
)
COLUMNS = (
    "time, round + 1 AS round, first_step, steady, sm_clock_mhz, memory_clock_mhz, "
    f"temperature_celsius, power_watts, utilization, {THROTTLED}, "
    f"device_memory_used_bytes, {PROCESSES}, "
    "others_memory_bytes, cpu_frequency_mhz, load_average, wall_seconds, cpus, "
    "own_cpu_seconds, busy_cpu_seconds, stolen_cpu_seconds, throttled_periods, "
    "others_cpu_share, stolen_cpu_share"
)


@kept
def device_samples(store: Store, experiment_id: str) -> pd.DataFrame:
    """One row per block, and one from before the first: that one has no `round` and `first_step`.

    `throttled_by` lists why the device's clocks were held back in this block, and is None where
    nobody knows; so is `processes`, a list of dictionaries (pid, name, memory_bytes) of processes
    that are none of the experiment's: on CUDA those on the device, on the CPU those that were busy
    when much of it was taken. `steady` says whether the block was.
    """
    return _samples(store, experiment_id, "judged_device_samples($1)")


@kept
def latest_device_samples(store: Store, experiment_id: str, count: int) -> pd.DataFrame:
    """Of `device_samples` of blocks, the latest so many of all runs, and as many of those that
    looked at other processes."""
    newest = "row_number() OVER (PARTITION BY {} ORDER BY time DESC, seq DESC) <= $2"
    table = f"""(FROM judged_device_samples($1) WHERE round IS NOT NULL
        QUALIFY {newest.format("NULL")}
            OR (processes IS NOT NULL AND {newest.format("processes IS NULL")}))"""
    return _samples(store, experiment_id, table, count)


def _samples(store: Store, experiment_id: str, table: str, *parameters: int) -> pd.DataFrame:
    frame = rows(store, experiment_id, table, COLUMNS, "seq", *parameters, many=True)
    frame["time"] = timestamp(frame["time"])
    for column in LISTS:
        values, known = frame[column].to_numpy(dtype=object), frame.pop(f"{column}_known")
        nothing: list[Any] = []  # One for all: tens of thousands would be a collector's work.
        lists: list[list[Any] | None] = [nothing if is_known else None for is_known in known]
        for at in np.flatnonzero(frame[column].notna().to_numpy()):
            lists[at] = list(values[at])
        frame[column] = pd.Series(lists, index=frame.index, dtype=object)
    return frame
