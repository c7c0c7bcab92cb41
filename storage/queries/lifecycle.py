"""How a run went on: checkpoints, resumptions, and an end before its last step."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import MINE, rows, timestamp


@kept
def checkpoints(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done), file, bytes, seconds, value, removed.

    `value` is that of the metric that ranks them, missing where the model was not evaluated.
    `removed` says whether a later checkpoint took this one's place.
    """
    table = f"""(SELECT c.* REPLACE (EXISTS (
            FROM checkpoints later
            WHERE later.{MINE} AND later.run_id = c.run_id AND later.seq > c.seq
                AND list_contains(later.removed, c.file)) AS removed)
        FROM checkpoints c WHERE c.{MINE})"""
    columns = "step, file, bytes, seconds, value, removed"
    return rows(store, experiment_id, table, columns, "seq", of=["checkpoints"])


@kept
def resumptions(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done when the run went on), attempt (2, 3, ...), time, file (the checkpoint),
    num_devices from then on, num_devices_before; both missing where a journal does not say."""
    columns = "step, attempt, time, file, num_devices, num_devices_before"
    frame = rows(store, experiment_id, "attempts($1)", columns, "seq", of=["resumptions"])
    frame["time"] = timestamp(frame["time"])
    return frame


@kept
def stops(store: Store, experiment_id: str) -> pd.DataFrame:
    """step (steps done), reason of training that ended before its last step by its own rules; of
    measuring that ended by itself also `ending`, as JSON, missing in older journals."""
    return rows(store, experiment_id, "stops", "step, reason, ending", "seq")
