"""Runs on several devices: tables of what their ranks send and how long they wait."""

import pandas as pd

from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.profile.ranks import Ranks, ranks_of
from breakeven.views.parts.downloads import show_table

NOT_PROFILED = "Nothing was profiled yet."


def show(store: Store, comparison: Comparison) -> None:
    """Shows a row for each run; nothing if runs have one device."""
    if comparison.spec.num_ranks == 1:
        return
    found = ranks_of(store, comparison.experiment_id)
    show_table("Several devices", runs(found), "ranks", NOT_PROFILED)


def show_run(store: Store, experiment_id: str, label: str) -> None:
    """A row for each rank of one run, and one for each kind of collective."""
    for one in ranks_of(store, experiment_id):
        if one.label == label:
            show_table("Ranks", by_rank(one), "ranks", NOT_PROFILED)
            show_table("Collectives of rank 0", collectives(one), "collectives", NOT_PROFILED,
                       numbers={"calls": "kernel_calls"})  # fmt: skip


def runs(found: list[Ranks]) -> pd.DataFrame:
    """A row for each run, over all of its ranks."""
    return pd.DataFrame(
        [
            {
                "run": one.label,
                "communication_seconds": one.communication_seconds,
                "exposed_seconds": one.exposed_seconds,
                "sent_bytes": one.sent_bytes,
                "slowest_rank": "" if one.slowest is None else f"rank {one.slowest.rank}",
                "rank_lag": one.lag,
            }
            for one in found
        ]
    )


def by_rank(one: Ranks) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "rank": f"rank {rank.rank}",
                "compute_seconds": rank.compute_seconds,
                "communication_seconds": rank.communication_seconds,
                "exposed_seconds": rank.exposed_seconds,
                "peak_memory_bytes": rank.peak_memory_bytes,
            }
            for rank in one.ranks
        ]
    )


def collectives(one: Ranks) -> pd.DataFrame:
    return pd.DataFrame(
        [{"collective": sent.name, "calls": sent.calls, "sent_bytes": sent.bytes}
         for sent in one.sent]
    )  # fmt: skip
