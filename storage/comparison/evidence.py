"""The raw series of an experiment's runs, as the comparison needs them, and what they say alone."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from runner.folders.states import RunState
from runner.specs.experiment import ExperimentSpec
from runner.specs.training import Precision
from storage import queries
from storage.comparison.device_peaks import peak_flops
from storage.errors import NotInStore
from storage.index.store import Store

ALL_POINTS = 2**40


@dataclass(frozen=True)
class Stop:
    """An end before the last step by rules of the training's own."""

    step: int
    reason: str


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
    device: pd.DataFrame
    """How the device fared: `storage.queries.device_samples`."""
    evaluations: pd.DataFrame
    """Of the primary split, without a compiler, by the number of steps done."""
    scores: pd.DataFrame
    """Every number of every evaluation, of all splits, compiled and not."""
    compiled_frames: pd.DataFrame
    """Of training, by the run's first process, like `graph_breaks`: a resumed one compiles anew."""
    graph_breaks: pd.DataFrame
    resumed_at: tuple[int, ...]
    """Steps done when the run was resumed."""
    stop: Stop | None
    workload: dict[str, Any]
    environment: dict[str, Any]

    @property
    def num_planned_steps(self) -> int:
        """Steps that the run was to do, or did until it stopped by rules of its own."""
        return self.num_steps if self.stop is None else self.stop.step

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
        """Time of the training steps that compiled, minus as many steady steps; at least 0. Of
        several processes the median.

        Of a resumed run its first process counts: what the later ones compiled again, in a cache
        that was filled or not, is no cost of the backend.
        """
        first = self.steps["attempt"] == 1
        compiled = self.steps[first & self.steps["compiled"]]
        step_seconds = self.step_seconds
        if compiled.empty or step_seconds is None:
            return None
        seconds = compiled.groupby("run_id")["seconds"]
        return max(0.0, float((seconds.sum() - seconds.count() * step_seconds).median()))

    def per_second(self, workload_field: str) -> float | None:
        """Throughput of what the workload has so many of per step."""
        per_step, step_seconds = self.workload.get(workload_field), self.step_seconds
        return None if per_step is None or not step_seconds else per_step / step_seconds

    @property
    def real_tokens_per_second(self) -> float | None:
        """Token throughput without padding."""
        rate, padding = self.per_second("tokens_per_step"), self.workload.get("padding_share")
        return None if rate is None or padding is None else rate * (1 - padding)

    def peak_share(self, precision: Precision) -> float | None:
        """Share of what the device can do at most, where that is known."""
        achieved = self.per_second("flops_per_step")
        peak = peak_flops(self.environment.get("device_name"), precision)
        return None if achieved is None or peak is None else achieved / peak

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

    def last_scores(self, split: str) -> dict[str, float]:
        """Every metric of the last evaluation of a split, without a compiler, by name."""
        mine = self.scores[(self.scores["split"] == split) & ~self.scores["compiled"]]
        last = mine[(mine["step"] == mine["step"].max()) & (mine["name"] != "loss")]
        return dict(zip(last["name"], last["value"], strict=True))

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

    @property
    def num_distinct_graph_breaks(self) -> int | None:
        """None for a run that compiled nothing."""
        if not self.has_compiled:
            return None
        return len(self.graph_breaks[["location", "reason"]].drop_duplicates())

    @property
    def num_guards(self) -> int | None:
        """Over all frames; None if Dynamo reported none."""
        return whole_number(self.compiled_frames["guards"].sum(min_count=1))


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
        "device": queries.device_samples(store, experiment_id),
        "scores": queries.evaluation_metrics(store, experiment_id),
        "compiled_frames": _of_training(queries.compile_metrics(store, experiment_id)),
        "graph_breaks": _of_training(queries.graph_breaks(store, experiment_id)),
    }
    resumptions = queries.resumptions(store, experiment_id)
    stops = queries.stops(store, experiment_id)
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
                resumed_at=tuple(_of(resumptions, run["run_id"])["step"]),
                stop=_stop(_of(stops, run["run_id"])),
                **mine,
            )
        )
    return queries.run_record(store, evidence[0].run_id).spec, evidence


def _of(frame: pd.DataFrame, run_id: str) -> pd.DataFrame:
    return frame[frame["run_id"] == run_id]


def _of_training(frame: pd.DataFrame) -> pd.DataFrame:
    """What the compiler did in training, in the first process of each run."""
    return frame[(frame["phase"] == "training") & (frame["attempt"] == 1)]


def _stop(stops: pd.DataFrame) -> Stop | None:
    if stops.empty:
        return None
    step, reason = stops[["step", "reason"]].iloc[-1]
    return Stop(int(step), reason or "no reason given")


def _by(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame.drop_duplicates(column, keep="last").set_index(column)


def number(value: Any) -> float | None:
    """A float, or None for a missing one."""
    return None if value is None or math.isnan(value) else float(value)


def whole_number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)
