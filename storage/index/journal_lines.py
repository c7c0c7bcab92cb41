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

Places: TypeAlias = npt.NDArray[np.intp]
NEWLINE = ord("\n")
FREQUENT = ("step", "block", "device")
BEGIN = b'{"v":1,"kind":"%b",'
"""How the runner begins the line of a kind."""
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
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
