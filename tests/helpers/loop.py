"""The training loop in this process: a small experiment, and turns without a supervisor."""

import gc
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._dynamo.callback import callback_handler
from torch._dynamo.utils import clear_compilation_metrics
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import (
    DataSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.transformers_models import BUILTIN_CONFIGURATIONS
from breakeven.runner.worker.script.starting_again import HOOKS
from breakeven.runner.worker.session import run_session
from breakeven.runner.worker.turn_source import Turns

TINY_BERT, SETTINGS = BUILTIN_CONFIGURATIONS["builtin:bert-tiny"]
SMALLER = {"builtin:bert-tiny": (TINY_BERT, {**SETTINGS, "num_hidden_layers": 1})}
"""A BERT of one layer: compiles in 0.6 times the time of two layers, and no test needs the
second."""
FAULTS = Path(__file__).parents[1] / "faults"
NET: dict[str, Any] = {
    "task": "custom",
    "model": ModelSpec(source=f"{FAULTS / 'relu_net.py'}:ScoredNet"),
    "data": DataSpec(
        source=f"{FAULTS / 'relu_net.py'}:samples", num_train_samples=26, num_eval_samples=10
    ),
}
"""A small network with as many samples; compiles in a fifth of the time of a BERT."""
LOOK_THROUGH_EVERY = 100
"""Trainings between two collections of reference cycles."""
UNFREEZE = gc.unfreeze
_set_aside = itertools.count(1)


@contextmanager
def torch_afresh() -> Iterator[None]:
    """One thread, a BERT of one layer, permission for the code of `NET`, and a compiler without a
    cache: a run usually has its own process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    callback_handler.clear()
    clear_compilation_metrics()
    allowed = mock.patch.dict(os.environ, {CODE_VARIABLE: str(FAULTS)})
    with mock.patch.dict(BUILTIN_CONFIGURATIONS, SMALLER), allowed, loaded_set_aside():
        yield
    torch.set_num_threads(before)
    # A script may leave what only the end of its process takes away.
    torch.set_default_dtype(torch.float32)
    for hooks in HOOKS:
        hooks.clear()
    while _get_current_dispatch_mode() is not None:
        _pop_mode()


@contextmanager
def loaded_set_aside() -> Iterator[None]:
    """Hides existing objects from the garbage collector. It takes 0.4 s for torch and all test
    files, and a training collects before each block, from its first compilation on everything; one
    test checks this behaviour of the worker."""
    if next(_set_aside) % LOOK_THROUGH_EVERY == 0:
        gc.collect()
    gc.freeze()
    with mock.patch.object(gc, "unfreeze"):
        yield
    gc.unfreeze()  # otherwise reference cycles in these objects would never be collected


class TurnsOnPaper(Turns):
    """Gives turns on request; stops after `num_turns`."""

    def __init__(self, num_turns: int = 1000) -> None:
        super().__init__()
        self.said: list[str] = []
        self._left = num_turns

    def ready(self) -> None:
        self.said.append("ready")

    def wait(self) -> Turn | None:
        if self._left == 0:
            return None
        self._left -= 1
        return super().wait()

    def done(self, *, finished: bool) -> None:
        self.said.append("finished" if finished else "done")


def experiment(**changes: Any) -> ExperimentSpec:
    """26 samples in batches of 4: 6 full batches per epoch, and 2 samples left out."""
    spec = ExperimentSpec(
        name="trial",
        backends=("eager",),
        data=DataSpec(num_train_samples=26, num_eval_samples=10, sequence_length=16),
        training=TrainingSpec(batch_size=4, epochs=2, learning_rate=1e-3, seed=7),
        block_steps=4,
        profile_steps=0,
    )
    return replace(spec, **changes)


def run(
    spec: ExperimentSpec,
    journal: Path,
    label: str = "baseline",
    turns: TurnsOnPaper | None = None,
    folder: RunDir | None = None,
) -> list[dict[str, Any]]:
    (arm,) = (arm for arm in spec.possible_arms if arm.label == label)
    log = EventLog(journal)
    run_spec = RunSpec(experiment_id="x", experiment=spec, arm=arm)
    run_session(folder or folder_of(journal), run_spec, log, turns or TurnsOnPaper())
    callback_handler.clear()  # otherwise this run would observe the compilations of the next one
    gc.unfreeze()
    log.close()
    return read_events(journal)[0]


def folder_of(journal: Path) -> RunDir:
    """The run folder for a journal of `run`."""
    return RunDir(journal.with_name(f"{journal.name}-folder"))


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == kind]
