import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from runner.events import EventLog, read_events
from runner.queue import PROJECT_ROOT

FILL_DISK = """
import resource, signal, sys
from pathlib import Path
from runner.events import EventLog

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


def test_events_are_numbered_and_stamped(journal: Path) -> None:
    log = EventLog(journal)
    log.append("phase", phase="preparing")
    log.append("step", step=0, loss=0.5)
    log.close()
    first, second = (json.loads(line) for line in journal.read_text().splitlines())
    assert (first["v"], first["seq"], first["kind"], first["phase"]) == (1, 0, "phase", "preparing")
    assert (second["seq"], second["step"], second["loss"]) == (1, 0, 0.5)
    assert second["time"] >= first["time"] > 1.7e9


def test_text_that_is_no_unicode_does_not_lose_its_event(journal: Path) -> None:
    log = EventLog(journal)
    log.append("error", message="no such file: caf\udce9.csv")
    log.close()
    (event,), _ = read_events(journal)
    assert event["message"] == "no such file: caf?.csv"


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_diverged_loss_survives(journal: Path, loss: float) -> None:
    log = EventLog(journal)
    log.append("step", loss=loss, parts=[loss, 1.0])
    log.close()
    (event,), _ = read_events(journal)
    assert repr(float(event["loss"])) == repr(float(event["parts"][0])) == repr(loss)


def test_events_written_at_once_read_like_those_written_one_by_one(journal: Path) -> None:
    """Values with commas, per cent signs, quotes and no JSON of their own among plain numbers."""
    columns = {
        "step": [7, 8, 9],
        "loss": [0.1, math.nan, -math.inf],
        "losses": [{"a": 1.0, "b": 2.5}, {"a": 3.0, "b": math.nan}, {}],
        "compiled": [True, False, None],
        "note": ["100 %d, or so", '"', "%s"],
    }
    log = EventLog(journal)
    log.append("first")
    log.extend("step", columns, epoch=2, why="5 %s, in all")
    for row in zip(*columns.values(), strict=True):
        log.append("step", **dict(zip(columns, row, strict=True)), epoch=2, why="5 %s, in all")
    with pytest.raises(ValueError, match="shorter"):
        log.extend("step", {"step": [1, 2], "loss": [0.5]})
    log.extend("step", {"step": [], "loss": []})
    log.append("last")
    log.close()
    events, _ = read_events(journal)
    assert [event.pop("seq") for event in events] == list(range(8))
    assert len({event.pop("time") for event in events[1:4]}) == 1
    for event in events[4:7]:
        del event["time"]
    assert events[1:4] == events[4:7]
    assert events[2]["loss"] == "NaN" and events[2]["losses"] == {"a": 3.0, "b": "NaN"}


def test_rows_wait_until_there_are_64_and_no_longer(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.events.time.time", lambda: 1.8e9)
    log = EventLog(journal)
    for step in range(63):
        log.append("step", step=step)
    assert read_events(journal)[0] == []
    log.append("step", step=63)
    assert len(read_events(journal)[0]) == 64
    log.close()


def test_rows_wait_a_tenth_of_a_second_and_no_longer(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1.8e9
    monkeypatch.setattr("runner.events.time.time", lambda: now)
    log = EventLog(journal)
    log.append("step", step=0)
    now += 0.05
    log.append("step", step=1)
    assert read_events(journal)[0] == []
    now += 0.06
    log.append("step", step=2)
    assert len(read_events(journal)[0]) == 3
    log.close()


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
    journal.write_text('{"kind":"step","step":0}\n{"kind":"st')
    events, offset = read_events(journal)
    assert [event["step"] for event in events] == [0]
    with journal.open("a") as file:
        file.write('ep","step":1}\n')
    events, _ = read_events(journal, offset)
    assert [event["step"] for event in events] == [1]


def test_a_missing_journal_has_no_events(journal: Path) -> None:
    assert read_events(journal, 0) == ([], 0)


def test_a_full_disk_loses_nothing_and_writes_nothing_twice(journal: Path) -> None:
    subprocess.run([sys.executable, "-c", FILL_DISK, str(journal)], check=True, cwd=PROJECT_ROOT)
    events, _ = read_events(journal)
    assert [event["step"] for event in events] == list(range(41))
