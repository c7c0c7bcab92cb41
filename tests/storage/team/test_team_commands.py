"""`breakeven team`, and what everybody else notices of it: nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import FILE_NAME
from breakeven.storage.__main__ import main
from breakeven.storage.index.store import Store
from breakeven.storage.team.team_store import TeamStore
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.team.stores import contents, data_folder, sqlite_store

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[3]


def with_store(path: Path, stores: Path) -> DataDir:
    """A data folder whose settings name the store in a folder."""
    folder, address = data_folder(path), sqlite_store(stores)
    (folder.path / FILE_NAME).write_text(
        f'[store]\naddress = "ducklake:sqlite:{address.place}"\ndata = "{address.data}"\n'
    )
    return folder


@pytest.fixture
def here(tmp_path: Path) -> DataDir:
    """A data folder with an experiment, whose settings name a store."""
    folder = with_store(tmp_path / "here", tmp_path)
    record_experiment(folder.runs)
    return folder


def said(capsys: pytest.CaptureFixture[str], folder: DataDir, *words: str) -> tuple[int, str]:
    status = main([*words, "--data-folder", str(folder.path)])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_a_store_is_filled_from_the_command_line_and_read_by_another_machine(
    here: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = with_store(tmp_path / "elsewhere", tmp_path)
    assert said(capsys, here, "team", "ingest") == (0, "took in 153 rows\n")
    status, output = said(capsys, elsewhere, "team", "status")
    assert status == 0
    assert "1 experiments" in output
    assert f"{here.path}  3 runs" in output
    # Another machine lists what it has no folder of.
    status, output = said(capsys, elsewhere, "list", "--json")
    assert (status, EXPERIMENT_ID in output) == (0, True)


@pytest.mark.slow
def test_a_store_is_looked_after_and_forgotten_from_the_command_line(
    here: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = with_store(tmp_path / "elsewhere", tmp_path)
    assert said(capsys, here, "team", "ingest") == (0, "took in 153 rows\n")
    status, output = said(capsys, elsewhere, "team", "upkeep")
    assert (status, output.splitlines()[-1][-4:]) == (0, "-> 0")
    rebuilt = f"forgot 3 runs of {here.path}\ntook in 153 rows\n"
    assert said(capsys, here, "team", "rebuild") == (0, rebuilt)
    status, output = said(capsys, elsewhere, "team", "reset")
    assert (status, "--yes" in output) == (2, True)
    assert said(capsys, elsewhere, "team", "reset", "--yes")[0] == 0
    assert "0 experiments" in said(capsys, elsewhere, "team", "status")[1]


@pytest.mark.slow
def test_a_feeding_process_refills_a_store_that_was_reset_and_excludes_a_second_one(
    here: DataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = with_store(tmp_path / "elsewhere", tmp_path)
    with TeamStore.at(sqlite_store(tmp_path), here) as store, Store.in_memory(here) as embedded:
        store.ingest_all()
        status, output = said(capsys, here, "team", "ingest")
        assert (status, "another process takes in" in output) == (2, True)
        assert said(capsys, elsewhere, "team", "reset", "--yes")[0] == 0
        store.ingest()  # Notices,
        assert store.ingest_all() == 153  # and acts.
        assert contents(store) == contents(embedded)


def test_no_store_loads_no_code(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir.runs.mkdir(parents=True)
    refused = f"store.address of {data_dir.path / FILE_NAME} names no store (docs/operating.md)\n"
    assert said(capsys, data_dir, "team", "status") == (2, refused)
    code = (
        "import sys, breakeven.storage.__main__; import breakeven.views.upkeep.startup as "
        "ahead; ahead.import_pages(); print(*sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    loaded = {name for name in process.stdout.split() if name.startswith("breakeven.storage.team.")}
    assert loaded == {"breakeven.storage.team.store_address"}
