"""Runs that were killed go on where their checkpoints end, as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.queue import ensure_supervisor, find_experiment, resume, submit
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.loop import FAULTS, of_kind, torch_afresh
from tests.helpers.loop import run as run_here
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy

NUM_STEPS = 60
KILLER = """
import os, signal
from pathlib import Path

PLAN = Path(__file__).with_name("kills.txt")

class Killer:
    '''Kills its process at the next planned step, in the middle of it or at its end.'''

    def __init__(self):
        lines = PLAN.read_text().splitlines() if PLAN.exists() else []
        step, self.hook = lines[0].split() if lines else (-1, "")
        self.step = int(step)
        self.rest = lines[1:]

    def strike(self, state, hook):
        if (state.step, hook) == (self.step, self.hook):
            PLAN.write_text("\\n".join(self.rest))
            os.kill(os.getpid(), signal.SIGKILL)

    def after_backward(self, state): self.strike(state, "after_backward")
    def after_optimizer_step(self, state): self.strike(state, "after_optimizer_step")
    def batch_end(self, state): self.strike(state, "batch_end")
"""

WAITING = """
import time
from pathlib import Path

class Waiting:
    '''Stays in a step until it may go on.'''

    def batch_end(self, state):
        while state.step == 30 and not Path(__file__).with_name("go on").exists():
            Path(__file__).with_name("waits").touch()
            time.sleep(0.02)
"""


def experiment(**changes: Any) -> ExperimentSpec:
    """A network with dropout, which is there sooner than a BERT."""
    return ExperimentSpec(
        **{
            "name": "trial",
            "backends": (),
            "controls": 0,
            "task": "custom",
            "model": ModelSpec(source=f"{FAULTS / 'relu_net.py'}:ReluNet"),
            "data": DataSpec(
                source=f"{FAULTS / 'relu_net.py'}:samples",
                num_train_samples=104,
                num_eval_samples=8,
            ),
            "training": TrainingSpec(
                batch_size=4,
                max_steps=NUM_STEPS,
                epochs=3,
                seed=3,
                learning_rate=1e-3,
                scheduler="cosine",
                losses=("CrossEntropyLoss",),
            ),
            "evaluation": EvaluationSpec(when="end"),
            "checkpoints": CheckpointSpec(every=7, unit="steps"),
            "block_steps": 5,
            "cpu_threads": 1,
            "profile_steps": 0,
            **changes,
        }
    )


def only_run(data_dir: DataDir, spec: ExperimentSpec) -> RunDir:
    (run,) = find_experiment(data_dir, submit(data_dir, spec)).runs
    return run


def work(run: RunDir, code: Path) -> int:
    """Runs a worker on the folder, unsupervised, until it ends; its exit status."""
    environment = {**os.environ, CODE_VARIABLE: os.pathsep.join((str(code), str(FAULTS)))}
    command = [sys.executable, "-m", "breakeven.runner.worker", str(run.path)]
    return subprocess.run(
        command, cwd=PROJECT_ROOT, env=environment, timeout=PATIENCE_SECONDS
    ).returncode


def curve(events: list[dict[str, Any]]) -> dict[int, tuple[float, float]]:
    steps = of_kind(events, "step")
    return {step["step"]: (step["loss"], step["learning_rate"]) for step in steps}


@pytest.mark.slow
def test_runs_killed_at_random_steps_have_the_losses_of_one_that_was_not(
    data_dir: DataDir, tmp_path: Path
) -> None:
    """Two runs, side by side, are killed ten times each."""
    num_runs, kills = 2, 10
    # Not before the first checkpoint: nothing could go on from there.
    steps = random.Random(20).sample(range(7, NUM_STEPS), num_runs * kills)
    plans = [sorted(steps[place * kills : (place + 1) * kills]) for place in range(num_runs)]
    with ThreadPoolExecutor(2) as pool:
        killed = list(pool.map(lambda plan: killed_at(plan, data_dir, tmp_path), plans))
    with torch_afresh():
        undisturbed = run_here(experiment(), tmp_path / "undisturbed")
    for run, plan in zip(killed, plans, strict=True):
        resumed = of_kind(read_events(run.events_file)[0], "resumed")
        assert [event["attempt"] for event in resumed] == list(range(2, len(plan) + 2))
        # It went on from the last checkpoint before it was killed.
        assert [event["step"] for event in resumed] == [step // 7 * 7 for step in plan]
        events, _ = read_events(run.events_file)
        assert curve(events) == curve(undisturbed) and len(curve(events)) == NUM_STEPS
        ends = [of_kind(journal, "evaluation")[-1]["loss"] for journal in (events, undisturbed)]
        assert ends[0] == ends[1]


def killed_at(steps: list[int], data_dir: DataDir, folder: Path) -> RunDir:
    """A run that was killed at these steps, each time in another place, and came to its end."""
    code = Path(tempfile.mkdtemp(dir=folder))
    (code / "killer.py").write_text(KILLER)
    draw, hooks = random.Random(sum(steps)), ("after_backward", "after_optimizer_step", "batch_end")
    (code / "kills.txt").write_text("\n".join(f"{step} {draw.choice(hooks)}" for step in steps))
    run = only_run(data_dir, experiment(callbacks=(f"{code / 'killer.py'}:Killer",)))
    for _ in steps:
        assert work(run, code) == -signal.SIGKILL
        run.reopen()
    assert work(run, code) == 0
    return run


def test_a_supervisor_that_starts_again_has_a_lost_run_go_on_to_the_losses_of_one_that_was_not(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    monkeypatch.setenv(CODE_VARIABLE, os.pathsep.join((str(tmp_path), str(FAULTS))))
    hook = f"{tmp_path / 'waiting.py'}:Waiting"
    run = only_run(data_dir, experiment(callbacks=(hook,)))
    supervisor = ensure_supervisor(data_dir)
    assert supervisor is not None
    wait_until(lambda: run.has_checkpoint and (tmp_path / "waits").exists())
    claim = run.read_claim()
    assert claim is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    os.kill(claim.process.pid, signal.SIGKILL)
    supervisor.wait()
    wait_until(lambda: run.state is RunState.LOST)
    (tmp_path / "go on").touch()
    supervise(data_dir)
    assert run.state is RunState.FINISHED
    events, _ = read_events(run.events_file)
    with torch_afresh():
        undisturbed = run_here(experiment(), tmp_path / "undisturbed")
    assert curve(events) == curve(undisturbed) and len(curve(events)) == NUM_STEPS
    ends = [of_kind(journal, "evaluation")[-1]["loss"] for journal in (events, undisturbed)]
    assert ends[0] == ends[1]
    (resumed,) = of_kind(events, "resumed")
    assert resumed["step"] == 28, "the last of every 7 steps before the 30th"
    blocks = of_kind(events, "block")
    before = [block["round"] for block in blocks if block["seq"] < resumed["seq"]]
    after = [block["round"] for block in blocks if block["seq"] > resumed["seq"]]
    assert max(before) < min(after), "rounds of both attempts can be told apart"
    assert (run.attempts / "1" / "claim.json").exists() and run.attempt == 2


@pytest.mark.parametrize(
    ("checkpoints", "states", "words"),
    [
        (CheckpointSpec(), [RunState.LOST], "Ask for checkpoints when you launch"),
        # 8 samples in batches of 4 are 2 steps an epoch, so 3 epochs are 6 steps.
        (CheckpointSpec(every=3), [RunState.CANCELLED], "first checkpoint .* due after 6 steps"),
        (CheckpointSpec(every=5, unit="steps"), [RunState.FAILED], "due after 5 steps"),
        (CheckpointSpec(every=5, unit="steps"), [RunState.LOST], "due after 5 steps"),
        (CheckpointSpec(every=5, unit="steps"), [RunState.FINISHED], "all of them have finished"),
        (CheckpointSpec(every=5, unit="steps"), [], "none of them has ended early"),
    ],
)
def test_why_nothing_can_go_on_is_said_as_it_is(
    data_dir: DataDir, checkpoints: CheckpointSpec, states: list[RunState], words: str
) -> None:
    spec = ExperimentSpec(
        name="trial",
        backends=(),
        controls=0,
        checkpoints=checkpoints,
        data=DataSpec(num_train_samples=8),
        training=TrainingSpec(batch_size=4, epochs=4),
        block_steps=1,
    )
    stopped = find_experiment(data_dir, submit(data_dir, spec))
    for run, state in zip(stopped.runs, states, strict=False):
        run.write_exit(Exit.now(state, "as the test says", 1))
    with pytest.raises(RunnerError, match=words):
        resume(stopped)


def test_a_cancelled_run_with_a_checkpoint_waits_in_the_queue_again(data_dir: DataDir) -> None:
    cancelled = find_experiment(data_dir, submit(data_dir, experiment()))
    (run,) = cancelled.runs
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "step-00000007.pt").touch()
    run.request_cancel()
    run.write_exit(Exit.now(RunState.CANCELLED, "stopped on request", 75))
    assert resume(cancelled) == ["baseline"]
    assert run.state is RunState.QUEUED and not run.cancel_requested
