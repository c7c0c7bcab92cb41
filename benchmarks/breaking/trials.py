"""What trials share: what a fault is, which experiments it hits, and in which phase."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.breaking.world import Outcome, World
from runner.specs.experiment import CheckpointSpec, DataSpec, ExperimentSpec, TrainingSpec
from runner.specs.training import EvaluationSpec

PHASES: dict[str, Callable[[list[str]], bool]] = {
    "start": lambda seen: True,
    "load": lambda seen: not {"environment", "preparing", "waiting"}.isdisjoint(seen),
    "compile": lambda seen: "compile_started" in seen,
    "steps": lambda seen: seen.count("step") >= 4,
    "evaluation": lambda seen: "evaluating" in seen,
    "checkpoint": lambda seen: "checkpoint" in seen,
    "end": lambda seen: "done" in seen or seen.count("step") >= 60,
}
"""When a real run has come to a phase, by the events in its journal."""
Break = Callable[[World, random.Random], Outcome]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong."""

    name: str
    act: Break
    is_real: bool = False
    """Whether real training stands behind it, so that a trial takes many seconds."""


def toy(*backends: str, steps: int = 300) -> ExperimentSpec:
    """For runs that train nothing: two milliseconds a step."""
    return ExperimentSpec(name="trial", backends=backends, controls=0,
                          data=DataSpec(num_train_samples=steps),
                          training=TrainingSpec(batch_size=1))  # fmt: skip


def small(compiled: bool = False, **changes: object) -> ExperimentSpec:
    """For runs that train: 60 steps, with evaluations and checkpoints."""
    spec = ExperimentSpec(
        name="trial", backends=("inductor",) if compiled else (), controls=0,
        data=DataSpec(num_train_samples=240, num_eval_samples=40, sequence_length=16),
        training=TrainingSpec(batch_size=4, seed=1), block_steps=4, profile_steps=0,
        evaluation=EvaluationSpec(when="steps", every=10),
        checkpoints=CheckpointSpec(every=10, unit="steps"),
    )  # fmt: skip
    return replace(spec, **changes)  # type: ignore[arg-type]
