"""Takes a journal apart: the lines that count, by the kind of their event.

Nearly all lines are rows of numbers in the form in which the runner writes them. A pattern finds
them, all of a journal at once. Python reads every other line, so it decides wherever there is a
doubt: a row of the pattern is valid JSON, has `kind` and `seq` once, and has true and false only
in the fields that hold them.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
from pyarrow import compute

from breakeven.runner.protocol.events import BOOLEANS, MAX_COUNT, JournalPosition, read_event

Lines = dict[str, pa.StringArray]
"""Lines of a journal by the kind of their event, with or without their line ends."""

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

ROWS = ("step", "block", "device", "rank_block")
"""Kinds of events that are rows of numbers; of all others, a journal has few."""
HEADS = ('{"v":1,"kind":"', '{"v": 1, "kind": "')
"""What precedes the kind of a row: as orjson writes, and as Python does."""
NUMBER = r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?"
"""A number that is the same for every reader of JSON: it fits into 64 bits or is finite."""
TEXT = r'"[ !#-\[\]-~]*"'
"""A text in ASCII without escapes."""
LIST = rf"\[(?:{TEXT}(?:, ?{TEXT})*)?\]"
NUMBERS = rf"\{{(?:{TEXT}: ?(?:{NUMBER}|null)(?:, ?{TEXT}: ?(?:{NUMBER}|null))*)?\}}"
SCALAR = rf"{NUMBER}|null|{TEXT}"
NAME = '"(?:[a-jl-rt-z_]|s[a-df-z_]|se[a-pr-z_])[a-z_]*"'
"""A name other than `kind` and `seq`, which a row has once."""
TRUTH = rf'"(?:{"|".join(BOOLEANS)})": ?(?:true|false)'
ANY_HEAD, ANY_ROW = "|".join(map(re.escape, HEADS)), "|".join(ROWS)
BEFORE_SEQ = '"seq":'
SEQ = r"(?:0|[1-9][0-9]{0,14})"
ROW = (
    rf'^(?:{ANY_HEAD})(?:{ANY_ROW})"(?:, ?(?:{NAME}: ?(?:{SCALAR})|{TRUTH}))*'
    rf", ?{BEFORE_SEQ} ?{SEQ}"
    rf"(?:, ?(?:{NAME}: ?(?:{SCALAR}|{LIST}|{NUMBERS})|{TRUTH}))*\}}\n?$"
)
BOOLEAN_NAMES = frozenset(BOOLEANS)
NO_SEQ = -1
"""Stands for a `seq` that no event may have: it follows no other one."""


def counting_lines(journal: bytes, position: JournalPosition) -> Lines:
    """The lines that are events in ascending order; `position` counts the others."""
    lines = _split(journal)
    is_row = _mask(compute.match_substring_regex(lines, ROW))
    seqs = np.full(len(lines), NO_SEQ)
    seqs[is_row] = _seqs(lines, is_row)
    others: dict[int, tuple[str, bytes]] = {}
    for place in np.flatnonzero(~is_row).tolist():
        event, text = _parsed(lines[place].as_py().removesuffix(b"\n"))
        if event is not None:
            others[place] = event["kind"], text
            seqs[place] = _valid_seq(event)
    counts = is_row.copy()
    counts[[*others]] = True
    counts[counts] = _taken(seqs[counts], position)
    counting = {place: other for place, other in others.items() if counts[place]}
    return _by_kind(lines, is_row & counts, counting)


def _by_kind(lines: pa.BinaryArray, is_row: Mask, others: Mapping[int, tuple[str, bytes]]) -> Lines:
    """These rows, and others by their places, in the order of the journal."""
    kinds: dict[str, dict[int, bytes]] = {}
    for place, (kind, text) in others.items():
        kinds.setdefault(kind, {})[place] = text
    by_kind = {kind: pa.array([*texts.values()], pa.string()) for kind, texts in kinds.items()}
    initials = np.zeros(len(lines), np.uint8)
    initials[is_row] = _initials(lines, is_row)
    for kind in ROWS:
        is_kind = initials == ord(kind[0])
        if not is_kind.any():
            continue
        rows = lines.filter(pa.array(is_kind)).cast(pa.string())
        if kind in by_kind:
            places = [*np.flatnonzero(is_kind), *kinds[kind]]
            rows = pa.concat_arrays([rows, by_kind[kind]]).take(pa.array(np.argsort(places)))
        by_kind[kind] = rows
    return by_kind


def _initials(lines: pa.BinaryArray, is_row: Mask) -> Bytes:
    """The first letter of the kind of each row among these lines; no two kinds share it."""
    data, begins = _content(lines, is_row)
    usual, spaced = map(len, HEADS)
    return data[begins + np.where(data[begins + HEADS[0].index("1")] == ord(" "), spaced, usual)]


def _content(lines: pa.BinaryArray, is_row: Mask) -> tuple[Bytes, Integers]:
    """The bytes of all lines, and where each row among them begins."""
    _, offsets, content = lines.buffers()
    begins = np.frombuffer(offsets, np.int32)[:-1][is_row]
    return np.frombuffer(content, np.uint8), begins.astype(np.int64)


def _split(journal: bytes) -> pa.BinaryArray:
    """The lines with their line ends, without a copy."""
    ends = np.flatnonzero(np.frombuffer(journal, np.uint8) == ord("\n")) + 1
    if not journal.endswith(b"\n"):
        ends = np.append(ends, len(journal))
    places = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(journal)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _mask(values: pa.BooleanArray) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)


def _seqs(lines: pa.BinaryArray, is_row: Mask) -> Integers:
    """The `seq` of each row among these lines."""
    data, begins = _content(lines, is_row)
    places = compute.find_substring(lines, BEFORE_SEQ).to_numpy()[is_row]
    begins = begins + places + len(BEFORE_SEQ)
    begins = begins + (data[begins] == ord(" "))
    seqs, is_digit = np.zeros(len(begins), np.int64), np.ones(len(begins), bool)
    while is_digit.any():  # A brace or comma at least follows each number.
        digits = data[np.minimum(begins, len(data) - 1)] - ord("0")
        is_digit &= digits < 10
        seqs = np.where(is_digit, 10 * seqs + digits, seqs)
        begins = begins + 1
    return seqs


def _valid_seq(event: Mapping[str, Any]) -> int:
    seq = event.get("seq")
    return seq if type(seq) is int and 0 <= seq <= MAX_COUNT else NO_SEQ


def _taken(seqs: Integers, position: JournalPosition) -> Mask:
    """Which events count, as `JournalPosition.takes` decides: those above all before them."""
    highest = np.maximum.accumulate(np.concatenate([[position.last], seqs]))
    takes = seqs > highest[:-1]
    last = int(highest[-1])
    position.num_missing += last - position.last - int(takes.sum())
    position.num_left_out += int((~takes).sum())
    position.last = last
    return takes


def _parsed(line: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """The event of a line, or None, and the line in a form that the database reads correctly:
    without true and false in fields of numbers, which it would read as 1 and 0."""
    try:
        event = orjson.loads(line)
    except ValueError:  # It may contain values that are no strict JSON, such as NaN.
        event = None
    if isinstance(event, dict) and isinstance(event.get("kind"), str):
        num_words = line.count(b"true") + line.count(b"false")
        boolean_types = (
            [type(event[name]) for name in BOOLEAN_NAMES & event.keys()] if num_words else ()
        )
        if num_words == boolean_types.count(bool):
            return event, line
    event = read_event(line)
    return event, b"" if event is None else json.dumps(event).encode()
