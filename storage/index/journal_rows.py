"""Reads journal lines into rows, and believes of them what can be.

A journal may come from anywhere. A line that is no JSON becomes a row of NULLs, a field of another
type than its column NULL, and so does a number that no run could have counted or a time that no
calendar holds: further on, arithmetic on every row is safe.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb

from breakeven.runner.folders.events import MAX_COUNT
from breakeven.runner.folders.states import MAX_TIME
from breakeven.runner.texts import printable
from breakeven.storage.index.folders import FolderScan
from breakeven.storage.index.journal_lines import Owner, objects

EVENT_TABLES = {
    "phase": "phases",
    "environment": "environments",
    "workload": "workloads",
    "inputs": "inputs",
    "compile_started": "compile_starts",
    "compile_ended": "compile_ends",
    "compile_metrics": "compile_metrics",
    "compile_spans": "compile_spans",
    "compile_cache": "compile_caches",
    "graph_break": "graph_breaks",
    "step": "steps",
    "block": "blocks",
    "device": "device_samples",
    "evaluation": "evaluations",
    "checkpoint": "checkpoints",
    "resumed": "resumptions",
    "gradient_statistics": "gradient_statistics",
    "prediction": "predictions",
    "value": "own_values",
    "stopped": "stops",
    "source": "sources",
    "kept_file": "kept_files",
    "accuracy": "accuracy_tensors",
    "accuracy_status": "accuracy_statuses",
    "profile": "profiles",
    "profile_kernel": "profile_kernels",
    "rank_block": "rank_blocks",
    "rank_profile": "rank_profiles",
    "collective": "collectives",
    "random_numbers": "random_numbers",
    "redraw": "redraws",
    "rehearsal": "rehearsals",
    "dropout": "dropouts",
    "error": "errors",
}
"""Kind of event to its table, whose columns name the fields to read."""

JSON_SHAPES = {"versions": "OBJECT", "variables": "OBJECT", "notes": "ARRAY", "labels": "ARRAY",
               "uncounted": "ARRAY", "devices": "ARRAY", "ending": "OBJECT"}  # fmt: skip
"""Fields that are kept as JSON, and what they must be."""
OWNER = {"experiment": "INTEGER", "run_id": "VARCHAR"}
OF_FILE = (
    "parse_filename(parse_dirpath(filename))::INTEGER AS experiment, "
    "parse_filename(filename, true) AS run_id"
)
"""A file lies in a folder with the experiment's number and is named after the run."""
OF_LINE = "experiment, run_id"
MAX_SECONDS = 1e9
"""Longest duration that is believed: thirty years."""
MAX_NUMBER = 1e100
"""Beyond which a number counts as infinite: of losses that diverged so far, the squares that every
spread is made of are none."""
MAX_CHARACTERS = 100_000
"""Of a text, such as a traceback: pages show it whole."""
MAX_JSON_CHARACTERS = 500_000
"""Of a field that is kept as JSON: a hundred times what the variables of a real environment take.
Each entry of a longer one, of 100,000 variables, would be compared with those of all other runs."""

Cursor = duckdb.DuckDBPyConnection
Columns = dict[str, tuple[str, bool]]
"""Name to type and whether a value is required."""


def event_columns(cursor: Cursor) -> dict[str, Columns]:
    """The columns of each table of events, which is looked up once: there is one schema."""
    if not _columns:
        _columns.update(_event_columns(cursor))
    return _columns


_columns: dict[str, Columns] = {}


def _event_columns(cursor: Cursor) -> dict[str, Columns]:
    tables: dict[str, Columns] = {table: {} for table in EVENT_TABLES.values()}
    query = (
        "SELECT table_name, column_name, data_type, NOT is_nullable FROM duckdb_columns() "
        "WHERE table_name IN (SELECT unnest(?)) AND column_name NOT IN ('experiment', 'run_id') "
        "AND database_name = current_database()"
    )
    for table, name, kind, required in cursor.execute(query, [list(tables)]).fetchall():
        tables[table][name] = (kind, required)
    return tables


def reader(columns: Columns, owner: str = OF_FILE) -> str:
    """SQL that reads journal files, given as its parameter, as a table with these columns.

    The texts "NaN", "Infinity" and "-Infinity" become numbers in a number column. `owner`: where
    experiment and run of a line stand, `OF_FILE` or `OF_LINE`.
    """
    types = {"kind": "VARCHAR"} | {name: kind for name, (kind, _) in columns.items()}
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in (types | OWNER).items())
    fields = ", ".join(f"{believed(name, kind)} AS {name}" for name, kind in types.items())
    return (
        f"(SELECT {fields}, {owner} FROM "
        f"read_ndjson(?, columns={{{listed}}}, ignore_errors=true, filename=true))"
    )


def line_reader(columns: Columns, table: str) -> str:
    """SQL that reads the column `line` of a table as `reader` reads files, with the columns
    `experiment` and `run_id`. All lines must be JSON."""
    types = {name: kind for name, (kind, _) in columns.items()}
    shape = json.dumps(types)
    fields = ", ".join(
        f"{believed(name, kind, f'line.{name}')} AS {name}" for name, kind in types.items()
    )
    return (
        f"(SELECT {fields}, {OF_LINE} FROM "
        f"(SELECT json_transform(line, '{shape}') AS line, {OF_LINE} FROM {table}))"
    )


def believed(name: str, kind: str, value: str = "") -> str:
    """SQL of a field as far as it is believed; `value`: where it is read, if not by its name."""
    value = value or name
    if name == "time":
        return f"CASE WHEN {value} >= 0 AND {value} < {MAX_TIME} THEN {value} END"
    if kind == "BIGINT":
        return f"CASE WHEN {value} BETWEEN {-MAX_COUNT} AND {MAX_COUNT} THEN {value} END"
    if kind == "DOUBLE" and name.endswith("seconds"):
        return f"CASE WHEN {value} BETWEEN 0 AND {MAX_SECONDS} THEN {value} END"
    if kind == "DOUBLE":
        infinite = f"sign({value}) * 'Infinity'::DOUBLE"
        is_infinite = f"abs({value}) > {MAX_NUMBER} AND NOT isnan({value})"
        return f"CASE WHEN {is_infinite} THEN {infinite} ELSE {value} END"
    if kind == "VARCHAR":
        return f"left({value}, {MAX_CHARACTERS})"
    if kind == "JSON":
        return (
            f"CASE WHEN length({value}::VARCHAR) <= {MAX_JSON_CHARACTERS} "
            f"AND json_type({value}) = '{JSON_SHAPES[name]}' THEN {value} END"
        )
    if kind.endswith(")[]"):
        return f"list_filter({value}, one -> one IS NOT NULL)"
    return value


@contextmanager
def journal_files(slices: Mapping[Owner, bytes]) -> Iterator[list[str]]:
    """Files that hold just these lines, each named after its experiment and run."""
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        names = []
        for (number, run_id), lines in slices.items():
            file = Path(folder, str(number), f"{run_id}.ndjson")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(lines)
            names.append(str(file))
        yield names


def mend_slices(cursor: Cursor, seen: FolderScan) -> bool:
    """Takes lines out of what was seen that the database cannot read, even as rows of NULLs.

    DuckDB gives up on an object that is broken in two lines. Returns whether there were any.
    Raises `duckdb.OutOfMemoryException`.
    """
    damaged = [run for run, lines in seen.slices.items() if not _is_read(cursor, run, lines)]
    for run_id in damaged:
        seen.slices[run_id] = objects(seen.slices[run_id])
        if not _is_read(cursor, run_id, seen.slices[run_id]):
            folder = printable(seen.progress[run_id].folder)
            seen.unreadable[run_id] = (folder, "the database cannot read its events.jsonl")
            del seen.slices[run_id]
    return bool(damaged)


def _is_read(cursor: Cursor, run_id: str, lines: bytes) -> bool:
    columns = {name: column for table in event_columns(cursor).values()
               for name, column in table.items()}  # fmt: skip
    with journal_files({(0, run_id): lines}) as names:
        try:
            cursor.execute(f"SELECT count(COLUMNS(*)) FROM {reader(columns)}", [names]).fetchall()
        except duckdb.OutOfMemoryException:
            raise  # It may be read another time, with more.
        except duckdb.Error:
            return False
    return True
