"""Scripts, and those whose libraries train for them, unchanged, against what they compute by hand,
although runs of them are killed and go on from their own checkpoints."""

import ast
import random
import re
import runpy
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.experiments.queue import find_experiment, resume, submit
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ScriptSpec
from breakeven.runner.specs.scenario_fields import TuneSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.loop import of_kind, torch_afresh
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.runner.worker.forked import fork, fork_this, work_on
from tests.runner.worker.script.scripts import Ended, experiment, run

pytestmark = pytest.mark.heavy

SCRIPTS = PROJECT_ROOT / "examples" / "scripts"
KILLER = """
import os
from pathlib import Path

def strike(step):
    '''Ends this process in the first of the planned steps, which is one no more; by SIGTERM in
    negative ones.'''
    plan = Path({plan!r})
    steps = plan.read_text().split() if plan.exists() else []
    if steps and abs(int(steps[0])) == step:
        plan.write_text(" ".join(steps[1:]))
        os.kill(os.getpid(), {kill} if int(steps[0]) > 0 else {terminate})

"""
PLAIN = """
import torch
from torch import nn
import breakeven

model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model = breakeven.compile(model)
first = 0
saved = breakeven.load("last.pt")
if saved is not None:
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["done"]
for number in range(first, 40):
    points = torch.randn(8, 4)
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    strike(number)
    breakeven.step(loss, samples=8)
    if number % 10 == 9:
        breakeven.evaluated(loss=float(loss))
    if number % 7 == 6:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        breakeven.save({**state, "done": number + 1}, "last.pt")
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


COMPILED = {
    # Dynamo fails in Lightning's log (torch 2.13).
    'self.log("train_loss", loss)': "pass",
    'self.log("val_loss", self.error(batch))': "self.error(batch)",
    "self.head(self.net(places))": "self(places)",
    "    def training_step": "    def forward(self, places):\n"
    "        return self.head(self.net(places))\n\n"
    "    def training_step",
    "trainer.fit(Curve(), ": "trainer.fit(torch.compile(Curve(), backend='eager'), ",
}
MANUAL = {
    "self.net = ": "self.automatic_optimization = False\n        self.net = ",
    'self.log("train_loss", loss)': "self.manual_backward(loss)",
    "        return loss": "        optimizer = self.optimizers()\n"
    "        optimizer.step()\n"
    "        optimizer.zero_grad()",
    '"--accumulate", type=int, default=2': '"--accumulate", type=int, default=1',
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A script: its arguments, after how many steps it ends, and in which its first run is killed
    or, where they are negative, cancelled."""

    code: str
    given: tuple[str, ...] = ()
    steps: int = 0
    kills: tuple[int, ...] = ()


def example(name: str, changes: Mapping[str, str] | None = None) -> str:
    code = (SCRIPTS / name).read_text()
    for old, new in (changes or {}).items():
        assert old in code, old
        code = code.replace(old, new)
    return code


TRIALS = {
    "plain": Trial(code=PLAIN, kills=(23, -30)),
    "accelerate": Trial(code=example("accelerate_loop.py")),
    "Trainer": Trial(
        code=example("trainer.py", TRAINER), given=("--steps=16",), steps=12, kills=(8,)
    ),
    "Lightning": Trial(
        code=example("lightning_module.py", LIGHTNING), given=("--epochs=2",), steps=24, kills=(22,)
    ),
    "compiled": Trial(code=example("lightning_module.py", COMPILED), given=("--epochs=2",)),
    "manual": Trial(code=example("lightning_module.py", MANUAL), given=("--epochs=1",)),
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
    script, signals = project / "train.py", {"kill": 9, "terminate": 15}
    script.write_text(KILLER.format(plan=str(plan), **signals) + trial.code)
    by_hand = work / script.name
    by_hand.write_text(script.read_text().replace("model = breakeven.compile(model)\n", ""))
    assert fork_this(folder / "printed", run_by_hand, by_hand, work, *trial.given) == 0
    plan.write_text(" ".join(map(str, trial.kills)))
    spec = experiment(
        script,
        backends=("eager",),
        controls=0,
        block_steps=5,
        cpu_threads=1,
        script=ScriptSpec(arguments=trial.given, steps=trial.steps),
    )
    data_dir = DataDir(folder / "data")
    submitted = find_experiment(data_dir, submit(data_dir, spec))
    allowed = {CODE_VARIABLE: str(project)}
    for step in trial.kills:
        (run, _) = submitted.runs
        status = work_on(run, fork_this, **allowed)
        if step < 0:
            assert (status, run.state) == (WorkerExit.CANCELLED, RunState.CANCELLED)
            assert resume(submitted) == ["baseline"]
        else:
            assert status == -signal.SIGKILL, run.log_tail()
            run.reopen()
    for run in submitted.runs:
        assert work_on(run, fork_this, **allowed) == 0, run.log_tail()


def search_with_a_trainer(folder: Path) -> None:
    code = (SCRIPTS / "trainer.py").read_text().replace("layers=2", "layers=1")
    with torch_afresh():
        run(folder, code, turns=Ended(), scenario="tune", tune=TuneSpec(steps=500))


def try_daily(folder: Path) -> None:
    """Accelerate is imported when its script runs, transformers before: that takes longer than
    it trains."""
    for name in ("plain", "accelerate"):
        try_script(folder / name, TRIALS[name])
    import transformers.trainer  # noqa: F401

    try_script(folder / "Trainer", TRIALS["Trainer"])


def try_others(folder: Path) -> None:
    """A Trainer follows one run, so a search with one has a process of its own."""
    import lightning  # noqa: F401

    for name in ("Lightning", "compiled", "manual"):
        try_script(folder / name, TRIALS[name])
    (folder / "search").mkdir()
    assert fork_this(folder / "search" / "printed", search_with_a_trainer, folder / "search") == 0


def tried_in(folder: Path, try_scripts: Callable[[Path], None]) -> Path:
    runs = 4 * len(TRIALS)  # at most, each of which may take its time
    status = fork(folder / "printed", try_scripts, folder, patience=runs * PATIENCE_SECONDS)
    assert status == 0, "\n".join(file.read_text() for file in folder.rglob("printed"))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tried_in(tmp_path_factory.mktemp("libraries"), try_daily)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What slow tests look at."""
    return tried_in(tmp_path_factory.mktemp("others"), try_others)


@dataclass(frozen=True)
class Tried:
    """What a script did by hand, and two runs of it under the runner."""

    by_hand: str
    runs: Mapping[str, list[dict[str, Any]]]
    folders: Mapping[str, Path]
    accumulated: int
    """Micro-batches of a step."""

    @classmethod
    def read(cls, folder: Path, accumulated: int = 2) -> "Tried":
        runs = {run.run_id.partition(".")[2]: run for run in DataDir(folder / "data").run_dirs()}
        assert runs.keys() == {"baseline", "eager"}
        journals = {label: read_events(run.events_file)[0] for label, run in runs.items()}
        folders = {label: run.workplace for label, run in runs.items()}
        return cls((folder / "printed").read_text(), journals, folders, accumulated)

    def of_kind(self, run: str, kind: str) -> list[dict[str, Any]]:
        return of_kind(self.runs[run], kind)

    def losses(self, run: str) -> list[float]:
        """By step; a step that was made again counts as it was last."""
        return list({event["step"]: event["loss"] for event in self.of_kind(run, "step")}.values())

    @property
    def losses_by_hand(self) -> list[float]:
        """The sum over the micro-batches of a step, each of which is its share."""
        line = next(line for line in self.by_hand.splitlines() if line.startswith("LOSSES"))
        shares = ast.literal_eval(line.removeprefix("LOSSES "))
        places = range(0, len(shares), self.accumulated)
        return [sum(shares[place : place + self.accumulated]) for place in places]


def expect_the_same(
    tried: Tried, num_steps: int, gone_on: list[int], samples: int = 2 * 16
) -> None:
    """Losses by hand and of both runs; workload and inputs of both runs, of which the baseline
    went on from these steps."""
    by_hand = tried.losses_by_hand[:num_steps]
    assert len(by_hand) == num_steps
    assert tried.losses("baseline") == pytest.approx(by_hand, rel=1e-6)
    assert tried.losses("eager") == pytest.approx(by_hand, rel=1e-4)
    assert tried.of_kind("eager", "compile_started")
    assert not tried.of_kind("baseline", "compile_started")
    assert [event["step"] for event in tried.of_kind("baseline", "resumed")] == gone_on
    names = ("weights_sha256", "data_sha256", "code_sha256", "num_steps")
    last, other = (tried.of_kind(run, "workload")[-1] for run in tried.runs)
    assert {name: last[name] for name in names} == {name: other[name] for name in names}
    assert last["precision"] == "float32"
    assert last["samples_per_step"] == other["samples_per_step"] == samples
    own, others = (
        {
            inputs["step"]: inputs["floats"] + [inputs["sha256"]]
            for inputs in tried.of_kind(run, "inputs")
        }
        for run in tried.runs
    )
    both = own.keys() & others.keys()
    assert {step: own[step] for step in both} == {step: others[step] for step in both}
    assert max(both) >= (gone_on or [35])[-1]


def test_a_script_that_is_killed_and_then_cancelled_has_the_losses_that_it_has_by_hand(
    folder: Path,
) -> None:
    """The cancelled one goes on in the folder that it left. What was done twice counts once."""
    tried = Tried.read(folder / "plain", accumulated=1)
    expect_the_same(tried, 40, [21, 28], samples=8)
    assert tried.losses("baseline") == tried.losses_by_hand
    workplace = tried.folders["baseline"]
    assert not (workplace / "train.py").exists(), "its own files are removed at the end"
    with Store.in_memory(DataDir(folder / "plain" / "data")) as store:
        experiment_id = workplace.parent.name.partition(".")[0]
        steps = queries.step_times(store, experiment_id)
        assert sorted(steps["step"]) == sorted([*range(40), *range(40)])
        evaluated = queries.evaluations(store, experiment_id)["step"]
        assert sorted(evaluated) == [10, 10, 20, 20, 30, 30, 40, 40]
        inputs = queries.inputs(store, experiment_id)
        assert not inputs.duplicated(["label", "step"]).any()


def test_transformers_trainer_ends_in_good_order_after_the_steps_asked_for(folder: Path) -> None:
    tried = Tried.read(folder / "Trainer")
    expect_the_same(tried, 12, [7])
    at_ten, at_end = tried.of_kind("baseline", "evaluation")
    assert (at_ten["step"], at_end["step"]) == (10, 12)
    assert at_ten["num_samples"] == at_end["num_samples"] == 100
    printed = re.search(r"'eval_loss': '?([\d.]+)'?, 'eval_accuracy': '?([\d.]+)", tried.by_hand)
    assert printed is not None
    assert at_ten["loss"] == pytest.approx(float(printed[1]), rel=1e-3)
    assert at_ten["accuracy"] == pytest.approx(float(printed[2]))
    for workplace in tried.folders.values():
        assert (workplace / "out" / "model.safetensors").is_file()


@pytest.mark.slow
def test_lightning_ends_in_good_order_after_the_steps_asked_for(others: Path) -> None:
    """20 steps are an epoch, after which it evaluates and saves."""
    tried = Tried.read(others / "Lightning")
    expect_the_same(tried, 24, [20])
    at_twenty = tried.of_kind("baseline", "evaluation")[0]
    assert (at_twenty["step"], at_twenty["split"]) == (20, "validation")
    assert at_twenty["num_samples"] == 160


@pytest.mark.slow
def test_a_module_that_lightning_gets_compiled_is_compiled_as_by_hand(others: Path) -> None:
    """Lightning compiles all its steps, also those that evaluate."""
    tried = Tried.read(others / "compiled")
    expect_the_same(tried, 40, [])
    phases = {event["phase"] for event in tried.of_kind("eager", "compile_started")}
    assert phases == {"training", "evaluating"}
    functions = {event["function"] for event in tried.of_kind("eager", "compile_metrics")}
    assert {"training_step", "validation_step"} <= functions
    for label in tried.runs:
        assert [event["step"] for event in tried.of_kind(label, "evaluation")] == [20, 40]


@pytest.mark.slow
def test_the_loss_of_manual_optimization_is_what_goes_backward(others: Path) -> None:
    expect_the_same(Tried.read(others / "manual", accumulated=1), 40, [], samples=16)


def test_accelerate_makes_a_step_where_gradients_are_no_longer_gathered(folder: Path) -> None:
    tried = Tried.read(folder / "accelerate")
    expect_the_same(tried, 40, [])
    printed = [float(mean) for mean in re.findall(r"mean loss ([\d.]+)", tried.by_hand)]
    losses = tried.losses("baseline")
    assert [sum(losses[:20]) / 20, sum(losses[20:]) / 20] == pytest.approx(printed)
    for workplace in tried.folders.values():
        assert (workplace / "out" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_trainer_that_lost_ends_without_its_evaluation_at_the_end(others: Path) -> None:
    events, _ = read_events(others / "search" / "x.baseline" / "events.jsonl")
    (stopped,) = of_kind(events, "stopped")
    # It evaluates after each 10 of its steps.
    assert stopped["step"] == 16
    assert [event["step"] for event in of_kind(events, "evaluation")] == [10]
