"""The store: one owner, readers beside it, many threads, a file that may be lost."""

import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.errors import NotInStore, StoreLocked, StoreUnusable
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from tests.helpers.waiting import PATIENCE_SECONDS


@pytest.fixture
def data_dir(data_dir: DataDir) -> DataDir:
    """With a recorded experiment."""
    record_experiment(data_dir.runs)
    return data_dir


def num_steps(store: Store) -> int:
    return int(store.query("SELECT count(*) AS n FROM steps")["n"][0])


def test_a_second_owner_is_refused_and_reads_in_memory_instead(data_dir: DataDir) -> None:
    with Store.open(data_dir) as owner:
        owner.ingest()
        with pytest.raises(StoreLocked, match="another process owns"):
            Store.open(data_dir)
        with Store.in_memory(data_dir) as reader:
            assert num_steps(reader) == num_steps(owner) == 120
            assert reader.rows(LIMIT)[0][0] == "95.3 MiB", "without a file it holds more"
    with Store.open(data_dir) as next_owner:
        assert num_steps(next_owner) == 120


def log_of(data_dir: DataDir) -> int:
    """Bytes that are not in the database file yet."""
    log = data_dir.database_file.with_name(data_dir.database_file.name + ".wal")
    return log.stat().st_size if log.exists() else 0


def test_bulk_does_not_stay_in_memory(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    held = "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
    with Store.open(data_dir) as store:
        monkeypatch.setattr("breakeven.storage.index.store.MANY_ROWS", 154)
        assert store.ingest_all() == 153
        assert log_of(data_dir) > 0
        assert store.rows(held)[0][0] > 1_000_000
    record_experiment(data_dir.runs, experiment_id="20260101-000000-000000-0001")
    with Store.open(data_dir) as store:
        monkeypatch.setattr("breakeven.storage.index.store.MANY_ROWS", 153)
        assert store.ingest_all() == 153
        assert log_of(data_dir) == 0
        assert store.rows(held)[0][0] == 0


def test_bulk_may_take_more_memory(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first look, of which nobody knows how much it finds, and while more waits."""
    limits, tick = [], Store._tick

    def limit(store: Store) -> str:
        return str(store.rows("SELECT current_setting('memory_limit')")[0][0])

    def noted(store: Store) -> tuple[int, bool]:
        limits.append(limit(store))
        return tick(store)

    monkeypatch.setattr(Store, "_tick", noted)
    monkeypatch.setattr("breakeven.storage.index.folders.MAX_TICK_BYTES", 10_000)
    with Store.open(data_dir) as store:
        assert store.ingest_all() == 153
        assert (len(limits) > 1, set(limits)) == (True, {"143.0 MiB"})
        assert limit(store) == "76.2 MiB"
        store.ingest_all()
        assert limits[-1] == "76.2 MiB"


LIMIT = "SELECT current_setting('memory_limit')"


def test_what_a_question_took_goes_back_to_the_system(data_dir: DataDir) -> None:
    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

    # Sorted, 300,000 numbers and their hashes are 5 MB, and as much again in between.
    question = "SELECT i, hash(i) AS h FROM range(300_000) t(i) ORDER BY h"
    numbered = f"SELECT row_number() OVER (ORDER BY h) FROM ({question})"
    with Store.open(data_dir) as store:
        store.rows(f"SELECT count(*) FROM ({numbered})")
        after_question = resident()
        store.release_memory()
        assert resident() < after_question - 5


def test_giving_back_takes_nothing_from_a_question_that_was_given_more(data_dir: DataDir) -> None:
    tries: list[object] = []

    def work() -> object:
        tries.append(None)
        if len(tries) == 1:
            raise duckdb.OutOfMemoryException
        store.release_memory()
        return store.rows(LIMIT)[0][0]

    with Store.open(data_dir) as store:
        store.ingest_all()
        assert store._with_enough_memory(work) == "953.6 MiB"
        assert store.rows(LIMIT)[0][0] == "76.2 MiB"
    store.release_memory()  # Of what is closed nothing, and no error.


def test_a_large_look_takes_more_memory(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.storage.index.store.SETTLED_MEMORY", "50MB")
    with Store.open(data_dir, PROJECT_ROOT / "examples") as store:
        assert store.ingest_all() > 10_000
        assert store.rows("SELECT current_setting('memory_limit')") == [("47.6 MiB",)]
        assert store.rows("SELECT block_size FROM pragma_database_size()") == [(65_536,)]


def test_the_log_of_a_killed_process_leaves_memory(data_dir: DataDir, tmp_path: Path) -> None:
    killed = DataDir(tmp_path / "killed")
    with Store.open(data_dir) as store:
        store.ingest_all()
        shutil.copytree(data_dir.path, killed.path)  # as it lies there while the process goes on
    assert log_of(killed) > 0
    with Store.open(killed) as store:
        assert log_of(killed) == 0
        assert num_steps(store) == 120


@pytest.mark.heavy
def test_a_database_that_a_foreign_program_holds_is_not_deleted(data_dir: DataDir) -> None:
    Store.open(data_dir).close()
    script = "import duckdb, sys, time; it = duckdb.connect(sys.argv[1]); print(flush=True); "
    command = [sys.executable, "-c", f"{script}time.sleep(600)", str(data_dir.database_file)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE)
    other.stdout.readline()
    before = data_dir.database_file.stat().st_ino
    with pytest.raises(StoreLocked, match="another program"):
        Store.open(data_dir)
    assert data_dir.database_file.stat().st_ino == before
    other.kill()
    other.wait()
    other.stdout.close()
    Store.open(data_dir).close()


@pytest.mark.parametrize("damage", [b"", b"not a database", b"\0" * 20_000])
def test_a_file_that_is_no_database_is_replaced(data_dir: DataDir, damage: bytes) -> None:
    data_dir.database_file.write_bytes(damage)
    with Store.open(data_dir) as store:
        store.ingest()
        assert num_steps(store) == 120


@pytest.mark.parametrize("change", ["UPDATE meta SET schema = 'older'", "DROP TABLE meta"])
def test_a_database_of_another_schema_is_rebuilt(data_dir: DataDir, change: str) -> None:
    with Store.open(data_dir) as store:
        store.ingest()
    connection = duckdb.connect(str(data_dir.database_file))
    connection.execute(change)
    connection.close()
    with Store.open(data_dir) as store:
        assert num_steps(store) == 0
        store.ingest()
        assert num_steps(store) == 120


def test_a_data_folder_that_cannot_hold_a_database_is_named(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data")
    data_dir.database_file.mkdir(parents=True)
    with pytest.raises(StoreUnusable, match=r"breakeven\.duckdb cannot be created"):
        Store.open(data_dir)
    data_dir.database_file.rmdir()
    Store.open(data_dir).close()  # the lock was given back


def test_threads_query_rightly_while_another_one_ingests(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=1000)
    recording = Recording(data_dir.runs, "baseline", spec, "20261122-000000-000000-aaaa")
    over = threading.Event()

    def write_and_ingest(store: Store) -> None:
        for _ in range(10):
            recording.block([0.1] * 10, [1.0] * 10)
            store.ingest()
        over.set()

    def read(store: Store, label: str) -> int:
        """Asks for one run's steps and checks that nobody else's answer comes back."""
        num_answers = 0
        while not over.is_set() or num_answers < 10:
            sql = "SELECT run_id, count(*) AS n FROM steps WHERE run_id = ? GROUP BY run_id"
            frame = store.query(sql, [f"{EXPERIMENT_ID}.{label}"])
            assert frame.values.tolist() == [[f"{EXPERIMENT_ID}.{label}", 40]]
            # Steps and their block are committed together.
            torn = store.query(
                "SELECT (SELECT count(*) FROM steps) - (SELECT sum(num_steps) FROM blocks) AS n"
            )
            assert torn["n"][0] == 0
            num_answers += 1
        return num_answers

    with Store.open(data_dir) as store, ThreadPoolExecutor(5) as pool:
        store.ingest()
        readers = [pool.submit(read, store, label) for label in ("baseline", "control", "inductor")]
        writers = [pool.submit(write_and_ingest, store)]
        other = pool.submit(lambda: [store.ingest() for _ in range(10)])
        assert all(reader.result(timeout=PATIENCE_SECONDS) > 9 for reader in readers)
        writers[0].result(timeout=PATIENCE_SECONDS)
        other.result(timeout=PATIENCE_SECONDS)
        store.ingest()
        assert num_steps(store) == 120 + 100


def test_a_store_without_any_run_answers_with_empty_frames(tmp_path: Path) -> None:
    with Store.in_memory(DataDir(tmp_path / "nothing")) as store:
        assert queries.list_experiments(store).empty
        assert queries.list_runs(store, "nothing").empty
        assert queries.losses(store, "nothing").empty
        assert queries.unreadable(store).empty
        with pytest.raises(NotInStore, match="no run 'nothing'"):
            queries.run_record(store, "nothing")
