"""What the compiler did."""

import pandas as pd

from breakeven.runner.folders.states import MAX_TIME
from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo, revision
from breakeven.storage.queries.rows import MINE, rows


@memo(revision)
def compiles(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every compilation that ended; `phase` is training or evaluating."""
    columns = "step, phase, trigger, compile_id, seconds"
    return rows(store, experiment_id, "compile_ends", columns, "seq")


@memo(revision)
def compile_metrics(store: Store, experiment_id: str) -> pd.DataFrame:
    """What Dynamo reports of every frame that it compiled, in which phase and attempt."""
    columns = (
        "step, phase, attempt, compile_id, function, file, line, dynamo_seconds, aot_seconds, "
        "inductor_seconds, code_seconds, kernel_seconds, total_seconds, graph_ops, guards, "
        "recompile_reason, failure"
    )
    return rows(store, experiment_id, "judged_frames($1)", columns, "seq", of=["compile_metrics"])


@memo(revision)
def compile_spans(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every stage of every compilation: step, phase, compile_id, stage, name, start (seconds since
    the epoch), seconds, thread; in the order in which they began."""
    table = f"""(SELECT run_id, step, coalesce(phase, 'training') AS phase, compile_id,
            span.stage AS stage, left(span.name, 200) AS name, span.start AS start,
            span.seconds AS seconds, span.thread AS thread
        FROM (SELECT *, unnest(spans) AS span FROM compile_spans WHERE {MINE})
        WHERE span.start BETWEEN 0 AND {MAX_TIME} AND span.seconds BETWEEN 0 AND {MAX_TIME})"""
    columns = "step, phase, compile_id, stage, name, start, seconds, thread"
    return rows(store, experiment_id, table, columns, "start, seconds DESC", of=["compile_spans"])


@memo(revision)
def kept_files(store: Store, experiment_id: str) -> pd.DataFrame:
    """Stored graphs, generated code and traces: what, compile_id, file, bytes."""
    return rows(store, experiment_id, "kept_files", "what, compile_id, file, bytes", "seq")


@memo(revision)
def graph_breaks(store: Store, experiment_id: str) -> pd.DataFrame:
    """Where and why Dynamo split the graph, and how often, in which phase and attempt.

    location: the line of the user's own code; stopped_at: the innermost line, in any package;
    cause: `code`, or on several devices `buckets` (a split where a bucket of DDP ends) or `ranks`
    (torch's own code around the model).
    """
    columns = "step, phase, attempt, reason, location, stopped_at, count, cause"
    breaks = "judged_graph_breaks($1)"
    return rows(store, experiment_id, breaks, columns, "seq", of=["graph_breaks"])


@memo(revision)
def compiler_events(store: Store, experiment_id: str) -> pd.DataFrame:
    """What the compiler did at which step: step, phase, kind, count, detail.

    kind: compiled (detail: the functions), recompiled (the guards that failed), graph break (the
    lines); count: how many at that step.
    """
    table = """(
        SELECT run_id, step, phase, 'compiled' AS kind, count(DISTINCT compile_id) AS count,
            string_agg(DISTINCT function, ', ' ORDER BY function) AS detail
        FROM judged_frames($1) WHERE recompile_reason IS NULL GROUP BY run_id, step, phase
        UNION ALL
        SELECT run_id, step, phase, 'recompiled', count(*),
            string_agg(DISTINCT recompile_reason, '; ' ORDER BY recompile_reason)
        FROM judged_frames($1) WHERE recompile_reason IS NOT NULL GROUP BY run_id, step, phase
        UNION ALL
        SELECT run_id, step, phase, 'graph break', sum(coalesce(count, 1)),
            string_agg(DISTINCT location, ', ' ORDER BY location)
        FROM judged_graph_breaks($1) GROUP BY run_id, step, phase)"""
    columns, tables = "step, phase, kind, count, detail", ["compile_metrics", "graph_breaks"]
    return rows(store, experiment_id, table, columns, "step, kind", of=tables)


@memo(revision)
def compile_caches(store: Store, experiment_id: str) -> pd.DataFrame:
    """One row per layer of the compile cache: layer, and how often it was hit, missed, bypassed.

    The counts are those of the whole run, as far as it has come.
    """
    table = f"""(SELECT run_id, entry.key AS layer, entry.value.hit AS hits,
            entry.value.miss AS misses, entry.value.bypass AS bypasses
        FROM (SELECT run_id, unnest(map_entries(arg_max(layers, seq))) AS entry
            FROM compile_caches WHERE {MINE} GROUP BY run_id))"""
    columns = "layer, hits, misses, bypasses"
    return rows(store, experiment_id, table, columns, "layer", of=["compile_caches"])
