"""Inserts lines of journals into the tables of their kinds, without implausible values.

A journal may come from an unknown source. A line that the database cannot read has no row. A field
of a wrong type is NULL, and so is an impossible count or time. Later arithmetic on all rows is
therefore safe.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from breakeven.runner.folders.events import MAX_COUNT
from breakeven.runner.folders.states import MAX_TIME
from breakeven.storage.index.journal_lines import Lines

SCHEMA = Path(__file__).with_name("schema.sql").read_text()
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
"""Kind of event to its table; the columns of the table are the fields to read."""
TAKEN_BACK = {
    "steps": "step >= resumed_step",
    "inputs": "step >= resumed_step",
    "blocks": "first_step >= resumed_step",
    "device_samples": "first_step >= resumed_step",
    "gradient_statistics": "step >= resumed_step",
    # At the same number of steps, these rows precede the checkpoint.
    "evaluations": "step > resumed_step",
    "checkpoints": "step > resumed_step",
    "own_values": "step > resumed_step",
    "graph_breaks": "step > resumed_step",
    # A compilation belongs to the next step in training, to the previous ones in evaluation.
    **dict.fromkeys(
        ("compile_ends", "compile_metrics", "compile_spans"),
        "step >= resumed_step + (phase IS NOT DISTINCT FROM 'evaluating')::INTEGER",
    ),
    # Ends that were not final, and unfinished activities of the process.
    **dict.fromkeys(("stops", "predictions", "errors", "compile_starts"), "true"),
    **dict.fromkeys(("random_numbers", "redraws", "rehearsals", "dropouts"), "true"),
}
"""Table to the condition for rows that a resumption invalidates, among earlier journal lines."""

JSON_SHAPES = {"versions": "OBJECT", "variables": "OBJECT", "notes": "ARRAY", "labels": "ARRAY",
               "uncounted": "ARRAY", "devices": "ARRAY", "ending": "OBJECT"}  # fmt: skip
"""Fields that are stored as JSON, and their required types."""
MAX_SECONDS = 1e9
"""Longest plausible duration in seconds: thirty years."""
MAX_NUMBER = 1e100
"""Larger numbers count as infinite, because the squares of such diverged losses, which a standard
deviation needs, overflow."""
MAX_CHARACTERS = 100_000
"""Limit of a text, such as a traceback, because pages show all of it."""
MAX_JSON_CHARACTERS = 500_000
"""Limit of a JSON field: a hundred times the variables of a real environment. With 100,000
variables, each entry would be compared with those of all other runs."""
LINES = "new_lines"

Cursor = duckdb.DuckDBPyConnection
Columns = dict[str, tuple[str, bool]]
"""Name of a column to its type and whether a value is required."""


def insert_events(cursor: Cursor, journals: Mapping[str, Lines], numbers: Mapping[str, int]) -> int:
    """Inserts new lines, by run, and removes rows that resumptions invalidate; returns the number
    of new rows. `numbers`: the numbers of the experiments."""
    tables = event_columns()
    num_rows = 0
    for kind, table in EVENT_TABLES.items():
        found = {run_id: lines[kind] for run_id, lines in journals.items() if kind in lines}
        if found:
            num_rows += _insert(cursor, table, tables[table], found, numbers)
    take_back(cursor, [run_id for run_id, lines in journals.items() if "resumed" in lines])
    return num_rows


def _insert(
    cursor: Cursor,
    table: str,
    columns: Columns,
    found: Mapping[str, Sequence[bytes]],
    numbers: Mapping[str, int],
) -> int:
    """Inserts lines of one kind, by run. A line that lacks a required field has no row."""
    shape = json.dumps({name: kind for name, (kind, _) in columns.items()})
    fields = ", ".join(f"{_believed(name, kind)} AS {name}" for name, (kind, _) in columns.items())
    required = [f"{name} IS NOT NULL" for name, (_, needed) in columns.items() if needed]
    # A window function first, so that the condition does not parse each line again.
    picked = " AND ".join(["row_number() OVER () > 0", *required])
    counts = [*map(len, found.values())]
    experiments = [numbers[run_id.partition(".")[0]] for run_id in found]
    lines = pa.array([line for mine in found.values() for line in mine], pa.string())
    places = np.repeat(np.arange(len(found)), counts)
    cursor.register(LINES, pa.table({
        "experiment": np.repeat(experiments, counts),
        "run_id": pa.DictionaryArray.from_arrays(places, [*found]),
        "line": lines,
    }))  # fmt: skip
    row = cursor.execute(
        f"""INSERT INTO {table} BY NAME FROM (
            SELECT experiment, run_id, {fields} FROM (
                SELECT experiment, run_id, TRY(json_transform(line, '{shape}')) AS line
                FROM {LINES}))
        QUALIFY {picked}"""
    ).fetchone()
    cursor.unregister(LINES)
    return 0 if row is None else int(row[0])


@cache
def event_columns() -> dict[str, Columns]:
    """The columns of each table of events."""
    tables: dict[str, Columns] = {table: {} for table in EVENT_TABLES.values()}
    query = """SELECT table_name, column_name, data_type, NOT is_nullable FROM duckdb_columns()
        WHERE table_name IN (SELECT unnest(?)) AND column_name NOT IN ('experiment', 'run_id')"""
    with duckdb.connect(":memory:") as scratch:
        scratch.execute(SCHEMA)
        for table, name, kind, required in scratch.execute(query, [list(tables)]).fetchall():
            tables[table][name] = (kind, required)
    return tables


def _believed(name: str, kind: str) -> str:
    """SQL for a field of a line, without implausible values. In a column of numbers, the texts
    "NaN", "Infinity" and "-Infinity" are numbers."""
    value = f"line.{name}"
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
    return f"list_filter({value}, one -> one IS NOT NULL)" if kind.endswith(")[]") else value


def take_back(cursor: Cursor, run_ids: Sequence[str]) -> None:
    """Removes the rows of these runs between the checkpoint and each resumption; a second call
    changes nothing.

    A resumed run starts at the checkpoint's step and repeats the later steps. Rows of these steps
    that precede the line `resumed` in the journal no longer count. The order of the lines decides,
    not the time of reading: a row and the resumption may arrive in the same tick or in different
    ticks.
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
