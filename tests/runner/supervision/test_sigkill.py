"""SIGKILL in the middle of real work: no process stays, no written step goes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.folders.queue import ensure_supervisor, find_experiment, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


def sessions() -> set[int]:
    """Session ids of all living processes."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and ProcessIdentity.of(int(entry.name)).started:
            try:
                found.add(os.getsid(int(entry.name)))
            except ProcessLookupError:
                continue
    return found


def kinds(run: RunDir) -> list[str]:
    return [event["kind"] for event in read_events(run.events_file)[0]]


@pytest.fixture
def compiling(data_dir: DataDir) -> dict[str, RunDir]:
    """A real experiment whose compiled run is in the middle of its compilation."""
    spec = ExperimentSpec(
        name="trial",
        backends=("inductor",),
        controls=0,
        data=DataSpec(num_train_samples=400, num_eval_samples=20, sequence_length=16),
        training=TrainingSpec(batch_size=4, seed=1),
        block_steps=2,
    )
    experiment = find_experiment(data_dir, submit(data_dir, spec))
    ensure_supervisor(data_dir)
    runs = {run.run_id.partition(".")[2]: run for run in experiment.runs}
    wait_until(lambda: "compile_started" in kinds(runs["inductor"]))
    return runs


def test_sigkill_of_the_supervisor_ends_a_compilation_with_all_its_children(
    data_dir: DataDir, compiling: dict[str, RunDir]
) -> None:
    claims = {label: run.read_claim() for label, run in compiling.items()}
    leaders = {claim.process.pid for claim in claims.values() if claim is not None}
    (supervisor,) = {claim.supervisor.pid for claim in claims.values() if claim is not None}
    written = {label: kinds(run).count("step") for label, run in compiling.items()}
    assert leaders <= sessions()
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: not leaders & sessions())
    assert {run.state for run in compiling.values()} == {RunState.LOST}
    for label, run in compiling.items():
        assert kinds(run).count("step") >= written[label]
    subprocess.run(
        [sys.executable, "-m", "breakeven", "cancel",
         compiling["baseline"].run_id.partition(".")[0],
         f"--data-folder={data_dir.path}"],
        cwd=PROJECT_ROOT, check=True,
    )  # fmt: skip
    ensure_supervisor(data_dir)
    wait_until(lambda: all(run.exit_file.exists() for run in compiling.values()))
    assert {run.state for run in compiling.values()} == {RunState.CANCELLED}
