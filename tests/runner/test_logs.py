"""Logs rotate whole under load; what is printed of a stranger's request does nothing."""

import io
import json
import logging
import logging.handlers
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner import logs
from breakeven.runner.commands.cli import main
from breakeven.runner.experiments import queue, queue_order, trash
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.logs import (
    AT_ONCE,
    KEPT_FILES,
    AtMost,
    JsonLines,
    log,
    log_action,
    open_log,
    read_log,
)
from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.journals import experiment_spec

ESCAPES = "x\n2026-11-23 00:00:00 all is well\r\x1b]0;title\x07\x1b[2J\u202etxt\x9b31m"


@pytest.fixture
def printed(tmp_path: Path) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A library's own logger, as Streamlit makes them, and what it prints."""
    before, handlers = logging.getLogRecordFactory(), [*logging.getLogger().handlers]
    open_log(tmp_path, "supervisor")
    output = io.StringIO()
    logger = logging.Logger("streamlit.some")
    handler = logging.StreamHandler(output)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    yield logger, output
    logging.setLogRecordFactory(before)
    logging.getLogger().handlers[:] = handlers


def test_a_request_of_a_stranger_writes_no_line_of_its_own_and_drives_no_terminal(
    printed: tuple[logging.Logger, io.StringIO],
) -> None:
    """As `/oauth2callback?error_description=...` did, which Streamlit quotes."""
    logger, output = printed
    logger.error("Error during authentication: %s. Error description: %s", "x", ESCAPES)
    said = output.getvalue()
    assert said.count("\n") == 1 and said[:-1].isprintable()
    assert "Error description: x\\n2026-11-23 00:00:00 all is well\\r\\x1b]0;title" in said


def test_an_error_that_quotes_a_stranger_keeps_its_lines_and_no_escape(
    printed: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, output = printed
    try:
        raise ValueError(ESCAPES)
    except ValueError:
        logger.exception("a page failed")
    lines = output.getvalue().splitlines()
    assert lines[1] == "    Traceback (most recent call last):"
    assert "    ValueError: x" in lines and all(line.isprintable() for line in lines)
    # What it quotes stands further in than any line of a log.
    assert any(line.startswith("    2026-11-23 00:00:00 all is well") for line in lines)
    assert not [line for line in lines[1:] if not line.startswith("    ")]


def test_a_traceback_that_comes_over_and_over_is_not_printed_each_time(
    printed: tuple[logging.Logger, io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_tracebacks", AtMost(at_once=2, a_minute=0.0))
    logger, output = printed
    for _ in range(4):
        try:
            raise ValueError
        except ValueError:
            logger.exception("a page failed")
    said = output.getvalue()
    assert said.count("a page failed") == 4
    assert (said.count("Traceback"), said.count(logs.LEFT_OUT)) == (2, 2)


def test_in_files_the_text_stands_as_it_was(printed: tuple[logging.Logger, io.StringIO]) -> None:
    record = logging.getLogRecordFactory()("x", 30, "f", 1, "two\nlines of %s", ("x",), None)
    assert '"message": "two\\nlines of x"' in JsonLines().format(record)


def test_while_ten_threads_log_and_others_read_files_rotate_and_every_line_is_whole(
    printed: tuple[logging.Logger, io.StringIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (handler,) = [
        known
        for known in logging.getLogger().handlers
        if isinstance(known, logging.handlers.RotatingFileHandler)
    ]
    monkeypatch.setattr(handler, "maxBytes", 20_000)
    # The log is the whole process's: what else the tests left running may write to it as well.
    text = "line %d of %d: %s"
    handler.addFilter(lambda record: record.msg == text)
    looks: list[int] = []

    def write(number: int) -> None:
        for line in range(200):
            log.info(text, line, number, "x" * 100)

    def look() -> None:
        for _ in range(20):
            entries = read_log(tmp_path, 10_000)
            assert all(entry["message"].endswith("x" * 100) for entry in entries)
            looks.append(len(entries))

    with ThreadPoolExecutor(12) as threads:
        done = [
            *(threads.submit(write, writer) for writer in range(10)),
            *(threads.submit(look) for _ in range(2)),
        ]
        for job in done:
            job.result()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [
        "supervisor.jsonl",
        *(f"supervisor.jsonl.{number}" for number in range(1, KEPT_FILES + 1)),
    ]
    assert len(looks) == 40 and sum(file.stat().st_size for file in files) <= 6 * 20_000
    lines = [line for file in files for line in file.read_text().splitlines()]
    # Some 250 bytes each: of 2,000 lines the last few hundred are left, and none is torn.
    assert 300 < len(lines) < 1000
    assert all(json.loads(line)["message"].endswith("x" * 100) for line in lines)


def record(line: int) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "page.py", line, "it failed", None, None)


def test_what_somebody_makes_fail_over_and_over_drives_nothing_else_out_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    limit = AtMost(at_once=3, a_minute=6.0)
    assert [limit.filter(record(1)) for _ in range(5)] == [True, True, True, False, False]
    assert limit.filter(record(2)), "another place has its own"
    clock[0] += 9.0
    assert not limit.filter(record(1))
    clock[0] += 1.5  # Ten seconds make one more.
    kept = record(1)
    assert limit.filter(kept) and kept.__dict__["fields"] == {"left_out_before": 3}
    assert not limit.filter(record(1))


@pytest.mark.usefixtures("printed")
def test_what_dashboards_log_is_limited_and_what_supervisors_log_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)  # Each ten seconds allow one more.
    for part, kept in (("dashboard", AT_ONCE), ("supervisor", AT_ONCE + 10)):
        open_log(tmp_path, part)
        for _ in range(AT_ONCE + 10):
            log.info("again")
        assert (tmp_path / f"{part}.jsonl").read_text().count('"again"') == kept


def actions(data_dir: DataDir) -> list[tuple[str, str]]:
    """What was done to what, the oldest first."""
    return [(line["message"], line["about"]) for line in reversed(read_log(data_dir.logs))]


def test_whatever_changes_the_queue_or_the_library_is_a_line_of_the_log(data_dir: DataDir) -> None:
    first, second = (queue.submit(data_dir, experiment_spec()) for _ in range(2))
    queue_order.move(data_dir, second, by=-1)
    queue_order.hold(data_dir, first)
    queue_order.release(data_dir, first)
    queue_order.pause(data_dir)
    queue_order.pause(data_dir, paused=False)
    change_labels(data_dir, first, lambda old: old.tagged(["mine", "fast"]))
    change_labels(data_dir, first, lambda old: replace(old, tags=()))
    assert main(["queue", "cancel", f"--data-folder={data_dir.path}", first]) == 0
    assert actions(data_dir) == [
        ("start", first),
        ("start", second),
        ("move in the queue", second),
        ("hold", first),
        ("release", first),
        ("pause the queue", ""),
        ("resume the queue", ""),
        ("label", first),
        ("label", first),
        ("stop", first),
    ]
    _, untagged, tagged, *_ = read_log(data_dir.logs)
    assert (tagged["tags"], untagged["tags"]) == ("mine, fast", "none")
    assert tagged["part"] == "commands"


def test_what_was_refused_is_no_action_of_the_log(data_dir: DataDir) -> None:
    data_dir.runs.mkdir(parents=True)
    for refused in (queue_order.hold, trash.delete, trash.restore):
        with pytest.raises(Exception, match="x"):
            refused(data_dir, "x")
    assert actions(data_dir) == []


@pytest.mark.usefixtures("printed")
def test_actions_of_a_process_with_a_log_are_lines_of_that_log(data_dir: DataDir) -> None:
    open_log(data_dir.logs, "dashboard")
    log_action(data_dir.logs, "upload", "a.csv", bytes=3)
    (line,) = read_log(data_dir.logs)
    assert (line["part"], line["message"], line["bytes"]) == ("dashboard", "upload", "3")
    assert line["where"].endswith("log_are_lines_of_that_log")


def test_hostile_names_in_actions_stay_one_short_line_and_secrets_are_masked(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "canary-0123456789")
    log_action(data_dir.logs, "label", ESCAPES * 100, notes=f"{ESCAPES} canary-0123456789")
    text = (data_dir.logs / "commands.jsonl").read_text()
    assert text.count("\n") == 1 and len(text) < 2000 and text.isascii()
    assert "canary" not in text and "[masked]" in text


def test_many_who_act_at_once_lose_and_double_no_line(data_dir: DataDir) -> None:
    def act(number: int) -> None:
        for turn in range(25):
            log_action(data_dir.logs, "hold", f"{number}.{turn}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(act, range(8)))
    messages = [about for _, about in actions(data_dir)]
    assert len(messages) == len(set(messages)) == 200


def test_a_log_that_cannot_be_written_keeps_nobody_from_acting(data_dir: DataDir) -> None:
    data_dir.path.mkdir()
    data_dir.logs.write_text("no folder")
    log_action(data_dir.logs, "stop", "x")
    data_dir.logs.unlink()
    (data_dir.logs / "commands.jsonl").mkdir(parents=True)
    log_action(data_dir.logs, "stop", "x")
    assert not log.handlers
