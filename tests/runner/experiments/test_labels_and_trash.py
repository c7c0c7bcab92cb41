"""Labels, trash and freed disk space: what people do to experiments that are there."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.commands import cli
from breakeven.runner.errors import InvalidRunFolder, InvalidSpec, RunnerError, UnknownExperiment
from breakeven.runner.experiments import freeing_space, trash
from breakeven.runner.experiments.labels import EXAMPLES, change_labels
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment

OTHER = "20261121-093016-123456-7f3b"


@pytest.fixture
def recorded(data_dir: DataDir) -> DataDir:
    record_experiment(data_dir.runs)
    return data_dir


def command(data_dir: DataDir, *arguments: str) -> int:
    return cli.main([*arguments, f"--data-folder={data_dir.path}"])


def test_labels_lie_in_the_folder_of_the_first_run_and_travel_with_it(
    recorded: DataDir, tmp_path: Path
) -> None:
    change_labels(recorded, EXPERIMENT_ID, lambda old: replace(old, name="Nightly"))
    change_labels(recorded, EXPERIMENT_ID, lambda old: old.tagged(["paper", "b"]))
    copy = DataDir(tmp_path / "copy")
    copy.path.mkdir()
    recorded.runs.rename(copy.runs)
    first = copy.run_dir(f"{EXPERIMENT_ID}.baseline")
    assert first.read_labels() == Labels(name="Nightly", tags=("paper", "b"))
    assert [run.labels_file.exists() for run in find_experiment(copy, EXPERIMENT_ID).runs] == [
        True,
        False,
        False,
    ]


def test_no_label_of_several_writers_is_lost(recorded: DataDir) -> None:
    def tag(number: int) -> None:
        change_labels(recorded, EXPERIMENT_ID, lambda old: old.tagged([f"t{number}"]))

    writers = [threading.Thread(target=tag, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    labels = find_experiment(recorded, EXPERIMENT_ID).runs[0].read_labels()
    assert set(labels.tags) == {f"t{number}" for number in range(8)}


def test_a_process_that_cannot_get_the_lock_says_so(
    recorded: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breakeven.runner.experiments.labels.LOCK_PATIENCE_SECONDS", 0.0)
    lock = FileLock(recorded.library_lock)
    assert lock.try_acquire()
    with lock, pytest.raises(RunnerError, match="being changed by another process"):
        trash.delete(recorded, EXPERIMENT_ID)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"name": 7}', "name = 7"),
        ('{"tags": ["a,b"]}', "comma"),
        ('{"tags": ["' + "x" * 41 + '"]}', "1 to 40"),
        ('{"notes": "' + "x" * 4097 + '"}', "4,096"),
        ('{"name": "two\\nlines"}', "printable"),
        ('{"owner": "me"}', "is not a field"),
        ("[1]", "an object of named fields"),
    ],
)
def test_labels_of_strangers_that_cannot_be_are_refused_by_name(
    recorded: DataDir, content: str, why: str
) -> None:
    first = find_experiment(recorded, EXPERIMENT_ID).runs[0]
    first.labels_file.write_text(content)
    with pytest.raises(InvalidRunFolder, match=f"(?s)labels.json.*{why}"):
        first.read_labels()
    with pytest.raises(RunnerError):
        change_labels(recorded, EXPERIMENT_ID, lambda old: old)
    assert first.labels_file.read_text() == content


def test_what_waits_and_what_comes_with_breakeven_is_not_changed(data_dir: DataDir) -> None:
    queued = submit(data_dir, experiment_spec())
    spec_file = next(EXAMPLES.glob("*/*/spec.json"))
    shipped = spec_file.parent.name.partition(".")[0]
    for act in (trash.delete, freeing_space.free):
        with pytest.raises(RunnerError, match="Stop it first"):
            act(data_dir, queued)
        with pytest.raises(UnknownExperiment, match="comes with Breakeven"):
            act(data_dir, shipped)
    assert find_experiment(data_dir, queued)
    with pytest.raises(UnknownExperiment, match="comes with Breakeven"):
        change_labels(data_dir, shipped, lambda old: old)
    # A label that cannot be is refused before anything is written.
    with pytest.raises(InvalidSpec, match="at most 20"):
        change_labels(data_dir, queued, lambda old: old.tagged([*map(str, range(21))]))
    assert not find_experiment(data_dir, queued).runs[0].labels_file.exists()


def test_what_was_deleted_comes_back_whole(recorded: DataDir) -> None:
    def content() -> dict[str, bytes]:
        return {
            str(file.relative_to(recorded.runs)): file.read_bytes()
            for file in recorded.runs.rglob("*.*")
            if file.is_file()
        }

    before = content()
    assert len(before) > 9
    trash.delete(recorded, EXPERIMENT_ID)
    assert content() == {}
    (deleted,) = trash.deleted_experiments(recorded)
    assert (deleted.experiment_id, deleted.name) == (EXPERIMENT_ID, "test")
    trash.restore(recorded, EXPERIMENT_ID)
    assert content() == before
    assert trash.deleted_experiments(recorded) == []


def test_a_deletion_that_was_cut_short_is_finished_by_the_next_and_undone_as_one(
    recorded: DataDir,
) -> None:
    half = recorded.trash / EXPERIMENT_ID
    half.mkdir(parents=True)
    first = recorded.run_dir(f"{EXPERIMENT_ID}.baseline")
    os.rename(first.path, half / first.run_id)
    trash.delete(recorded, EXPERIMENT_ID)
    trash.restore(recorded, EXPERIMENT_ID)
    assert len(find_experiment(recorded, EXPERIMENT_ID).runs) == 3


def test_a_second_copy_of_a_deleted_experiment_goes_to_the_trash_beside_the_first(
    recorded: DataDir,
) -> None:
    trash.delete(recorded, EXPERIMENT_ID)
    record_experiment(recorded.runs)
    trash.delete(recorded, EXPERIMENT_ID)
    assert len(trash.deleted_experiments(recorded)) == 2
    trash.restore(recorded, EXPERIMENT_ID)
    with pytest.raises(RunnerError, match="exists already and is not overwritten"):
        trash.restore(recorded, EXPERIMENT_ID)


def test_the_trash_keeps_for_thirty_days_and_is_emptied_on_request(recorded: DataDir) -> None:
    record_experiment(recorded.runs, experiment_id=OTHER)
    trash.delete(recorded, EXPERIMENT_ID)
    folder = trash.deleted_experiments(recorded)[0].folder
    age = folder.stat().st_mtime - 29 * 86_400
    os.utime(folder, (age, age))
    record_experiment(recorded.runs, experiment_id="another")
    trash.delete(recorded, "another")
    assert {deleted.experiment_id for deleted in trash.deleted_experiments(recorded)} == {
        EXPERIMENT_ID,
        "another",
    }
    os.utime(folder, (age - 2 * 86_400, age - 2 * 86_400))
    trash.delete(recorded, OTHER)
    assert {deleted.experiment_id for deleted in trash.deleted_experiments(recorded)} == {
        OTHER,
        "another",
    }
    assert trash.empty_trash(recorded) == 2
    assert trash.deleted_experiments(recorded) == []


def test_freeing_space_takes_checkpoints_and_no_results_and_follows_no_link(
    recorded: DataDir, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.pt").write_bytes(b"x" * 50)
    first, second, _ = find_experiment(recorded, EXPERIMENT_ID).runs
    first.checkpoints.mkdir(parents=True)
    (first.checkpoints / "step-10.pt").write_bytes(b"x" * 1000)
    (first.artifacts / "predictions.npz").write_bytes(b"x" * 100)
    first.workplace.mkdir()
    (first.workplace / "words.bin").symlink_to(outside / "kept.pt")
    (first.workplace / "mine.pt").write_bytes(b"x" * 7)
    second.artifacts.mkdir(parents=True, exist_ok=True)
    second.checkpoints.symlink_to(outside)
    assert freeing_space.free(recorded, EXPERIMENT_ID) == 1000
    assert (first.artifacts / "predictions.npz").exists()
    assert first.events_file.exists() and (outside / "kept.pt").exists()
    # What a script left in its working folder goes, too, and what a link leads to stays.
    assert freeing_space.free(recorded, EXPERIMENT_ID, artifacts=True) == 107 + len(
        str(outside / "kept.pt")
    )
    assert (outside / "kept.pt").exists() and not first.workplace.exists()


def test_every_experiment_that_is_named_is_acted_on_and_a_refusal_shows_in_the_status(
    recorded: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(recorded.runs, experiment_id=OTHER)
    assert (
        command(recorded, "data", "label", EXPERIMENT_ID, OTHER, "--tag=a", "--tag=b", "--name=N")
        == 0
    )
    assert (
        command(recorded, "data", "label", EXPERIMENT_ID, "--untag=a", "--notes=**why**", "--name=")
        == 0
    )
    first = find_experiment(recorded, EXPERIMENT_ID).runs[0].read_labels()
    assert first == Labels(tags=("b",), notes="**why**")
    assert find_experiment(recorded, OTHER).runs[0].read_labels().name == "N"
    assert command(recorded, "data", "label", OTHER, "--archive") == 0
    assert find_experiment(recorded, OTHER).runs[0].read_labels().archived
    assert command(recorded, "data", "label", OTHER, "--no-archive") == 0
    assert not find_experiment(recorded, OTHER).runs[0].read_labels().archived
    assert command(recorded, "data", "delete", "nonsense", OTHER) == 2
    assert "nonsense" in capsys.readouterr().err
    assert command(recorded, "data", "restore") == 0
    assert f"{OTHER}  deleted" in capsys.readouterr().out
    assert command(recorded, "data", "restore", OTHER) == 0
    assert command(recorded, "data", "clean", OTHER) == 0
    assert command(recorded, "data", "clean", "--trash") == 0
    assert command(recorded, "data", "clean") == 2
    assert command(recorded, "data", "clean", OTHER, "--trash") == 2
    assert find_experiment(recorded, OTHER)
