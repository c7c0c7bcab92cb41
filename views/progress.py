"""How far an experiment is and how long it will take: plain arithmetic on what was recorded."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from runner.spec import ExperimentSpec

ACTIVE = ("queued", "running")


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
    """Scales the newest finished experiment of the same model and device by the number of steps.

    `earlier`: experiments with their runs, newest first. Compiling and starting up are scaled along
    with the steps, so the estimate is rough; None if there is nothing to go by.
    """
    for experiment, runs in earlier:
        same = experiment["model"] == spec.model.source and experiment["device"] == spec.device
        steps = runs["steps_done"].sum()
        if not same or experiment["state"] != "finished" or steps == 0:
            continue
        took = (runs["ended"].max() - runs["started"].min()).total_seconds()
        planned = spec.num_steps * len(spec.variants)
        return Estimate(seconds=took * planned / float(steps), based_on=str(experiment["name"]))
    return None
