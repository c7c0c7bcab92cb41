"""Journal lines taken apart: nothing is lost between the parts, none counts twice, and true
and false are no numbers: where a journal has them for one, nothing is known."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import BOOLEANS, OPEN, read_events
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage import queries
from breakeven.storage.index import journal_inserts, journal_lines
from breakeven.storage.index.journal_lines import (
    FREQUENT,
    every_line,
    find_lines,
    whole_lines,
    with_owner,
    without_odd_booleans,
)
from breakeven.storage.index.store import SCHEMA, Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment


def read(journals: Mapping[str, bytes], kinds: Sequence[str]) -> dict[str, list[tuple[str, bytes]]]:
    """Runs and lines as the database sees them, by kind; all others under ""."""
    found = find_lines(journals, kinds)
    owners = [(number, run) for number, run in enumerate(found.runs)]
    rows = {}
    for kind, lines in found.frequent.items():
        table = lines.reader(found.texts, owners).read_all().to_pydict()
        assert table["experiment"] == [found.runs.index(run) for run in table["run_id"]]
        rows[kind] = [(run, line.encode() + b"\n") for run, line in
                      zip(table["run_id"], table["line"], strict=True)]  # fmt: skip
    rows[""] = [(run, line) for run, lines in found.others.items()
                for line in lines.splitlines(keepends=True)]  # fmt: skip
    return rows


def test_lines_of_frequent_kinds_are_known_as_the_runner_writes_them(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for kind in FREQUENT:
        log.append(kind, step=1)
    log.close()
    written = (tmp_path / "events.jsonl").read_bytes().splitlines(keepends=True)
    assert len(written) == 3
    assert read({"a": b"".join(written)}, FREQUENT) == {
        "": [], **{kind: [("a", line)] for kind, line in zip(FREQUENT, written, strict=True)}
    }  # fmt: skip
    assert read({}, FREQUENT) == read({"a": b""}, FREQUENT) == {"": []}


STEP = b'{"v":1,"kind":"step","step":1}\n'
BLOCK = b'{"v":1,"kind":"block","x":1}\n'
OTHERS = (
    b'{"v":1,"seq":7,"kind":"step","step":1}\n',
    b'{"v": 1, "kind": "step"}\n',
    b'{"kind":"step"}\n',
    b'{"v":1,"kind":"stepped","x":1}\n',
    b'{"v":1,"kind":"error","m":"{\\"v\\":1,"}\n',
    b'{"v":1,"kind":"block"}\n',
)
TORN = (b"\n", b'{"v":1,"kind":"step"\n', b'{"v":1,"kind":"bl\n', b'{"v":1,"kind":"step",\n')


@pytest.mark.parametrize("piece_bytes", [0, 10**9])
@pytest.mark.parametrize("torn", [b"", *TORN])
@pytest.mark.parametrize("first", [b"", STEP, OTHERS[0], OTHERS[-1]])
def test_lines_are_found_wherever_they_stand_and_torn_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, first: bytes, torn: bytes, piece_bytes: int
) -> None:
    monkeypatch.setattr(journal_lines, "PIECE_BYTES", piece_bytes)
    one = first + torn + b"".join(row + STEP + row + torn + row + BLOCK for row in OTHERS)
    journals = {"a": one, "empty": b"", "b": BLOCK + STEP + BLOCK, "c": torn, "d": OTHERS[1]}
    count = len(OTHERS)
    assert read(journals, ("step", "block")) == {
        "step": [("a", STEP)] * (count + (first == STEP)) + [("b", STEP)],
        "block": [("a", BLOCK)] * count + [("b", BLOCK)] * 2,
        "": [*[("a", first)] * (first not in (b"", STEP)),
             *(("a", row) for row in OTHERS for _ in range(3)), ("d", OTHERS[1])],
    }  # fmt: skip


@pytest.mark.parametrize("piece_bytes", [0, 10**9])
def test_lines_that_are_too_short_for_an_event_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Arrow holds texts of up to twelve bytes in another way."""
    monkeypatch.setattr(journal_lines, "PIECE_BYTES", piece_bytes)
    short, long = b'{"kind":"a"}\n', b'{"kind":"ab"}\n'
    lines, texts = every_line({"a": short + long, "b": short, "c": long + long})
    owners = [(1, "a"), (1, "b"), (2, "c")]
    assert lines.reader(texts, owners).read_all().to_pylist() == [
        {"line": long[:-1].decode(), "experiment": number, "run_id": run}
        for number, run in ((1, "a"), (2, "c"), (2, "c"))
    ]


def test_a_line_counts_for_the_run_whose_journal_holds_it() -> None:
    named = with_owner(3, "a.b", b'{"run_id":"c.d","x":1}\n17\n[1]\n{"x":\n  {"y":2}  \n')
    rows = [json.loads(line, object_pairs_hook=list) for line in named.splitlines()]
    owner = [("experiment", 3), ("run_id", "a.b")]
    assert rows == [[*owner, ("run_id", "c.d"), ("x", 1)], [*owner, ("y", 2)]]


@pytest.mark.parametrize("small_bytes", [0, 10**9])
def test_no_row_passes_for_another_runs(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(journal_inserts, "SMALL_BYTES", small_bytes)
    Recording(data_dir.runs, "baseline").log.close()
    foreign = Recording(data_dir.runs, "control")
    claimed = {"experiment": 7, "run_id": f"{EXPERIMENT_ID}.baseline", "filename": "x"}
    for kind in ("step", "block", "error"):
        foreign.log.append(kind, **claimed, step=0, round=0, first_step=0, num_steps=1,
                           seconds=1.0, error="e")  # fmt: skip
    foreign.log.close()
    with Store.in_memory(data_dir) as store:
        for table in ("steps", "blocks", "errors"):
            owners = store.rows(f"SELECT experiment, run_id FROM {table}")
            assert owners == [(1, f"{EXPERIMENT_ID}.control")], table


def test_lines_read_apart_and_together_come_to_the_same(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(data_dir.runs)
    run = Recording(data_dir.runs, "baseline", experiment_id="20261122-000000-000000-aaaa").start()
    run.block([0.1] * 10, [1.0] * 10).device(wall_seconds=1.0).resume(5).stop("enough")
    for line in ('{"kind": "step", "seq": 90, "step": 90}', '{"kind": "block", "seq": 1}', "17"):
        run.run.events_file.open("a").write(line + "\n")
    found = []
    # As they are read live; in bulk, together and each journal by itself; with care.
    for small_bytes, piece_bytes, doubtful in (
        (10**9, 0, False), (0, 10**9, False), (0, 0, False), (0, 0, True)
    ):  # fmt: skip
        monkeypatch.setattr(journal_inserts, "SMALL_BYTES", small_bytes)
        monkeypatch.setattr(journal_lines, "PIECE_BYTES", piece_bytes)
        if doubtful:
            run.run.events_file.open("a").write('{"v":1,"kind":"step",oops}\n')
        with Store.in_memory(data_dir) as store:
            tables = [
                t for t in store.query("SHOW TABLES")["name"] if t not in ("progress", "meta")
            ]
            found.append({t: sorted(map(str, store.query(f"FROM {t}").values.tolist()))
                          for t in tables})  # fmt: skip
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0]["steps"]) == 120 + 5 + 1


def test_only_lines_that_end_like_objects_are_kept() -> None:
    good = b'{"a":1}\n'
    assert whole_lines(good * 3) == good * 3
    for torn in (b'{"a":\n', b"\n", b"17\n"):
        assert whole_lines(torn + good) == good
        assert whole_lines(good + torn) == good


def test_an_object_that_is_larger_than_any_real_one_is_passed_over_and_its_line_is_not(
    tmp_path: Path,
) -> None:
    """100,000 variables of one run kept all that is computed of its experiment busy for minutes."""
    folder = DataDir(tmp_path)
    many = {f"VARIABLE_{number}": "x" * 20 for number in range(20_000)}
    for label, variables in (("baseline", {"A": "b"}), ("control", many)):
        Recording(folder.runs, label).claim().start(environment={"variables": variables}).end()
    with Store.open(folder) as store:
        store.ingest_all()
        found = queries.environments(store, EXPERIMENT_ID).set_index("label")
    assert found["variables"]["baseline"] == {"A": "b"}
    assert not found["variables"]["control"]
    assert found["host"]["control"] == "box"


COLUMN = re.compile(r"(\w+) ([A-Z]+)\b")


def test_the_fields_that_are_true_or_false_are_those_of_the_tables() -> None:
    events = SCHEMA[SCHEMA.index("CREATE TABLE phases") : SCHEMA.index("CREATE MACRO")]
    columns = {(name, kind) for name, kind in COLUMN.findall(re.sub(r"--.*", "", events))}
    of = {kind: {name for name, one in columns if one == kind} for _, kind in columns}
    assert of["BOOLEAN"] == set(BOOLEANS)
    assert of["JSON"] <= set(OPEN)
    others = {f'"{name}"'[-8:] for kind in ("BIGINT", "DOUBLE", "VARCHAR") for name in of[kind]}
    assert others.isdisjoint(f'"{name}"'[-8:] for name in BOOLEANS)


@pytest.mark.parametrize("small_bytes", [0, 10**9])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_in_the_place_of_a_number_is_not_believed(
    data_dir: DataDir,
    monkeypatch: pytest.MonkeyPatch,
    value: bool,
    separators: tuple[str, str],
    small_bytes: int,
) -> None:
    monkeypatch.setattr(journal_inserts, "SMALL_BYTES", small_bytes)
    run = Recording(data_dir.runs, "baseline").start().block([0.1] * 3, [1.0] * 3)
    run.log.close()
    odd: tuple[dict[str, Any], ...] = (
        {"kind": "step", "step": value, "loss": 1.0, "seconds": 0.1, "compiled": True},
        {"kind": "step", "step": 3, "loss": value, "seconds": value, "compiled": value},
        {"kind": "step", "step": 4, "losses": {"a": value, "b": 2.0}},
        {"kind": "random_numbers", "time": 1.0, "same": value, "loss_by_draw": [1.0, value]},
        {"kind": "block", "time": 1.0, "round": 7, "first_step": 3, "num_steps": value,
         "seconds": 0.1},
    )  # fmt: skip
    seq = len(read_events(run.run.events_file)[0])
    with run.run.events_file.open("a") as journal:
        for number, event in enumerate(odd):
            line = {"v": 1, "seq": seq + number, **event}
            journal.write(json.dumps(line, separators=separators) + "\n")
    with Store.in_memory(data_dir) as store:
        steps = store.rows("SELECT step, loss, seconds, compiled FROM steps ORDER BY step")
        assert [step for step, *_ in steps] == [0, 1, 2, 3, 4]
        assert steps[3] == (3, None, None, value)
        assert store.rows("SELECT losses FROM steps WHERE step = 4") == [({"a": None, "b": 2.0},)]
        drawn = store.rows("SELECT same, loss_by_draw[1], loss_by_draw[2] FROM random_numbers")
        assert drawn == [(value, 1.0, None)]
        assert store.rows("SELECT count(*) FROM blocks") == [(1,)]
    told = read_events(run.run.events_file)[0][seq:]
    assert [event.get("step") for event in told] == [None, 3, 4, None, None]
    assert told[1]["compiled"] is value and told[1]["seconds"] is None


def test_lines_as_the_runner_writes_them_stay_byte_for_byte(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline").start(environment={"notes": ["it is: true, false"]})
    run.block([0.1] * 3, [1.0, math.nan, 2.0], compiled=[0])
    run.log.append("error", message='he said:true, [false and "compiled":false', out_of_memory=True)
    run.log.close()
    lines = run.run.events_file.read_bytes()
    assert [json.loads(line) for line in without_odd_booleans(lines).splitlines()] == [
        json.loads(line) for line in lines.splitlines()
    ]
    steps = b"".join(one for one in lines.splitlines(keepends=True) if b'"step"' in one)
    assert steps and without_odd_booleans(steps) is steps
    for short in (b"", b"\n", b"true\n", b":true\n", b"[true", b'{"a":true}\n'):
        assert without_odd_booleans(short) == short
