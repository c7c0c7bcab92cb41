"""The same training every night, as a nightly job records it."""

from dataclasses import replace
from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.journals import experiment_spec, record_experiment

SPEC = experiment_spec(controls=0)
NOISE = (1.0, 1.01, 0.99, 1.005, 0.995, 1.0)
"""Relative noise of step times between nights."""


def record_night(
    data_dir: DataDir, day: int, seconds: float, spec: ExperimentSpec = SPEC, **environment: Any
) -> str:
    """Inductor has steps of this time, the baseline 0.2 s; returns the experiment's id."""
    experiment_id = f"202611{day:02d}-093015-123456-7f3a"
    named = replace(spec, name=f"night {day}")
    return record_experiment(
        data_dir.runs, named, experiment_id, backend_seconds=seconds, environment=environment
    )


def record_slower_torch(data_dir: DataDir) -> None:
    """Eight nights with steps of about 0.1 s, and four of 0.125 s after a new version of torch."""
    for day in range(1, 13):
        seconds = (0.1 if day <= 8 else 0.125) * NOISE[day % 6]
        version = "2.12.0" if day <= 8 else "2.13.0"
        record_night(data_dir, day, seconds, versions={"torch": version})
