"""Inserts lines of journals into the tables of their kinds.

Nearly all lines are events, as the runner writes them, and are read as such where they lie; one
that is none has the database give up. Then all are read with care: from a file, of which the
database leaves out what it cannot read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from breakeven.storage.index.folders import FolderScan
from breakeven.storage.index.journal_lines import (
    FREQUENT,
    Found,
    Owner,
    every_line,
    find_lines,
    kinds_in,
    with_owner,
)
from breakeven.storage.index.journal_rows import (
    EVENT_TABLES,
    OF_LINE,
    Columns,
    Cursor,
    believed,
    event_columns,
    journal_files,
    line_reader,
    reader,
)

SMALL_BYTES = 500_000
"""Of new lines, up to which reading all of them at once takes less than a statement per kind."""
WIDE_BYTES = 8_000_000
"""Of lines, that are read at once with all columns that any kind has."""
LINES = "new_lines"
KIND: Columns = {"kind": ("VARCHAR", True)}
TAKEN_BACK = {
    "steps": "step >= resumed_step",
    "inputs": "step >= resumed_step",
    "blocks": "first_step >= resumed_step",
    "device_samples": "first_step >= resumed_step",
    "gradient_statistics": "step >= resumed_step",
    # What came after so many steps came before the checkpoint that was made there.
    "evaluations": "step > resumed_step",
    "checkpoints": "step > resumed_step",
    "own_values": "step > resumed_step",
    "graph_breaks": "step > resumed_step",
    # In training a compilation belongs to the step that follows, in evaluating to those before.
    **dict.fromkeys(
        ("compile_ends", "compile_metrics", "compile_spans"),
        "step >= resumed_step + (phase IS NOT DISTINCT FROM 'evaluating')::INTEGER",
    ),
    # Ends that turned out to be none, and what the process was in the middle of.
    **dict.fromkeys(("stops", "predictions", "errors", "compile_starts"), "true"),
    **dict.fromkeys(("random_numbers", "redraws", "rehearsals", "dropouts"), "true"),
}
"""Table to which of its rows a resumption takes back, among those above it in the journal."""


def insert_events(
    cursor: Cursor, seen: FolderScan, numbers: Mapping[str, int], *, with_care: bool = False
) -> int:
    """Inserts the journal lines of a look; `with_care`: some of them may be no events.

    The most frequent kinds go, each with its few columns, straight into their tables. All other
    lines are read with all columns that any kind has, and then distributed.
    """
    if with_care:
        return _insert_with_care(cursor, _owned(seen, numbers))
    if seen.lines is None:
        seen.lines = found_lines(seen)
    num_rows = insert_frequent(cursor, seen.lines, numbers)
    return num_rows + _insert_others(cursor, seen.lines.others, numbers)


def insert_frequent(cursor: Cursor, found: Found, numbers: Mapping[str, int]) -> int:
    """Inserts the lines of the most frequent kinds, all of which must be events; returns how many.
    Raises `duckdb.Error`, or `UnicodeDecodeError` where it names a line that is no text."""
    owners = _owners(found.runs, numbers)
    tables = event_columns(cursor)
    num_rows = 0
    for kind, lines in found.frequent.items():
        columns = tables[EVENT_TABLES[kind]]
        with _lines_at_hand(cursor, lines.reader(found.texts, owners)):
            num_rows += _insert_kind(cursor, kind, columns, line_reader(columns, LINES), "")
    return num_rows


def _insert_others(
    cursor: Cursor, journals: Mapping[str, bytes], numbers: Mapping[str, int]
) -> int:
    lines, texts = every_line(journals)
    kinds = kinds_in(b"".join(texts), EVENT_TABLES)
    if not kinds:
        return 0
    tables = event_columns(cursor)
    columns = KIND | _merged(tables, kinds)
    with _lines_at_hand(cursor, lines.reader(texts, _owners(journals, numbers))):
        return _distribute(cursor, tables, columns, kinds, line_reader(columns, LINES))


def found_lines(seen: FolderScan) -> Found:
    """The lines of a look; a few are read all at once, which takes less than a statement per
    kind."""
    is_small = sum(map(len, seen.slices.values())) < SMALL_BYTES
    return find_lines(seen.slices, () if is_small else FREQUENT)


def _owned(seen: FolderScan, numbers: Mapping[str, int]) -> dict[Owner, bytes]:
    """The new lines, by whose they are."""
    return {(numbers[run_id.partition(".")[0]], run_id): lines
            for run_id, lines in seen.slices.items()}  # fmt: skip


def _owners(runs: Iterable[str], numbers: Mapping[str, int]) -> list[Owner]:
    return [(numbers[run_id.partition(".")[0]], run_id) for run_id in runs]


def _merged(tables: Mapping[str, Columns], kinds: Iterable[str]) -> Columns:
    """All columns of these kinds of events. A column of several types is a text: CPUs are a list of
    numbers in an environment, and a number in a block."""
    merged: Columns = {}
    for kind in kinds:
        for name, (type_, required) in tables[EVENT_TABLES[kind]].items():
            other, _ = merged.get(name, (type_, required))
            merged[name] = (type_ if other == type_ else "VARCHAR", required)
    return merged


@contextmanager
def _lines_at_hand(cursor: Cursor, lines: pa.RecordBatchReader) -> Iterator[None]:
    cursor.register(LINES, lines)
    try:
        yield
    finally:
        cursor.unregister(LINES)


def _insert_with_care(cursor: Cursor, slices: Mapping[Owner, bytes]) -> int:
    """Inserts lines any of which may be no event: the database leaves such lines out of files, and
    of files alone."""
    tables = event_columns(cursor)
    num_rows = 0
    for group in _groups(slices):
        lines = b"".join(with_owner(*owner, mine) for owner, mine in group.items())
        kinds = kinds_in(lines, EVENT_TABLES)
        with journal_files({(0, "all"): lines}) as names:
            merged = _merged(tables, kinds)
            source = reader(merged, OF_LINE)
            num_rows += _distribute(cursor, tables, merged, kinds, source, names)
    return num_rows


def _groups(slices: Mapping[Owner, bytes]) -> Iterator[dict[Owner, bytes]]:
    group: dict[Owner, bytes] = {}
    num_bytes = 0
    for owner, lines in slices.items():
        group[owner] = lines
        num_bytes += len(lines)
        if num_bytes >= WIDE_BYTES:
            yield group
            group, num_bytes = {}, 0
    if group:
        yield group


def _distribute(
    cursor: Cursor,
    tables: Mapping[str, Columns],
    staged: Columns,
    kinds: Collection[str],
    source: str,
    files: list[str] | None = None,
) -> int:
    """Inserts lines of these kinds into their tables; `staged`: the columns that `source` has."""
    if not kinds:
        return 0
    arguments = [] if files is None else [files]
    cursor.execute(f"CREATE TEMP TABLE staged AS SELECT * FROM {source}", arguments)
    found = {kind for (kind,) in cursor.execute("SELECT DISTINCT kind FROM staged").fetchall()}
    num_rows = 0
    for kind in EVENT_TABLES.keys() & found:
        columns = tables[EVENT_TABLES[kind]]
        mine = f"(SELECT kind, {OF_LINE}, {_as_typed(columns, staged)} FROM staged)"
        num_rows += _insert_kind(cursor, kind, columns, mine, _is_event(kind, columns))
    resumed = cursor.execute("SELECT DISTINCT run_id FROM staged WHERE kind = 'resumed'").fetchall()
    take_back(cursor, [run_id for (run_id,) in resumed])
    cursor.execute("DROP TABLE staged")
    return num_rows


def _as_typed(columns: Columns, staged: Columns) -> str:
    """These columns, each of its own type; what is of another becomes NULL."""
    return ", ".join(
        name if staged[name][0] == type_
        else f"{believed(name, type_, f'TRY_CAST({name} AS {type_})')} AS {name}"
        for name, (type_, _) in columns.items()
    )  # fmt: skip


def _is_event(kind: str, columns: Columns) -> str:
    """The condition that a row is an event of this kind, with all that it must have."""
    required = "".join(
        f" AND {name} IS NOT NULL" for name, (_, needed) in columns.items() if needed
    )
    return f"WHERE kind = '{kind}'{required}"


def _insert_kind(cursor: Cursor, kind: str, columns: Columns, source: str, condition: str) -> int:
    """Inserts rows of one kind; returns their number."""
    names = ", ".join(["experiment", "run_id", *columns])
    row = cursor.execute(
        f"INSERT INTO {EVENT_TABLES[kind]} BY NAME SELECT {names} FROM {source} {condition}"
    ).fetchone()
    return 0 if row is None else int(row[0])


def take_back(cursor: Cursor, run_ids: Sequence[str]) -> None:
    """Removes what these runs did between their last checkpoint and each resumption; doing so again
    changes nothing.

    A resumed run goes on at the checkpoint's step and does again what it had done after it. Of the
    rows that stand above the line `resumed` in the journal, those with a later place then count no
    more. The order of the lines decides, not when they were read: a row and the resumption that
    takes it back may arrive together or ticks apart.
    """
    if not run_ids:
        return
    for table, condition in TAKEN_BACK.items():
        cursor.execute(
            f"""DELETE FROM {table} USING (
                SELECT run_id AS resumed_run, seq AS resumed_seq, step AS resumed_step
                FROM resumptions WHERE run_id IN (SELECT unnest(?)))
            WHERE run_id = resumed_run AND seq < resumed_seq AND {condition}""",
            [list(run_ids)],
        )
