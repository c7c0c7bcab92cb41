import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.events import MAX_LINE_BYTES, each_event, read_events
from breakeven.runner.worker.event_log import EventLog

FILL_DISK = """
import resource, signal, sys
from pathlib import Path
from breakeven.runner.worker.event_log import EventLog

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = EventLog(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for number in range(40):
    log.append("step", step=number)
try:
    log.flush()
    sys.exit("the limit did not bite")
except OSError:
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append("step", step=40)
log.close()
"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_the_disk_is_waited_for_on_request_and_at_the_end(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fdatasync", waited.append)
    log = EventLog(journal)
    log.append("step", step=0)
    log.flush()
    assert waited == [] and journal.read_bytes()
    log.flush(durable=True)
    log.close()
    assert len(waited) == 2


def test_events_written_at_once_share_their_time_and_fields(journal: Path) -> None:
    log = EventLog(journal)
    log.append("first")
    log.extend("step", [{"step": 7, "loss": 0.5}, {"step": 8, "loss": math.nan}], epoch=2)
    log.extend("step", [])
    log.append("last")
    log.close()
    events, _ = read_events(journal)
    assert [event["seq"] for event in events] == [0, 1, 2, 3]
    assert events[1]["time"] >= events[0]["time"] > 1.7e9
    shared = {"v": 1, "kind": "step", "time": events[1]["time"], "epoch": 2}
    assert events[1] == {**shared, "seq": 1, "step": 7, "loss": 0.5}
    assert events[2] == {**shared, "seq": 2, "step": 8, "loss": "NaN"}


def test_an_event_reads_as_it_was_written(journal: Path) -> None:
    """Beside a null that was meant, a number that JSON has not is still one."""
    fields = {
        "note": 'null, "null" and \u2028 caf\u00e9',
        "nothing": None,
        "parts": [None, {"a": 1.0, "b": None}],
        "small": 1e-300,
        "large": 2**70,
        "third": 1 / 3,
        "compiled": True,
    }
    log = EventLog(journal)
    log.append("value", **fields)
    log.append("value", **fields, rate=math.inf)
    log.append("value", norm=None, value=math.nan, parts=[-math.inf, 1.0])
    log.append("error", message="no such file: caf\udce9.csv")  # no Unicode
    log.close()
    (plain, infinite, diverged, error), _ = read_events(journal)
    assert {name: plain[name] for name in fields} == fields
    assert {name: infinite[name] for name in fields} == fields and infinite["rate"] == "Infinity"
    assert (diverged["norm"], diverged["value"]) == (None, "NaN")
    assert diverged["parts"] == ["-Infinity", 1.0]
    assert error["message"] == "no such file: caf?.csv"


def test_rows_wait_a_tenth_of_a_second_or_until_there_are_64_and_no_longer(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.8e9
    monkeypatch.setattr("breakeven.runner.worker.event_log.time.time", lambda: now)
    log = EventLog(journal)
    log.append("step", step=0)
    now += 0.05
    log.append("step", step=1)
    assert read_events(journal)[0] == []
    now += 0.06
    log.append("step", step=2)
    assert len(read_events(journal)[0]) == 3
    for step in range(63):
        log.append("step", step=step)
    assert len(read_events(journal)[0]) == 3
    log.append("step", step=63)
    assert len(read_events(journal)[0]) == 67
    log.close()


def test_a_closed_journal_does_not_write_into_the_file_that_is_opened_next(tmp_path: Path) -> None:
    closed = EventLog(tmp_path / "closed.jsonl")
    closed.close()
    other = EventLog(tmp_path / "other.jsonl")
    closed.append("step", step=0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        closed.flush()
    other.close()
    assert read_events(tmp_path / "other.jsonl")[0] == []


def test_a_torn_tail_is_sealed_and_the_numbers_go_on(journal: Path) -> None:
    log = EventLog(journal)
    log.append("step", step=0)
    log.close()
    with journal.open("a") as file:
        file.write('{"v":1,"seq":1,"kind":"st')
    log = EventLog(journal)
    log.append("step", step=1)
    log.close()
    events, _ = read_events(journal)
    assert [(event["seq"], event["step"]) for event in events] == [(0, 0), (1, 1)]


def test_a_reader_stops_before_an_unfinished_line_and_goes_on_there(journal: Path) -> None:
    journal.write_text('{"seq":0,"kind":"step","step":0}\n{"seq":1,"kind":"st')
    events, offset = read_events(journal)
    assert [event["step"] for event in events] == [0]
    with journal.open("a") as file:
        file.write('ep","step":1}\n')
    events, _ = read_events(journal, offset)
    assert [event["step"] for event in events] == [1]


@pytest.mark.heavy
def test_a_full_disk_loses_nothing_and_writes_nothing_twice(journal: Path) -> None:
    subprocess.run([sys.executable, "-c", FILL_DISK, str(journal)], check=True, cwd=PROJECT_ROOT)
    events, _ = read_events(journal)
    assert [event["step"] for event in events] == list(range(41))


def test_a_journal_of_any_length_is_gone_through_without_its_holes(journal: Path) -> None:
    first, second, last = (
        json.dumps({"v": 1, "kind": kind, "seq": seq}).encode()
        for seq, kind in enumerate(("phase", "phase", "step"))
    )
    with journal.open("wb") as written:
        written.write(first + b"\n")
        written.write(b"x" * (MAX_LINE_BYTES + 2**21) + b"\n" + second + b"\nno event\n")
        written.seek(2**40)
        written.write(b"\n" + last + b"\n" + first)
        written.truncate(2**42)
    kinds = [event["kind"] for event in each_event(journal)]
    # The last line was never ended, and a hole reads as zeros.
    assert kinds == ["phase", "phase", "step"]
    missing = journal.with_name("none.jsonl")
    assert list(each_event(missing)) == [] and read_events(missing, 0) == ([], 0)
