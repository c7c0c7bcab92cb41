"""Profiles that were recorded on an H100 (80 GB HBM3, torch 2.11.0+cu130, 2026-11-22) from six
models side by side: classes and counts are real, but times include waits for the neighbours."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.storage.profile.findings import Case, arm_of
from breakeven.storage.profile.recorded_profiles import Profile, classified, scaled_to_timed_step

RECORDED = Path(__file__).parent
COLUMNS = ["name", "op", "phase", "dtype", "calls", "seconds"]


def names() -> list[str]:
    return sorted(file.stem for file in RECORDED.glob("*.json"))


def kernels_of(name: str) -> pd.DataFrame:
    return pd.DataFrame(_read(name)["kernels"], columns=COLUMNS)


def recorded(name: str) -> Profile:
    """`BertForMaskedLM.inductor`: the model and the run."""
    record = _read(name)
    kernels = kernels_of(name)
    # If neighbours disturbed a step, the sum of the kernels counts.
    step_seconds = max(record["step_seconds"], kernels["seconds"].sum())
    return make_profile(
        kernels,
        step_seconds,
        name.partition(".")[2],
        launches=record["launches"],
        host_seconds=record["host_seconds"],
    )


def make_profile(
    kernels: pd.DataFrame,
    step_seconds: float | None,
    label: str = "inductor",
    works_by_itself: bool = True,
    **turn: Any,
) -> Profile:
    """A profile with one turn; `kernels` has at least names and seconds."""
    complete = kernels.reindex(columns=COLUMNS).fillna({"calls": 1.0})
    facts = {
        "label": label,
        "seconds": max(step_seconds or 0.0, complete["seconds"].sum()),
        "busy_seconds": float(complete["seconds"].sum()),
        "launches": 100.0,
        "host_seconds": {},
        "underfilled_seconds": 0.0,
        "waited_seconds": None,
        **turn,
    }
    profile = Profile(
        label=label,
        step_seconds=step_seconds,
        state=RunState.FINISHED,
        works_by_itself=works_by_itself,
        turns=pd.DataFrame([facts]),
        kernels=classified(complete),
        cost_seconds=1.0,
    )
    return scaled_to_timed_step(profile)


def case_of(
    run: Profile, baseline: Profile | None = None, backend: str = "inductor", **training: Any
) -> Case:
    """`run` as the backend's profile, or without a baseline as the baseline's own."""
    settings = TrainingSpec(**{"precision": "bf16", **training})
    spec = ExperimentSpec(name="test", training=settings, backends=(backend,), devices=("cuda:0",))
    label = "baseline" if baseline is None else spec.arms[-1].label
    arm, text = arm_of(spec, label)
    return Case(
        spec=spec,
        arm=arm,
        text=text,
        profile=replace(run, label=label),
        baseline=baseline,
        workload={},
        breaks=pd.DataFrame(columns=["location", "reason", "count"]),
        frames=pd.DataFrame(
            columns=["compile_id", "file", "function", "total_seconds", "recompile_reason"]
        ),
    )


def _read(name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return record
