"""Rounds in which baseline and another run were both timed: what every speedup is made of."""

import pandas as pd

from storage.comparison.evidence import Evidence
from storage.comparison.repeats import load_compared
from storage.comparison.roles import of_role
from storage.index.store import Store

KEYS = ["process", "round", "num_steps"]


def paired_blocks(baseline: Evidence | None, run: Evidence) -> pd.DataFrame:
    """process, round, num_steps, baseline, other: seconds of blocks of equal length that both spent
    steadily in a round, in the order of time; of `storage.comparison.repeats.pool`."""
    if baseline is None or run.role == "baseline":
        return pd.DataFrame({name: [] for name in [*KEYS, "baseline", "other"]}, dtype=float)
    columns = [*KEYS, "seconds"]
    pairs = baseline.steady_blocks[columns].merge(run.steady_blocks[columns], on=KEYS)
    pairs = pairs.rename(columns={"seconds_x": "baseline", "seconds_y": "other"})
    return pairs[(pairs["baseline"] > 0) & (pairs["other"] > 0)]


def round_speedups(store: Store, experiment_id: str) -> pd.DataFrame:
    """label, role, process, round, speedup of every paired round; raises `NotInStore`."""
    _, runs = load_compared(store, experiment_id)
    baseline = of_role(runs, "baseline")
    frames = [
        paired_blocks(baseline, run).assign(label=run.label, role=run.role)
        for run in runs
        if run.role != "baseline"
    ]
    columns = ["label", "role", "process", "round", "speedup"]
    if not frames:
        return pd.DataFrame(columns=columns)
    pairs = pd.concat(frames, ignore_index=True)
    pairs["speedup"] = pairs["baseline"] / pairs["other"]
    return pairs[columns]
