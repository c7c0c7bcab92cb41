"""Where the lines of many journals lie: the database reads them there, and nothing is copied.

Arrow has a type for texts that lie anywhere in some buffers; here the buffers are the journals as
they were read. To write each kind into files of its own, which the database then reads, took as
long as inserting the rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from breakeven.storage.index.journal_lines import (
    BEGIN,
    FREQUENT,
    NEWLINE,
    Places,
    begin_with,
    whole_lines,
)

PIECE_BYTES = 1_000_000
"""Of short journals, which are searched together: each search takes some moments of its own."""
VIEW = np.dtype([("length", "<i4"), ("begin", "<u4"), ("buffer", "<i4"), ("offset", "<i4")])
"""Arrow's layout: how long a text is, its first four bytes, and where it lies."""
SHORTEST = 13
"""Bytes of a line from which on Arrow says where it lies; no event is shorter."""

Owner: TypeAlias = tuple[int, str]
"""Whose a line is: number of the experiment, id of the run."""


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
