"""How far an experiment is and how long it will take: plain arithmetic on what was recorded."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from runner.spec import ExperimentSpec

ACTIVE = ("queued", "running")
FAILED = ("failed", "timeout", "out_of_memory", "lost")
"""States of runs that ended otherwise than they should or were told to."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long an experiment took that resembles the one in question."""

    seconds: float
    based_on: str
    """Name of the experiment that the estimate goes by."""


def fraction_done(runs: pd.DataFrame) -> float:
    """Share of the steps of all runs that are done or, in runs that ended early, dropped."""
    total = runs["num_steps"].sum()
    ended = ~runs["state"].isin(ACTIVE)
    done = runs["steps_done"].where(~ended, runs["num_steps"]).sum()
    return float(min(1.0, done / total)) if total > 0 else 0.0


def remaining_seconds(runs: pd.DataFrame) -> float | None:
    """Time that the steps to come will take; None while no run has a steady step.

    Runs of an experiment take turns on one device, so their times add up. A run whose own steady
    step is not known yet counts with the slowest one known. Compiling still ahead is not included.
    """
    active = runs[runs["state"].isin(ACTIVE)]
    known = runs["steady_step_seconds"].dropna().astype(float)
    if active.empty or known.empty:
        return None
    step_seconds = active["steady_step_seconds"].astype(float).fillna(known.max())
    left = (active["num_steps"] - active["steps_done"]).clip(lower=0)
    return float((left * step_seconds).sum())


def estimate(
    spec: ExperimentSpec, earlier: Iterable[tuple[pd.Series, pd.DataFrame]]
) -> Estimate | None:
    """Goes by the newest finished experiment with the same model and device.

    What that one spent beside its steady steps (starting, compiling, evaluating) is taken once
    per run again, its mean steady step once per step. Rough: batch size and sequence length may
    differ. None if there is nothing to go by. `earlier`: experiments with their runs, newest first.
    """
    for experiment, runs in earlier:
        same = experiment["model"] == spec.model.source and experiment["device"] == spec.device
        steady = runs["steady_step_seconds"].astype(float)
        if not same or experiment["state"] != "finished" or steady.isna().any():
            continue
        took = (runs["ended"].max() - runs["started"].min()).total_seconds()
        beside = max(0.0, took - float((runs["steps_done"] * steady).sum()))
        per_run = beside / len(runs) + spec.num_steps * float(steady.mean())
        name = str(experiment["name"])
        return Estimate(seconds=per_run * len(spec.variants), based_on=name)
    return None
