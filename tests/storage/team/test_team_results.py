"""What one process of a team computed, the others read; nobody computes what others feed."""

import shutil
from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage import caches
from breakeven.storage.comparison import comparison
from breakeven.storage.library.catalog import catalog, compute
from breakeven.storage.team import commands
from breakeven.storage.team.address import Address
from breakeven.storage.team.lake import RESULTS, Lake
from breakeven.storage.team.store import TeamStore
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.team.stores import data_folder

pytestmark = pytest.mark.heavy


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


def test_a_result_is_ignored_where_invalid_and_goes_with_its_experiment(
    compared: str, address: Address, tmp_path: Path, computed: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(commands, "ALL_TABLES", ("runs",))  # Upkeep of all takes seconds.
    with TeamStore.at(address, DataDir(tmp_path / "here")) as store:
        store.ingest_all()
        text = "it's \"so\" \\ '' $1; DROP TABLE x"
        assert caches.stored("told")(lambda *_: text)(store, EXPERIMENT_ID) == text
        assert caches.stored("told")(lambda *_: "anew")(store, EXPERIMENT_ID) == text
    lake = Lake(address)
    with lake.writing() as (cursor, _):
        cursor.execute(f"UPDATE {RESULTS} SET content = '{{\"Evil\": []}}'")
    assert of_another(address, tmp_path) == compared
    assert computed == [EXPERIMENT_ID]
    for statement, left in (("SELECT 1", 2), ("DELETE FROM runs", 0)):
        with lake.writing() as (cursor, _):
            cursor.execute(statement)
        list(commands.upkeep(lake))
        with lake.reading() as cursor:
            assert cursor.execute(f"SELECT count(*) FROM {RESULTS}").fetchall() == [(left,)]
    lake.close()
