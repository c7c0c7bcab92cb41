"""How fast journals are read into the index, beside DuckDB's own `read_ndjson`.

    python -m benchmarks.reading FOLDER [--runs 180] [--steps 10000] [--times 3]

Makes a data folder in FOLDER, kept for the next time. Each time, all reads take turns in this
process, on one thread and with the same settings of DuckDB. Prints Markdown: seconds of wall time
and of CPU time, median and range, and the median of the ratios to the index within each turn.
Other processes disturb CPU time less than wall time.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from benchmarks.pages_at_size import NUM_RUNS, make_store
from benchmarks.tables import markdown
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.index.ingest import event_columns
from breakeven.storage.index.store import CONFIG, Store

INDEX = "all journals into a new index"
TABLES = ("steps", "blocks", "device_samples")
"""Tables that have nearly all rows: a table with their columns has all that the index stores."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=180)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    data_dir = DataDir(options.folder / f"{options.runs}-runs-of-{options.steps}-steps")
    if not data_dir.path.exists():
        make_store(data_dir, options.runs // NUM_RUNS, options.steps)
    columns = {name: kind for table in TABLES for name, (kind, _) in event_columns()[table].items()}
    listed = ", ".join(
        f"{name}: '{kind}'" for name, kind in ({"kind": "VARCHAR"} | columns).items()
    )
    journals = f"'{data_dir.runs}/*/events.jsonl'"
    typed = f"CREATE TABLE lines AS FROM read_ndjson({journals}, columns={{{listed}}})"
    reads: dict[str, Callable[[], object]] = {
        INDEX: lambda: read_anew(data_dir),
        "CREATE TABLE ... AS FROM read_ndjson(..., columns=...)": lambda: result_of(
            data_dir, typed
        ),
        "CREATE TABLE ... AS FROM read_ndjson(...), types found by DuckDB": lambda: result_of(
            data_dir, f"CREATE TABLE lines AS FROM read_ndjson({journals})"
        ),
        "SELECT count(*) FROM read_ndjson(...), which stores nothing": lambda: result_of(
            data_dir, f"SELECT count(*) FROM read_ndjson({journals})"
        ),
    }
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in reads}
    for _ in range(options.times):
        for name, read in reads.items():
            begun = time.perf_counter(), time.process_time()
            read()
            costs[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    rows = [
        {"read": name, **{kind: described(costs, name, place) for place, kind in enumerate(KINDS)}}
        for name in reads
    ]
    print(markdown(rows))  # noqa: T201


KINDS = ("wall time, s; of the index's", "CPU time, s; of the index's")


def described(costs: dict[str, list[tuple[float, float]]], name: str, place: int) -> str:
    """The median with its range, and the median ratio to the index, turn by turn."""
    seconds = [cost[place] for cost in costs[name]]
    ratios = [own / cost[place] for own, cost in zip(seconds, costs[INDEX], strict=True)]
    middle = statistics.median(seconds)
    spread = f"{middle:.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
    return spread if name == INDEX else f"{spread}; {statistics.median(ratios):.2f}"


def read_anew(data_dir: DataDir) -> int:
    """Reads all journals into a new database; returns the number of rows."""
    for file in data_dir.path.glob(f"{data_dir.database_file.name}*"):
        if file != data_dir.database_lock:
            file.unlink()
    with Store.open(data_dir) as store:
        return store.ingest_all()


def result_of(data_dir: DataDir, query: str) -> object:
    """Asks a new database on the disk of the data folder."""
    file = data_dir.path / "beside.duckdb"
    file.unlink(missing_ok=True)
    try:
        with duckdb.connect(str(file), config=CONFIG) as connection:
            return connection.execute(query).fetchall()
    finally:
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
