"""A journal that version 0.1 compressed is unpacked once, and a hostile one fills no disk."""

import gzip
import os
import shutil
import struct
from pathlib import Path

import pytest

from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events, stat_journal
from breakeven.runner.folders.run_dir import RunDir
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange import run_folders
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, record_experiment


def compress(run: RunDir) -> Path:
    packed = run.path / "events.jsonl.gz"
    packed.write_bytes(gzip.compress(run.events_file.read_bytes()))
    run.events_file.unlink()
    return packed


@pytest.fixture
def run(data_dir: DataDir) -> RunDir:
    record_experiment(data_dir.runs)
    return data_dir.run_dir(f"{EXPERIMENT_ID}.baseline")


def test_the_first_look_unpacks_the_journal_and_keeps_every_byte(run: RunDir) -> None:
    before = run.events_file.read_bytes()
    packed = compress(run)
    packed.chmod(0o640)
    found = stat_journal(run.events_file)
    assert found is not None and found.st_size == len(before)
    assert run.events_file.read_bytes() == before and not packed.exists()
    assert run.events_file.stat().st_mode & 0o777 == 0o640


def test_an_index_of_compressed_journals_has_every_row(data_dir: DataDir, run: RunDir) -> None:
    with Store.in_memory(data_dir) as store:
        before = store.query("SELECT * FROM steps ORDER BY ALL").to_csv()
    for one in data_dir.run_dirs():
        compress(one)
    with Store.in_memory(data_dir) as store:
        assert store.query("SELECT * FROM steps ORDER BY ALL").to_csv() == before


def test_the_plain_journal_counts_where_both_exist(run: RunDir) -> None:
    before = run.events_file.read_bytes()
    (run.path / "events.jsonl.gz").write_bytes(gzip.compress(b'{"kind":"x"}\n'))
    assert read_events(run.events_file)[0] and run.events_file.read_bytes() == before


def test_a_damaged_journal_is_reported_stays_as_it_is_and_hides_no_other_run(
    data_dir: DataDir, run: RunDir
) -> None:
    packed = compress(run)
    whole = packed.read_bytes()
    damaged = {
        "checksum": whole[:-8] + bytes([whole[-8] ^ 255]) + whole[-7:],
        "cut off": whole[: len(whole) // 2],
        "too short": b"abc",
        "all zeros": gzip.compress(bytes(2**24)),
        "a lie about the size": whole[:-4] + struct.pack("<I", 10),
        "an impossible size": whole[:-4] + struct.pack("<I", 2**32 - 1),
    }
    for content in damaged.values():
        packed.write_bytes(content)
        with pytest.raises(InvalidRunFolder, match=r"events\.jsonl\.gz"):
            stat_journal(run.events_file)
        assert packed.read_bytes() == content
        assert not [name for name in os.listdir(run.path) if name.startswith(".")]
    with Store.in_memory(data_dir) as store:
        assert store.num_unreadable == 1 and store.run_counts == {"finished": 2}


def test_an_archive_with_a_compressed_journal_is_refused_with_the_remedy(
    data_dir: DataDir, run: RunDir, tmp_path: Path
) -> None:
    compress(run)
    elsewhere = tmp_path / "runs.zip"
    shutil.make_archive(str(elsewhere.with_suffix("")), "zip", data_dir.runs)
    with pytest.raises(ImportUnusable, match="Run gunzip on it"):
        run_folders.take_in(DataDir(tmp_path / "other"), elsewhere)
    run_folders.pack(data_dir.runs.iterdir())
    assert run.events_file.exists()
