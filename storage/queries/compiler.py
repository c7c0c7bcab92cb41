"""What the compiler did."""

import pandas as pd

from storage.queries.rows import rows
from storage.store import Store


def compiles(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every compilation that ended; `phase` is training or evaluating."""
    columns = "step, phase, trigger, compile_id, seconds"
    return rows(store, experiment_id, "compile_ends", columns, "seq")


def compile_metrics(store: Store, experiment_id: str) -> pd.DataFrame:
    """What Dynamo reports of every frame that it compiled, in which phase and attempt."""
    columns = (
        "step, phase, attempt, compile_id, function, file, line, dynamo_seconds, aot_seconds, "
        "inductor_seconds, code_seconds, total_seconds, graph_ops, guards, recompile_reason, "
        "failure"
    )
    return rows(store, experiment_id, "judged_frames", columns, "seq")


def graph_breaks(store: Store, experiment_id: str) -> pd.DataFrame:
    """Where and why Dynamo split the graph, and how often, in which phase and attempt."""
    columns = "step, phase, attempt, reason, location, count"
    return rows(store, experiment_id, "judged_graph_breaks", columns, "seq")


def compile_caches(store: Store, experiment_id: str) -> pd.DataFrame:
    """One row per layer of the compile cache: layer, and how often it was hit, missed, bypassed.

    The counts are those of the whole run, as far as it has come.
    """
    table = """(SELECT run_id, entry.key AS layer, entry.value.hit AS hits,
            entry.value.miss AS misses, entry.value.bypass AS bypasses
        FROM (SELECT run_id, unnest(map_entries(arg_max(layers, seq))) AS entry
            FROM compile_caches GROUP BY run_id))"""
    return rows(store, experiment_id, table, "layer, hits, misses, bypasses", "layer")
