"""A team's store says what the embedded one says of the same run folders, whoever fed it."""

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import queries, result_caches
from breakeven.storage.comparison import comparison
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.ingest import EVENT_TABLES
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, compute_missing
from breakeven.storage.team import lake, team_actions
from breakeven.storage.team.feed import Feed, data_folder_id
from breakeven.storage.team.lake import RESULTS, Lake, Overtaken
from breakeven.storage.team.store_address import Address
from breakeven.storage.team.team_actions import reset
from breakeven.storage.team.team_store import TeamStore
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.team.postgres import Postgres
from tests.helpers.team.stores import contents, data_folder, grow, sqlite_store

pytestmark = pytest.mark.heavy
EXAMPLE = Path(__file__).parents[3] / "examples/bert-masked-lm-h100"
EVENTS = EVENT_TABLES.values()


def agree(store: Store, data_dir: DataDir) -> bool:
    """Whether a store has exactly what an embedded one has of a data folder."""
    with Store.in_memory(data_dir) as embedded:
        return contents(store) == contents(embedded)


@pytest.mark.slow
def test_an_example_is_as_in_the_embedded_store(postgres: Postgres, tmp_path: Path) -> None:
    address = Address("postgres", postgres.new_database(), str(tmp_path / "rows"))
    here, elsewhere = data_folder(tmp_path / "here"), data_folder(tmp_path / "elsewhere")
    examples = tmp_path / "examples"
    shutil.copytree(EXAMPLE, examples / EXAMPLE.name)
    with Store.in_memory(here, examples) as embedded:
        with TeamStore.at(address, here, examples) as team:
            counts = [f"SELECT count(*) AS n FROM {table}" for table in EVENTS]
            assert team.ingest_all() == embedded.query(" UNION ALL ".join(counts))["n"].sum()
            listed, others = (
                queries.list_experiments(store).drop(columns="revision")
                for store in (team, embedded)
            )
            assert listed.equals(others)
            (experiment_id,) = listed["experiment_id"]
            in_team = repr(compare(team, experiment_id))
            assert "speedup" in in_team and in_team == repr(compare(embedded, experiment_id))
        with TeamStore.at(address, elsewhere) as other:
            assert contents(other) == contents(embedded)


def test_changes_count_as_in_the_embedded_store(tmp_path: Path) -> None:
    here, recorded = data_folder(tmp_path / "here"), data_folder(tmp_path / "recorded")
    record_experiment(recorded.runs)
    with TeamStore.at(sqlite_store(tmp_path), here) as store:
        for share in (0.3, 0.31, 1.0):
            grow(recorded, here, share)
            store.ingest_all()
            assert agree(store, here)
        (baseline, *_) = here.run_dirs()
        with baseline.events_file.open("a") as journal:
            journal.write('{"v":1,"kind":"resumed","seq":100000,"time":1.0,"step":20}\n')
        store.ingest_all()
        assert agree(store, here)
        steps = "SELECT max(step) FROM steps WHERE run_id = ?"
        assert store.rows(steps, [baseline.run_id]) == [(19,)]
        baseline.labels_file.write_text('{"name": "ours"}')
        os.utime(here.runs)
        store.ingest_all()
        assert agree(store, here)
        # A run that began anew, and one that went.
        journal_of = baseline.events_file.read_bytes()
        baseline.events_file.unlink()
        baseline.events_file.write_bytes(journal_of[: journal_of.index(b"\n", 2000) + 1])
        shutil.rmtree([*here.run_dirs()][-1].path)
        os.utime(here.runs)
        store.ingest_all()
        assert agree(store, here)
        assert len(store.rows("FROM runs")) == 2


@pytest.mark.slow
def test_a_run_of_two_data_folders_counts_once(tmp_path: Path) -> None:
    address = sqlite_store(tmp_path)
    here, elsewhere = data_folder(tmp_path / "mine"), data_folder(tmp_path / "yours")
    record_experiment(here.runs)
    shutil.copytree(here.runs, elsewhere.runs, dirs_exist_ok=True)
    with TeamStore.at(address, here) as first, TeamStore.at(address, elsewhere) as second:
        assert first.ingest_all() == 153
        assert second.ingest_all() == 0
        assert agree(second, here)
        for run in here.run_dirs():
            shutil.rmtree(run.path)
        os.utime(here.runs)
        first.ingest_all()
        assert contents(first)["runs"] == []
        second._feed._looked_elsewhere = float("-inf")  # As if half a minute had passed.
        second.ingest_all()
        second.ingest_all()
        assert agree(second, elsewhere)


def test_two_writers_write_each_line_once(address: Address, tmp_path: Path) -> None:
    here, recorded = data_folder(tmp_path / "here"), data_folder(tmp_path / "recorded")
    record_experiment(recorded.runs)
    lake, other = Lake(address), Lake(address)
    late, quick = Feed(lake, here, None), Feed(other, here, None)
    assert late.name == quick.name
    grow(recorded, here, 0.2)
    first, _ = late.tick()
    grow(recorded, here, 0.5)
    second, _ = quick.tick()
    grow(recorded, here, 1.0)
    send = late._send

    def after_the_other(*arguments: object) -> None:
        late._send = send  # type: ignore[method-assign]
        assert quick.tick() == (153 - first - second, False)
        send(*arguments)  # type: ignore[arg-type]

    late._send = after_the_other  # type: ignore[method-assign,assignment]
    assert late.tick() == (0, False)
    lake.close()
    other.close()
    with TeamStore.at(address, data_folder(tmp_path / "elsewhere")) as store:
        assert agree(store, here)


@pytest.mark.slow
def test_an_overtaken_commit_is_refused(postgres: Postgres, tmp_path: Path) -> None:
    lake = Lake(Address("postgres", postgres.new_database(), str(tmp_path)))
    with lake.cursor() as first, lake.cursor() as second:
        for number, cursor in enumerate((first, second)):
            cursor.begin()
            cursor.execute("INSERT INTO experiments VALUES (?, 1)", [f"of {number}"])
        first.commit()
        with pytest.raises(Overtaken), lake.connected():
            second.commit()
        committed = first.execute("SELECT experiment_id FROM experiments").fetchall()
        assert committed == [("of 0",)]
    lake.close()


def test_a_dashboard_sees_rows_of_other_writers(tmp_path: Path) -> None:
    address = sqlite_store(tmp_path)
    here, recorded = data_folder(tmp_path / "here"), data_folder(tmp_path / "recorded")
    record_experiment(recorded.runs)
    grow(recorded, here, 0.5)
    reader_folder = data_folder(tmp_path / "reader")
    with TeamStore.at(address, here) as writer, TeamStore.at(address, reader_folder) as reader:
        writer.ingest_all()
        reader.ingest()
        half = queries.list_runs(reader, EXPERIMENT_ID)["steps_done"].sum()
        generation = reader.generation
        reader.ingest()
        assert reader.generation == generation
        grow(recorded, here, 1.0)
        writer.ingest_all()
        assert queries.list_runs(reader, EXPERIMENT_ID)["steps_done"].sum() == half
        reader.ingest()
        assert reader.generation > generation
        assert queries.list_runs(reader, EXPERIMENT_ID)["steps_done"].sum() == 120 > half


def test_a_copied_data_folder_has_a_new_name(tmp_path: Path) -> None:
    first = data_folder(tmp_path / "first")
    name = data_folder_id(first)
    assert data_folder_id(first) == name
    shutil.copytree(first.path, tmp_path / "copy", copy_function=shutil.copy2)
    copied = data_folder_id(DataDir(tmp_path / "copy"))
    assert copied != name
    assert data_folder_id(DataDir(tmp_path / "copy")) == copied
    (first.path / "team-store-id").write_bytes(b"\xff\xfe")
    assert data_folder_id(first) not in (name, copied)


def test_a_missing_extension_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake, "find_spec", lambda name: None)
    with pytest.raises(
        TeamStoreUnusable, match=r"ducklake 1\.5\.5: pip install 'breakeven\[team\]'"
    ):
        lake.load_extension(duckdb.connect(), "ducklake")


@pytest.mark.slow
def test_a_store_of_another_version_is_left_alone_until_somebody_resets_it(tmp_path: Path) -> None:
    address, here = sqlite_store(tmp_path), data_folder(tmp_path / "here")
    record_experiment(here.runs)
    with TeamStore.at(address, here) as store:
        store.ingest_all()
        store._lake.cursor().execute("UPDATE meta SET schema = 'of last year'")
    with pytest.raises(TeamStoreUnusable, match="team reset --yes"):
        TeamStore.at(address, here)
    lake = Lake(address, check=False)
    reset(lake)
    lake.close()
    with TeamStore.at(address, here) as store:
        assert contents(store)["runs"] == []
        assert store.ingest_all() == 153
        assert agree(store, here)


@pytest.mark.slow
def test_a_read_only_database_is_an_error(postgres: Postgres, tmp_path: Path) -> None:
    place, here = postgres.new_database(), data_folder(tmp_path / "here")
    record_experiment(here.runs)
    address = Address("postgres", place, str(tmp_path / "rows"))
    Lake(address).close()
    name = place.split("dbname=")[1].split()[0]
    frozen = f"ALTER DATABASE {name} SET default_transaction_read_only = on"
    postgres.client("psql", "-d", "postgres", "-c", frozen)
    refused = pytest.raises(TeamStoreUnusable, match="read-only transaction")
    with TeamStore.at(address, here) as store, refused:
        store.ingest_all()


@pytest.mark.slow
def test_a_refused_connection_shows_no_password(postgres: Postgres, tmp_path: Path) -> None:
    closed = postgres.conninfo("postgres").replace(f"port={postgres.port}", "port=1")
    for place, remedy in (
        (postgres.conninfo("postgres", "hunter2"), "password in PGPASSWORD"),
        (postgres.conninfo("nowhere"), "createdb"),
        (closed, "pg_isready"),
    ):
        with pytest.raises(TeamStoreUnusable, match=remedy) as refused:
            Lake(Address("postgres", place, str(tmp_path)))
        assert "hunter2" not in str(refused.value) and "a secret" not in str(refused.value)


@pytest.mark.slow
def test_a_lost_store_stops_nobody(tmp_path: Path, postgres: Postgres, computed: list[str]) -> None:
    here = data_folder(tmp_path / "here")
    record_experiment(here.runs)
    address = Address("postgres", postgres.new_database(), str(tmp_path / "rows"))
    name = address.place.split("dbname=")[1].split()[0]
    with TeamStore.at(address, here) as store:
        assert (store.age, store.run_counts) == (None, {})
        store.ingest_all()
        assert (store.run_counts, store.open_runs) == ({"finished": 3}, [])
        assert store.age is not None and store.age < 60
        store.number_of(EXPERIMENT_ID)
        frozen = f"ALTER DATABASE {name} SET default_transaction_read_only = on"
        postgres.client("psql", "-d", "postgres", "-c", frozen)
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        postgres.client("psql", "-d", "postgres", "-c", ended)
        first = compare(store, EXPERIMENT_ID)
        assert first.result_of("inductor").speedup is not None
    assert computed == [EXPERIMENT_ID]


@pytest.fixture
def compared(address: Address, tmp_path: Path, computed: list[str]) -> str:
    """An experiment that the machine compared that has its folders; what it came to."""
    here = data_folder(tmp_path / "here")
    record_experiment(here.runs)
    with TeamStore.at(address, here) as store:
        store.ingest_all()
        computed_here = repr(comparison.compare(store, EXPERIMENT_ID))
    assert computed == [EXPERIMENT_ID]
    computed.clear()
    return computed_here


def of_another(address: Address, tmp_path: Path) -> str:
    """The comparison as a machine has it that has no folders."""
    elsewhere = DataDir(tmp_path / "elsewhere")
    elsewhere.runs.mkdir(parents=True, exist_ok=True)
    with TeamStore.at(address, elsewhere) as store:
        computed_elsewhere = comparison.compare(store, EXPERIMENT_ID)
        assert len(computed_elsewhere.band) > 0
        return repr(computed_elsewhere)


@pytest.mark.slow
def test_a_result_that_one_computed_is_read_by_all_until_code_or_rows_change(
    compared: str,
    address: Address,
    tmp_path: Path,
    computed: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert of_another(address, tmp_path) == compared and computed == []
    with TeamStore.at(address, data_folder(tmp_path / "reader")) as reader:
        reader.ingest_all()
        assert not catalog(reader)["known"].any()
        assert compute_missing(reader, 100.0) == 0
        assert catalog(reader)["known"].all() and computed == []
        result_caches.forget()
        assert catalog(reader)["known"].all()

        monkeypatch.setattr(result_caches, "code_version", lambda: "of tomorrow")
        before = reader.generation
        for _ in range(2):
            of_another(address, tmp_path)
            assert computed == [EXPERIMENT_ID]
        # A stored result is no new state of the store: everybody would read the lists again.
        reader._refresh()
        assert reader.generation == before
        stored = reader.stored_results("comparison", "of tomorrow")
        assert {experiment_id for experiment_id, *_ in stored} == {EXPERIMENT_ID}
    here = DataDir(tmp_path / "here")
    shutil.rmtree(next(here.runs.glob("*.inductor")))
    with TeamStore.at(address, here) as store:
        store.ingest_all()
    assert of_another(address, tmp_path) != compared
    assert computed == [EXPERIMENT_ID] * 2


@pytest.mark.slow
def test_a_result_is_ignored_where_invalid_and_goes_with_its_experiment(
    compared: str,
    address: Address,
    tmp_path: Path,
    computed: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(team_actions, "ALL_TABLES", ("runs",))  # Upkeep of all takes seconds.
    with TeamStore.at(address, DataDir(tmp_path / "here")) as store:
        store.ingest_all()
        text = "it's \"so\" \\ '' $1; DROP TABLE x"
        assert result_caches.stored("told")(lambda *_: text)(store, EXPERIMENT_ID) == text
        assert result_caches.stored("told")(lambda *_: "anew")(store, EXPERIMENT_ID) == text
    lake = Lake(address)
    with lake.writing() as (cursor, _):
        cursor.execute(f"UPDATE {RESULTS} SET content = '{{\"Evil\": []}}'")
    assert of_another(address, tmp_path) == compared
    assert computed == [EXPERIMENT_ID]
    for statement, left in (("SELECT 1", 2), ("DELETE FROM runs", 0)):
        with lake.writing() as (cursor, _):
            cursor.execute(statement)
        list(team_actions.upkeep(lake))
        with lake.reading() as cursor:
            assert cursor.execute(f"SELECT count(*) FROM {RESULTS}").fetchall() == [(left,)]
    lake.close()
