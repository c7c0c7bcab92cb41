"""A backup that is taken while runs write is whole, and what is restored from it goes on."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.backup import copying
from runner.backup.copying import Copy
from runner.backup.making import back_up, restore
from runner.backup.snapshots import Snapshot, find, incomplete, snapshots, verify
from runner.commands.cli import main
from runner.errors import BackupUnusable
from runner.folders import library
from runner.folders.data_dir import DataDir
from runner.folders.events import read_events
from runner.folders.process import ProcessIdentity
from runner.folders.queue import submit
from runner.folders.records import Claim
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.specs.experiment import ExperimentSpec
from runner.supervision.exit_records import ExitRecords
from runner.supervision.orphans import close_orphans
from storage.index.store import Store
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

EARLY = "20261121-093010-000000-aaaa"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def filled(data_dir: DataDir) -> DataDir:
    """An experiment that is over, one that goes on with a checkpoint, and one that waits."""
    record_experiment(data_dir.runs)
    going = Recording(data_dir.runs, "baseline", experiment_spec(80), EARLY)
    me = ProcessIdentity.of(os.getpid())
    going.claim(me).start().blocks([0.1] * 2, falling_losses(20), 0.0).checkpoint()
    going.log.flush()
    write_checkpoint(going.run, 20)
    submit(data_dir, ExperimentSpec(name="waits"))
    return data_dir


def write_checkpoint(run: RunDir, step: int) -> None:
    """One of several devices: a folder, which takes several files to copy."""
    sharded = run.checkpoints / f"step-{step:08}.sharded"
    sharded.mkdir(parents=True)
    for rank in range(3):
        (sharded / f"{rank}.distcp").write_bytes(os.urandom(1000))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}  # fmt: skip


def rows(data_dir: DataDir, table: str) -> object:
    with Store.in_memory(data_dir) as store:
        return store.query(f"SELECT * EXCLUDE (experiment) FROM {table} ORDER BY ALL").to_csv()


def damage(snapshot: Snapshot, name: str) -> None:
    """One bit, and nothing else that anybody could see."""
    file = snapshot.content / name
    before, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))


def test_what_is_restored_has_the_same_files_and_the_same_rows(
    filled: DataDir, folder: Path, tmp_path: Path
) -> None:
    before = contents(filled.runs)
    back_up(filled, folder)
    again = DataDir(tmp_path / "again")
    restore(find(folder), again)
    claim = f"{EARLY}.baseline/claim.json"
    assert contents(again.runs).keys() == before.keys()
    assert {name for name in before if contents(again.runs)[name] != before[name]} == {claim}
    for table in ("steps", "blocks", "evaluations", "workloads", "checkpoints"):
        assert rows(again, table) == rows(filled, table)
    ended = [run.run_dir(f"{EXPERIMENT_ID}.baseline").exit_file.stat() for run in (filled, again)]
    assert ended[0].st_mtime_ns == ended[1].st_mtime_ns


def test_what_went_on_waits_after_a_restoration_and_has_all_that_its_checkpoint_relies_on(
    filled: DataDir, folder: Path, tmp_path: Path
) -> None:
    back_up(filled, folder)
    again = DataDir(tmp_path / "again")
    restore(find(folder), again)
    run = again.run_dir(f"{EARLY}.baseline")
    assert filled.run_dir(run.run_id).state is RunState.RUNNING  # which is this process
    assert run.state is RunState.LOST and run.has_checkpoint
    close_orphans(again, ExitRecords())
    assert run.state is RunState.QUEUED and run.has_checkpoint


def test_what_another_machine_ran_is_left_to_it(
    filled: DataDir, folder: Path, tmp_path: Path
) -> None:
    run = filled.run_dir(f"{EARLY}.baseline")
    nobody = ProcessIdentity(pid=7, started="x")
    run.write_claim(Claim(host="elsewhere", process=nobody, supervisor=nobody, time=1.0))
    back_up(filled, folder)
    restore(find(folder), DataDir(tmp_path / "again"))
    assert DataDir(tmp_path / "again").run_dir(run.run_id).state is RunState.ELSEWHERE


def test_the_index_locks_and_caches_are_not_in_it_and_what_scripts_work_with_is(
    filled: DataDir, folder: Path
) -> None:
    run = filled.run_dir(f"{EARLY}.baseline")
    for path in (filled.database_file, filled.database_file.with_suffix(".duckdb.wal"),
                 filled.library_lock, filled.capabilities_file, run.compile_cache / "a",
                 run.path / ".spec.json.x", run.artifacts / "half.tmp"):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    for path in (run.workplace / ".state" / "compile-cache" / "a.tmp", filled.queue_file,
                 filled.logs / "supervisor.jsonl", filled.trash / "t" / "spec.json"):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (run.artifacts / "out").symlink_to("/etc")
    os.mkfifo(run.artifacts / "pipe")
    made = back_up(filled, folder)
    names = set(made.manifest.files)
    assert {name for name in names if "x" in name.partition("/")[0]} == set()
    assert {name for name in names if not name.startswith("runs/")} == {
        "queue.json", "logs/supervisor.jsonl", "trash/t/spec.json", "audit.jsonl"
    }  # fmt: skip
    mine = {name.partition(f"{run.run_id}/")[2] for name in names if run.run_id in name}
    assert "work/.state/compile-cache/a.tmp" in mine
    assert not mine & {"compile-cache/a", ".spec.json.x", "artifacts/half.tmp", "artifacts/out"}
    assert set(made.manifest.left_out.values()) == {"a link", "no plain file"}


def test_what_did_not_change_is_the_same_file_and_takes_no_room(
    filled: DataDir, folder: Path
) -> None:
    first = back_up(filled, folder)
    run = filled.run_dir(f"{EARLY}.baseline")
    with run.events_file.open("ab") as journal:
        journal.write(b'{"kind":"x"}\n')
    second = back_up(filled, folder)
    assert first.bytes_copied == first.manifest.num_bytes
    assert second.bytes_copied == run.events_file.stat().st_size
    spec = f"runs/{run.run_id}/spec.json"
    one, other = (made.snapshot.content / spec for made in (first, second))
    assert one.samefile(other)
    journal = f"runs/{run.run_id}/events.jsonl"
    one, other = ((made.snapshot.content / journal).read_bytes() for made in (first, second))
    assert other == one + b'{"kind":"x"}\n'


def test_a_data_folder_that_moved_shares_its_files_and_one_that_was_changed_unseen_does_not(
    filled: DataDir, folder: Path, tmp_path: Path
) -> None:
    back_up(filled, folder)
    moved = DataDir(tmp_path / "moved")
    shutil.copytree(filled.path, moved.path)
    spec = moved.run_dir(f"{EARLY}.baseline").spec_file
    before, content = spec.stat(), spec.read_bytes()
    spec.write_bytes(content.replace(b"test", b"tset"))
    os.utime(spec, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert back_up(moved, folder).bytes_copied == len(content)


def test_one_that_was_cut_off_is_named_so_and_never_taken_for_whole(
    filled: DataDir, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = copying.Copy._copied, [5]

    def full(self: copying.Copy, descriptor: int, target: Path) -> tuple[str, int]:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, descriptor, target)

    monkeypatch.setattr(copying.Copy, "_copied", full)
    with pytest.raises(OSError, match="No space"):
        back_up(filled, folder)
    (part,) = incomplete(folder)
    assert contents(part) and not snapshots(folder)
    with pytest.raises(BackupUnusable, match="which was cut off"):
        find(folder)
    with pytest.raises(BackupUnusable, match="it is not whole"):
        restore(find(part), DataDir(tmp_path / "again"))
    # Nor under the name of one that is whole.
    os.rename(part, folder / "20261122T000000Z")
    with pytest.raises(BackupUnusable, match=r"holds no backup\.json"):
        restore(find(folder), DataDir(tmp_path / "again"))
    os.rename(folder / "20261122T000000Z", part)
    assert not (tmp_path / "again").exists()
    monkeypatch.setattr(copying.Copy, "_copied", real)
    made = back_up(filled, folder)
    assert made.removed == (part.name,) and not incomplete(folder)
    assert not list(verify(made.snapshot, set()))


def test_damage_is_found_and_nothing_is_restored_from_it(
    filled: DataDir, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = back_up(filled, folder).snapshot
    assert main(["backup", str(folder), "--verify"]) == 0
    name = f"runs/{EARLY}.baseline/events.jsonl"
    damage(snapshot, name)
    (snapshot.content / "runs" / f"{EARLY}.baseline" / "claim.json").unlink()
    assert main(["backup", str(folder), "--verify"]) == 1
    said = capsys.readouterr().out
    assert f"{name} is damaged" in said and f"{EARLY}.baseline/claim.json is missing" in said
    again = DataDir(tmp_path / "again")
    with pytest.raises(BackupUnusable, match="nothing was restored"):
        restore(snapshot, again)
    assert not again.runs.exists()
    snapshot.path.joinpath("backup.json").write_text('{"format": 1, "files": {')
    assert main(["backup", str(folder), "--verify"]) == 1


def test_a_backup_from_elsewhere_writes_nowhere_else(folder: Path, tmp_path: Path) -> None:
    path = folder / "20261122T000000Z"
    (path / "data").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    entry = {"size": 1, "written": 1, "changed": 1, "inode": 1, "sha256": "", "mode": 0o644}
    whole = {"format": 1, "host": "h", "source": "s", "begun": 1.0, "ended": 1.0, "left_out": {}}
    for name in ("../../../secret", "/etc/passwd", ""):
        (path / "backup.json").write_text(json.dumps({**whole, "files": {name: entry}}))
        with pytest.raises(BackupUnusable, match="lies outside"):
            restore(find(folder), DataDir(tmp_path / "again"))
    for name in ("breakeven.duckdb", "./breakeven.duckdb.wal"):
        (path / "backup.json").write_text(json.dumps({**whole, "files": {name: entry}}))
        with pytest.raises(BackupUnusable, match="which no backup does"):
            restore(find(folder), DataDir(tmp_path / "again"))
    (path / "data" / "link").symlink_to(tmp_path / "secret")
    (path / "backup.json").write_text(json.dumps({**whole, "files": {"link": entry}}))
    with pytest.raises(BackupUnusable, match="there is a link on the way"):
        restore(find(folder), DataDir(tmp_path / "again"))


def test_nothing_is_written_over_and_a_restoration_that_was_cut_off_begins_again(
    filled: DataDir, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back_up(filled, folder)
    before = contents(filled.path)
    arguments = ["restore-backup", str(folder), "--data-folder"]
    assert main([*arguments, str(filled.path)]) == 2
    assert "is not empty" in capsys.readouterr().err and contents(filled.path) == before
    again = DataDir(tmp_path / "again")
    (again.path / ".restoring" / "runs" / "half").mkdir(parents=True)
    assert main([*arguments, str(again.path)]) == 0
    assert contents(again.runs).keys() == contents(filled.runs).keys()
    assert not (again.path / ".restoring").exists()


def test_backups_and_data_do_not_lie_in_each_other_and_only_the_newest_are_kept(
    filled: DataDir, folder: Path
) -> None:
    for place in (filled.path / "backups", filled.path, filled.path.parent):
        with pytest.raises(BackupUnusable, match="one in the other"):
            back_up(filled, place)
    names = [back_up(filled, folder, keep=2).snapshot.name for _ in range(4)]
    assert [one.name for one in snapshots(folder)] == names[2:] and len(set(names)) == 4
    assert not list(verify(find(folder), set()))


def test_the_newest_is_the_last_that_was_taken_even_if_the_clock_was_set_back(
    filled: DataDir, folder: Path
) -> None:
    back_up(filled, folder)
    os.rename(find(folder).path, folder / "20991231T235959Z")
    names = [back_up(filled, folder, keep=2).snapshot.name for _ in range(2)]
    assert names == ["20991231T235959Z-2", "20991231T235959Z-3"]
    assert [one.name for one in snapshots(folder)] == names


def when_copied(
    monkeypatch: pytest.MonkeyPatch, ending: str, act: Callable[[], None], times: int = 1
) -> None:
    """Something happens right after a file with this name was copied."""
    real, left = copying.Copy._copy_file, [times]

    def copy_file(self: copying.Copy, name: str) -> bool:
        done = real(self, name)
        if name.endswith(ending) and left[0]:
            left[0] -= 1
            act()
        return done

    monkeypatch.setattr(copying.Copy, "_copy_file", copy_file)


def test_a_checkpoint_that_is_replaced_meanwhile_is_in_it_whole_or_not_at_all(
    filled: DataDir, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled.run_dir(f"{EARLY}.baseline")

    def replace() -> None:
        write_checkpoint(run, 30)
        with run.events_file.open("ab") as journal:
            journal.write(b'{"v":1,"seq":900,"kind":"checkpoint","time":1.0,"step":30}\n')
        shutil.rmtree(run.checkpoints / "step-00000020.sharded")

    when_copied(monkeypatch, "step-00000020.sharded/0.distcp", replace)
    made = back_up(filled, folder)
    copy = RunDir(made.snapshot.content / "runs" / run.run_id)
    assert contents(copy.checkpoints) == contents(run.checkpoints)
    assert len(contents(copy.checkpoints)) == 3
    assert read_events(copy.events_file)[0][-1]["step"] == 30


def test_rows_written_after_the_checkpoint_was_copied_are_in_it(
    filled: DataDir, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled.run_dir(f"{EARLY}.baseline")

    def write() -> None:
        with run.events_file.open("ab") as journal:
            journal.write(b'{"v":1,"seq":901,"kind":"phase","time":1.0,"phase":"later"}\n')

    when_copied(monkeypatch, "2.distcp", write)
    made = back_up(filled, folder)
    copy = RunDir(made.snapshot.content / "runs" / run.run_id)
    assert read_events(copy.events_file)[0][-1]["seq"] == 901


@pytest.mark.parametrize("ending", ["claim.json", "spec.json", "2.distcp", "events.jsonl"])
def test_a_run_that_is_reopened_or_ends_meanwhile_is_in_it_as_it_was_before_or_after(
    filled: DataDir, folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    run = filled.run_dir(f"{EARLY}.baseline")
    when_copied(monkeypatch, f"{run.run_id}/{ending}" if ending != "2.distcp" else ending,
                run.reopen)  # fmt: skip
    made = back_up(filled, folder)
    copy = RunDir(made.snapshot.content / "runs" / run.run_id)
    assert contents(copy.path) == contents(run.path)
    assert not copy.claim_file.exists() and copy.attempt == 2


def test_what_is_deleted_submitted_or_brought_back_meanwhile_is_in_it_once(
    filled: DataDir, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = EXPERIMENT_ID

    def change() -> None:
        library.delete(filled, ended)
        submit(filled, ExperimentSpec(name="later"))

    when_copied(monkeypatch, f"{EARLY}.baseline/events.jsonl", change)
    made = back_up(filled, folder)
    kept = {name: content for name, content in contents(filled.path).items()
            if not name.endswith(".lock")}  # fmt: skip
    assert contents(made.snapshot.content) == kept
    assert any(name.startswith(f"trash/{ended}/") for name in kept)


def test_a_run_that_never_rests_does_not_keep_the_others_out(
    filled: DataDir, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = filled.run_dir(f"{EARLY}.baseline")
    when_copied(monkeypatch, f"{run.run_id}/events.jsonl", lambda: os.utime(run.claim_file), 99)
    made = back_up(filled, folder)
    assert [*made.manifest.left_out] == [f"runs/{run.run_id}"]
    assert not any(run.run_id in name for name in made.manifest.files)
    assert not (made.snapshot.content / "runs" / run.run_id).exists()
    assert len({name.split("/")[1] for name in made.manifest.files
                if name.startswith("runs/")}) == 3 + 3  # fmt: skip


def test_a_place_that_cannot_be_written_is_told_in_a_sentence(
    filled: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", "/proc/backups", "--data-folder", str(filled.path)]) == 2
    said = capsys.readouterr().err
    assert "/proc/backups" in said and "Traceback" not in said
    assert main(["backup", "/nowhere", "--data-folder", "/nowhere/data"]) == 2
    assert "there is no data folder" in capsys.readouterr().err


def test_terabytes_that_nobody_wrote_are_left_behind_and_all_else_is_copied(
    filled: DataDir, folder: Path
) -> None:
    run = filled.run_dir(f"{EARLY}.baseline")
    with run.output_file.open("wb") as hole:
        hole.truncate(2**40)
    (run.artifacts / "large.bin").write_bytes(bytes(2**24 + 1))
    made = back_up(filled, folder)
    left_out = made.manifest.left_out
    assert left_out == {
        f"runs/{run.run_id}/output.log": "1,099,511,627,776 bytes that nobody wrote"
    }
    assert f"runs/{run.run_id}/artifacts/large.bin" in made.manifest.files
    assert f"runs/{run.run_id}/events.jsonl" in made.manifest.files


def test_a_folder_that_is_swapped_for_a_link_between_the_look_and_the_copy_leads_nowhere(
    filled: DataDir, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine.txt").write_text("what lies outside")
    inner = filled.run_dir(f"{EARLY}.baseline").artifacts / "inner"
    inner.mkdir()
    (inner / "mine.txt").write_text("of the run")
    listed = Copy._files_of

    def then_swapped(self: Copy, place: str) -> list[str]:
        names = list(listed(self, place))
        if inner.parts[-3] in place and not inner.is_symlink():
            inner.rename(tmp_path / "aside")
            inner.symlink_to(tmp_path / "outside")
        return names

    monkeypatch.setattr(Copy, "_files_of", then_swapped)
    made = back_up(filled, folder)
    assert not [name for name in made.manifest.files if name.endswith("mine.txt")]
    assert "a link" in made.manifest.left_out.values()
    assert not [file for file in folder.rglob("mine.txt")]
