"""Takes journal lines apart before the database reads them: torn ones, and the most frequent kinds.

Almost all lines are steps, blocks and samples of the device. The database spares them the search
for the fields of all other kinds only if it is told which they are.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from breakeven.runner.folders.events import BOOLEANS, MAX_COUNT, Order, read_event
from breakeven.runner.texts import read_json

Places: TypeAlias = npt.NDArray[np.intp]
NEWLINE = ord("\n")
FREQUENT = ("step", "block", "device")
BEGIN = b'{"v":1,"kind":"%b",'
"""How the runner begins the line of a kind."""
SEQ = b'"seq":'
PART_BYTES = 2**18
BEFORE_VALUES = np.zeros(256, np.bool_)
BEFORE_VALUES[[*b": ,["]] = True
KIND = re.compile(rb'"kind"\s*:\s*"([a-z_]+)"')


def whole_lines(lines: bytes) -> bytes:
    """The lines without those that do not end as events do. Such a one is no event, and DuckDB may
    take the line that follows it for its rest."""
    data = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(data == NEWLINE)
    # Before a first line that is empty stands, so to say, the last byte of all: a line's end.
    return lines if (data[ends - 1] == ord("}")).all() else objects(lines)


def objects(lines: bytes) -> bytes:
    """The lines that are JSON objects."""
    return b"".join(row for row in lines.splitlines(keepends=True) if _is_object(row))


def begin_with(text: bytes, lines: bytes, starts: Places) -> Places:
    """Which lines begin so, of those that begin at `starts`, in order: eight bytes at a time."""
    eights = np.ndarray((max(0, len(lines) - 7),), "<u8", lines, strides=(1,))
    at = np.flatnonzero(starts + len(text) <= len(lines))
    for offset in (*range(0, len(text) - 8, 8), len(text) - 8):
        part = int.from_bytes(text[offset : offset + 8], "little")
        at = at[eights[starts[at] + offset] == part]
    return at


def in_order(lines: bytes, order: Order) -> bytes:
    """The lines without events that do not come after those before, which `order` counts.

    Where every line has one `seq` and all of them grow, as the runner writes them, nothing else is
    read of them, and other lines stay for the database to judge.
    """
    found = _sequence(lines)
    if found is not None and found[0] > order.last and (found[1:] > found[:-1]).all():
        order.num_missing += int(found[-1]) - order.last - len(found)
        order.last = int(found[-1])
        return lines
    events = ((line, read_event(line)) for line in lines.split(b"\n"))
    return b"".join(line + b"\n" for line, event in events
                    if event is not None and order.takes(event))  # fmt: skip


def without_odd_booleans(lines: bytes) -> bytes:
    """The lines, in which neither true nor false stands for a number: the database would take them
    for 1 and 0. Only lines with one that is none of `BOOLEANS` are read for that."""
    data = np.frombuffer(lines, np.uint8)
    at = np.concatenate([_places(data, "u") - 2, _places(data, "f")])  # of "true" and "false"
    at = at[(at >= 10) & (at + 4 <= len(data))]
    fours = np.ndarray((max(0, len(data) - 3),), "<u4", lines, strides=(1,))
    at = at[(fours[at] == _number(b"true")) | (fours[at] == _number(b"fals"))]
    at = at[BEFORE_VALUES[data[at - 1]]]
    ends = at - 1 - (data[at - 1] == ord(" "))  # of the name, where a colon stands
    eights = np.ndarray((max(0, len(data) - 7),), "<u8", lines, strides=(1,))
    names, is_usual = eights[ends - 8], np.zeros(len(at), np.bool_)
    for name in ENDS_OF_BOOLEANS:
        is_usual |= names >> 8 * (8 - len(name)) == _number(name)
    is_usual &= data[ends] == ord(":")
    odd = {lines.rfind(b"\n", 0, place) + 1 for place in at[~is_usual].tolist()}
    parts, done = [], 0
    for begin in sorted(odd):
        end = lines.find(b"\n", begin)
        event = read_event(lines[begin:end])
        if event is not None:
            parts += [lines[done:begin], json.dumps(event).encode()]
            done = end
    return b"".join([*parts, lines[done:]]) if parts else lines


def _places(data: npt.NDArray[np.uint8], letter: str) -> Places:
    """Where a letter stands: of a part at a time, which stays in the processor's cache."""
    parts = (np.flatnonzero(data[begin : begin + PART_BYTES] == ord(letter)) + begin
             for begin in range(0, len(data), PART_BYTES))  # fmt: skip
    return np.concatenate([np.empty(0, np.intp), *parts])


def _number(text: bytes) -> int:
    return int.from_bytes(text, "little")


ENDS_OF_BOOLEANS = [f'"{name}"'.encode()[-8:] for name in BOOLEANS]
"""As much of their names as is looked at."""


def _sequence(lines: bytes) -> Places | None:
    """The `seq` of each line; None unless there are as many as lines, each of them a whole number
    up to `MAX_COUNT`. A letter that hardly occurs elsewhere leads to them: no search is faster."""
    data = np.frombuffer(lines, np.uint8)
    at = _places(data, "q") - 3
    at = at[(at >= 0) & (at + 8 <= len(data))]
    eights = np.ndarray((max(0, len(data) - 7),), "<u8", lines, strides=(1,))
    at = at[eights[at] & (1 << 8 * len(SEQ)) - 1 == _number(SEQ)] + len(SEQ)
    if not len(at) or len(at) != np.count_nonzero(data == NEWLINE):
        return None
    at += data[at] == ord(" ")
    found = np.zeros(len(at), np.int64)
    is_digit = np.ones(len(at), np.bool_)
    for _ in range(len(str(MAX_COUNT))):
        digit = data[at] - np.uint8(ord("0"))
        is_digit &= digit < 10
        if not is_digit.any():
            break
        found = np.where(is_digit, 10 * found + digit, found)
        at += is_digit
    is_number = ((data[at] == ord(",")) | (data[at] == ord("}"))) & (found <= MAX_COUNT)
    return found if is_number.all() else None


def with_owner(experiment: int, run_id: str, lines: bytes) -> bytes:
    """The lines that are JSON objects, with `experiment` and `run_id` for their first fields: of
    several fields of one name the database reads the first."""
    named = b'{"experiment":%d,"run_id":%b,' % (experiment, json.dumps(run_id).encode())
    stripped = (line.strip() for line in lines.split(b"\n"))
    return b"".join(named + line[1:] + b"\n" for line in stripped if _is_object(line))


def kinds_in(lines: bytes, among: Iterable[str]) -> list[str]:
    """Those of some kinds of which there may be a line."""
    if b"\\u" in lines:  # A name may be written with escapes, and is read all the same.
        return list(among)
    found = {kind.decode() for kind in KIND.findall(lines)}
    return [kind for kind in among if kind in found]


def _is_object(line: bytes) -> bool:
    with suppress(ValueError):
        return isinstance(orjson.loads(line), dict)
    try:  # It may hold what is no JSON to the letter, such as NaN.
        return isinstance(read_json(line), dict)
    except ValueError:
        return False
