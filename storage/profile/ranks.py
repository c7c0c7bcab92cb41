"""Numbers of the ranks of a run on several devices: communication, slowest rank, memory, bytes.

Seconds are per step, medians over the profiled turns, and missing without a profile.
"""

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.comparison.run_numbers import memory_needed
from breakeven.storage.index.store import Store

SECONDS = ["compute_seconds", "communication_seconds", "exposed_seconds"]
OF_RANK = ["label", "rank"]


def ranks_of(store: Store, experiment_id: str) -> pd.DataFrame:
    """label, rank, seconds and peak memory of each rank of every run on several devices, in the
    order of the variants."""
    memory = [
        (*key, memory_needed(blocks, on_cpu=bool(blocks["reserved_memory_bytes"].isna().all())))
        for key, blocks in queries.rank_blocks(store, experiment_id).groupby(OF_RANK, sort=False)
    ]
    seconds = queries.rank_profiles(store, experiment_id).groupby(OF_RANK)[SECONDS].median()
    found = pd.DataFrame(memory, columns=[*OF_RANK, "peak_memory_bytes"])
    return found.join(seconds, on=OF_RANK)[[*OF_RANK, *SECONDS, "peak_memory_bytes"]]


def collectives(store: Store, experiment_id: str) -> pd.DataFrame:
    """label, collective, calls, sent_bytes of rank 0 of every run; bytes are missing if a profiled
    turn lacks them."""
    rows = queries.collectives(store, experiment_id)
    kinds = rows[rows["rank"] == 0].rename(columns={"name": "collective"})
    return kinds.groupby(["label", "collective"], as_index=False).agg(
        calls=("calls", "median"),
        sent_bytes=("sent_bytes", lambda sizes: sizes.median(skipna=False)),
    )


def by_run(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each run, over all of its ranks.

    Communication times are those of the rank that waits least, the best estimate without waiting: a
    collective lasts from a rank's arrival until the last rank is done. `slowest_rank` computes
    longest; `rank_lag` is its extra compute time over the fastest rank, as a share. `sent_bytes`
    are those of all collectives of a step, and missing if one of them is.
    """
    sizes = collectives(store, experiment_id).groupby("label")["sent_bytes"]
    sent = sizes.agg(lambda known: known.sum(skipna=False))
    rows = []
    for label, ranks in ranks_of(store, experiment_id).groupby("label", sort=False):
        computed = ranks.set_index("rank")["compute_seconds"].dropna()
        times = computed[computed > 0]
        rows.append({
            "run": label,
            "communication_seconds": ranks["communication_seconds"].min(),
            "exposed_seconds": ranks["exposed_seconds"].min(),
            "sent_bytes": sent.get(label),
            "slowest_rank": "" if computed.empty else f"rank {computed.idxmax()}",
            "rank_lag": None if times.empty else times.max() / times.min() - 1,
        })  # fmt: skip
    return pd.DataFrame(rows)
