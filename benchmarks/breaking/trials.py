"""Shared parts of trials: the class of faults, the experiments that they hit, and the phases."""

import os
import random
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from benchmarks.breaking.world import Outcome, World, kinds, leader
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import CheckpointSpec, DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.specs.training import EvaluationSpec

PHASES: dict[str, Callable[[list[str]], bool]] = {
    "start": lambda seen: True,
    "load": lambda seen: not {"environment", "preparing", "waiting"}.isdisjoint(seen),
    "compile": lambda seen: "compile_started" in seen,
    "captured graphs": lambda seen: "compile_ended" in seen and seen.count("step") >= 8,
    "steps": lambda seen: seen.count("step") >= 4,
    "evaluation": lambda seen: "evaluating" in seen,
    "checkpoint": lambda seen: "checkpoint" in seen,
    "end": lambda seen: "done" in seen or seen.count("step") >= STEPS,
}
"""When a real run has reached a phase, from the events in its journal."""
CAPTURE = "graph capture"
"""A phase without an event: during the capture of a CUDA graph."""
MARKS_CAPTURE = """import pathlib, time, torch
class Own:
    def train_begin(self, state):
        usual = torch.cuda.graph.__enter__
        def enter(graph):
            usual(graph)
            pathlib.Path(__file__).with_name("capturing").touch()
            time.sleep(0.3)
        torch.cuda.graph.__enter__ = enter
"""
"""A user's code that reports this phase, and stays in it for a moment."""
STEPS = 160
GRAPHS = ("inductor:mode=reduce-overhead",)
BACKENDS = {"compile": ("inductor",), "captured graphs": GRAPHS, CAPTURE: GRAPHS}
"""Backends for phases that the baseline does not reach."""
Break = Callable[[World, random.Random], Outcome]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault."""

    name: str
    act: Break
    is_real: bool = False
    """Whether it needs real training, so that a trial takes many seconds."""
    needs: str | None = None
    """Requirement on the machine: a name in `lacks` of `faults.py`."""
    on_device: bool = True
    """Whether its training may use a device other than the CPU."""


def submit(world: World, phase: str, **changes: object) -> list[RunDir]:
    """Queues a training that reaches the phase; the last run is the one to hit."""
    if phase == CAPTURE and "callbacks" not in changes:
        changes["callbacks"] = (own(world, MARKS_CAPTURE),)
    return world.submit(small(phase, world.device, **changes))


def own(world: World, text: str) -> str:
    """A user's code with the class `Own`, in a file that runs can load."""
    file = world.data_dir.path / "own.py"
    file.write_text(text)
    os.environ["BREAKEVEN_CODE"] = str(file.parent)
    return f"{file}:Own"


def wait_for(world: World, run: RunDir, phase: str) -> None:
    """Waits until a run reaches a phase or is over."""
    if phase == CAPTURE:
        capturing = world.data_dir.path / "capturing"
        world.wait(lambda: run.is_recorded or capturing.exists(), phase)
    else:
        world.wait(
            lambda: run.is_recorded or (leader(run) is not None and PHASES[phase](kinds(run))),
            phase,
        )


def toy(*backends: str, steps: int = 300) -> ExperimentSpec:
    """Runs that train nothing: two milliseconds per step."""
    return ExperimentSpec(
        name="trial",
        backends=backends,
        controls=0,
        data=DataSpec(num_train_samples=steps),
        training=TrainingSpec(batch_size=1),
    )


def stepping(
    world: World, environment: Mapping[str, str] | None = None, steps: int = 300
) -> tuple[list[RunDir], "subprocess.Popen[bytes]"]:
    """Such runs, a baseline and a backend, which make steps; and their supervisor."""
    runs = world.submit(toy("one", steps=steps))
    supervisor = world.supervise(environment)
    world.wait(lambda: "step" in kinds(runs[-1]), "steps")
    return runs, supervisor


def small(phase: str = "steps", device: str = "cpu", **changes: object) -> ExperimentSpec:
    """Runs that train: 160 steps, with evaluations and checkpoints."""
    spec = ExperimentSpec(
        name="trial",
        backends=BACKENDS.get(phase, ()),
        controls=0,
        devices=(device,),
        data=DataSpec(num_train_samples=4 * STEPS, num_eval_samples=40, sequence_length=16),
        training=TrainingSpec(batch_size=4, seed=1),
        block_steps=4,
        profile_steps=0,
        evaluation=EvaluationSpec(when="steps", every=10),
        checkpoints=CheckpointSpec(every=10, unit="steps"),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]
