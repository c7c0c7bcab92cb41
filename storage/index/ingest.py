"""Ingests run folders into the database: incrementally, and every event exactly once.

A *tick* examines the folders that may have changed, reads the new lines of their journals, removes
the rows that a resumption invalidates, and commits rows and new byte offsets in one transaction.
A killed tick changes nothing; the next one reads the same bytes again.

A journal may come from an unknown source. A line that the database cannot read has no row. A field
of a wrong type is NULL, and so is an impossible count or time. Later arithmetic on all rows is
therefore safe.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from breakeven.runner.protocol.events import MAX_COUNT
from breakeven.runner.protocol.records import MAX_TIME
from breakeven.storage.index.folders import FolderScan, IndexedRun
from breakeven.storage.index.lines import Lines
from breakeven.storage.index.watch import Watch

SCHEMA = "".join(
    Path(__file__).with_name(name).read_text() for name in ("schema.sql", "steady_steps.sql")
)
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
    "cache_key": "cache_keys",
    "graph_break": "graph_breaks",
    "step": "steps",
    "block": "blocks",
    "device": "device_samples",
    "evaluation": "evaluations",
    "checkpoint": "checkpoints",
    "resumed": "resumptions",
    "gradient_statistics": "gradient_statistics",
    "value": "own_values",
    "prediction": "predictions",
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
    "investigation_trial": "investigation_trials",
    "investigation_finding": "investigation_findings",
    "error": "errors",
}
"""Kind of event to its table; the columns of the table are the fields to read."""
TAKEN_BACK = {
    "steps": "step >= resumed_step",
    "inputs": "step >= resumed_step",
    "blocks": "first_step >= resumed_step",
    "device_samples": "first_step >= resumed_step",
    "rank_blocks": "first_step >= resumed_step",
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
    # Unfinished activities of the process.
    **dict.fromkeys(("errors", "compile_starts"), "true"),
    # Ends that were not final; those of a finished training stay when it is timed further.
    **dict.fromkeys(("stops", "predictions"), "NOT only_times"),
    **dict.fromkeys(("random_numbers", "redraws", "rehearsals", "dropouts"), "NOT only_times"),
}
"""Table to the condition for rows that a resumption invalidates, among earlier journal lines."""

JSON_SHAPES = {
    "versions": "OBJECT",
    "variables": "OBJECT",
    "notes": "ARRAY",
    "buffers": "ARRAY",
    "labels": "ARRAY",
    "uncounted": "ARRAY",
    "blocks": "ARRAY",
    "devices": "ARRAY",
    "clock_reads": "ARRAY",
    "ending": "OBJECT",
}
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
        by_run = {run_id: lines[kind] for run_id, lines in journals.items() if kind in lines}
        if by_run:
            num_rows += _insert_lines(cursor, table, tables[table], by_run, numbers)
    take_back(cursor, [run_id for run_id, lines in journals.items() if "resumed" in lines])
    return num_rows


def _insert_lines(
    cursor: Cursor,
    table: str,
    columns: Columns,
    lines: Mapping[str, pa.StringArray],
    numbers: Mapping[str, int],
) -> int:
    """Inserts lines of one kind, by run. A line that lacks a required field has no row."""
    shape = json.dumps({name: kind for name, (kind, _) in columns.items()})
    fields = ", ".join(f"{_plausible(name, kind)} AS {name}" for name, (kind, _) in columns.items())
    required = [f"{name} IS NOT NULL" for name, (_, needed) in columns.items() if needed]
    # A window function first, so that the condition does not parse each line again.
    picked = " AND ".join(["row_number() OVER () > 0", *required])
    counts = [*map(len, lines.values())]
    experiments = [numbers[run_id.partition(".")[0]] for run_id in lines]
    places = np.repeat(np.arange(len(lines)), counts)
    cursor.register(
        LINES,
        pa.table(
            {
                "experiment": np.repeat(experiments, counts),
                "run_id": pa.DictionaryArray.from_arrays(places, [*lines]),
                "line": pa.chunked_array([*lines.values()]),
            }
        ),
    )
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


def _plausible(name: str, kind: str) -> str:
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
    return f"list_filter({value}, entry -> entry IS NOT NULL)" if kind.endswith(")[]") else value


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
                SELECT run_id AS resumed_run, seq AS resumed_seq, step AS resumed_step,
                    file IS NULL AND step > 0 AS only_times
                FROM resumptions WHERE run_id IN (SELECT unnest(?)))
            WHERE run_id = resumed_run AND seq < resumed_seq AND {condition}""",
            [list(run_ids)],
        )


REVISIONS = "revisions"
"""The sequence that numbers the writes of the embedded database."""


def run_tick(cursor: Cursor, watch: Watch) -> tuple[int, bool]:
    """Runs one tick; returns the number of new event rows and whether bytes remain."""
    seen = watch.look()
    is_new = watch.is_news(seen)
    num_rows = _commit(cursor, seen, watch.changed(seen)) if is_new else 0
    watch.taken_in(seen, is_new=is_new)
    return num_rows, bool(seen.behind)


def start_watch(cursor: Cursor, runs: Path, examples: Path | None, data_folder: str = "") -> Watch:
    """A watch over run folders that starts with the state in the database."""
    known = known_progress(cursor, "data_folder = ?", data_folder)
    query = "SELECT folder, message FROM unreadable WHERE data_folder = ?"
    rows = cursor.execute(query, [data_folder]).fetchall()
    unreadable = {Path(folder).name: (folder, why) for folder, why in rows}
    # Modification times of the labels in the database, in nanoseconds.
    labels = dict(cursor.execute("SELECT run_id, stamp FROM labels").fetchall())
    own_labels = {run_id: stamp for run_id, stamp in labels.items() if run_id in known}
    return Watch(runs, examples, known, unreadable, own_labels)


def known_progress(cursor: Cursor, condition: str, *parameters: object) -> dict[str, IndexedRun]:
    """The stored progress of runs, by their ids."""
    names = [field.name for field in fields(IndexedRun)]
    query = f"SELECT {', '.join(names)} FROM progress WHERE {condition}"
    rows = cursor.execute(query, parameters).fetchall()
    return {row[0]: IndexedRun(**dict(zip(names, row, strict=True))) for row in rows}


def _commit(cursor: Cursor, seen: FolderScan, changed: list[IndexedRun]) -> int:
    with transaction(cursor):
        row = cursor.execute(f"SELECT nextval('{REVISIONS}')").fetchone()
        assert row is not None
        numbers = add_numbers(cursor, experiments_of(seen))
        write_runs(cursor, seen, changed, numbers, int(row[0]))
        return insert_events(cursor, seen.events, numbers)


@contextmanager
def transaction(cursor: Cursor) -> Iterator[None]:
    """Runs the body as one transaction: all of its changes count, or none."""
    cursor.begin()
    try:
        yield
        cursor.commit()
    except BaseException:
        with suppress(duckdb.Error):  # A failed commit has already rolled back.
            cursor.rollback()
        raise


def write_runs(
    cursor: Cursor,
    seen: FolderScan,
    changed: list[IndexedRun],
    numbers: Mapping[str, int],
    revision: int,
    data_folder: str = "",
) -> None:
    """Writes all results of a look except events; `revision`: the number of the write."""
    removed = [*seen.gone, *seen.restarted]
    if removed:
        for table in EVENT_TABLES.values():
            _delete(cursor, table, removed)
    _delete(cursor, "runs", seen.gone)
    _insert(
        cursor,
        "runs",
        [{**row, "experiment": numbers[row["experiment_id"]]} for row in seen.new_runs],
    )
    _delete(cursor, "progress", [*seen.gone, *(row.run_id for row in changed)])
    noted = {"revision": revision, "data_folder": data_folder}
    _insert(cursor, "progress", [{**vars(row), **noted} for row in changed])
    cursor.execute("DELETE FROM unreadable WHERE data_folder = ?", [data_folder])
    rows = [
        {"folder": folder, "message": why, "data_folder": data_folder}
        for folder, why in seen.unreadable.values()
    ]
    _insert(cursor, "unreadable", rows)
    _delete(cursor, "labels", [*seen.gone, *seen.labels])
    labels = [
        (run_id, *stamp_and_content)
        for run_id, stamp_and_content in seen.labels.items()
        if stamp_and_content is not None
    ]
    _insert(
        cursor,
        "labels",
        [
            {"run_id": run_id, "stamp": stamp, "content": content, "revision": revision}
            for run_id, stamp, content in labels
        ],
    )


def experiments_of(seen: FolderScan) -> set[str]:
    """The ids of experiments with new runs or events."""
    ids = {str(row["experiment_id"]) for row in seen.new_runs}
    return ids | {run_id.partition(".")[0] for run_id in seen.events}


def add_numbers(cursor: Cursor, ids: Collection[str]) -> dict[str, int]:
    """The numbers of experiments; assigns numbers to new ones."""
    if not ids:
        return {}
    cursor.execute(
        """INSERT INTO experiments
        SELECT experiment_id, row_number() OVER (ORDER BY experiment_id)
            + (SELECT coalesce(max(experiment), 0) FROM experiments)
        FROM (SELECT unnest(?) AS experiment_id EXCEPT SELECT experiment_id FROM experiments)""",
        [sorted(ids)],
    )
    query = "SELECT * FROM experiments WHERE experiment_id IN (SELECT unnest(?))"
    return dict(cursor.execute(query, [sorted(ids)]).fetchall())


def _delete(cursor: Cursor, table: str, run_ids: list[str]) -> None:
    if run_ids:
        cursor.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT unnest(?))", [run_ids])


def _insert(cursor: Cursor, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    frame = pd.DataFrame(
        [{name: _storable(value) for name, value in row.items()} for row in rows], dtype=object
    )
    if not frame.empty:
        cursor.register("new_rows", frame)
        cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM new_rows")
        cursor.unregister("new_rows")


def _storable(value: Any) -> Any:
    """Makes texts valid Unicode: DuckDB fails completely on an invalid text, and then refuses all
    further queries."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
