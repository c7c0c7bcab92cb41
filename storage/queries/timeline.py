"""What every run did when, as its journal tells."""

import pandas as pd

from storage.index.store import Store
from storage.queries.rows import rows


def timeline(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, kind, start, end, first_step, num_steps; in order of time.

    kind: training (a turn's block), compiling, evaluating. Times are seconds since the epoch; steps
    are those of a block. A compilation that has no end has none here either.
    """
    table = """(
        SELECT run_id, 'training' AS kind, time - seconds AS start, time AS "end",
            first_step, num_steps
        FROM blocks WHERE isfinite(seconds)
        UNION ALL
        SELECT run_id, 'compiling', time - seconds, time, step, NULL
        FROM compile_ends WHERE isfinite(seconds)
        UNION ALL
        SELECT run_id, 'evaluating', time - seconds, time, step, NULL
        FROM evaluations WHERE isfinite(seconds))"""
    return rows(store, experiment_id, table, 'kind, start, "end", first_step, num_steps', "start")
