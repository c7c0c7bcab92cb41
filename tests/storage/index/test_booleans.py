"""True and false are no numbers: where a journal has them for one, nothing is known."""

import json
import math
import re
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import BOOLEANS, OPEN, read_events
from breakeven.storage.index import journal_inserts
from breakeven.storage.index.journal_lines import without_odd_booleans
from breakeven.storage.index.store import SCHEMA, Store
from tests.helpers.journals import Recording

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
