"""Journal lines taken apart: each that counts is found, by its kind, and no other one; and true and
false are no numbers: where a journal has them for one, nothing is known."""

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import (
    ANY_JSON,
    BOOLEANS,
    JournalPosition,
    read_event,
    read_events,
)
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage import queries
from breakeven.storage.index.ingest import SCHEMA
from breakeven.storage.index.lines import ROW, Lines, counting_lines
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording


def texts(lines: Lines) -> dict[str, list[bytes]]:
    """Lines by their kind, without their ends."""
    return {
        kind: [text.removesuffix("\n").encode() for text in texts_of_kind.to_pylist()]
        for kind, texts_of_kind in lines.items()
    }


def test_lines_are_found_by_their_kind_as_the_runner_writes_them(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for kind in ("step", "block", "step"):
        log.append(kind, step=1)
    log.close()
    first, second, third = (tmp_path / "events.jsonl").read_bytes().splitlines()
    position = JournalPosition()
    lines = texts(counting_lines(b"\n".join([first, second, third, b""]), position))
    assert lines == {"step": [first, third], "block": [second]}
    assert (position.last, position.num_left_out, position.num_missing) == (2, 0, 0)
    assert counting_lines(b"", position) == {}


STEP = b'{"v":1,"seq":%d,"kind":"step","step":1}'
NO_EVENTS = (
    b"",
    b"17",
    b"[1]",
    b'"kind"',
    b'{"seq":5',
    b'{"seq":5,"kind":"step",oops}',
    b"\xff",
    b'{"seq":5,"kind":3}',
    b'{"seq":5,"kind":"step"} {}',
    b'{"seq":5}',
)


@pytest.mark.parametrize("line", NO_EVENTS)
def test_a_line_that_is_no_event_neither_counts_nor_hides_its_neighbours(line: bytes) -> None:
    position = JournalPosition()
    lines = texts(counting_lines(b"\n".join([line, STEP % 0, line, STEP % 1, line, b""]), position))
    assert lines == {"step": [STEP % 0, STEP % 1]}
    assert (position.last, position.num_left_out, position.num_missing) == (1, 0, 0)


@pytest.mark.parametrize(
    ("number", "read"), [(b"NaN", "nan"), (b"1e999", "inf"), (b"-1E+999", "-inf")]
)
def test_a_number_that_json_does_not_have_is_read_nonetheless(
    data_dir: DataDir, number: bytes, read: str
) -> None:
    run = Recording(data_dir.runs, "baseline").start().block([0.1], [1.0])
    run.log.close()
    lines = run.run.events_file.read_bytes().replace(b'"loss":1.0', b'"loss":' + number)
    run.run.events_file.write_bytes(lines)
    with Store.in_memory(data_dir) as store:
        assert store.rows("SELECT loss::VARCHAR FROM steps") == [(read,)]


def test_a_line_whose_text_no_database_holds_has_no_row_and_counts(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline")
    for message in ("first", "last"):
        run.log.append("error", message=message)
    run.log.close()
    first, last = run.run.events_file.read_bytes().splitlines()
    odd = b'{"v":1,"kind":"error","time":1,"seq":1,"message":"\\ud800"}'
    last = last.replace(b'"seq":1', b'"seq":2')
    run.run.events_file.write_bytes(b"\n".join([first, odd, last, b""]))
    with Store.in_memory(data_dir) as store:
        assert store.rows("SELECT message FROM errors ORDER BY seq") == [("first",), ("last",)]
        assert store.rows("SELECT left_out, missing FROM progress") == [(0, 0)]


def test_no_row_passes_for_another_runs(data_dir: DataDir) -> None:
    Recording(data_dir.runs, "baseline").log.close()
    foreign = Recording(data_dir.runs, "control")
    claimed = {"experiment": 7, "run_id": f"{EXPERIMENT_ID}.baseline", "filename": "x"}
    for kind in ("step", "block", "error"):
        foreign.log.append(
            kind, **claimed, step=0, round=0, first_step=0, num_steps=1, seconds=1.0, error="e"
        )
    foreign.log.close()
    with Store.in_memory(data_dir) as store:
        for table in ("steps", "blocks", "errors"):
            owners = store.rows(f"SELECT experiment, run_id FROM {table}")
            assert owners == [(1, f"{EXPERIMENT_ID}.control")], table


def test_an_object_larger_than_any_real_one_is_passed_over(tmp_path: Path) -> None:
    """100,000 variables of one run kept all that is computed of its experiment busy for minutes."""
    folder = DataDir(tmp_path)
    many = {f"VARIABLE_{number}": "x" * 20 for number in range(20_000)}
    for label, variables in (("baseline", {"A": "b"}), ("control", many)):
        Recording(folder.runs, label).claim().start(environment={"variables": variables}).end()
    with Store.open(folder) as store:
        store.ingest_all()
        environments = queries.environments(store, EXPERIMENT_ID).set_index("label")
    assert environments["variables"]["baseline"] == {"A": "b"}
    assert not environments["variables"]["control"]
    assert environments["host"]["control"] == "box"


COLUMN = re.compile(r"(\w+) ([A-Z]+)\b")


def test_the_fields_that_are_true_or_false_are_those_of_the_tables() -> None:
    events = SCHEMA[SCHEMA.index("CREATE TABLE phases") : SCHEMA.index("CREATE MACRO")]
    columns = {(name, kind) for name, kind in COLUMN.findall(re.sub(r"--.*", "", events))}
    names_by_type = {
        wanted_type: {name for name, column_type in columns if column_type == wanted_type}
        for _, wanted_type in columns
    }
    # The worker alone reads this one, when it goes on with a search.
    assert names_by_type["BOOLEAN"] | {"is_unstable"} == set(BOOLEANS)
    assert names_by_type["JSON"] <= set(ANY_JSON)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("value", [True, False])
def test_true_is_no_number(data_dir: DataDir, value: bool, separators: tuple[str, str]) -> None:
    run = Recording(data_dir.runs, "baseline").start().block([0.1] * 3, [1.0] * 3)
    run.log.close()
    odd: tuple[dict[str, Any], ...] = (
        {"kind": "step", "step": value, "loss": 1.0, "seconds": 0.1, "compiled": True},
        {"kind": "step", "step": 3, "loss": value, "seconds": value, "compiled": value},
        {"kind": "step", "step": 4, "losses": {"a": value, "b": 2.0}},
        {"kind": "random_numbers", "time": 1.0, "same": value, "loss_by_draw": [1.0, value]},
        {
            "kind": "block",
            "time": 1.0,
            "round": 7,
            "first_step": 3,
            "num_steps": value,
            "seconds": 0.1,
        },
    )
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
    events = read_events(run.run.events_file)[0][seq:]
    assert [event.get("step") for event in events] == [None, 3, 4, None, None]
    assert events[1]["compiled"] is value and events[1]["seconds"] is None


def test_words_in_texts_are_no_booleans_and_steps_stay_byte_for_byte(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline").start(environment={"notes": ["it is: true, false"]})
    run.block([0.1] * 3, [1.0, math.nan, 2.0], compiled=[0])
    run.log.append("error", message='he said:true, [false and "compiled":false', out_of_memory=True)
    run.log.close()
    lines = run.run.events_file.read_bytes()
    by_kind = texts(counting_lines(lines, JournalPosition()))
    kept = [line for of_kind in by_kind.values() for line in of_kind]
    assert {json.dumps(json.loads(line)) for line in kept} == {
        json.dumps(json.loads(line)) for line in lines.splitlines()
    }
    assert by_kind["step"] == [line for line in lines.splitlines() if b'"step"' in line]


def of_rows(seq: int) -> list[bytes]:
    """Lines that the runner may write, and such that no runner writes."""
    step = b'{"v":1,"kind":"step","time":17.5,"epoch":0,"seq":%d,"step":1,"loss":2.5' % seq
    block = b'{"v":1,"kind":"block","time":1e9,"seq":%d,"round":7,"compiled":false' % seq
    return [
        *[
            step + end + b"}"
            for end in (
                b"",
                b',"compiled":true',
                b',"losses":{"a":1.0,"b":null}',
                b',"loss":"NaN"',
                b',"losses":{"seq":9}',
                b',"losses":{"compiled":true}',
                b',"step":true',
                b',"seq":%d' % (seq + 5),
                b',"kind":"block"',
                b',"s\\u0065q":3',
                b',"x":1e999',
                b',"x":-Infinity',
                b',"x":nan',
                b',"x":01',
                b',"x":1.',
                b',"x":"\xff"',
                b',"x":[1,]',
                b",",
                b',"x":"a\tb"',
                b',"x":' + b"[" * 2000 + b"]" * 2000,
                b',"x":' + b"9" * 400,
                b',"x":"\xc3\xa4"',
                b',"compiled":1',
                b' ,"x" : 1 ',
                b', "x": 1',
                b"}",
                b',"x":["a","b"]',
            )
        ],
        *[block + end + b"}" for end in (b"", b',"warm_up":true', b',"seconds":false')],
        step,
        block,
        step[:20],
        b"",
        b"\0" * 30,
        b"\r",
        block.replace(b'"seq":%d' % seq, b'"seq":%d.0' % seq) + b"}",
        block.replace(b'"seq":%d' % seq, b'"seq":0%d' % seq) + b"}",
        block.replace(b'"seq":%d' % seq, b'"seq":-%d' % seq) + b"}",
        block.replace(b'"seq":%d' % seq, b'"seq":%d' % (2**53 + 1)) + b"}",
        block.replace(b'"seq":%d' % seq, b'"losses":{"seq":3},"seq":%d' % seq) + b"}",
        block.replace(b'"v":1', b'"v":1,"seq":4') + b"}",
        (step + b"}").replace(b":", b": ").replace(b",", b", "),
        *[(row + b"}").replace(b'"kind":', b'"kind": ') for row in (step, block)],
        *[(row + b"}").replace(b'1,"kind"', b'1, "kind"') for row in (step, block)],
        b'{"v":1,"kind":"phase","time":1,"seq":%d,"phase":"x"}' % seq,
        b'{"v":1,"kind":"error","time":1,"seq":%d,"out_of_memory":true,"x":true}' % seq,
    ]


def read_one_by_one(journal: bytes, position: JournalPosition) -> dict[str, list[Any]]:
    """The events that count, each read by Python and by itself."""
    events: dict[str, list[Any]] = {}
    for line in journal.split(b"\n"):
        event = read_event(line)
        if event is not None and position.takes(event):
            events.setdefault(event["kind"], []).append(event)
    return events


def test_a_journal_is_read_as_if_line_by_line() -> None:
    """Journals in which lines are torn, repeated, in another order, and of no runner."""
    chance = random.Random(0)
    for length in [1, 2, 3, 8, *[60] * 60]:
        lines = [
            chance.choice(of_rows(max(0, place + chance.choice((0, 0, 0, 0, 3, -2)))))
            for place in range(length)
        ]
        if chance.random() < 0.3:
            place = chance.randrange(length)
            lines[place:place] = lines[: chance.randrange(length + 1)]
        journal = b"\n".join(lines) + chance.choice((b"", b"\n"))
        begins = JournalPosition(*chance.choice(((), (5, 2, 1))))
        position, oracle = (JournalPosition(*vars(begins).values()) for _ in range(2))
        counted = texts(counting_lines(journal, position))
        expected = read_one_by_one(journal, oracle)
        assert position == oracle
        events = {
            kind: [*map(read_event, texts_of_kind)] for kind, texts_of_kind in counted.items()
        }
        assert repr(events) == repr({kind: expected[kind] for kind in events})
        assert events.keys() == expected.keys()


def test_what_the_runner_writes_most_is_found_by_the_pattern(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline").start()
    run.block([0.1] * 3, [1.0, math.nan, 2e-6], compiled=[0], peak_memory_bytes=10**9)
    run.device(throttle_reasons=["sw power cap"], throttled_seconds={"power cap": 0.1}, cpus=2)
    run.log.append("step", step=3, loss=-math.inf, losses={"term a": 1.0, "b": None})
    run.log.append("rank_block", round=0, first_step=0, rank=1, seconds=0.1)
    run.log.close()
    lines = run.run.events_file.read_bytes().decode().splitlines()
    rows = [json.loads(line)["kind"] for line in lines if re.fullmatch(ROW, line)]
    assert rows == ["step"] * 3 + ["block", "device", "step", "rank_block"]
