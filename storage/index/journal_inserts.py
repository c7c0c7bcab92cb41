"""Inserts lines of journals into the tables of their kinds, and believes of them what can be.

A journal may come from anywhere. A line that the database cannot read has no row, a field of
another type than its column is NULL, and so is a number that no run could have counted or a time
that no calendar holds: further on, arithmetic on every row is safe.
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
"""Kind of event to its table, whose columns name the fields to read."""
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

JSON_SHAPES = {"versions": "OBJECT", "variables": "OBJECT", "notes": "ARRAY", "labels": "ARRAY",
               "uncounted": "ARRAY", "devices": "ARRAY", "ending": "OBJECT"}  # fmt: skip
"""Fields that are kept as JSON, and what they must be."""
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
LINES = "new_lines"

Cursor = duckdb.DuckDBPyConnection
Columns = dict[str, tuple[str, bool]]
"""Name to type and whether a value is required."""


def insert_events(cursor: Cursor, journals: Mapping[str, Lines], numbers: Mapping[str, int]) -> int:
    """Inserts new lines, by run, and removes what resumptions take back; returns the number of new
    rows. `numbers`: of the experiments."""
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
    # After a window, so that what picks the rows is not computed from each line once more.
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
    """SQL of a field of a line as far as it is believed. The texts "NaN", "Infinity" and
    "-Infinity" are numbers in a column of numbers."""
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
