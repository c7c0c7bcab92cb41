"""What taking in journals takes, beside what the database takes for a part of the same work.

    python -m benchmarks.at_size.taking_in FOLDER [--runs 60]

FOLDER: a data folder as `benchmarks.big_store` makes them; it is only read. Prints processor
seconds, the least of three times: those of the thread in which the database works, which nothing
can be done beside, and those of all threads.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from shutil import copytree

import duckdb

from runner.folders.data_dir import DataDir
from storage.index.journal_lines import BEGIN
from storage.index.store import CONFIG, Store

FIELDS = {"seq": "BIGINT", "step": "BIGINT", "epoch": "BIGINT", "round": "BIGINT",
          "loss": "DOUBLE", "seconds": "DOUBLE", "compiled": "BOOLEAN"}  # fmt: skip
"""Of a step, as it is written there."""
TIMES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="breakeven-") as name:
        folder = Path(name)
        for run in islice(DataDir(arguments.folder).run_dirs(), arguments.runs):
            copytree(run.path, folder / "runs" / run.path.name)
        steps = folder / "steps.ndjson"
        with steps.open("wb") as file:
            for journal in sorted(folder.glob("runs/*/events.jsonl")):
                lines = journal.read_bytes().splitlines(keepends=True)
                file.writelines(line for line in lines if line.startswith(BEGIN % b"step"))
        for title, work in {
            "DuckDB reads the steps": lambda: read(steps),
            "DuckDB reads them and inserts them": lambda: insert(steps, folder / "one.duckdb"),
            "Breakeven takes all in": lambda: take_in(DataDir(folder)),
        }.items():
            print(f"{title}: {least(work)}")  # noqa: T201


def least(work: Callable[[], int]) -> str:
    found = []
    for _ in range(TIMES):
        own, all_of_them = time.thread_time(), time.process_time()
        rows = work()
        found.append((time.thread_time() - own, time.process_time() - all_of_them))
    own, all_of_them = min(found)
    return (
        f"{rows:,} rows, {own:.2f} s ({rows / own:,.0f} a second), all threads {all_of_them:.2f} s"
    )


def source(steps: Path) -> str:
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in FIELDS.items())
    return f"read_ndjson('{steps}', columns={{{columns}}}, ignore_errors=true)"


def read(steps: Path) -> int:
    sums = ", ".join(f"sum({name}::DOUBLE)" for name in FIELDS)
    with duckdb.connect(config=CONFIG) as connection:
        row = connection.execute(f"SELECT count(*), {sums} FROM {source(steps)}").fetchone()
    assert row is not None
    return int(row[0])


def insert(steps: Path, database: Path) -> int:
    """Into a table of the same columns and one text for the run, written to the disk."""
    database.unlink(missing_ok=True)
    columns = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
    with duckdb.connect(str(database), config=CONFIG) as connection:
        connection.execute(f"CREATE TABLE steps (run_id VARCHAR, {columns})")
        query = f"INSERT INTO steps SELECT 'run', * FROM {source(steps)}"
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def take_in(data_dir: DataDir) -> int:
    for part in data_dir.path.glob("breakeven.duckdb*"):
        part.unlink()
    with Store.open(data_dir) as store:
        return store.ingest_all()


if __name__ == "__main__":
    main()
