"""The raw series of an experiment's runs, as the comparison needs them, and what they say alone."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.run_dir import RunState
from runner.spec import ExperimentSpec
from storage import queries
from storage.errors import NotInStore
from storage.store import Store

ALL_POINTS = 2**40


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one run recorded. Undefined is None."""

    run_id: str
    label: str
    role: str
    backend: str | None
    state: RunState
    reason: str | None
    num_steps: int
    losses: pd.Series
    """By step, those that were recorded; NaN is a loss that is not a number."""
    steps: pd.DataFrame
    blocks: pd.DataFrame
    evaluations: pd.DataFrame
    """By the number of steps done."""
    compiled_frames: pd.DataFrame
    graph_breaks: pd.DataFrame
    workload: dict[str, Any]
    environment: dict[str, Any]

    @property
    def steady_blocks(self) -> pd.DataFrame:
        return self.blocks[self.blocks["steady"]]

    @property
    def has_compiled(self) -> bool:
        return bool(self.steps["compiled"].any()) or len(self.compiled_frames) > 0

    @property
    def step_seconds(self) -> float | None:
        """Median over the steady steps."""
        return number(self.steps.loc[self.steps["steady"], "seconds"].median())

    @property
    def compile_seconds(self) -> float | None:
        """Time of the training steps that compiled, minus as many steady steps; at least 0."""
        compiled = self.steps.loc[self.steps["compiled"], "seconds"]
        step_seconds = self.step_seconds
        if compiled.empty or step_seconds is None:
            return None
        return max(0.0, float(compiled.sum()) - len(compiled) * step_seconds)

    def per_second(self, workload_field: str) -> float | None:
        """Throughput of what the workload has so many of per step."""
        per_step, step_seconds = self.workload.get(workload_field), self.step_seconds
        return None if per_step is None or not step_seconds else per_step / step_seconds

    @property
    def peak_memory_bytes(self) -> int | None:
        return whole_number(self.steady_blocks["peak_memory_bytes"].max())

    @property
    def compile_peak_memory_bytes(self) -> int | None:
        return whole_number(self.blocks.loc[self.blocks["compiled"], "peak_memory_bytes"].max())

    @property
    def reserved_memory_bytes(self) -> int | None:
        return whole_number(self.steady_blocks["reserved_memory_bytes"].max())

    @property
    def final_loss(self) -> float | None:
        """Mean over the last tenth of the steps done, at least one; NaN if one of them is."""
        if self.losses.empty:
            return None
        return float(self.losses.iloc[-max(1, len(self.losses) // 10) :].mean(skipna=False))

    def last_evaluation(self, column: str) -> float | None:
        return None if self.evaluations.empty else number(self.evaluations[column].iloc[-1])

    @property
    def num_graph_breaks(self) -> int | None:
        """None for a run that compiled nothing."""
        if not self.has_compiled:
            return None
        return int(self.graph_breaks["count"].fillna(1).sum())

    @property
    def num_recompiles(self) -> int | None:
        """None if Dynamo reported no frame."""
        if self.compiled_frames.empty:
            return None
        return int(self.compiled_frames["recompile_reason"].notna().sum())


def load_evidence(store: Store, experiment_id: str) -> tuple[ExperimentSpec, list[Evidence]]:
    """All runs of an experiment, in the order of its variants; raises `NotInStore`."""
    runs = queries.list_runs(store, experiment_id)
    if runs.empty:
        raise NotInStore(
            f"no experiment {experiment_id!r} in {store.data_dir.runs} or among the examples"
        )
    losses = queries.losses(store, experiment_id, ALL_POINTS)
    series = {
        "steps": queries.step_times(store, experiment_id),
        "blocks": queries.blocks(store, experiment_id),
        "compiled_frames": queries.compile_metrics(store, experiment_id),
        "graph_breaks": queries.graph_breaks(store, experiment_id),
    }
    evaluations = queries.evaluations(store, experiment_id)
    workloads = queries.workloads(store, experiment_id)
    environments = queries.environments(store, experiment_id)
    evidence = []
    for run in runs.to_dict("records"):
        mine = {name: _of(frame, run["run_id"]) for name, frame in series.items()}
        evidence.append(
            Evidence(
                run_id=run["run_id"],
                label=run["label"],
                role=run["role"],
                backend=None if pd.isna(run["backend"]) else run["backend"],
                state=RunState(run["state"]),
                reason=None if pd.isna(run["reason"]) else run["reason"],
                num_steps=run["num_steps"],
                losses=_by(_of(losses, run["run_id"]), "step")["loss"],
                evaluations=_by(_of(evaluations, run["run_id"]), "step"),
                workload=queries.fields_of(workloads, run["run_id"]),
                environment=queries.fields_of(environments, run["run_id"]),
                **mine,
            )
        )
    return queries.run_record(store, evidence[0].run_id).spec, evidence


def _of(frame: pd.DataFrame, run_id: str) -> pd.DataFrame:
    return frame[frame["run_id"] == run_id]


def _by(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame.drop_duplicates(column, keep="last").set_index(column)


def number(value: Any) -> float | None:
    """A float, or None for a missing one."""
    return None if value is None or math.isnan(value) else float(value)


def whole_number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)
