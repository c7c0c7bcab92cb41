"""SIGKILL in the middle of real work: no process stays, no written step goes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.experiments.queue import ensure_supervisor, find_experiment, submit
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


def sessions() -> set[int]:
    """Session ids of all living processes."""
    ids = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and ProcessIdentity.from_pid(int(entry.name)).started:
            try:
                ids.add(os.getsid(int(entry.name)))
            except ProcessLookupError:
                continue
    return ids


def kinds(run: RunDir) -> list[str]:
    return [event["kind"] for event in read_events(run.events_file)[0]]


def test_sigkill_of_the_supervisor_ends_a_compilation_with_all_its_children(
    data_dir: DataDir,
) -> None:
    data = DataSpec(num_train_samples=400, num_eval_samples=20, sequence_length=16)
    spec = ExperimentSpec(
        name="trial",
        backends=("inductor",),
        controls=0,
        data=data,
        training=TrainingSpec(batch_size=4, seed=1),
        block_steps=2,
    )
    experiment_id = submit(data_dir, spec)
    runs = find_experiment(data_dir, experiment_id).runs
    ensure_supervisor(data_dir)
    wait_until(lambda: "compile_started" in kinds(runs[1]))
    claims = [run.read_claim() for run in runs]
    leaders = {claim.process.pid for claim in claims if claim is not None}
    (supervisor,) = {claim.supervisor.pid for claim in claims if claim is not None}
    written = [kinds(run).count("step") for run in runs]
    assert leaders <= sessions()
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not leaders & sessions())
    assert {run.state for run in runs} == {RunState.LOST}
    for run, steps in zip(runs, written, strict=True):
        assert kinds(run).count("step") >= steps
    command = [sys.executable, "-m", "breakeven", "queue", "cancel", experiment_id]
    subprocess.run([*command, f"--data-folder={data_dir.path}"], cwd=PROJECT_ROOT, check=True)
    ensure_supervisor(data_dir)
    wait_until(lambda: all(run.exit_file.exists() for run in runs))
    assert {run.state for run in runs} == {RunState.CANCELLED}
