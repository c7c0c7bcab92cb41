"""What the ranks of runs on several devices recorded: nothing for runs on one."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import rows


@kept
def rank_blocks(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each rank and block: `seconds` by its own clock, `cpu_seconds`, memory."""
    columns = (
        "round + 1 AS round, first_step, rank, seconds, cpu_seconds, peak_memory_bytes, "
        "reserved_memory_bytes"
    )
    return rows(store, experiment_id, "rank_blocks", columns, "round, rank, seq")


@kept
def rank_profiles(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each rank and profiled turn; all seconds are of one step."""
    columns = "round + 1 AS round, rank, compute_seconds, communication_seconds, exposed_seconds"
    return rows(store, experiment_id, "rank_profiles", columns, "round, rank, seq")


@kept
def collectives(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each rank, profiled turn and kind of collective: `calls`, `sent_bytes` and
    `seconds` of one step."""
    columns = "round + 1 AS round, rank, name, calls, sent_bytes, seconds"
    return rows(store, experiment_id, "collectives", columns, "round, rank, name, seq")
