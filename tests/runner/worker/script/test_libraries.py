"""Scripts whose libraries train for them, unchanged, against what they compute by hand, although a
run of each is killed and goes on."""

import ast
import random
import re
import runpy
import signal
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
from breakeven.runner.specs.scenarios import TuneSpec
from tests.helpers.loop import of_kind, torch_afresh
from tests.runner.worker.forked import fork, fork_this, work_on
from tests.runner.worker.script.scripts import Ended, experiment, run

pytestmark = pytest.mark.heavy

SCRIPTS = PROJECT_ROOT / "examples" / "scripts"
ACCUMULATED = 2
"""Micro-batches of 16 samples in a step of each script."""
KILLER = """
import os
from pathlib import Path

def strike(step):
    '''Kills this process in the planned step, once.'''
    if (plan := Path({plan!r})).is_file() and int(plan.read_text()) == step:
        plan.unlink()
        os.kill(os.getpid(), {kill})
"""
TRAINER = {
    "class Texts": "class Killed(Trainer):\n"
    "    def training_step(self, *args):\n"
    "        strike(self.state.global_step)\n"
    "        return super().training_step(*args)\n\n"
    "class Texts",
    "trainer = Trainer(": "trainer = Killed(",
    'save_strategy="no"': "save_steps=7, save_total_limit=1",
    "num_hidden_layers=2": "num_hidden_layers=1",
}
LIGHTNING = {
    "loss = self.error(batch)": "strike(self.global_step)\n        loss = self.error(batch)",
    "nn.Tanh())": "nn.Tanh(), nn.Dropout(0.2))",
}
"""By which scripts are killed, save and draw numbers in each step."""


@dataclass(frozen=True)
class Trial:
    """A script: its arguments, changes, after how many steps it ends, and when it is killed."""

    name: str
    given: tuple[str, ...] = ()
    changes: Mapping[str, str] | None = None
    steps: int = 0
    killed_at: int | None = None


TRIALS = {
    "accelerate": Trial("accelerate_loop.py"),
    "Trainer": Trial("trainer.py", ("--steps=16",), TRAINER, 12, 8),
    "Lightning": Trial("lightning_module.py", ("--epochs=2",), LIGHTNING, 24, 22),
}


def run_by_hand(script: Path, folder: Path, *given: str) -> None:
    """Runs a script with nothing of Breakeven's, and prints each loss that went backwards."""
    losses = []
    backward = torch.Tensor.backward

    def heard(loss: torch.Tensor, *arguments: Any, **named: Any) -> None:
        losses.append(float(loss))
        backward(loss, *arguments, **named)

    torch.Tensor.backward = heard  # type: ignore[method-assign, assignment]
    random.seed(0), torch.manual_seed(0), np.random.seed(0)
    sys.argv = [str(script), *given]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        runpy.run_path(str(script), run_name="__main__")
    sys.stdout.write(f"\nLOSSES {losses}\n")


def try_script(folder: Path, trial: Trial) -> None:
    """By hand, and in two runs, the first of which is killed."""
    project, work, plan = folder / "project", folder / "by hand", folder / "plan"
    for made in (project, work):
        made.mkdir(parents=True)
    code = (SCRIPTS / trial.name).read_text()
    for old, new in (trial.changes or {}).items():
        assert old in code, old
        code = code.replace(old, new)
    script = project / trial.name
    script.write_text(KILLER.format(plan=str(plan), kill=int(signal.SIGKILL)) + code)
    assert fork_this(folder / "printed", run_by_hand, script, work, *trial.given) == 0
    if trial.killed_at is not None:
        plan.write_text(str(trial.killed_at))
    spec = experiment(script, backends=("eager",), controls=0, block_steps=5, cpu_threads=1,
                      script=ScriptSpec(arguments=trial.given, steps=trial.steps))  # fmt: skip
    for variant in spec.variants:
        run_spec = RunSpec(experiment_id="x", experiment=spec, variant=variant)
        run = DataDir(folder / "data").run_dir(run_spec.run_id)
        run.write_spec(run_spec)
        allowed = {CODE_VARIABLE: str(project)}
        if plan.exists():
            assert work_on(run, fork_this, **allowed) == -signal.SIGKILL, run.log_tail()
            run.reopen()
        assert work_on(run, fork_this, **allowed) == 0, run.log_tail()


def search_with_a_trainer(folder: Path) -> None:
    code = (SCRIPTS / "trainer.py").read_text().replace("layers=2", "layers=1")
    with torch_afresh():
        run(folder, code, turns=Ended(), scenario="tune", tune=TuneSpec(steps=500))


def try_all(folder: Path) -> None:
    """The first script imports its library when it runs, the others have theirs loaded: that
    takes longer than they train. A Trainer follows one run, so each has a process of its own."""
    try_script(folder / "accelerate", TRIALS["accelerate"])
    import lightning  # noqa: F401
    import transformers.trainer  # noqa: F401

    for name in ("Trainer", "Lightning"):
        try_script(folder / name, TRIALS[name])
    (folder / "search").mkdir()
    assert fork_this(folder / "search" / "printed", search_with_a_trainer, folder / "search") == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    status = fork(folder / "printed", try_all, folder)
    assert status == 0, "\n".join(file.read_text() for file in folder.rglob("printed"))
    return folder


@dataclass(frozen=True)
class Tried:
    """What a script did by hand, and two runs of it under the runner."""

    by_hand: str
    runs: Mapping[str, list[dict[str, Any]]]
    folders: Mapping[str, Path]

    @classmethod
    def read(cls, folder: Path) -> "Tried":
        runs = {run.run_id.partition(".")[2]: run for run in DataDir(folder / "data").run_dirs()}
        assert runs.keys() == {"baseline", "eager"}
        journals = {label: read_events(run.events_file)[0] for label, run in runs.items()}
        folders = {label: run.workplace for label, run in runs.items()}
        return cls((folder / "printed").read_text(), journals, folders)

    def of(self, run: str, kind: str) -> list[dict[str, Any]]:
        return of_kind(self.runs[run], kind)

    def losses(self, run: str) -> list[float]:
        """By step; a step that was made again counts as it was last."""
        return list({event["step"]: event["loss"] for event in self.of(run, "step")}.values())

    @property
    def losses_by_hand(self) -> list[float]:
        """The sum over the micro-batches of a step, each of which is its share."""
        line = next(line for line in self.by_hand.splitlines() if line.startswith("LOSSES"))
        shares = ast.literal_eval(line.removeprefix("LOSSES "))
        return [sum(shares[i : i + ACCUMULATED]) for i in range(0, len(shares), ACCUMULATED)]


def expect_the_same(tried: Tried, num_steps: int, gone_on: list[int]) -> None:
    """Losses by hand and of both runs; workload and inputs of both runs, of which the baseline
    went on from these steps."""
    by_hand = tried.losses_by_hand[:num_steps]
    assert len(by_hand) == num_steps
    assert tried.losses("baseline") == pytest.approx(by_hand, rel=1e-6)
    assert tried.losses("eager") == pytest.approx(by_hand, rel=1e-4)
    assert tried.of("eager", "compile_started")
    assert not tried.of("baseline", "compile_started")
    assert [event["step"] for event in tried.of("baseline", "resumed")] == gone_on
    names = ("weights_sha256", "data_sha256", "code_sha256", "num_steps")
    last, other = (tried.of(run, "workload")[-1] for run in tried.runs)
    assert {name: last[name] for name in names} == {name: other[name] for name in names}
    assert last["precision"] == "float32"
    assert last["samples_per_step"] == other["samples_per_step"] == 16 * ACCUMULATED
    mine, others = ({one["step"]: one["floats"] + [one["sha256"]]
                     for one in tried.of(run, "inputs")} for run in tried.runs)  # fmt: skip
    both = mine.keys() & others.keys()
    assert {step: mine[step] for step in both} == {step: others[step] for step in both}
    assert max(both) >= (gone_on or [35])[-1]


def test_transformers_trainer_ends_in_good_order_after_the_steps_asked_for(folder: Path) -> None:
    tried = Tried.read(folder / "Trainer")
    expect_the_same(tried, 12, [7])
    at_ten, at_end = tried.of("baseline", "evaluation")
    assert (at_ten["step"], at_end["step"]) == (10, 12)
    assert at_ten["num_samples"] == at_end["num_samples"] == 100
    printed = re.search(r"'eval_loss': '?([\d.]+)'?, 'eval_accuracy': '?([\d.]+)", tried.by_hand)
    assert printed is not None
    assert at_ten["loss"] == pytest.approx(float(printed[1]), rel=1e-3)
    assert at_ten["accuracy"] == pytest.approx(float(printed[2]))
    for workplace in tried.folders.values():
        assert (workplace / "out" / "model.safetensors").is_file()


def test_lightning_ends_in_good_order_after_the_steps_asked_for(folder: Path) -> None:
    """20 steps are an epoch, after which it evaluates and saves."""
    tried = Tried.read(folder / "Lightning")
    expect_the_same(tried, 24, [20])
    at_twenty = tried.of("baseline", "evaluation")[0]
    assert (at_twenty["step"], at_twenty["split"]) == (20, "validation")
    assert at_twenty["num_samples"] == 160


def test_accelerate_makes_a_step_where_gradients_are_no_longer_gathered(folder: Path) -> None:
    tried = Tried.read(folder / "accelerate")
    expect_the_same(tried, 40, [])
    printed = [float(mean) for mean in re.findall(r"mean loss ([\d.]+)", tried.by_hand)]
    losses = tried.losses("baseline")
    assert [sum(losses[:20]) / 20, sum(losses[20:]) / 20] == pytest.approx(printed)
    for workplace in tried.folders.values():
        assert (workplace / "out" / "model.safetensors").is_file()


def test_a_trainer_that_lost_ends_without_its_evaluation_at_the_end(folder: Path) -> None:
    events, _ = read_events(folder / "search" / "x.baseline" / "events.jsonl")
    (stopped,) = of_kind(events, "stopped")
    # It evaluates after each 10 of its steps.
    assert stopped["step"] == 16
    assert [event["step"] for event in of_kind(events, "evaluation")] == [10]
