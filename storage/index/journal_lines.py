"""Takes journal lines apart before the database reads them: torn ones, and the most frequent kinds;
and says where they lie: the database reads them there, and nothing is copied.

Almost all lines are steps, blocks and samples of the device. If the database knows them by kind, it
does not search them for the fields of other kinds. Arrow has a type for texts in several buffers;
here the buffers are the journals as they were read. Writing each kind into its own file for the
database took as long as inserting the rows.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from breakeven.runner.folders.events import BOOLEANS, MAX_COUNT, Order, read_event
from breakeven.runner.texts import read_json

Owner: TypeAlias = tuple[int, str]
"""Whose a line is: number of the experiment, id of the run."""
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
PIECE_BYTES = 1_000_000
"""Of short journals, which are searched together: each search takes some moments of its own."""
VIEW = np.dtype([("length", "<i4"), ("begin", "<u4"), ("buffer", "<i4"), ("offset", "<i4")])
"""Arrow's layout: how long a text is, its first four bytes, and where it lies."""
SHORTEST = 13
"""Bytes of a line from which on Arrow says where it lies; no event is shorter."""


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


@dataclass(frozen=True)
class Lines:
    """Lines of several runs, each of which has so many that follow each other."""

    views: npt.NDArray[np.void]
    counts: Places

    def reader(self, texts: Sequence[bytes], owners: Sequence[Owner]) -> pa.RecordBatchReader:
        """Columns `line`, `experiment` and `run_id`, to be read once: what was read is let go,
        even while the database holds the reader, as it does until a transaction ends."""
        buffers = [None, pa.py_buffer(self.views), *map(pa.py_buffer, texts)]
        line = pa.Array.from_buffers(pa.string_view(), len(self.views), buffers)
        numbers = np.array([number for number, _ in owners], np.int32)
        places = np.repeat(np.arange(len(owners), dtype=np.int32), self.counts)
        names = pa.array([name for _, name in owners], pa.string())
        run_id = pa.DictionaryArray.from_arrays(pa.array(places), names)
        columns = {"line": line, "experiment": pa.array(numbers[places]), "run_id": run_id}
        batch = pa.RecordBatch.from_pydict(columns)
        return pa.RecordBatchReader.from_batches(batch.schema, iter([batch]))


@dataclass
class Found:
    """The lines of some journals."""

    runs: list[str] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    """What the views look into."""
    frequent: dict[str, Lines] = field(default_factory=dict)
    """By kind, of those that begin as the runner writes them."""
    others: dict[str, bytes] = field(default_factory=dict)
    """All other lines, by run."""


def find_lines(journals: Mapping[str, bytes], kinds: Sequence[str] = FREQUENT) -> Found:
    """The lines of these kinds, and all others, without those that are torn."""
    found = Found()
    parts: dict[str, list[Lines]] = {kind: [] for kind in kinds}
    for piece in _pieces(journals):
        is_other = np.ones(len(piece.starts), np.bool_)
        for kind in kinds:
            at = begin_with(BEGIN % kind.encode(), piece.text, piece.starts)
            is_other[at] = False
            parts[kind].append(piece.lines(at, len(found.texts)))
        found.others |= piece.texts_of(np.flatnonzero(is_other))
        found.runs += piece.runs
        found.texts.append(piece.text)
    found.frequent = {
        kind: together for kind in kinds if len((together := _join(parts[kind])).views)
    }
    return found


def every_line(journals: Mapping[str, bytes]) -> tuple[Lines, list[bytes]]:
    """All lines, in the order of the journals, that may be events; and what they lie in."""
    pieces = list(_pieces(journals))
    parts = [piece.lines(np.flatnonzero(piece.ends - piece.starts >= SHORTEST), number)
             for number, piece in enumerate(pieces)]  # fmt: skip
    return _join(parts), [piece.text for piece in pieces]


@dataclass
class _Piece:
    """One journal, or some that are short, and where its lines lie."""

    runs: list[str]
    text: bytes
    starts: Places
    ends: Places
    bounds: Places
    """Number of the first line of each journal, and of all lines."""

    def lines(self, at: Places, buffer: int) -> Lines:
        views = np.empty(len(at), VIEW)
        views["offset"] = self.starts[at]
        views["length"] = self.ends[at] - self.starts[at]
        views["begin"] = np.ndarray((max(0, len(self.text) - 3),), "<u4", self.text,
                                    strides=(1,))[self.starts[at]]  # fmt: skip
        views["buffer"] = buffer
        return Lines(views, np.diff(np.searchsorted(at, self.bounds)))

    def texts_of(self, at: Places) -> dict[str, bytes]:
        """The lines of each run that has some of them."""
        found = {}
        for run, mine in zip(self.runs, np.split(at, np.searchsorted(at, self.bounds[1:-1])),
                             strict=True):  # fmt: skip
            if len(mine):
                # Those that follow each other are copied together.
                first = np.flatnonzero(np.diff(mine, prepend=-2) > 1)
                last = np.append(first[1:], len(mine)) - 1
                spans = zip(self.starts[mine[first]].tolist(), self.ends[mine[last]].tolist(),
                            strict=True)  # fmt: skip
                found[run] = b"".join(self.text[begin : end + 1] for begin, end in spans)
        return found


def _pieces(journals: Mapping[str, bytes]) -> Iterator[_Piece]:
    group: dict[str, bytes] = {}
    num_bytes = 0
    for run, lines in journals.items():
        group[run] = lines
        num_bytes += len(lines)
        if num_bytes >= PIECE_BYTES:
            yield _piece(group)
            group, num_bytes = {}, 0
    if group:
        yield _piece(group)


def _piece(journals: Mapping[str, bytes], *, is_mended: bool = False) -> _Piece:
    text = b"".join(journals.values())
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == NEWLINE)
    if not is_mended and not (data[ends - 1] == ord("}")).all():
        mended = {run: whole_lines(lines) for run, lines in journals.items()}
        return _piece(mended, is_mended=True)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    stops = np.cumsum([0, *map(len, journals.values())])
    return _Piece([*journals], text, starts, ends, np.searchsorted(starts, stops))


def _join(parts: Sequence[Lines]) -> Lines:
    if not parts:
        return Lines(np.empty(0, VIEW), np.empty(0, np.intp))
    return Lines(np.concatenate([part.views for part in parts]),
                 np.concatenate([part.counts for part in parts]))  # fmt: skip
