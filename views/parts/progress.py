"""How far an experiment is, and how long it still takes."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pandas as pd

from breakeven.runner.folders.states import RunState
from breakeven.storage import queries
from breakeven.storage.estimates import Costs, costs_of, earlier_costs, remaining_seconds
from breakeven.storage.index.store import Store
from breakeven.storage.memo import always, memo
from breakeven.storage.queries.timeline import ELAPSED, KIND_OF_PHASE, elapsed

_shown: WeakKeyDictionary[Store, dict[str, tuple[pd.Timestamp, float]]] = WeakKeyDictionary()
"""By experiment: when it began, and the largest share of its time that was told as done."""
MOST_DONE = 0.99
"""Of an experiment that goes on."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an experiment is, by the time that it takes."""

    elapsed: float
    """Seconds since its first run started."""
    phases: Mapping[str, float]
    """Of them, by what it did, as `storage.queries.timeline.ELAPSED` names it."""
    left: float | None
    """Seconds that are still to come, about; None while nobody can tell."""
    share: float
    """That is done: it never goes back, and is below 1 as long as the experiment goes on."""


def progress(store: Store, experiment_id: str, runs: pd.DataFrame) -> Progress | None:
    """`runs`: rows of `storage.queries.list_runs`; None before the first of them has started."""
    if runs["started"].isna().all():
        return None
    now, begun = time.time(), runs["started"].min()
    so_far = max(0.0, now - begun.timestamp())
    known = *known_costs(store, experiment_id), now, compiling_seconds(runs, now)
    rough = remaining_seconds(*known, guess=True)
    share = 0.0 if rough is None else so_far / max(so_far + rough, 1e-9)
    before = _shown.setdefault(store, {}).get(experiment_id, (begun, 0.0))
    share = max(min(share, MOST_DONE), before[1] if before[0] == begun else 0.0)
    _shown[store][experiment_id] = begun, share
    return Progress(
        elapsed=so_far,
        phases=_phases(store, experiment_id, runs, now),
        left=None if remaining_seconds(*known) is None else rough,
        share=share,
    )


def _phases(
    store: Store, experiment_id: str, runs: pd.DataFrame, now: float
) -> Mapping[str, float]:
    """Journals tell of what is over; since their last line it does what its runs do now."""
    seconds, told = elapsed(store, experiment_id)
    running = runs[runs["state"] == RunState.RUNNING]
    if told is None or running.empty:
        return seconds
    doing = {KIND_OF_PHASE.get(one, one) for one in running["phase"].fillna("loading")}
    doing |= {"compiling"} if running["compiling_since"].notna().any() else set()
    current = next((one for one in ELAPSED if one in doing), "waiting")
    seconds = seconds | {current: seconds.get(current, 0.0) + max(0.0, now - told)}
    return {one: seconds[one] for one in ELAPSED if one in seconds}


def known_costs(store: Store, experiment_id: str) -> tuple[Costs, list[Costs]]:
    """What its runs took so far, and those of earlier experiments."""
    return costs_of(store, experiment_id), earlier_of(store, experiment_id)


def earlier_of(store: Store, experiment_id: str) -> list[Costs]:
    """What earlier experiments of the kind took."""
    machines = queries.environments(store, experiment_id)["device_name"].dropna()
    # One that has only just begun has not named its machine.
    return _earlier(store, experiment_id, None if machines.empty else str(machines.iloc[0]))


@memo(always)
def _earlier(store: Store, experiment_id: str, machine: str | None) -> list[Costs]:
    """Those that were over when the experiment began no longer change."""
    return earlier_costs(store, queries.experiment_spec(store, experiment_id), machine)


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
