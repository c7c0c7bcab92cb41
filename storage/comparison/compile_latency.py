"""Computes the compile latency of a run: the time that its compiling took."""

import numpy as np
import pandas as pd

from breakeven.storage.comparison.evidence import Evidence


def compile_latencies(run: Evidence) -> tuple[float, ...]:
    """For each process that compiled: time of the training steps that compiled, minus the time of
    as many steady steps; at least 0. Empty if no step is steady.

    Only the first process of a resumed run counts: later compiling, with filled caches or without,
    is no cost of the backend.
    """
    first = (run.steps["attempt"] == 1).to_numpy() & run.steps["compiled"].to_numpy(bool)
    if not first.any() or run.step_seconds is None:
        return ()
    process, _ = pd.factorize(run.steps["run_id"].array[first])
    seconds = run.steps["seconds"].to_numpy(float)[first]
    spent = np.bincount(process, np.nan_to_num(seconds - run.step_seconds))
    return tuple(max(0.0, float(extra)) for extra in spent)


def compile_seconds(run: Evidence) -> float | None:
    """The compile latency; the median of several processes."""
    latencies = compile_latencies(run)
    return float(np.median(latencies)) if latencies else None
