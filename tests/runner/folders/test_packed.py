"""A packed journal reads as the plain one did, and no crash, damage or resumption loses a line."""

import gzip
import os
import struct
import sys
import threading
from pathlib import Path

import pytest

from runner.commands.cli import main
from runner.errors import InvalidRunFolder
from runner.folders import packed
from runner.folders.data_dir import DataDir
from runner.folders.events import read_complete_lines, read_events, stat_journal
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.worker.event_log import EventLog
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

EARLY = "20261121-093010-000000-aaaa"


@pytest.fixture
def run(data_dir: DataDir) -> RunDir:
    record_experiment(data_dir.runs)
    return data_dir.run_dir(f"{EXPERIMENT_ID}.baseline")


@pytest.fixture
def early(data_dir: DataDir) -> RunDir:
    """A run that was stopped, with a checkpoint."""
    going = Recording(data_dir.runs, "baseline", experiment_spec(80), EARLY)
    going.claim().start().blocks([0.1] * 2, falling_losses(20), 0.0).checkpoint()
    going.run.checkpoints.mkdir(parents=True)
    (going.run.checkpoints / "step-00000020.pt").write_bytes(b"x")
    return going.end(RunState.CANCELLED)


def test_packing_keeps_every_byte_and_unpacking_brings_the_same_file_back(run: RunDir) -> None:
    before, stamp = run.events_file.read_bytes(), run.events_file.stat()
    freed = run.pack_journal()
    assert freed == len(before) - run.packed_file.stat().st_size > 0.7 * len(before)
    assert not run.events_file.exists() and gzip.decompress(run.packed_file.read_bytes()) == before
    assert run.pack_journal() == 0
    run.unpack_journal()
    assert run.events_file.read_bytes() == before and not run.packed_file.exists()
    after = run.events_file.stat()
    assert (after.st_mtime_ns, after.st_mode) == (stamp.st_mtime_ns, stamp.st_mode)


def test_whoever_reads_a_journal_reads_a_packed_one_from_any_place(run: RunDir) -> None:
    before, events = run.events_file.read_bytes(), read_events(run.events_file)
    middle = before.index(b"\n", len(before) // 2) + 1
    part = read_complete_lines(run.events_file, middle, 500)
    run.pack_journal()
    assert read_events(run.events_file) == events
    assert read_events(run.events_file, middle)[0] == events[0][-before[middle:].count(b"\n") :]
    assert read_complete_lines(run.events_file, middle, 500) == part
    assert read_complete_lines(run.events_file, len(before)) == (b"", len(before))
    found = stat_journal(run.events_file)
    assert found is not None and found.is_packed and found.size == len(before)
    with run.open("events.jsonl") as opened:
        assert opened.read() == before
        assert opened.seek(-5, os.SEEK_END) == len(before) - 5 and opened.read() == before[-5:]
        assert opened.seek(0) == 0 and opened.read(10) == before[:10]


def test_killed_at_any_moment_it_leaves_a_journal_that_is_whole(run: RunDir) -> None:
    before = run.events_file.read_bytes()
    for act in (run.pack_journal, run.unpack_journal):
        moment = 0
        while _killed(act, moment):
            moment += 1
            with run.open("events.jsonl") as opened:
                assert opened.read() == before
        assert moment > 5
    assert run.events_file.read_bytes() == before


def _killed(act: object, moment: int) -> bool:
    """Does it in a process that dies right before its so manieth call to the system; whether it
    came that far."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    left = [moment]

    def die(name: str, arguments: object) -> None:
        if name.startswith(("open", "os.", "shutil.", "tempfile.", "fcntl.")):
            left[0] -= 1
            if left[0] < 0:
                os._exit(1)

    sys.addaudithook(die)
    try:
        act()  # type: ignore[operator]
        os._exit(0)
    except BaseException:
        os._exit(2)


def test_what_does_not_come_back_as_it_was_is_not_packed(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run.events_file.read_bytes()
    real = packed.shutil.copyfileobj

    def short(source: object, target: object, length: int) -> None:
        source.seek(10)  # type: ignore[attr-defined]
        real(source, target, length)  # type: ignore[type-var]

    monkeypatch.setattr(packed.shutil, "copyfileobj", short)
    with pytest.raises(OSError, match="did not come back"):
        run.pack_journal()
    assert run.events_file.read_bytes() == before and not run.packed_file.exists()
    assert [*run.path.glob(".*")] == []


def test_a_packed_journal_that_is_damaged_or_made_to_fill_a_memory_is_refused(run: RunDir) -> None:
    run.pack_journal()
    whole = run.packed_file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    bomb = gzip.compress(bytes(50_000_000))
    lying = bomb[:-4] + struct.pack("<I", 1000)
    checksum = whole[:-8] + bytes(4) + whole[-4:]
    for content in (flipped, whole[:-20] + whole[-8:], checksum, whole[:5], b"", bomb, lying,
                    whole + b"x"):  # fmt: skip
        run.packed_file.write_bytes(content)
        with pytest.raises(InvalidRunFolder, match=r"events\.jsonl\.gz"):
            read_events(run.events_file)
        with pytest.raises(InvalidRunFolder, match=r"events\.jsonl\.gz"):
            run.unpack_journal()
        assert run.packed_file.read_bytes() == content and not run.events_file.exists()
    run.packed_file.unlink()
    run.packed_file.symlink_to("/etc/passwd")
    with pytest.raises(InvalidRunFolder, match="a link"):
        read_events(run.events_file)


def test_where_both_are_the_plain_one_counts_and_packing_it_again_mends_that(run: RunDir) -> None:
    before = run.events_file.read_bytes()
    run.packed_file.write_bytes(gzip.compress(b'{"kind":"x"}\n'))
    with run.open("events.jsonl") as opened:
        assert opened.read() == before
    assert run.pack_journal() > 0
    with run.open("events.jsonl") as opened:
        assert opened.read() == before


def test_a_run_that_goes_on_has_a_plain_journal_that_goes_on(early: RunDir) -> None:
    before = early.events_file.read_bytes()
    early.pack_journal()
    early.reopen()
    assert early.state is RunState.QUEUED
    assert early.events_file.read_bytes() == before and not early.packed_file.exists()
    log = EventLog(early.events_file)
    log.append("resumed", step=20, attempt=2)
    log.close()
    numbers = [event["seq"] for event in read_events(early.events_file)[0]]
    assert numbers == list(range(len(numbers)))
    with pytest.raises(InvalidRunFolder, match="is not over"):
        early.pack_journal()


def test_a_run_that_begins_anew_takes_its_packed_journal_out_of_the_way(early: RunDir) -> None:
    early.pack_journal()
    early.begin_anew()
    assert stat_journal(early.events_file) is None
    assert (early.attempts / "1" / early.packed_file.name).exists()


def test_nobody_packs_a_journal_while_its_run_is_reopened_nor_the_other_way_round(
    early: RunDir,
) -> None:
    before = early.events_file.read_bytes()
    reopening = threading.Thread(target=early.reopen)
    with packed.held(early.exit_file):
        reopening.start()
        reopening.join(0.01)
        assert early.exit_file.exists() and reopening.is_alive()
    reopening.join()
    assert not early.exit_file.exists() and early.events_file.read_bytes() == before
    with pytest.raises(InvalidRunFolder, match="cannot be held"):
        packed.pack(early.events_file, early.exit_file)
    assert early.events_file.read_bytes() == before


def test_the_command_packs_what_is_over_and_old_enough(
    data_dir: DataDir, run: RunDir, early: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    going = Recording(data_dir.runs, "baseline", experiment_spec(80), "20261121-093011-000000-aaaa")
    going.claim().start()
    folder = ["--data-folder", str(data_dir.path)]
    assert main(["pack", "--older-than", "30", *folder]) == 0
    assert "0 journals packed" in capsys.readouterr().out
    assert main(["pack", *folder]) == 0
    assert "4 journals packed: 0.0 MB less" in capsys.readouterr().out
    assert going.run.events_file.exists() and not run.events_file.exists()
    assert main(["pack", going.run_id.partition(".")[0], *folder]) == 2
    assert "is not over" in capsys.readouterr().err
    assert main(["pack", "nobody", *folder]) == 2
    assert main(["pack", EXPERIMENT_ID, "--undo", *folder]) == 0
    assert "3 journals unpacked" in capsys.readouterr().out and run.events_file.exists()
    assert not early.events_file.exists()


def test_a_disk_without_room_packs_nothing_and_says_so(
    data_dir: DataDir, run: RunDir, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(Path("x")))

    before = run.events_file.read_bytes()
    monkeypatch.setattr(packed.os, "fsync", full)
    assert main(["pack", "--data-folder", str(data_dir.path)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert run.events_file.read_bytes() == before and [*run.path.glob(".*")] == []
