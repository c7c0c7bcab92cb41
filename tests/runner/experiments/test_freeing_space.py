"""A budget of disk space: what goes, in which order, and what never does."""

import os

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.disk_space import parse_size
from breakeven.runner.experiments import freeing_space, trash
from breakeven.runner.experiments.freeing_space import plan_removals
from breakeven.runner.experiments.queue import submit
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.journals import Recording, experiment_spec, falling_losses, record_experiment

FIRST, SECOND, THIRD = (f"20261121-09301{number}-000000-aaaa" for number in (5, 6, 7))
KB = 1_000


def weigh(data_dir: DataDir, run_id: str, checkpoint: int, other: int = 0) -> None:
    """Gives a run a checkpoint and another artifact of so many bytes."""
    run = data_dir.run_dir(run_id)
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "step-00000010.pt").write_bytes(bytes(checkpoint))
    (run.artifacts / "kept.txt").write_bytes(bytes(other))


@pytest.fixture
def store(data_dir: DataDir) -> DataDir:
    """Two experiments that are over, one of the trash, one that could go on, one that waits."""
    for experiment_id in (FIRST, SECOND, THIRD):
        record_experiment(data_dir.runs, experiment_id=experiment_id)
    weigh(data_dir, f"{FIRST}.baseline", 100 * KB, 50 * KB)
    weigh(data_dir, f"{SECOND}.baseline", 200 * KB, 60 * KB)
    trash.delete(data_dir, THIRD)
    early = Recording(data_dir.runs, "baseline", experiment_spec(), "20261121-093010-000000-aaaa")
    early.claim().start().blocks([0.1] * 2, falling_losses(40), 0.0).end(RunState.CANCELLED)
    weigh(data_dir, "20261121-093010-000000-aaaa.baseline", 400 * KB, 70 * KB)
    submit(data_dir, ExperimentSpec(name="waits"))
    return data_dir


def whats(store: DataDir, budget: int) -> list[str]:
    return [removal.what for removal in plan_removals(store, budget).removals]


def test_the_trash_goes_first_then_old_checkpoints_then_artifacts_and_no_more_than_needed(
    store: DataDir,
) -> None:
    size, trash = freeing_space.size_of(store.path), freeing_space.size_of(store.trash)
    assert whats(store, size) == []
    assert whats(store, size - 1) == ["deleted experiments"]
    assert whats(store, size - trash - 1) == ["deleted experiments", f"checkpoints of {FIRST}"]
    assert whats(store, size - trash - 100 * KB - 1)[2:] == [f"checkpoints of {SECOND}"]
    everything = plan_removals(store, 0)
    assert [removal.what for removal in everything.removals][3:] == [
        f"artifacts of {FIRST}",
        f"artifacts of {SECOND}",
    ]
    assert not everything.is_enough
    assert everything.bytes_after == size - trash - (100 + 200 + 50 + 60) * KB


def test_results_what_waits_and_what_could_go_on_stay(
    store: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {
        file: file.read_bytes()
        for file in store.runs.rglob("*")
        if file.is_file() and ("artifacts" not in file.parts or "093010" in str(file))
    }
    size = freeing_space.size_of(store.path)
    assert main(["data", "clean", "--budget=1B", "--dry-run", f"--data-folder={store.path}"]) == 1
    assert (
        freeing_space.size_of(store.path) == size and "would be removed" in capsys.readouterr().out
    )
    assert main(["data", "clean", "--budget=1B", f"--data-folder={store.path}"]) == 1
    assert {file: file.read_bytes() for file in kept} == kept
    assert not store.run_dir(f"{FIRST}.baseline").artifacts.exists()
    assert not trash.deleted_experiments(store)
    assert main(["data", "clean", "--budget=1GB", f"--data-folder={store.path}"]) == 0


def test_beside_a_training_nothing_of_it_is_touched(store: DataDir) -> None:
    """Whatever its name says of its age."""
    oldest = "20200101-000000-000000-aaaa"
    me = ProcessIdentity.from_pid(os.getpid())
    for arm in experiment_spec().arms:
        run = Recording(store.runs, arm.label, experiment_spec(), oldest)
        run.claim(me).start().blocks([0.1] * 2, falling_losses(40), 0.0)
        weigh(store, f"{oldest}.{arm.label}", 300 * KB, 80 * KB)
    # One of its runs is over already; the experiment is not.
    run.end()

    def stands() -> dict[str, tuple[int, int, bytes]]:
        return {
            str(file): (file.stat().st_ino, file.stat().st_mtime_ns, file.read_bytes())
            for file in store.runs.glob(f"{oldest}.*/**/*")
            if file.is_file()
        }

    before = stands()
    assert len([name for name in before if "artifacts" in name]) == 2 * len(experiment_spec().arms)
    assert not [line for line in whats(store, 0) if oldest in line]
    assert main(["data", "clean", "--budget=1B", f"--data-folder={store.path}"]) == 1
    assert not store.run_dir(f"{FIRST}.baseline").artifacts.exists()
    assert stands() == before


def test_a_size_has_a_number_and_a_unit() -> None:
    assert [parse_size(text) for text in ("20GB", "1.5 mb")] == [2 * 10**10, 1_500_000]
    for text in ("20", "GB", "-1GB", "1e9B", "\u0663GB x"):
        with pytest.raises(ValueError, match="must be a size"):
            parse_size(text)
