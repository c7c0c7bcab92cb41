"""A disk that fills up while runs go on: a real file system of a few megabytes."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.disk_space import lacks_room
from breakeven.runner.processes import start_in_own_session
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.exit_status import WorkerExit, explain
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs import experiment as specs
from breakeven.runner.supervision import supervisor
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.storage import queries
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index.store import Store
from tests.helpers.journals import record_experiment
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.runner.supervision import test_supervisor as fake
from tests.runner.supervision.supervised import file_system
from tests.runner.supervision.supervised import supervisor_of as supervisor_of

pytestmark = pytest.mark.heavy


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with file_system(tmp_path / "disk", 20) as folder:
        yield folder


@pytest.fixture
def data_dir(disk: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setattr("breakeven.runner.disk_space.QUEUES_FROM_BYTES", 1_000_000)
    return DataDir(disk / "data")


def fill(data_dir: DataDir) -> Path:
    """Leaves not a byte."""
    filler = data_dir.path / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler


def submit_slow(data_dir: DataDir) -> list[RunDir]:
    """A baseline of a second and a run of a second a block."""
    return [*fake.queued(data_dir, "slow", steps=500).values()]


def has_begun(run: RunDir) -> bool:
    return (
        run.claim_file.exists()
        and run.events_file.exists()
        and (run.events_file.stat().st_size > 1000)
    )


def test_how_a_run_ended_is_recorded_once_there_is_room(
    data_dir: DataDir, tmp_path: Path, supervisor_of: Callable[[DataDir], subprocess.Popen[bytes]]
) -> None:
    baseline, slow = submit_slow(data_dir)
    process = supervisor_of(data_dir)
    wait_until(lambda: has_begun(slow))
    filler = fill(data_dir)
    claim = slow.read_claim()
    assert claim is not None
    with suppress(ProcessLookupError):  # It may have met the full disk already.
        os.kill(claim.process.pid, signal.SIGKILL)
    wait_until(lambda: slow.run_id in (tmp_path / "said").read_text())
    assert not slow.exit_file.exists() and process.poll() is None
    filler.unlink()
    wait_until(lambda: slow.exit_file.exists() and baseline.exit_file.exists())
    stands = slow.status
    assert stands.state is RunState.FAILED and "the disk was full" in str(stands.reason)
    assert "written late" in str(stands.reason)
    assert process.wait(PATIENCE_SECONDS) == 0


def test_runs_that_wait_for_disk_space_say_so_and_can_be_cancelled(
    data_dir: DataDir,
    capsys: pytest.CaptureFixture[str],
    supervisor_of: Callable[[DataDir], subprocess.Popen[bytes]],
) -> None:
    runs = submit_slow(data_dir)
    supervisor_of(data_dir)
    wait_until(lambda: all(map(has_begun, runs)))
    filler = fill(data_dir)
    assert main(["list", "--runs", "--data-folder", str(data_dir.path)]) == 0
    said = capsys.readouterr().out
    lack = f": 0.00 MB free in {data_dir.runs}, 1 MB needed"
    assert said.count("running: waits for disk space to ") == said.count(lack) == 2
    assert {run.status.state for run in runs} == {RunState.RUNNING}
    fake.cancel_all(data_dir)
    ends = f"waits for disk space to record how it ended{lack}"
    wait_until(lambda: {run.status.reason for run in runs} == {ends})
    filler.unlink()
    wait_until(lambda: all(run.exit_file.exists() for run in runs))
    for run in runs:
        assert run.status.state is RunState.CANCELLED
        assert "stopped on request" in str(run.status.reason)


def test_what_the_disk_ended_and_somebody_stopped_before_it_was_recorded_was_cancelled(
    data_dir: DataDir,
) -> None:
    finished, failed = submit_slow(data_dir)
    exits = ExitRecords()
    filler = fill(data_dir)
    for run, status in ((finished, WorkerExit.FINISHED), (failed, WorkerExit.DISK_FULL)):
        exits.write(run, *explain(status), status)
        assert exits.owes(run)
        run.request_cancel()
    filler.unlink()
    exits.write_owed()
    assert (finished.state, failed.state) == (RunState.FINISHED, RunState.CANCELLED)
    why = str(failed.status.reason)
    assert "waited for disk space; before: the disk was full" in why


def test_nothing_begins_on_a_full_disk_and_all_begins_once_there_is_room(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "POLL_SECONDS", 0.02)
    (run,) = fake.queued(data_dir, steps=20).values()
    filler = fill(data_dir)
    looks = 0

    def look(folder: Path) -> str | None:
        """Makes room after the time in which a run would have started."""
        nonlocal looks
        looks += 1
        if looks == 10:
            stands = run.status
            assert stands.state is RunState.QUEUED
            assert str(stands.reason).startswith("waits for disk space to begin: 0.00 MB free in ")
            filler.unlink()
        return lacks_room(folder)

    monkeypatch.setattr(supervisor, "lacks_room", look)
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 60.0)
    with fake.supervised(data_dir, lambda: run.state is RunState.FINISHED):
        monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    assert looks > 10


@pytest.mark.slow
def test_a_half_written_checkpoint_does_not_stay_and_the_exit_says_that_the_disk_was_full(
    disk: Path, tmp_path: Path
) -> None:
    (disk / "filler").write_bytes(bytes(8 * 2**20))
    spec = specs.ExperimentSpec(
        name="full",
        backends=(),
        controls=0,
        data=specs.DataSpec(num_train_samples=64, num_eval_samples=8, sequence_length=16),
        training=specs.TrainingSpec(batch_size=8, optimizer="AdamW"),
        checkpoints=specs.CheckpointSpec(every=2, unit="steps"),
        block_steps=2,
        cpu_threads=1,
    )
    run_spec = specs.RunSpec(experiment_id="full", experiment=spec, arm=spec.arms[0])
    run = RunDir(disk / "runs" / run_spec.run_id)
    run.write_spec(run_spec)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    said = tmp_path / "said"
    command = (*supervisor.WORKER_COMMAND, str(run.path))
    assert start_in_own_session(command, said, environment).wait() == 78, said.read_text()
    assert "the disk was full" in str(run.status.reason)
    # The first one fits; of the second one nothing stays.
    assert [file.name for file in run.checkpoints.iterdir()] == ["step-00000002.pt"]


def test_a_dashboard_on_a_full_disk_shows_what_it_knows_and_goes_on_later(
    data_dir: DataDir,
) -> None:
    first, second = "20261121-093015-000000-aaaa", "20261121-093016-000000-bbbb"
    record_experiment(data_dir.runs, experiment_id=first)
    with Store.open(data_dir) as store:
        store.ingest()
        record_experiment(data_dir.runs, experiment_id=second)
        filler = fill(data_dir)
        for _ in range(2):
            with pytest.raises(StoreUnusable, match="free some space"):
                store.ingest()
            assert queries.list_experiments(store)["experiment_id"].tolist() == [first]
        filler.unlink()
        store.ingest()
        assert len(queries.list_experiments(store)) == 2
