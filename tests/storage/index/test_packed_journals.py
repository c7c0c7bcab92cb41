"""Packing a journal changes no row, number or export, and makes nothing be read again."""

import io
import zipfile
from pathlib import Path

import pytest

from runner.folders.data_dir import DataDir
from storage.comparison.comparison import compare
from storage.errors import ImportUnusable
from storage.exchange import run_folders
from storage.exchange.archives import Limits
from storage.index.ingest import EVENT_TABLES
from storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, record_experiment

TABLES = [*EVENT_TABLES.values(), "runs"]


def rows(store: Store) -> dict[str, str]:
    return {table: store.query(f"SELECT * FROM {table} ORDER BY ALL").to_csv() for table in TABLES}


def pack_all(data_dir: DataDir) -> None:
    for run in data_dir.run_dirs():
        assert run.pack_journal() > 0


def test_an_index_that_knows_a_journal_reads_nothing_when_it_is_packed_or_when_it_starts_again(
    data_dir: DataDir,
) -> None:
    record_experiment(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest_all()
        before, generation = rows(store), store.generation
        pack_all(data_dir)
        assert store.ingest_all() == 0 and store.generation == generation
    with Store.open(data_dir) as again:
        assert again.ingest_all() == 0 and again.generation == 0
        assert rows(again) == before
        for run in data_dir.run_dirs():
            run.unpack_journal()
        again.ingest_all()
        assert rows(again) == before


def test_an_index_made_anew_from_packed_journals_is_the_same_and_so_is_what_is_told_of_them(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(data_dir.runs)
    with Store.in_memory(data_dir) as store:
        before, told = rows(store), compare(store, EXPERIMENT_ID)
    pack_all(data_dir)
    monkeypatch.setattr("storage.index.folders.MAX_TICK_BYTES", 3_000)  # several looks each
    with Store.in_memory(data_dir) as store:
        assert rows(store) == before
        assert repr(compare(store, EXPERIMENT_ID).results) == repr(told.results)


def test_a_damaged_one_is_told_and_keeps_no_other_run_out(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    pack_all(data_dir)
    victim = data_dir.run_dir(f"{EXPERIMENT_ID}.control")
    content = bytearray(victim.packed_file.read_bytes())
    content[len(content) // 2] ^= 255
    victim.packed_file.write_bytes(content)
    with Store.in_memory(data_dir) as store:
        assert store.num_unreadable == 1 and store.run_counts == {"finished": 2}
        (told,) = store.query("SELECT message FROM unreadable")["message"]
    assert "events.jsonl.gz is damaged" in told


def test_exports_and_imports_are_the_same(data_dir: DataDir, tmp_path: Path) -> None:
    record_experiment(data_dir.runs)
    plain = run_folders.pack(data_dir.runs.iterdir())
    by_hand = {path.relative_to(data_dir.runs).as_posix(): path.read_bytes()
               for path in data_dir.runs.rglob("*.json*")}  # fmt: skip
    pack_all(data_dir)
    assert run_folders.pack(data_dir.runs.iterdir()) == plain
    archive = tmp_path / "runs.zip"
    archive.write_bytes(plain)
    assert len(run_folders.take_in(data_dir, archive).known_runs) == 3  # the same, packed here
    folded = io.BytesIO()
    with zipfile.ZipFile(folded, "w") as packed:  # as somebody zips a data folder
        for path in data_dir.runs.rglob("*.*"):
            if path.is_file():
                packed.write(path, path.relative_to(data_dir.runs).as_posix())
    archive.write_bytes(folded.getvalue())
    with pytest.raises(ImportUnusable, match="more than"):
        run_folders.take_in(DataDir(tmp_path / "small"), archive, limits=Limits(total_bytes=20_000))
    elsewhere = DataDir(tmp_path / "elsewhere")
    assert len(run_folders.take_in(elsewhere, archive).new_runs) == 3
    found = {path.relative_to(elsewhere.runs).as_posix(): path.read_bytes()
             for path in elsewhere.runs.rglob("*.json*")}  # fmt: skip
    assert found == by_hand
