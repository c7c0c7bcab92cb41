"""Where compiling spends its time: what torch reports of each frame, taken apart by phase."""

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.index.store import Store

PHASES = {
    "Dynamo": "total_seconds",
    "AOTAutograd": "aot_seconds",
    "Inductor lowering": "inductor_seconds",
    "Code generation": "code_seconds",
    "Triton and C++": "kernel_seconds",
}
"""Phases, each lying in the one before, and the column that has it with all that lies in it."""


def phases_by_run(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, phase, seconds: what each phase took alone, over all frames that a run
    compiled in training. Together they are the time that torch reports of the frames.
    """
    frames = queries.compile_metrics(store, experiment_id)
    frames = frames[(frames["phase"] == "training") & (frames["attempt"] == 1)]
    keys = ["run_id", "label", "role"]
    alone = pd.concat([frames[keys], taken_apart(frames)], axis="columns")
    summed = alone.groupby(keys, sort=False, as_index=False).sum()
    return summed.melt(keys, var_name="phase", value_name="seconds")


def taken_apart(frames: pd.DataFrame) -> pd.DataFrame:
    """One row per frame, a column per phase: its time less that of the phases in it.

    What torch does not report took no time. A backward that is compiled later is a frame of its
    own, whose total is AOTAutograd's.
    """
    within = frames[list(PHASES.values())].astype(float).copy()
    is_backward = within["aot_seconds"].isna() & frames["function"].isna()
    within.loc[is_backward, "aot_seconds"] = within["total_seconds"]
    # A phase that torch left out, as Inductor's where its cache had the graph, may hold others.
    within = within.fillna(0.0).iloc[:, ::-1].cummax(axis="columns").iloc[:, ::-1]
    alone = within - within.shift(-1, axis="columns", fill_value=0.0)
    return alone.set_axis(list(PHASES), axis="columns")
