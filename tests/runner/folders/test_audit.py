"""Who did what: written down by whatever acts, kept, bounded, and inert."""

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.folders import audit, library, queue, queue_order
from breakeven.runner.folders.audit import Actor
from breakeven.runner.folders.data_dir import DataDir
from tests.helpers.journals import experiment_spec

HOSTILE = "<img src=x onerror=alert(1)>\n[x](http://evil.example)\x1b[2J\u202e=HYPERLINK(1)"


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    token = audit._actor.set(None)
    yield
    audit._actor.reset(token)


def told(data_dir: DataDir) -> list[tuple[str, str]]:
    """What was done to what, the oldest first."""
    return [(one["action"], one["about"]) for one in reversed(audit.entries(data_dir))]


def test_whatever_changes_the_queue_or_the_library_is_written_down(data_dir: DataDir) -> None:
    first, second = (queue.submit(data_dir, experiment_spec()) for _ in range(2))
    queue_order.move(data_dir, second, by=-1)
    queue_order.hold(data_dir, first)
    queue_order.release(data_dir, first)
    queue_order.pause(data_dir)
    queue_order.pause(data_dir, paused=False)
    library.change_labels(data_dir, first, lambda old: old.tagged(["mine", "fast"]))
    library.change_labels(data_dir, first, lambda old: replace(old, tags=()))
    queue.cancel(queue.find_experiment(data_dir, first))
    assert told(data_dir) == [
        ("start", first), ("start", second), ("move in the queue", second), ("hold", first),
        ("release", first), ("pause the queue", ""), ("resume the queue", ""),
        ("label", first), ("label", first), ("stop", first),
    ]  # fmt: skip
    _, taken, given, *_ = audit.entries(data_dir)
    assert (given["details"], taken["details"]) == ({"tags": "mine, fast"}, {"tags": "none"})


def test_what_was_refused_was_not_done(data_dir: DataDir) -> None:
    data_dir.runs.mkdir(parents=True)
    for refused in (queue_order.hold, library.delete, library.restore):
        with pytest.raises(Exception, match="x"):
            refused(data_dir, "x")
    assert told(data_dir) == []


def test_the_command_line_is_written_down_with_the_user_of_the_machine(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"--data-folder={data_dir.path}"
    started = queue.submit(data_dir, experiment_spec())
    assert main(["cancel", where, started]) == 0
    (stopped, _) = audit.entries(data_dir)
    assert stopped["who"] == audit.of_this_process().name and stopped["via"] == "command line"
    capsys.readouterr()
    assert main(["audit", where]) == 0
    assert f"(command line): stop {started}" in capsys.readouterr().out.splitlines()[0]
    assert main(["audit", where, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["stop", "start"]


def test_a_page_acts_for_whoever_signed_in_and_other_threads_do_not(data_dir: DataDir) -> None:
    def page() -> None:
        who = Actor(name="ada@example.org", subject="7", source_address="10.1.2.3", via="page")
        audit.acts(who)
        audit.record(data_dir, "upload", "a.csv", bytes=3)

    thread = threading.Thread(target=page)
    thread.start()
    thread.join()
    audit.record(data_dir, "hold", "x")
    held, upload = audit.entries(data_dir)
    assert (upload["who"], upload["subject"], upload["from"], upload["via"]) == (
        "ada@example.org", "7", "10.1.2.3", "page",
    )  # fmt: skip
    assert held["who"] == audit.of_this_process().name
    assert len(upload["time"]) == len("2026-11-22T23:30:00Z") and upload["time"].endswith("Z")


def test_hostile_names_stay_one_short_line_and_secrets_are_masked(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "canary-0123456789")
    audit.acts(Actor(name=HOSTILE, subject=HOSTILE, source_address=HOSTILE, via="page"))
    audit.record(data_dir, "label", HOSTILE * 100, notes=f"{HOSTILE} canary-0123456789")
    text = data_dir.audit_file.read_text()
    assert text.count("\n") == 1 and len(text) < 3000 and text.isascii()
    assert "canary" not in text and "[masked]" in text
    main(["audit", f"--data-folder={data_dir.path}"])
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1 and "\x1b" not in shown and "\u202e" not in shown


def test_lines_are_only_added_and_files_begin_anew_before_they_grow_too_large(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_BYTES", 2000)
    monkeypatch.setattr(audit, "KEPT_FILES", 2)
    for number in range(40):
        before = data_dir.audit_file.read_bytes() if data_dir.audit_file.exists() else b""
        audit.record(data_dir, "hold", str(number))
        after = data_dir.audit_file.read_bytes() if data_dir.audit_file.exists() else b""
        assert after.startswith(before) or not after
    files = sorted(data_dir.path.glob("audit.jsonl*"))
    assert len(files) == 3 or len(files) == 2
    assert all(file.stat().st_size < 2500 for file in files)
    numbers = [int(one["about"]) for one in audit.entries(data_dir)]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] == 39
    assert numbers == list(range(39, numbers[-1] - 1, -1))
    assert [int(one["about"]) for one in audit.entries(data_dir, 3)] == [39, 38, 37]
    assert audit.entries(data_dir, 0) == []


def test_many_who_act_at_once_lose_no_line(data_dir: DataDir) -> None:
    def act(number: int) -> None:
        for turn in range(25):
            audit.record(data_dir, "hold", f"{number}.{turn}")

    threads = [threading.Thread(target=act, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({about for _, about in told(data_dir)}) == 200


def test_what_cannot_be_written_down_keeps_nobody_from_stopping(data_dir: DataDir) -> None:
    data_dir.path.mkdir()
    data_dir.audit_file.mkdir()
    audit.record(data_dir, "stop", "x")
    data_dir.audit_file.rmdir()
    # A link or a pipe in its place leads nowhere, and holds nobody up.
    data_dir.audit_file.symlink_to(data_dir.path / "elsewhere")
    audit.record(data_dir, "stop", "x")
    assert not (data_dir.path / "elsewhere").exists() and audit.entries(data_dir) == []
    data_dir.audit_file.unlink()
    os.mkfifo(data_dir.audit_file)
    audit.record(data_dir, "stop", "x")
    assert audit.entries(data_dir) == []


def test_a_line_that_was_cut_off_spoils_no_other(data_dir: DataDir) -> None:
    audit.record(data_dir, "hold", "a")
    with data_dir.audit_file.open("ab") as file:
        file.write(b'{"action": "ho')
    audit.record(data_dir, "hold", "b")
    with data_dir.audit_file.open("ab") as file:
        file.write(b"[1]\n" + b"[" * 100_000 + b"\n\xff\xfe\n")
    audit.record(data_dir, "hold", "c")
    assert told(data_dir) == [("hold", "a"), ("hold", "b"), ("hold", "c")]
