"""A team's store under what happens to it: many at once, killed, cut off. Rows are counted against
the journals each time, by having an embedded store read the same folders."""

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.store import Store
from breakeven.storage.team.feed import Feed
from breakeven.storage.team.lake import Lake
from breakeven.storage.team.store_address import Address
from breakeven.storage.team.team_store import TeamStore
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.team.postgres import Postgres
from tests.helpers.team.stores import contents, data_folder, grow

pytestmark = [pytest.mark.heavy, pytest.mark.slow]
ROOT = Path(__file__).parents[3]

FEEDING = """
import sys
from pathlib import Path
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.team.store_address import Address
from breakeven.storage.team.feed import Feed
from breakeven.storage.team.lake import Lake

class Telling(Feed):
    def _send(self, *args):
        print("sends", flush=True)
        super()._send(*args)

address = Address("postgres", sys.argv[1], sys.argv[2])
feed = Telling(Lake(address), DataDir(Path(sys.argv[3])), None)
while True:
    print(*feed.tick(), flush=True)
    if sys.argv[4] == "once" and not feed.tick()[1]:
        break
"""
"""A process that feeds a data folder, though others may do so, too, and tells when it is about to
write."""


@contextmanager
def feeding(address: Address, folder: DataDir, how: str = "on") -> Iterator[subprocess.Popen[str]]:
    arguments = [address.place, str(address.data), str(folder.path), how]
    command = [sys.executable, "-c", FEEDING, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.fixture
def address(postgres: Postgres, tmp_path: Path) -> Address:
    return Address("postgres", postgres.new_database(), str(tmp_path / "rows"))


def recorded(place: Path, number: int, num_steps: int = 2000) -> DataDir:
    """A data folder with an experiment of its own."""
    folder = data_folder(place)
    spec = experiment_spec(num_steps=num_steps)
    record_experiment(folder.runs, spec, f"20261122-1000{number:02}-000000-aaaa")
    return folder


def agree(address: Address, elsewhere: Path, *folders: DataDir) -> bool:
    """Whether the store has exactly what journals in these folders say."""
    together = data_folder(elsewhere / "together")
    for folder in folders:
        shutil.copytree(folder.runs, together.runs, dirs_exist_ok=True)
    nobody = data_folder(elsewhere / "nobody")
    with TeamStore.at(address, nobody) as store, Store.in_memory(together) as embedded:
        ours, theirs = contents(store), contents(embedded)
    # The folder's path is that of who fed it.
    ours.pop("progress"), theirs.pop("progress")
    assert {name: len(rows) for name, rows in ours.items()} == {
        name: len(rows) for name, rows in theirs.items()
    }
    return ours == theirs


def test_concurrent_writers_write_each_line_once(address: Address, tmp_path: Path) -> None:
    sources = [recorded(tmp_path / f"source{number}", number) for number in range(4)]
    growing = [data_folder(tmp_path / f"folder{number}") for number in range(4)]
    Lake(address).close()  # Whoever comes first makes the tables.
    torn, done = [], threading.Event()

    def read() -> None:
        """In one state all runs of an experiment have blocks as their steps have."""
        with TeamStore.at(address, data_folder(tmp_path / "reader")) as reader:
            while not done.is_set():
                with reader._lake.reading() as cursor:
                    torn.extend(
                        cursor.execute("""
                        SELECT run_id, journal_offset FROM progress
                        WHERE journal_offset > 0 AND run_id NOT IN (SELECT run_id FROM phases)
                    """).fetchall()
                    )

    reading = threading.Thread(target=read)
    reading.start()
    # Two processes for each folder.
    processes = [feeding(address, folder) for folder in growing for _ in range(2)]
    started = [process.__enter__() for process in processes]
    for share in (0.1, 0.3, 0.31, 0.6, 0.9, 1.0):
        for source, folder in zip(sources, growing, strict=True):
            grow(source, folder, share)
        time.sleep(1.5)
    await_rows(address, tmp_path / "watching", 4 * 3 * 2000)
    done.set()
    reading.join()
    for process in started:
        assert process.poll() is None  # None of them gave up.
        process.send_signal(signal.SIGKILL)
    for feeder in processes:
        feeder.__exit__(None, None, None)
    assert not torn
    assert agree(address, tmp_path, *sources)


def await_rows(address: Address, place: Path, num_steps: int) -> None:
    with TeamStore.at(address, data_folder(place)) as store:
        deadline = time.monotonic() + 120
        count = -1
        while count != num_steps and time.monotonic() < deadline:
            with store._lake.reading() as cursor:
                ((count,),) = cursor.execute("SELECT count(*) FROM steps").fetchall()
            time.sleep(0.2)
        assert count == num_steps


def test_killed_writers_lose_nothing(address: Address, tmp_path: Path) -> None:
    source, folder = recorded(tmp_path / "source", 0), data_folder(tmp_path / "folder")
    Lake(address).close()
    chance = random.Random(7)
    killed = 0
    for number in range(16):
        grow(source, folder, (number + 1) / 16)
        with feeding(address, folder) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("sends"):
                    # A commit takes some 20 to 100 ms here.
                    time.sleep(chance.uniform(0.0, 0.15))
                    process.kill()
                    killed += 1
                    break
    assert killed == 16
    with feeding(address, folder, "once") as process:
        process.communicate(timeout=120)
    assert agree(address, tmp_path, source)
    # What the killed ones left behind goes with upkeep, and nothing else.
    lake = Lake(address)
    with lake.reading() as cursor:
        orphans = (
            "CALL ducklake_delete_orphaned_files('team', dry_run => true, cleanup_all => true)"
        )
        before = len(cursor.execute(orphans).fetchall())
    lake.execute("CALL ducklake_delete_orphaned_files('team', cleanup_all => true)")
    with lake.reading() as cursor:
        assert cursor.execute(orphans).fetchall() == []
    lake.close()
    sys.stdout.write(f"{before} files without a commit\n")
    shutil.rmtree(tmp_path / "together"), shutil.rmtree(tmp_path / "nobody")
    assert agree(address, tmp_path, source)


def test_a_restart_loses_nothing(postgres: Postgres, address: Address, tmp_path: Path) -> None:
    source, folder = recorded(tmp_path / "source", 0), data_folder(tmp_path / "folder")
    grow(source, folder, 0.4)
    reader_folder = data_folder(tmp_path / "reader")
    with TeamStore.at(address, folder) as writer, TeamStore.at(address, reader_folder) as reader:
        writer.ingest_all()
        reader.ingest()
        seen = contents(reader)
        for mode, share in (("immediate", 0.7), ("fast", 1.0)):
            postgres.stop(mode)
            grow(source, folder, share)
            for store in (writer, reader):
                with pytest.raises(TeamStoreUnusable, match="pg_isready"):
                    store.ingest()
            assert contents(reader) == seen  # What was asked for before is still answered.
            postgres.start()
            writer.ingest_all()
            reader.ingest()
            seen = contents(reader)
            assert seen == contents(writer)
    assert agree(address, tmp_path, source)


def test_a_commit_with_a_lost_answer_is_not_repeated(address: Address, tmp_path: Path) -> None:
    folder = recorded(tmp_path / "folder", 0, 40)
    lake = Lake(address)
    feed = Feed(lake, folder, None)
    send = feed._send

    def cut_off(*arguments: object) -> None:
        send(*arguments)  # type: ignore[arg-type]
        raise TeamStoreUnusable("the connection was lost")

    feed._send = cut_off  # type: ignore[method-assign,assignment]
    with pytest.raises(TeamStoreUnusable):
        feed.tick()
    feed._send = send  # type: ignore[method-assign]
    assert feed.tick() == (0, False)
    lake.close()
    assert agree(address, tmp_path, folder)
