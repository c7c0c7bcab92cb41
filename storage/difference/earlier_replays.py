"""How far compile latency strays on a machine, from what was compiled twice there.

Nothing in one experiment tells it: each backend compiles once.
"""

import math
from typing import Literal

from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, catalog, compute
from breakeven.storage.statistics.intervals import Spread

MAX_REPLAYS = 30
"""Newest ones that are looked at."""
PATIENCE = 60.0
"""Seconds that finding out their numbers may take; they are kept."""
Reason = Literal["missing", "no control", "yardstick", "compiled once", "not known yet",
                 "other training", "other work"]  # fmt: skip
"""Why a figure is not judged: one of the two has none; nothing tells how far equal processes stray;
it is what shows how fast the machine is; nothing else was compiled twice on it, or that is still
being looked up; weights or data are others; the model is."""
MACHINE = ["host", "device", "torch"]


def spread_of_compiling(
    store: Store, experiment_id: str, patience: float = PATIENCE
) -> Spread | Reason:
    """Of the logarithms, over the replays of other experiments that share machine, device and
    torch with this replay and with what it replays; why nobody knows, where these two do not, or
    nothing else was compiled twice there."""
    replays = queries.list_experiments(store).set_index("experiment_id")["replay_of"].dropna()
    original = replays[experiment_id]
    others = replays[replays != original].head(MAX_REPLAYS)
    wanted = {experiment_id, original, *others.index, *others}
    compute(store, patience, only=sorted(wanted))
    listed = catalog(store)
    mine = listed[listed["experiment_id"].isin(wanted)]
    if not mine["known"].all():
        return "not known yet"
    rows = backend_rows(store, mine)
    rows = rows[rows["host"].notna() & (rows["compile_seconds"].astype(float) > 0)]
    rows = rows.assign(original=rows["experiment_id"].map(replays).fillna(rows["experiment_id"]))
    machines = rows.loc[rows["original"] == original, MACHINE].drop_duplicates()
    if len(machines) != 1:
        return "compiled once"
    same = rows[rows["original"] != original].merge(machines, on=MACHINE)
    groups = same.groupby(["original", "backend"])["compile_seconds"]
    found = Spread.pooled([list(map(math.log, group)) for _, group in groups])
    return found or "compiled once"
