"""What every run did when, as its journal tells."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import MINE, rows

ELAPSED = ("compiling", "profiling", "evaluating", "steps", "loading", "finishing", "waiting")
"""What an experiment does, of several things at once the first: one run that compiles while another
loads is compiling."""
KIND_OF_PHASE = {"training": "steps", "preparing": "loading", "done": "finishing"}
"""Phases of a run that are called otherwise of an experiment."""


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


@kept
def elapsed(store: Store, experiment_id: str) -> tuple[dict[str, float], float | None]:
    """Seconds of wall time by what the experiment did, as `ELAPSED` names it, in its order, and the
    moment up to which they are told, in seconds since the epoch: the last line of its journals, or
    its end. What begins before a run's newest process is left out. None before the first claim."""
    whats = "".join(f"WHEN '{phase}' THEN '{kind}' " for phase, kind in KIND_OF_PHASE.items())
    under_way = ", ".join(
        f"sum(change) FILTER (kind = '{kind}') OVER so_far AS {kind}" for kind in ELAPSED
    )
    doing = "".join(f"WHEN {kind} > 0 THEN '{kind}' " for kind in ELAPSED)
    found = store.query(
        f"""
        WITH mine AS (
            SELECT run_id, claimed, ended FROM progress JOIN runs USING (run_id) WHERE {MINE}),
        compiled AS (SELECT run_id, time, seconds FROM compile_ends
            WHERE {MINE} AND isfinite(seconds)),
        begun AS (
            SELECT run_id, CASE phase {whats} ELSE phase END AS kind, time, seq FROM phases
            WHERE {MINE}
            UNION ALL SELECT run_id, 'loading', claimed, -1 FROM mine WHERE claimed IS NOT NULL),
        last AS (SELECT greatest(max(claimed), max(ended), (SELECT max(time) FROM begun),
            (SELECT max(time) FROM blocks WHERE {MINE}),
            (SELECT max(time) FROM compiled)) AS told FROM mine),
        spans AS (
            SELECT run_id, kind, time AS start,
                lead(time) OVER (PARTITION BY run_id ORDER BY time, seq) AS "end" FROM begun
            UNION ALL SELECT run_id, 'compiling', time - seconds, time FROM compiled),
        clipped AS (
            SELECT kind, greatest(start, claimed) AS start,
                coalesce("end", ended, told) AS "end"
            FROM spans JOIN mine USING (run_id), last WHERE claimed IS NOT NULL),
        edges AS (
            SELECT kind, start AS time, 1 AS change FROM clipped WHERE start < "end"
            UNION ALL SELECT kind, "end", -1 FROM clipped WHERE start < "end"),
        moments AS (
            SELECT time, lead(time) OVER so_far - time AS seconds, {under_way} FROM edges
            WINDOW so_far AS (ORDER BY time, change DESC))
        SELECT CASE {doing} ELSE 'waiting' END AS kind, sum(seconds) AS seconds, any_value(told)
        AS told FROM moments, last WHERE seconds > 0 GROUP BY 1""",
        [store.number_of(experiment_id)],
    )
    seconds = dict(zip(found["kind"], found["seconds"].astype(float), strict=True))
    told = float(found["told"].iloc[0]) if len(found) else None
    return {kind: seconds[kind] for kind in ELAPSED if kind in seconds}, told
