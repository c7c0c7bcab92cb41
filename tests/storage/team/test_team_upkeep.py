"""A team's store is made small, and backed up, while it is used."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from breakeven.storage.index.store import Store
from breakeven.storage.team.lake import Lake, snapshot
from breakeven.storage.team.store_address import Address
from breakeven.storage.team.team_actions import size, upkeep
from breakeven.storage.team.team_store import TeamStore
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.team.postgres import Postgres, free_port
from tests.helpers.team.stores import contents, data_folder, grow

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


def test_upkeep_merges_files_and_changes_no_row(address: Address, tmp_path: Path) -> None:
    source, folder = data_folder(tmp_path / "source"), data_folder(tmp_path / "folder")
    record_experiment(source.runs, experiment_spec(num_steps=2000))
    with TeamStore.at(address, folder) as store:
        for part in range(1, 9):  # Some 250 steps a run each time, and a few events of other kinds.
            grow(source, folder, part / 8)
            store.ingest_all()
        before, rows_before, lake = size(store._lake), contents(store), store._lake
        assert before.rows_in_database > 20
        with lake.reading() as cursor:
            states = snapshot(cursor)
        assert states > 8
        assert "steps" in list(upkeep(lake, days=7))
        merged = size(lake)
        assert merged.rows_in_database == 0
        with lake.reading() as cursor:
            steps = "SELECT file_count FROM ducklake_table_info('team') WHERE table_name = 'steps'"
            assert cursor.execute(steps).fetchall() == [(1,)]
            # An earlier state is still there.
            query = f"SELECT count(*) FROM steps AT (VERSION => {states})"
            assert cursor.execute(query).fetchall() == [(6000,)]
        on_disk = sum(1 for _ in (tmp_path / "rows").rglob("*.parquet"))
        list(upkeep(lake, days=0))
        assert sum(1 for _ in (tmp_path / "rows").rglob("*.parquet")) < on_disk
        with lake.reading() as cursor:
            (kept,) = cursor.execute("SELECT count(*) FROM ducklake_snapshots('team')").fetchall()
            assert kept == (1,)
    with TeamStore.at(address, data_folder(tmp_path / "reader")) as reader:
        assert contents(reader) == rows_before


def test_upkeep_makes_an_index_of_statistics(postgres: Postgres, tmp_path: Path) -> None:
    place = postgres.new_database()
    name = place.split("dbname=")[1].split()[0]
    lake = Lake(Address("postgres", place, str(tmp_path / "rows")))
    list(upkeep(lake))
    lake.close()
    query = "SELECT * FROM ducklake_file_column_stats WHERE table_id = 41 AND column_id = 1"
    plan = f"SET enable_seqscan = off; EXPLAIN {query}"
    assert "Index Cond" in postgres.client("psql", "-d", name, "-Atc", plan)


def test_a_backup_during_writes_is_consistent(postgres: Postgres, tmp_path: Path) -> None:
    place = postgres.new_database()
    address = Address("postgres", place, str(tmp_path / "rows"))
    source, folder = data_folder(tmp_path / "source"), data_folder(tmp_path / "folder")
    record_experiment(source.runs, experiment_spec(num_steps=4000))
    grow(source, folder, 0.3)
    writer = TeamStore.at(address, folder)
    writer.ingest_all()
    done = threading.Event()

    def write() -> None:
        for part in range(31, 60):
            grow(source, folder, part / 100)
            writer.ingest_all()
            if done.is_set():
                return

    writing = threading.Thread(target=write)
    writing.start()
    dump = tmp_path / "store.sql"
    dump.write_text(postgres.client("pg_dump", place.split("dbname=")[1].split()[0]))
    grown = size(writer._lake)
    shutil.copytree(tmp_path / "rows", tmp_path / "copy")
    done.set()
    writing.join()
    writer.close()
    shutil.rmtree(tmp_path / "rows")  # The disaster.
    assert grown.files > 0
    restored = postgres.new_database()
    name = restored.split("dbname=")[1].split()[0]
    postgres.client("psql", "-q", "-d", name, "-f", str(dump))
    moved = f"UPDATE ducklake_metadata SET value = '{tmp_path}/copy/' WHERE key = 'data_path'"
    postgres.client("psql", "-q", "-d", name, "-c", moved)
    again = Address("postgres", restored, None)
    with TeamStore.at(again, data_folder(tmp_path / "reader")) as reader:
        steps = len(contents(reader)["steps"])
        assert 0.29 * 12_000 < steps < 12_000
    grow(source, folder, 1.0)
    with TeamStore.at(again, folder) as store:
        store.ingest_all()
        with Store.in_memory(folder) as embedded:
            assert contents(store) == contents(embedded)
    Lake(again).close()


SERVING = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an empty bucket, which the environment says how to reach."""
    place = f"http://127.0.0.1:{free_port()}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": place,
    }.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", SERVING, place.rpartition(":")[2]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        for _ in range(100):
            try:
                urlopen(Request(f"{place}/team", method="PUT"), timeout=5)
                break
            except OSError:
                time.sleep(0.2)
        yield "s3://team/store"
        server.kill()


def test_rows_may_lie_on_s3(request: pytest.FixtureRequest, bucket: str, tmp_path: Path) -> None:
    place = request.getfixturevalue("postgres").new_database()
    source, folder = data_folder(tmp_path / "source"), data_folder(tmp_path / "folder")
    record_experiment(source.runs, experiment_spec(num_steps=1200))
    with TeamStore.at(Address("postgres", place, bucket), folder) as store:
        for share in (0.3, 0.6, 1.0):
            grow(source, folder, share)
            store.ingest_all()
        list(upkeep(store._lake, days=0))
    # Another machine need not be told where the rows lie.
    elsewhere = data_folder(tmp_path / "elsewhere")
    with (
        TeamStore.at(Address("postgres", place, None), elsewhere) as reader,
        Store.in_memory(folder) as embedded,
    ):
        assert contents(reader) == contents(embedded)
        with reader._lake.reading() as cursor:
            files = cursor.execute("FROM ducklake_list_files('team', 'steps')").fetchall()
        assert files
        assert all(str(row[0]).startswith("s3://team/store/") for row in files)
