"""What profiled turns recorded: one row for each turn, one for each kernel or operator in it; and
what the ranks of runs on several devices recorded: nothing for runs on one."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo, revision
from breakeven.storage.queries.rows import rows


@memo(revision)
def profiles(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each turn; all seconds but `cost_seconds` are of one step.

    `busy_seconds`: the device's, or the CPU's operators'. `seconds`: the step's while it was
    profiled, `issue_seconds` of them until the host had issued it. `host_seconds`: a dictionary by
    part of the host's work. `waited_seconds`: the median of steps after each of which the host
    waited for the device, not profiled. `failure`: why nothing was recorded.
    """
    columns = (
        "round + 1 AS round, steps, cost_seconds, seconds, issue_seconds, busy_seconds, "
        "underfilled_seconds, launches, host_seconds, "
        "list_median(waited_seconds) AS waited_seconds, compiled, trace, trace_bytes, failure"
    )
    return rows(store, experiment_id, "profiles", columns, "round, seq")


@memo(revision)
def profile_kernels(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each kernel or operator in each turn, those that took most first: `calls` and
    `seconds` are of one step. `op`, `phase` and `dtype` are missing where they are not known."""
    columns = "round + 1 AS round, name, op, phase, dtype, calls, seconds"
    return rows(store, experiment_id, "profile_kernels", columns, "round, seconds DESC, seq")


@memo(revision)
def rank_blocks(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each rank and block: `seconds` by its own clock, `cpu_seconds`, memory."""
    columns = (
        "round + 1 AS round, first_step, rank, seconds, cpu_seconds, peak_memory_bytes, "
        "reserved_memory_bytes"
    )
    return rows(store, experiment_id, "rank_blocks", columns, "round, rank, seq")


@memo(revision)
def rank_profiles(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each rank and profiled turn; all seconds are of one step."""
    columns = "round + 1 AS round, rank, compute_seconds, communication_seconds, exposed_seconds"
    return rows(store, experiment_id, "rank_profiles", columns, "round, rank, seq")


@memo(revision)
def collectives(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each rank, profiled turn and kind of collective: `calls`, `sent_bytes` and
    `seconds` of one step."""
    columns = "round + 1 AS round, rank, name, calls, sent_bytes, seconds"
    return rows(store, experiment_id, "collectives", columns, "round, rank, name, seq")
