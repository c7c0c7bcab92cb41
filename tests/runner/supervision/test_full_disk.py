"""A disk that fills up while runs go on: a real file system of a few megabytes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import runner.folders.queue
from runner.folders.data_dir import DataDir
from runner.folders.queue import experiments, submit
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.project import PROJECT_ROOT
from runner.specs.experiment import CheckpointSpec, DataSpec, ExperimentSpec, RunSpec, TrainingSpec
from storage import queries
from storage.errors import StoreUnusable
from storage.index.store import Store
from tests.helpers.journals import record_experiment
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.heavy

FIRST, SECOND = "20261121-093015-000000-aaaa", "20261121-093016-000000-bbbb"
SUPERVISE = """
import sys
from runner.folders.data_dir import DataDir
from runner.supervision import supervisor
supervisor.LINGER_SECONDS = 0.0
supervisor.supervise(DataDir(sys.argv[1]), (sys.executable, "-m", "tests.helpers.fake_worker"))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of so many megabytes."""
    mounted: list[Path] = []

    def mount(megabytes: int) -> Path:
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("only root may mount a file system of its own")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leaves not a byte."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


def test_how_a_run_ended_is_recorded_once_there_is_room(
    small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = small_disk(20)
    monkeypatch.setattr(runner.folders.queue, "MIN_FREE_BYTES", 1_000_000)
    data_dir = DataDir(disk / "data")
    submit(data_dir, ExperimentSpec(
        name="full", backends=("slow",), controls=0, data=DataSpec(num_train_samples=10_000),
        training=TrainingSpec(batch_size=1),
    ))  # fmt: skip
    said = tmp_path / "said"
    with said.open("w") as output:
        command = [sys.executable, "-c", SUPERVISE, str(data_dir.path)]
        supervisor = subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=output)
    try:
        (experiment,) = experiments(data_dir)
        baseline, slow = experiment.runs
        wait_until(lambda: slow.claim_file.exists() and slow.events_file.exists())
        wait_until(lambda: slow.events_file.stat().st_size > 1000)
        filler = fill(disk)
        wait_until(lambda: slow.run_id in said.read_text())
        assert not slow.exit_file.exists() and supervisor.poll() is None
        filler.unlink()
        wait_until(lambda: slow.exit_file.exists() and baseline.exit_file.exists())
        stands = slow.standing
        assert stands.state is RunState.FAILED and "the disk was full" in str(stands.reason)
        assert "written late" in str(stands.reason)
        assert supervisor.wait(timeout=20) == 0
    finally:
        supervisor.kill()
        supervisor.wait()


def test_a_half_written_checkpoint_does_not_stay_and_the_exit_says_that_the_disk_was_full(
    small_disk: Callable[[int], Path],
) -> None:
    disk = small_disk(12)
    spec = ExperimentSpec(
        name="full", backends=(), controls=0,
        data=DataSpec(num_train_samples=64, num_eval_samples=8, sequence_length=16),
        training=TrainingSpec(batch_size=8, optimizer="AdamW"),
        checkpoints=CheckpointSpec(every=2, unit="steps"), block_steps=2, cpu_threads=1,
    )  # fmt: skip
    run_spec = RunSpec(experiment_id="full", experiment=spec, variant=spec.variants[0])
    run = RunDir(disk / "runs" / run_spec.run_id)
    run.write_spec(run_spec)
    command = [sys.executable, "-m", "runner.worker", str(run.path)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 78, done.stderr
    assert "the disk was full" in str(run.standing.reason)
    # The first one fits; of the second one nothing stays.
    assert [file.name for file in run.checkpoints.iterdir()] == ["step-00000002.pt"]


def test_a_dashboard_on_a_full_disk_shows_what_it_knows_and_goes_on_later(
    small_disk: Callable[[int], Path],
) -> None:
    disk = small_disk(20)
    data_dir = DataDir(disk / "data")
    record_experiment(data_dir.runs, experiment_id=FIRST)
    with Store.open(data_dir) as store:
        store.ingest()
        record_experiment(data_dir.runs, experiment_id=SECOND)
        filler = fill(disk)
        for _ in range(2):
            with pytest.raises(StoreUnusable, match="free some space"):
                store.ingest()
            assert queries.list_experiments(store)["experiment_id"].tolist() == [FIRST]
        filler.unlink()
        store.ingest()
        assert len(queries.list_experiments(store)) == 2
