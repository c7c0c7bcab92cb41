"""Users' training scripts, run in this process as a run would run them."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._dynamo.callback import callback_handler

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, RunSpec
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.run_script import run_script
from tests.helpers.loop import TurnsOnPaper, of_kind

NET = """
import torch
from torch import nn
import breakeven

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, points):
        return self.layer(points)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def made(points):
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

"""
"""The beginning of a script: a model, and a function that makes a step."""


ENDING = Ending(cause="loses", target_width=0.02, budget=500, to="inductor")


class Ended(TurnsOnPaper):
    """Turns of which one, the fourth unless another round is named, is the last. `block_steps`:
    most steps of the blocks after the first."""

    def __init__(self, last: int = 3, block_steps: int | None = None) -> None:
        super().__init__()
        self._last, self._block_steps = last, block_steps

    def wait(self) -> Turn | None:
        turn = super().wait()
        if turn is None:
            return None
        last = ENDING if turn.round == self._last else None
        return Turn(round=turn.round, position=0, last=last, block_steps=self._block_steps)


@dataclass(frozen=True)
class Ran:
    """What a script left behind."""

    events: list[dict[str, Any]]
    folder: RunDir
    turns: TurnsOnPaper

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return of_kind(self.events, kind)

    @property
    def losses(self) -> list[float]:
        return [event["loss"] for event in self.of_kind("step")]

    @property
    def workload(self) -> dict[str, Any]:
        """What was said last."""
        return self.of_kind("workload")[-1]


def experiment(file: Path, **changes: Any) -> ExperimentSpec:
    """Turns of 4 steps, no profile; `changes` may name other values."""
    usual: dict[str, Any] = {
        "model": ModelSpec(source=f"script:{file}"),
        "backends": ("eager",),
        "block_steps": 4,
        "profile_steps": 0,
    }
    return ExperimentSpec(
        name="mine",
        task="script",
        data=DataSpec(source="script"),
        **{**usual, **changes},
    )


def run(
    folder: Path,
    code: str,
    label: str = "baseline",
    turns: TurnsOnPaper | None = None,
    *,
    again: bool = False,
    **changes: Any,
) -> Ran:
    """Runs a script of this code, in a folder `project`; raises what the run would fail by.
    `again` makes another attempt at a run that ended early."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    script = project / "train.py"
    script.write_text(code)
    spec = experiment(script, **changes)
    (arm,) = (arm for arm in spec.arms if arm.label == label)
    run_spec = RunSpec(experiment_id="x", experiment=spec, arm=arm)
    place = RunDir(folder / run_spec.run_id)
    assert place.path.exists() == again, "a run of this label has its journal there already"
    if again:
        place.reopen()
    place.write_spec(run_spec)
    log, turns = EventLog(place.events_file), turns or TurnsOnPaper()
    with _as_it_was(project):
        try:
            run_script(place, run_spec, log, turns)
        finally:
            callback_handler.clear()
            gc.unfreeze()
            log.close()
    return Ran(read_events(place.events_file)[0], place, turns)


@contextmanager
def _as_it_was(project: Path) -> Iterator[None]:
    """A run has its process to itself; here what it changes of the process is put back."""
    before = os.getcwd(), sys.argv, list(sys.path), os.environ.get(CODE_VARIABLE)
    os.environ[CODE_VARIABLE] = str(project)
    try:
        yield
    finally:
        os.chdir(before[0])
        sys.argv, sys.path[:] = before[1], before[2]
        if before[3] is None:
            del os.environ[CODE_VARIABLE]
        else:
            os.environ[CODE_VARIABLE] = before[3]
