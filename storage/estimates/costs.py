"""What experiments took: how long it was until the first turn, their steps, compiling, evaluations,
and the end. By that `storage/estimates/remaining.py` tells what is still to come."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from breakeven.runner.folders.states import ExperimentState, RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store

MAX_EARLIER = 5
"""Experiments that are looked into for one of the same backend."""
MAX_OVERHEAD = 1.5
"""Wall time of turns over that of their steps and evaluations; more is a pause, no overhead."""


@dataclass(frozen=True, kw_only=True)
class RunCosts:
    """A row of `queries.costs`; what is not known is None."""

    label: str
    role: str
    state: str = RunState.QUEUED
    started: float | None = None
    ended: float | None = None
    first_turn: float | None = None
    worked_until: float | None = None
    num_steps: int | None = None
    """That it is to make; None of a script that has not said so."""
    steps: int = 0
    seconds_of_steps: float = 0.0
    step_seconds: float | None = None
    first_step_seconds: float | None = None
    compiled_steps: int = 0
    compile_seconds: float | None = None
    seconds_of_evaluations: float = 0.0
    evaluations: int = 0
    evaluation_seconds: float | None = None
    compiled_evaluations: int = 0
    first_compiled_evaluation_seconds: float | None = None
    compiled_evaluation_seconds: float | None = None

    @property
    def is_active(self) -> bool:
        return RunState(self.state).is_active

    @property
    def evaluation_compile_share(self) -> float | None:
        """What the first evaluation under the backend took longer than others, over what compiling
        took for training."""
        first = self.first_compiled_evaluation_seconds
        usual = self.compiled_evaluation_seconds or self.evaluation_seconds
        if first is None or usual is None or not self.compile_seconds:
            return None
        return max(0.0, first - usual) / self.compile_seconds


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What an experiment asked for, and what its runs took so far."""

    name: str
    spec: ExperimentSpec
    runs: tuple[RunCosts, ...]
    experiment_id: str | None = None
    """None of one that was never submitted."""

    def of(self, label: str) -> RunCosts | None:
        return next((run for run in self.runs if run.label == label), None)

    @cached_property
    def efforts(self) -> dict[str, int]:
        """`Variant.compile_effort` by label."""
        return {one.label: one.compile_effort for one in self.spec.possible_variants}

    @property
    def racing_since(self) -> float | None:
        """When all had set up: for that those that compile wait with their first turn."""
        turns = [(self.efforts[run.label] == 0, run.first_turn) for run in self.runs
                 if run.first_turn is not None]  # fmt: skip
        compiling = [turn for compiles_nothing, turn in turns if not compiles_nothing]
        if compiling:
            return min(compiling)
        everyone = len(turns) == len(self.runs)
        return max(turn for _, turn in turns) if turns and everyone else None

    @property
    def setup_seconds(self) -> float | None:
        """From the start of the first process until all had set up."""
        starts = [run.started for run in self.runs if run.started is not None]
        since = self.racing_since
        return max(0.0, since - min(starts)) if starts and since is not None else None

    @property
    def closing_seconds(self) -> float | None:
        """From the last block or evaluation of a run to the end of its process, at most."""
        spans = [run.ended - run.worked_until for run in self.runs
                 if run.ended is not None and run.worked_until is not None]  # fmt: skip
        return max(0.0, *spans) if spans else None

    @property
    def overhead(self) -> float:
        """Wall time of all turns over that of their steps and evaluations."""
        since = self.racing_since
        ends = [run.worked_until for run in self.runs if run.worked_until is not None]
        told = sum(run.seconds_of_steps + run.seconds_of_evaluations for run in self.runs)
        if since is None or not ends or told <= 0:
            return 1.0
        return min(MAX_OVERHEAD, max(1.0, (max(ends) - since) / told))


def costs_of(store: Store, experiment_id: str) -> Costs:
    """Raises `NotInStore`."""
    spec = queries.experiment_spec(store, experiment_id)
    rows = queries.costs(store, experiment_id).to_dict("records")
    known = [{str(k): v for k, v in row.items() if not pd.isna(v)} for row in rows]
    runs = tuple(RunCosts(**row) for row in known)
    return Costs(name=spec.name, spec=spec, runs=runs, experiment_id=experiment_id)


def earlier_costs(store: Store, spec: ExperimentSpec, device_name: str | None) -> list[Costs]:
    """Of the newest experiments of this model, scenario and machine that finished, those of the
    most similar work first."""
    listed = queries.list_experiments(store)
    alike = listed[
        (listed["state"] == ExperimentState.FINISHED)
        & (listed["origin"] == "local")
        & (listed["model"] == spec.model.source)
        & (listed["device"] == spec.device)
    ]
    if device_name is not None:
        alike = alike[alike["device_name"] == device_name]
    ids = list(map(str, alike["experiment_id"].head(MAX_EARLIER)))
    found = [one for one in (costs_of(store, id) for id in ids)
             if one.spec.scenario == spec.scenario]  # fmt: skip
    return sorted(found, key=lambda one: num_differences(one.spec, spec))


def num_differences(one: ExperimentSpec, other: ExperimentSpec) -> int:
    """Of what the time of a step depends on most."""
    return (
        (one.training.batch_size != other.training.batch_size)
        + (one.data.sequence_length != other.data.sequence_length)
        + (one.training.precision != other.training.precision)
        + (one.cpu_threads != other.cpu_threads)
        + (one.script.arguments != other.script.arguments)
    )
