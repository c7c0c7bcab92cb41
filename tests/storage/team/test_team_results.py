"""What one process of a team computed, the others read; nobody computes what others feed."""

import shutil
from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage import memo, results
from breakeven.storage.comparison import comparison
from breakeven.storage.library.catalog import catalog, compute
from breakeven.storage.team.address import Address
from breakeven.storage.team.lake import RESULTS, Lake
from breakeven.storage.team.store import TeamStore
from breakeven.storage.team.upkeep import upkeep
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.team.postgres import Postgres
from tests.helpers.team.stores import data_folder, sqlite_store

pytestmark = pytest.mark.heavy
OTHER = "20251101-000000-000000-0000"
TABLE = RESULTS.partition(".")[2]


@pytest.fixture
def address(postgres: Postgres, tmp_path: Path) -> Address:
    return Address("postgres", postgres.new_database(), str(tmp_path / "rows"))


@pytest.fixture
def compared(address: Address, tmp_path: Path, computed: list[str]) -> str:
    """An experiment that the machine compared that has its folders; what it came to."""
    here = data_folder(tmp_path / "here")
    record_experiment(here.runs)
    with TeamStore.at(address, here) as store:
        store.ingest_all()
        found = repr(comparison.compare(store, EXPERIMENT_ID))
    assert computed == [EXPERIMENT_ID]
    computed.clear()
    return found


def of_another(address: Address, tmp_path: Path) -> str:
    """The comparison as a machine has it that has no folders."""
    elsewhere = DataDir(tmp_path / "elsewhere")
    elsewhere.runs.mkdir(parents=True, exist_ok=True)
    with TeamStore.at(address, elsewhere) as store:
        found = comparison.compare(store, EXPERIMENT_ID)
        assert len(found.loss_band) > 0  # which needs the rows
        return repr(found)


def test_a_comparison_is_computed_by_one_and_read_by_the_others(
    compared: str, address: Address, tmp_path: Path, computed: list[str]
) -> None:
    assert of_another(address, tmp_path) == compared
    assert computed == []


def test_what_other_code_or_other_rows_came_to_is_computed_anew(
    compared: str,
    address: Address,
    tmp_path: Path,
    computed: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = DataDir(tmp_path / "here")
    shutil.rmtree(next(here.runs.glob("*.inductor")))
    with TeamStore.at(address, here) as store:
        store.ingest_all()
    assert of_another(address, tmp_path) != compared
    assert computed == [EXPERIMENT_ID]
    monkeypatch.setattr(results, "code_version", lambda: "of tomorrow")
    of_another(address, tmp_path)
    assert computed == [EXPERIMENT_ID] * 2
    of_another(address, tmp_path)
    assert computed == [EXPERIMENT_ID] * 2


def test_keeping_a_result_is_no_new_state_of_the_store(
    compared: str, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody would look through the lists again."""
    monkeypatch.setattr(results, "code_version", lambda: "of tomorrow")
    with TeamStore.at(address, data_folder(tmp_path / "reader")) as reader:
        before = reader.generation
        of_another(address, tmp_path)
        reader._replica.refresh()
        assert reader.generation == before
        kept = reader.stored_results("comparison", "of tomorrow")
        assert {experiment_id for experiment_id, *_ in kept} == {EXPERIMENT_ID}


def test_a_text_with_quotes_and_one_that_is_no_result_do_no_harm(
    compared: str, address: Address, tmp_path: Path, computed: list[str], postgres: Postgres
) -> None:
    with TeamStore.at(address, DataDir(tmp_path / "here")) as store:
        store.ingest_all()
        text = "it's \"so\" \\ '' $1; DROP TABLE x"
        assert results.stored("told")(lambda *_: text)(store, EXPERIMENT_ID) == text
        assert results.stored("told")(lambda *_: "anew")(store, EXPERIMENT_ID) == text
    name = address.place.split("dbname=")[1].split()[0]
    postgres.client("psql", "-d", name, "-c", f"UPDATE {TABLE} SET content = '{{\"Evil\": []}}'")
    assert of_another(address, tmp_path) == compared
    assert computed == [EXPERIMENT_ID]


def test_while_the_database_is_away_or_takes_nothing_in_it_is_computed(
    address: Address, tmp_path: Path, postgres: Postgres, computed: list[str]
) -> None:
    here = data_folder(tmp_path / "here")
    record_experiment(here.runs)
    name = address.place.split("dbname=")[1].split()[0]
    with TeamStore.at(address, here) as store:
        store.ingest_all()
        store.number_of(EXPERIMENT_ID)
        frozen = f"ALTER DATABASE {name} SET default_transaction_read_only = on"
        postgres.client("psql", "-d", "postgres", "-c", frozen)
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        postgres.client("psql", "-d", "postgres", "-c", ended)
        first = comparison.compare(store, EXPERIMENT_ID)
        assert first.result_of("inductor").speedup is not None
    assert computed == [EXPERIMENT_ID]


def test_upkeep_drops_results_of_experiments_that_are_gone(
    compared: str, address: Address, tmp_path: Path, postgres: Postgres
) -> None:
    name = address.place.split("dbname=")[1].split()[0]
    count = ("psql", "-d", name, "-Atc", f"SELECT count(*) FROM {TABLE}")
    lake = Lake(address)
    list(upkeep(lake))
    assert postgres.client(*count).strip() == "1"
    with lake.writing() as (cursor, _):
        cursor.execute("DELETE FROM runs")
    list(upkeep(lake))
    assert postgres.client(*count).strip() == "0"
    lake.close()


def test_a_list_shows_what_another_process_of_the_team_compared(
    compared: str, address: Address, tmp_path: Path, computed: list[str]
) -> None:
    with TeamStore.at(address, data_folder(tmp_path / "elsewhere")) as store:
        store.ingest_all()
        assert not catalog(store)["known"].any()
        assert compute(store, 100.0) == 0
        assert catalog(store)["known"].all() and computed == []
    memo.forget()
    with TeamStore.at(address, data_folder(tmp_path / "third")) as store:
        store.ingest_all()
        assert catalog(store)["known"].all()


def test_a_teams_store_tells_how_the_runs_here_stand_and_since_when_all_is_in(
    tmp_path: Path,
) -> None:
    here = data_folder(tmp_path / "here")
    record_experiment(here.runs)
    with TeamStore.at(sqlite_store(tmp_path), here) as store:
        assert (store.age, store.run_counts) == (None, {})
        store.ingest_all()
        assert store.run_counts == {"finished": 3}
        assert store.open_runs == []
        assert store.age is not None and store.age < 60
