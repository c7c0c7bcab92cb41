"""What one process of a team computed, the others read; nobody computes what others feed."""

import shutil
from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage import caches
from breakeven.storage.comparison import comparison
from breakeven.storage.library.catalog import catalog, compute
from breakeven.storage.team.address import Address
from breakeven.storage.team.commands import upkeep
from breakeven.storage.team.lake import RESULTS, Lake
from breakeven.storage.team.store import TeamStore
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.team.postgres import Postgres
from tests.helpers.team.stores import data_folder

pytestmark = pytest.mark.heavy
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


def test_a_result_that_one_computed_is_read_by_all_until_code_or_rows_change(
    compared: str, address: Address, tmp_path: Path, computed: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert of_another(address, tmp_path) == compared and computed == []
    with TeamStore.at(address, data_folder(tmp_path / "reader")) as reader:
        reader.ingest_all()
        assert not catalog(reader)["known"].any()
        assert compute(reader, 100.0) == 0
        assert catalog(reader)["known"].all() and computed == []
        caches.forget()
        assert catalog(reader)["known"].all()

        monkeypatch.setattr(caches, "code_version", lambda: "of tomorrow")
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


def test_a_result_may_have_quotes_is_ignored_where_invalid_and_goes_with_its_experiment(
    compared: str, address: Address, tmp_path: Path, computed: list[str], postgres: Postgres
) -> None:
    with TeamStore.at(address, DataDir(tmp_path / "here")) as store:
        store.ingest_all()
        text = "it's \"so\" \\ '' $1; DROP TABLE x"
        assert caches.stored("told")(lambda *_: text)(store, EXPERIMENT_ID) == text
        assert caches.stored("told")(lambda *_: "anew")(store, EXPERIMENT_ID) == text
    name = address.place.split("dbname=")[1].split()[0]
    postgres.client("psql", "-d", name, "-c", f"UPDATE {TABLE} SET content = '{{\"Evil\": []}}'")
    assert of_another(address, tmp_path) == compared
    assert computed == [EXPERIMENT_ID]
    count = ("psql", "-d", name, "-Atc", f"SELECT count(*) FROM {TABLE}")
    lake = Lake(address)
    list(upkeep(lake))
    assert postgres.client(*count).strip() == "2"
    with lake.writing() as (cursor, _):
        cursor.execute("DELETE FROM runs")
    list(upkeep(lake))
    assert postgres.client(*count).strip() == "0"
    lake.close()


def test_while_the_database_is_away_or_takes_nothing_in_it_is_computed(
    address: Address, tmp_path: Path, postgres: Postgres, computed: list[str]
) -> None:
    here = data_folder(tmp_path / "here")
    record_experiment(here.runs)
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
        first = comparison.compare(store, EXPERIMENT_ID)
        assert first.result_of("inductor").speedup is not None
    assert computed == [EXPERIMENT_ID]
