"""Scripts whose libraries train for them, unchanged, against what they compute by hand."""

import ast
import random
import re
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from breakeven.runner.checks.user_code import CODE_VARIABLE
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import RunSpec, ScriptSpec
from tests.runner.worker.forked import fork, work_on
from tests.runner.worker.script.scripts import experiment

pytestmark = pytest.mark.heavy

SCRIPTS = PROJECT_ROOT / "examples" / "scripts"
ACCUMULATED = 2
"""Micro-batches of 16 samples in a step of each script."""


def run_by_hand(script: str, folder: str, *given: str) -> None:
    """Runs a script with nothing of Breakeven's, and prints each loss that went backwards."""
    losses = []
    backward = torch.Tensor.backward

    def heard(loss: torch.Tensor, *arguments: Any, **named: Any) -> None:
        losses.append(float(loss))
        backward(loss, *arguments, **named)

    torch.Tensor.backward = heard  # type: ignore[method-assign, assignment]
    random.seed(0), torch.manual_seed(0), np.random.seed(0)
    sys.argv = [script, *given]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path(script, run_name="__main__")
    sys.stdout.write(f"\nLOSSES {losses}\n")


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


def trial(folder: Path, name: str, *given: str, steps: int = 0) -> Trial:
    script = SCRIPTS / name
    work, printed = folder / "by hand", folder / "printed"
    work.mkdir()
    assert fork(printed, run_by_hand, str(script), str(work), *given) == 0, printed.read_text()
    spec = experiment(script, backends=("eager",), controls=0, block_steps=5, cpu_threads=1,
                      script=ScriptSpec(arguments=given, steps=steps))  # fmt: skip
    journals, folders = {}, {}
    for variant in spec.variants:
        run_spec = RunSpec(experiment_id="x", experiment=spec, variant=variant)
        run = DataDir(folder / "data").run_dir(run_spec.run_id)
        run.write_spec(run_spec)
        assert work_on(run, **{CODE_VARIABLE: str(SCRIPTS)}) == 0, run.log_tail()
        journals[variant.label] = read_events(run.events_file)[0]
        folders[variant.label] = run.workplace
    return Trial(printed.read_text(), journals, folders)


def expect_the_same_losses(trial: Trial, num_steps: int) -> None:
    by_hand = trial.losses_by_hand[:num_steps]
    assert len(by_hand) == num_steps
    assert trial.losses("baseline") == pytest.approx(by_hand, rel=1e-6)
    assert trial.losses("eager") == pytest.approx(by_hand, rel=1e-4)
    assert trial.of("eager", "compile_started")
    assert not trial.of("baseline", "compile_started")
    for run in trial.runs:
        assert trial.of(run, "workload")[-1]["samples_per_step"] == 16 * ACCUMULATED


def test_transformers_trainer_ends_in_good_order_after_the_steps_asked_for(tmp_path: Path) -> None:
    ran = trial(tmp_path, "trainer.py", "--steps=16", steps=12)
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


def test_lightning_ends_in_good_order_after_the_steps_asked_for(tmp_path: Path) -> None:
    """20 steps are an epoch, after which it evaluates."""
    ran = trial(tmp_path, "lightning_module.py", "--epochs=2", steps=24)
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
