"""Scripts whose libraries train for them, unchanged, against what they compute by hand."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.project import PROJECT_ROOT
from tests.helpers.machine import MACHINE, keep

pytestmark = pytest.mark.heavy

SCRIPTS = PROJECT_ROOT / "examples" / "scripts"
ACCUMULATED = 2
"""Micro-batches of 16 samples in a step of each script."""
UNPROVEN = 4
"""What the command line ends with where there is no control to judge parity by."""
BY_HAND = """
import random, runpy, sys
import numpy, torch

losses = []
backward = torch.Tensor.backward

def heard(loss, *arguments, **named):
    losses.append(float(loss))
    return backward(loss, *arguments, **named)

torch.Tensor.backward = heard
random.seed(0), torch.manual_seed(0), numpy.random.seed(0)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
print("LOSSES", losses)
"""
"""Runs a script with nothing of Breakeven's, and prints each loss that went backwards."""


@dataclass(frozen=True)
class Trial:
    """What a script did by hand, and two runs of it under the runner."""

    by_hand: str
    runs: Mapping[str, list[dict[str, Any]]]
    folders: Mapping[str, Path]

    def of(self, run: str, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.runs[run] if event["kind"] == kind]

    def losses(self, run: str) -> list[float]:
        return [event["loss"] for event in self.of(run, "step")]

    @property
    def losses_by_hand(self) -> list[float]:
        """The sum over the micro-batches of a step, each of which is its share."""
        line = next(line for line in self.by_hand.splitlines() if line.startswith("LOSSES"))
        shares = ast.literal_eval(line.removeprefix("LOSSES "))
        return [sum(shares[i : i + ACCUMULATED]) for i in range(0, len(shares), ACCUMULATED)]


def trial(folder: Path, script: str, *options: str, given: tuple[str, ...] = ()) -> Trial:
    work = folder / "by hand"
    work.mkdir()
    data_dir = DataDir(folder / "data")
    data_dir.path.mkdir()
    keep(data_dir, MACHINE)
    by_hand = _output(work, "-c", BY_HAND, str(SCRIPTS / script), *given)
    _output(
        PROJECT_ROOT, "-m", "breakeven", "script", str(SCRIPTS / script), "--backends=aot_eager",
        "--controls=0", "--cpu-threads=1", "--block-steps=5", "--profile-steps=0", "--device=cpu",
        f"--data-folder={data_dir.path}", *options, "--", *given,
    )  # fmt: skip
    found = {run.read_spec().variant.label: run for run in data_dir.run_dirs()}
    return Trial(
        by_hand,
        {name: read_events(run.events_file)[0] for name, run in found.items()},
        {name: run.workplace for name, run in found.items()},
    )


def _output(folder: Path, *command: str) -> str:
    finished = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=400,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert finished.returncode in (0, UNPROVEN), finished.stdout + finished.stderr
    return finished.stdout


def expect_the_same_losses(trial: Trial, num_steps: int) -> None:
    by_hand = trial.losses_by_hand[:num_steps]
    assert len(by_hand) == num_steps
    assert trial.losses("baseline") == pytest.approx(by_hand, rel=1e-6)
    assert trial.losses("aot_eager") == pytest.approx(by_hand, rel=1e-4)
    assert trial.of("aot_eager", "compile_started")
    assert not trial.of("baseline", "compile_started")
    for run in trial.runs:
        assert trial.of(run, "workload")[-1]["samples_per_step"] == 16 * ACCUMULATED


@pytest.mark.slow
def test_transformers_trainer_ends_in_good_order_after_the_steps_asked_for(tmp_path: Path) -> None:
    ran = trial(tmp_path, "trainer.py", "--steps=12", given=("--steps=16",))
    expect_the_same_losses(ran, 12)
    at_ten, at_end = ran.of("baseline", "evaluation")
    assert (at_ten["step"], at_end["step"]) == (10, 12)
    assert at_ten["num_samples"] == at_end["num_samples"] == 100
    printed = re.search(r"'eval_loss': '?([\d.]+)'?, 'eval_accuracy': '?([\d.]+)", ran.by_hand)
    assert printed is not None
    assert at_ten["loss"] == pytest.approx(float(printed[1]), rel=1e-3)
    assert at_ten["accuracy"] == pytest.approx(float(printed[2]))
    for folder in ran.folders.values():
        assert (folder / "out" / "model.safetensors").is_file()


@pytest.mark.slow
def test_lightning_ends_in_good_order_after_the_steps_asked_for(tmp_path: Path) -> None:
    """20 steps are an epoch, after which it evaluates."""
    ran = trial(tmp_path, "lightning_module.py", "--steps=24", given=("--epochs=2",))
    expect_the_same_losses(ran, 24)
    at_twenty = ran.of("baseline", "evaluation")[0]
    assert (at_twenty["step"], at_twenty["split"]) == (20, "validation")
    assert at_twenty["num_samples"] == 160


def test_accelerate_makes_a_step_where_gradients_are_no_longer_gathered(tmp_path: Path) -> None:
    ran = trial(tmp_path, "accelerate_loop.py")
    expect_the_same_losses(ran, 40)
    printed = [float(mean) for mean in re.findall(r"mean loss ([\d.]+)", ran.by_hand)]
    losses = ran.losses("baseline")
    assert [sum(losses[:20]) / 20, sum(losses[20:]) / 20] == pytest.approx(printed)
    for folder in ran.folders.values():
        assert (folder / "out" / "model.safetensors").is_file()
