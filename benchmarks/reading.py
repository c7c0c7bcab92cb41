"""How fast journals are read into the index, beside DuckDB's own `read_ndjson`.

    python -m benchmarks.reading FOLDER [--runs 180] [--steps 10000] [--times 3]

Makes a data folder in FOLDER, kept for the next time. Each time, all reads take turns in this
process, on one thread. Prints Markdown: microseconds of CPU time per line, least and most, because
other processes disturb CPU time less than time.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from benchmarks.pages_at_size import NUM_RUNS, make_store
from benchmarks.tables import markdown
from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.index.store import CONFIG, Store


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
    lines = read_anew(data_dir)
    journals = f"read_ndjson('{data_dir.runs}/*/events.jsonl')"
    reads: dict[str, Callable[[], object]] = {
        "into a new index": lambda: read_anew(data_dir),
        "CREATE TABLE ... FROM read_ndjson, in memory": lambda: asked(
            f"CREATE TABLE lines AS FROM {journals}"
        ),
        "SELECT count(*) FROM read_ndjson": lambda: asked(f"SELECT count(*) FROM {journals}"),
    }
    found: dict[str, list[float]] = {name: [] for name in reads}
    for _ in range(options.times):
        for name, read in reads.items():
            begun = time.process_time()
            read()
            found[name].append(1e6 * (time.process_time() - begun) / lines)
    rows = [{"read": name, "least": f"{min(costs):.2f}", "most": f"{max(costs):.2f}"}
            for name, costs in found.items()]  # fmt: skip
    print(markdown(rows))  # noqa: T201


def read_anew(data_dir: DataDir) -> int:
    """Reads all journals into a new database; returns the number of rows."""
    for file in data_dir.path.glob(f"{data_dir.database_file.name}*"):
        if file != data_dir.database_lock:
            file.unlink()
    with Store.open(data_dir) as store:
        return store.ingest_all()


def asked(query: str) -> object:
    with duckdb.connect(":memory:", config=CONFIG) as connection:
        return connection.execute(query).fetchall()


if __name__ == "__main__":
    main()
