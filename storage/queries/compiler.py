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
