"""What a tick looks at: what may have changed, however many folders lie beside it."""

import os
import shutil
import time
from pathlib import Path

import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit, Labels
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState, RunStatus
from breakeven.storage import queries
from breakeven.storage.index import folders, watch
from breakeven.storage.index import folders as listing
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment

LIVE = "20261122-000000-000000-aaaa"


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick looks at two folders that are over, as it does at some hundred of very many."""
    monkeypatch.setattr(watch, "MIN_SETTLED", 2)
    monkeypatch.setattr(watch, "ROUND_SECONDS", 1e9)
    monkeypatch.setattr(watch, "GRANULARITY_NS", 0)  # Else all that a test makes is too young.


def later() -> None:
    """A change from now on has another time stamp than the ones before."""
    time.sleep(0.02)


def many(runs: Path, count: int = 10) -> list[str]:
    """Experiments of two runs that are over; their ids."""
    spec = experiment_spec(num_steps=10, controls=0)
    ids = [f"20261121-0930{number:02d}-123456-7f3a" for number in range(count)]
    for experiment_id in ids:
        record_experiment(runs, spec, experiment_id)
    age(runs)
    return ids


def age(folder: Path) -> None:
    """Nothing in it was changed within the last seconds, as far as a look can tell."""
    parents = [folder, *folder.iterdir()]
    for path in parents:
        os.utime(path, ns=(0, time.time_ns() - 2 * listing.GRANULARITY_NS))


def looked(store: Store) -> int:
    """How many folders one tick looks at."""
    num_folders: list[int] = []
    taken_in = watch.Watch.taken_in

    def counted(self: watch.Watch, seen: watch.FolderScan, *, is_new: bool) -> None:
        num_folders.append(seen.num_looked)
        taken_in(self, seen, is_new=is_new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch.Watch, "taken_in", counted)
        store.ingest()
    return num_folders[0]


def states(store: Store, experiment_id: str) -> list[str]:
    return list(queries.list_runs(store, experiment_id)["state"])


def test_a_tick_does_not_grow_with_ended_runs(data_dir: DataDir, few_at_a_time: None) -> None:
    many(data_dir.runs, 2)
    running = Recording(data_dir.runs, "baseline", experiment_id=LIVE)
    running.claim(ProcessIdentity.from_pid(os.getpid())).start()
    with Store.open(data_dir) as store:
        store.ingest_all()
        assert looked(store) == 3  # the one that runs, and two of four that are over
        many(data_dir.runs, 10)
        store.ingest_all()
        assert looked(store) == 3


def test_where_nothing_changed_nothing_is_read(
    data_dir: DataDir, few_at_a_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(data_dir.runs)
    later()
    with Store.open(data_dir) as store:
        store.ingest_all()
        monkeypatch.setattr(watch, "with_present_state", None)
        assert [looked(store) for _ in range(20)] == [2] * 20
        with pytest.raises(TypeError):  # A folder that changed is read, so that this can fail.
            grow(data_dir, "20261121-093005-123456-7f3a")
            for _ in range(10):
                store.ingest()


def test_every_tick_reads_runs_that_go_on(data_dir: DataDir, few_at_a_time: None) -> None:
    """A record may come late: from a supervisor that finds a run orphaned, or with a slow copy."""
    many(data_dir.runs)
    running = Recording(data_dir.runs, "baseline", experiment_id=LIVE)
    running.claim(ProcessIdentity.from_pid(os.getpid())).start()
    lost = Recording(data_dir.runs, "baseline").claim().start()
    age(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest_all()
        assert states(store, EXPERIMENT_ID) == ["lost"]
        later()
        for _ in range(5):
            running.block([0.1] * 10, [1.0] * 10)
            assert store.ingest() == 11
        running.end()
        lost.end(RunState.TIMEOUT, "worked too long")
        store.ingest()
        assert states(store, LIVE) == ["finished"]
        assert states(store, EXPERIMENT_ID) == ["timeout"]


def test_a_folder_with_an_old_time_stamp_is_noticed(data_dir: DataDir, few_at_a_time: None) -> None:
    """A file system whose clock ticks slowly gives two changes the same time."""
    many(data_dir.runs)
    with Store.open(data_dir) as store:
        stamp = time.time_ns()
        os.utime(data_dir.runs, ns=(stamp, stamp))
        store.ingest_all()
        Recording(data_dir.runs, "baseline", experiment_id=LIVE).start()
        os.utime(data_dir.runs, ns=(stamp, stamp))
        store.ingest()
        assert states(store, LIVE) == ["queued"]


def reopen(data_dir: DataDir, experiment_id: str) -> None:
    """As a reopened folder is that was brought from elsewhere."""
    run = data_dir.run_dir(f"{experiment_id}.inductor")
    run.attempts.mkdir()
    for file in (run.exit_file, run.claim_file):
        file.rename(run.attempts / file.name)


def end_anew(data_dir: DataDir, experiment_id: str) -> None:
    run = data_dir.run_dir(f"{experiment_id}.inductor")
    run.write_exit(Exit.now(RunState.FAILED, "exit status 1", 1))


def grow(data_dir: DataDir, experiment_id: str) -> None:
    with data_dir.run_dir(f"{experiment_id}.inductor").events_file.open("a") as journal:
        journal.write('{"v":1,"kind":"step","time":1,"seq":99,"step":10,"loss":1.0}\n')


def break_it(data_dir: DataDir, experiment_id: str) -> None:
    run = data_dir.run_dir(f"{experiment_id}.inductor")
    run.events_file.unlink()
    os.mkfifo(run.events_file)


CHANGES = {
    reopen: ["finished", "queued"],
    end_anew: ["finished", "failed"],
    grow: ["finished", "finished"],
    break_it: ["finished"],
}


def test_a_late_change_is_noticed_within_a_round(data_dir: DataDir, few_at_a_time: None) -> None:
    changes = dict(zip(many(data_dir.runs), list(CHANGES) * 3, strict=False))
    with Store.open(data_dir) as store:
        store.ingest_all()
        later()
        for experiment_id, change in changes.items():
            change(data_dir, experiment_id)
        for _ in changes:  # Ten experiments of two runs, two runs a tick.
            store.ingest()
        for experiment_id, change in changes.items():
            assert states(store, experiment_id) == CHANGES[change]
        # Of 200 steps two runs gained one each, and two lost all their ten.
        assert store.rows("SELECT count(*) FROM steps") == [(182,)]


def test_a_tick_after_a_pause_reads_all(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MIN_SETTLED", 2)
    ids = many(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest_all()
        for experiment_id in ids:
            end_anew(data_dir, experiment_id)
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + watch.ROUND_SECONDS)
        store.ingest()
        assert {states(store, experiment_id)[1] for experiment_id in ids} == {"failed"}


def test_the_next_tick_notices_the_runners_changes(data_dir: DataDir, few_at_a_time: None) -> None:
    first, *_, last = many(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest_all()
        later()
        data_dir.run_dir(f"{last}.inductor").reopen()
        data_dir.run_dir(f"{first}.baseline").write_labels(Labels(name="called so"))
        store.ingest()
        assert states(store, last) == ["finished", "queued"]
        assert "called so" in queries.list_experiments(store)["name"].tolist()
        later()
        data_dir.run_dir(f"{first}.baseline").labels_file.write_text("no labels")
        for _ in range(10):
            store.ingest()
        assert "called so" not in queries.list_experiments(store)["name"].tolist()
        assert queries.unreadable(store)["message"].str.contains("labels.json").tolist() == [True]
        assert len(states(store, first)) == 2


def test_damaged_folders_block_nothing(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_DAMAGED", 2)
    names = [f"broken-{number}" for number in range(5)]
    for name in names:
        (data_dir.runs / name).mkdir(parents=True)
    with Store.open(data_dir) as store:
        store.ingest_all()
        assert len(queries.unreadable(store)) == 5
        spec = Recording(data_dir.path / "elsewhere", "baseline").run.spec_file.read_text()
        mended = data_dir.runs / f"{EXPERIMENT_ID}.baseline"
        (data_dir.runs / names[0]).rename(mended)
        store.ingest()
        mended.joinpath("spec.json").write_text(spec)
        for _ in range(5):
            store.ingest()
        assert len(queries.unreadable(store)) == 4
        assert states(store, EXPERIMENT_ID) == ["queued"]


def test_nothing_of_a_look_is_forgotten_that_could_not_be_taken_in(
    data_dir: DataDir, few_at_a_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = many(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest_all()
        shutil.rmtree(data_dir.run_dir(f"{first}.inductor").path)
        Recording(data_dir.runs, "baseline", experiment_id=LIVE).start()
        with monkeypatch.context() as broken:
            broken.setattr("breakeven.storage.index.ingest._commit", full_disk)
            with pytest.raises(Exception, match="No space left"):
                store.ingest()
        store.ingest()
        assert queries.list_runs(store, first)["label"].tolist() == ["baseline"]
        assert states(store, LIVE) == ["queued"]


def full_disk(*_: object) -> int:
    raise OSError(28, "No space left on device")


def test_what_stands_as_it_was_taken_in_is_not_read_when_a_dashboard_starts(
    data_dir: DataDir, few_at_a_time: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = many(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest_all()
    end_anew(data_dir, ids[3])
    grow(data_dir, ids[5])
    data_dir.run_dir(f"{ids[7]}.baseline").write_labels(Labels(name="called so"))
    later()
    read: list[str] = []
    lines, standing, labels = folders.read_complete_lines, RunDir._status, RunDir.read_labels

    def of_journal(path: Path, *given: int) -> tuple[bytes, int]:
        read.append(path.parent.name)
        return lines(path, *given)

    def of_run(run_dir: RunDir) -> RunStatus:
        read.append(run_dir.run_id)
        return standing(run_dir)

    def of_labels(run_dir: RunDir) -> Labels:
        read.append(run_dir.run_id)
        return labels(run_dir)

    monkeypatch.setattr(folders, "read_complete_lines", of_journal)
    monkeypatch.setattr(RunDir, "_status", of_run)
    monkeypatch.setattr(RunDir, "read_labels", of_labels)
    with Store.open(data_dir) as store:
        store.ingest_all()
        assert read == [f"{ids[3]}.inductor", f"{ids[5]}.inductor", f"{ids[7]}.baseline"]
        assert states(store, ids[3]) == ["finished", "failed"]
        assert "called so" in queries.list_experiments(store)["name"].tolist()
