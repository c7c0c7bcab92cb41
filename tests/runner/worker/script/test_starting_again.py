"""A script that ends before the plan is decided runs again in its process, for the times alone."""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.supervision.exit_records import ExitRecords
from tests.helpers.loop import of_kind
from tests.runner.worker.script.scripts import ENDING, Ended, Ran, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

SCRIPT = """
import atexit, gc, json, os, random, sys, weakref
import numpy, torch
import counted

counted.number += 1
seen = {
    "argv": len(sys.argv),
    "folder": os.path.basename(os.getcwd()),
    "files": sorted(name for name in os.listdir() if name.endswith(".txt")),
    "imports": counted.number,
    "variable": os.environ.get("OF_SCRIPT"),
    "dtype": str(torch.get_default_dtype()),
    "hooks": len(torch.nn.modules.module._global_forward_hooks),
    "drawn": [random.random(), float(numpy.random.rand()), float(torch.rand(()))],
    "former model lives": getattr(torch, "former_model", lambda: None)() is not None,
}
sys.argv.append("more")
os.environ["OF_SCRIPT"] = "set"
open("left.txt", "w").close()
torch.nn.modules.module.register_module_forward_hook(lambda *_: None)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.itself = [self]

    def forward(self, points):
        return self.layer(points)

def main():
    model = Net()
    torch.former_model = weakref.ref(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for number in range(12):
        points = torch.randn(8, 4)
        loss = torch.nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    torch.set_default_dtype(torch.float64)
    with open(os.environ["SEEN"], "a") as file:
        print(json.dumps({**seen, "losses": losses}), file=file)
    sys.exit(0)

if __name__ == "__main__":
    main()
"""
"""Twelve steps in blocks of four, after which a turn passes in which it ends; leaves much behind,
and writes what it met."""


class Again(Ended):
    """Turns that start a script again, of which one is the last."""

    def wait(self) -> Turn | None:
        turn = super().wait()
        return turn and Turn(round=turn.round, position=0, last=turn.last, again=True)


def places(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(block["first_step"], block["num_steps"]) for block in of_kind(events, "block")]


def run_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, last: int, code: str = SCRIPT, **changes: Any
) -> tuple[Ran, list[dict[str, Any]]]:
    """Runs the script until the turn `last`; returns what it saw each time."""
    monkeypatch.setenv("SEEN", str(folder / "seen.json"))
    # The fixture hides what exists from the collector, and keeps `unfreeze` from undoing that.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.delitem(sys.modules, "counted", raising=False)
    monkeypatch.delattr(torch, "former_model", raising=False)
    (folder / "project").mkdir()
    (folder / "project" / "counted.py").write_text("number = 0\n")
    ran = run(folder, code, turns=Again(last), **changes)
    return ran, [json.loads(line) for line in (folder / "seen.json").read_text().splitlines()]


def test_a_script_that_starts_again_meets_what_it_met_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, (first, second) = run_again(tmp_path, monkeypatch, last=9)
    assert second == first
    assert first["imports"] == 1 and first["files"] == [] and not first["former model lives"]
    # The third time it is ended in its second block.
    assert places(ran.events) == [(number, 4) for number in range(0, 32, 4)]
    assert [(event["step"], event["file"]) for event in ran.of_kind("resumed")] == [
        (12, None),
        (24, None),
    ]
    assert ran.turns.said == ["ready", *["done"] * 9, "finished"]


def test_losses_are_those_of_the_first_time_and_the_ending_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, (first,) = run_again(tmp_path, monkeypatch, last=5)
    assert ran.losses == pytest.approx(first["losses"])
    (stopped,) = ran.of_kind("stopped")
    assert stopped["step"] == 12 and stopped["reason"] == ENDING.reason
    assert ran.workload["num_steps"] == 12
    assert (ran.folder.workplace / "left.txt").exists(), "the files of the training stay"


def test_an_ending_between_two_trainings_needs_no_other_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, seen = run_again(tmp_path, monkeypatch, last=4)
    assert len(seen) == 1 and places(ran.events) == [(0, 4), (4, 4), (8, 4)]
    assert ran.of_kind("stopped")[0]["step"] == 12 and not ran.of_kind("resumed")
    assert ran.turns.said == ["ready", *["done"] * 4, "finished"]


def test_a_compiled_script_compiles_again_and_counts_no_recompilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, seen = run_again(tmp_path, monkeypatch, last=9, label="eager")
    assert seen[1] == seen[0]
    assert [block["compiled"] for block in ran.of_kind("block")] == [True, False, False] * 2 + [
        True,
        False,
    ]
    assert not any(event["recompile_reason"] for event in ran.of_kind("compile_metrics"))


def test_another_training_than_the_first_time_adds_no_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = SCRIPT.replace("Linear(4, 2)", "Linear(4, 2 + hasattr(torch, 'former_model'))")
    assert code != SCRIPT
    with pytest.raises(WorkloadError, match="the model, the data are others than in the first"):
        run_again(tmp_path, monkeypatch, last=7, code=code)


def test_a_run_whose_script_cannot_start_again_remains_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = SCRIPT.replace(
        "def main():", "def main():\n    assert not hasattr(torch, 'former_model')"
    )
    with pytest.raises(AssertionError):
        run_again(tmp_path, monkeypatch, last=9, code=code)
    folder = RunDir(tmp_path / "x.baseline")
    ExitRecords().write(folder, RunState.FAILED, "AssertionError", 1)
    ended = folder.read_exit()
    assert ended is not None and ended.state is RunState.FINISHED
    assert ended.reason == "training is over; continuing ended early: AssertionError"
