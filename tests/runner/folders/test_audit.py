"""Who did what: written down by whatever acts, kept, bounded, and inert."""

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.folders import audit, library, queue, queue_order
from breakeven.runner.folders.audit import Actor
from breakeven.runner.folders.data_dir import DataDir
from tests.helpers.journals import experiment_spec

HOSTILE = "<img src=x onerror=alert(1)>\n[x](http://evil.example)\x1b[2J\u202e=HYPERLINK(1)"


@pytest.fixture
def folder(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "data")


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    token = audit._actor.set(None)
    yield
    audit._actor.reset(token)


def told(folder: DataDir) -> list[tuple[str, str]]:
    """What was done to what, the oldest first."""
    return [(one["action"], one["about"]) for one in reversed(audit.entries(folder))]


def test_whatever_changes_the_queue_or_the_library_is_written_down(folder: DataDir) -> None:
    first, second = (queue.submit(folder, experiment_spec()) for _ in range(2))
    queue_order.move(folder, second, by=-1)
    queue_order.hold(folder, first)
    queue_order.release(folder, first)
    queue_order.pause(folder)
    queue_order.pause(folder, paused=False)
    library.change_labels(folder, first, lambda old: old.tagged(["mine"]))
    queue.cancel(queue.find_experiment(folder, first))
    assert told(folder) == [
        ("start", first), ("start", second), ("move in the queue", second), ("hold", first),
        ("release", first), ("pause the queue", ""), ("resume the queue", ""),
        ("label", first), ("stop", first),
    ]  # fmt: skip
    assert audit.entries(folder)[1]["details"] == {"tags": "mine"}


def test_tags_are_told_as_people_write_them(folder: DataDir) -> None:
    first = queue.submit(folder, experiment_spec())
    library.change_labels(folder, first, lambda old: old.tagged(["mine", "fast"]))
    library.change_labels(folder, first, lambda old: replace(old, tags=()))
    taken, given, _ = audit.entries(folder)
    assert (given["details"], taken["details"]) == ({"tags": "mine, fast"}, {"tags": "none"})


def test_what_was_refused_was_not_done(folder: DataDir) -> None:
    folder.runs.mkdir(parents=True)
    for refused in (queue_order.hold, library.delete, library.restore):
        with pytest.raises(Exception, match="x"):
            refused(folder, "x")
    assert told(folder) == []


def test_the_command_line_is_written_down_with_the_user_of_the_machine(
    folder: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"--data-folder={folder.path}"
    started = queue.submit(folder, experiment_spec())
    assert main(["cancel", where, started]) == 0
    (stopped, _) = audit.entries(folder)
    assert stopped["who"] == audit.of_this_process().name and stopped["via"] == "command line"
    capsys.readouterr()
    assert main(["audit", where]) == 0
    assert f"(command line): stop {started}" in capsys.readouterr().out.splitlines()[0]
    assert main(["audit", where, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["stop", "start"]


def test_a_page_acts_for_whoever_signed_in_and_other_threads_do_not(folder: DataDir) -> None:
    def page() -> None:
        who = Actor(name="ada@example.org", subject="7", source_address="10.1.2.3", via="page")
        audit.acts(who)
        audit.record(folder, "upload", "a.csv", bytes=3)

    thread = threading.Thread(target=page)
    thread.start()
    thread.join()
    audit.record(folder, "hold", "x")
    held, upload = audit.entries(folder)
    assert (upload["who"], upload["subject"], upload["from"], upload["via"]) == (
        "ada@example.org", "7", "10.1.2.3", "page",
    )  # fmt: skip
    assert held["who"] == audit.of_this_process().name
    assert len(upload["time"]) == len("2026-11-22T23:30:00Z") and upload["time"].endswith("Z")


def test_hostile_names_stay_one_short_line_and_secrets_are_masked(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "canary-0123456789")
    audit.acts(Actor(name=HOSTILE, subject=HOSTILE, source_address=HOSTILE, via="page"))
    audit.record(folder, "label", HOSTILE * 100, notes=f"{HOSTILE} canary-0123456789")
    text = folder.audit_file.read_text()
    assert text.count("\n") == 1 and len(text) < 3000 and text.isascii()
    assert "canary" not in text and "[masked]" in text
    main(["audit", f"--data-folder={folder.path}"])
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1 and "\x1b" not in shown and "\u202e" not in shown


def test_lines_are_only_added_and_files_begin_anew_before_they_grow_too_large(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_BYTES", 2000)
    monkeypatch.setattr(audit, "KEPT_FILES", 2)
    for number in range(40):
        before = folder.audit_file.read_bytes() if folder.audit_file.exists() else b""
        audit.record(folder, "hold", str(number))
        after = folder.audit_file.read_bytes() if folder.audit_file.exists() else b""
        assert after.startswith(before) or not after
    files = sorted(folder.path.glob("audit.jsonl*"))
    assert len(files) == 3 or len(files) == 2
    assert all(file.stat().st_size < 2500 for file in files)
    numbers = [int(one["about"]) for one in audit.entries(folder)]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] == 39
    assert numbers == list(range(39, numbers[-1] - 1, -1))
    assert [int(one["about"]) for one in audit.entries(folder, 3)] == [39, 38, 37]
    assert audit.entries(folder, 0) == []


def test_many_who_act_at_once_lose_no_line(folder: DataDir) -> None:
    def act(number: int) -> None:
        for turn in range(25):
            audit.record(folder, "hold", f"{number}.{turn}")

    threads = [threading.Thread(target=act, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({about for _, about in told(folder)}) == 200


def test_what_cannot_be_written_down_keeps_nobody_from_stopping(folder: DataDir) -> None:
    folder.path.mkdir()
    folder.audit_file.mkdir()
    audit.record(folder, "stop", "x")
    folder.audit_file.rmdir()
    # A link or a pipe in its place leads nowhere, and holds nobody up.
    folder.audit_file.symlink_to(folder.path / "elsewhere")
    audit.record(folder, "stop", "x")
    assert not (folder.path / "elsewhere").exists() and audit.entries(folder) == []
    folder.audit_file.unlink()
    os.mkfifo(folder.audit_file)
    audit.record(folder, "stop", "x")
    assert audit.entries(folder) == []


def test_a_line_that_was_cut_off_spoils_no_other(folder: DataDir) -> None:
    audit.record(folder, "hold", "a")
    with folder.audit_file.open("ab") as file:
        file.write(b'{"action": "ho')
    audit.record(folder, "hold", "b")
    with folder.audit_file.open("ab") as file:
        file.write(b"[1]\n" + b"[" * 100_000 + b"\n\xff\xfe\n")
    audit.record(folder, "hold", "c")
    assert told(folder) == [("hold", "a"), ("hold", "b"), ("hold", "c")]
