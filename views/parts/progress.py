"""How far an experiment is, and how long it still takes."""

import time
from weakref import WeakKeyDictionary

import pandas as pd

from runner.folders.states import ACTIVE_RUNS, RunState
from storage import queries
from storage.estimates.costs import Costs, costs_of, earlier_costs
from storage.estimates.remaining import remaining_seconds
from storage.index.store import Store

_kept: WeakKeyDictionary[Store, dict[str, list[Costs]]] = WeakKeyDictionary()
"""Costs of earlier experiments, by the id of the one that goes on: they no longer change."""


def fraction_done(runs: pd.DataFrame) -> float:
    """Share of the steps of all runs that are done or, in runs that ended early, dropped."""
    total = runs["num_steps"].sum()
    ended = ~runs["state"].isin(ACTIVE_RUNS)
    done = runs["steps_done"].where(~ended, runs["num_steps"]).sum()
    return float(min(1.0, done / total)) if total > 0 else 0.0


def remaining(store: Store, experiment_id: str, runs: pd.DataFrame) -> float | None:
    """Seconds that an experiment still takes, about; None while nobody can tell."""
    now = time.time()
    costs, earlier = known_costs(store, experiment_id)
    return remaining_seconds(costs, earlier, now, compiling_seconds(runs, now))


def known_costs(store: Store, experiment_id: str) -> tuple[Costs, list[Costs]]:
    """What its runs took so far, and those of earlier experiments."""
    return costs_of(store, experiment_id), earlier_of(store, experiment_id)


def earlier_of(store: Store, experiment_id: str) -> list[Costs]:
    """What earlier experiments of the kind took; looked up once."""
    kept = _kept.setdefault(store, {})
    if experiment_id in kept:
        return kept[experiment_id]
    spec = queries.experiment_spec(store, experiment_id)
    machines = queries.environments(store, experiment_id)["device_name"].dropna()
    if machines.empty:  # It has only just begun.
        return earlier_costs(store, spec, None)
    kept[experiment_id] = earlier_costs(store, spec, str(machines.iloc[0]))
    return kept[experiment_id]


def usual_compile_seconds(store: Store, experiment_id: str, runs: pd.DataFrame) -> dict[str, float]:
    """What compiling took the newest earlier run of the same backend on this machine, by label, for
    those that compile right now."""
    compiling = runs[runs["compiling_since"].notna()]
    if compiling.empty:
        return {}
    earlier = earlier_of(store, experiment_id)
    found = {}
    for label in compiling["label"]:
        same = (one.of(label) for one in earlier)
        took = [run.compile_seconds for run in same if run and run.compile_seconds]
        found.update({label: took[0]} if took else {})
    return found


def compiling_seconds(runs: pd.DataFrame, now: float) -> dict[str, float]:
    """For how long the run that has the turn has been at it, by its label: if there is compiling to
    do, that comes first, and is several compilations with moments between them."""
    busy = runs[
        (runs["state"] == RunState.RUNNING) & runs["phase"].isin(["training", "evaluating"])
    ]
    return {
        str(run.label): max(0.0, now - run.phase_started.timestamp()) for run in busy.itertuples()
    }
