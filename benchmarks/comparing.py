"""How long the comparison of six runs takes, beside DuckDB's own read of their rows.

    python -m benchmarks.comparing FOLDER [--steps 10000] [--times 10]

Makes a data folder in FOLDER, kept for the next time. Compares experiments, each for the first
time, in this process, which has compared another one before. In turn with each comparison, DuckDB
reads all columns of the rows of the experiment into NumPy. Prints Markdown: median and range of the
CPU time, which other processes disturb less than time, and of the ratios.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.pages_at_size import NUM_RUNS, added, make_store
from benchmarks.tables import markdown
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store

READS = {
    "steps alone": ("steps",),
    "steps, blocks and device samples": ("steps", "blocks", "device_samples"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    num_experiments = options.times + 1
    runs = num_experiments * NUM_RUNS
    data_dir = DataDir(options.folder / f"{runs}-runs-of-{options.steps}-steps")
    if not data_dir.path.exists():
        make_store(data_dir, num_experiments, options.steps)
    with Store.open(data_dir) as store:
        store.ingest_all()
        store.write("DELETE FROM results")
        first, *others = added(data_dir)
        measured(store, first)  # loads modules
        costs = [measured(store, experiment_id) for experiment_id in others]
    comparisons = [comparison for comparison, _ in costs]
    rows = [{"": "the comparison", "ms": described(comparisons, 1e3), "times as long": ""}]
    for place, name in enumerate(READS):
        reads = [read[place] for _, read in costs]
        ratios = [total / part for total, part in zip(comparisons, reads, strict=True)]
        rows.append({"": name, "ms": described(reads, 1e3), "times as long": described(ratios)})
    print(markdown(rows))  # noqa: T201


def measured(store: Store, experiment_id: str) -> tuple[float, list[float]]:
    """Seconds of CPU time of the comparison, and of each read in `READS`."""
    number = store.number_of(experiment_id)

    def read(tables: Sequence[str]) -> None:
        for table in tables:
            store.columns(f"SELECT * FROM {table} WHERE experiment = ?", [number])

    reads = [seconds(partial(read, tables)) for tables in READS.values()]
    return seconds(lambda: compare(store, experiment_id)), reads


def seconds(act: Callable[[], object]) -> float:
    begun = time.process_time()
    act()
    return time.process_time() - begun


def described(values: Sequence[float], factor: float = 1) -> str:
    least, middle, most = (
        factor * value for value in (min(values), statistics.median(values), max(values))
    )
    return f"{middle:.0f} ({least:.0f} to {most:.0f})"


if __name__ == "__main__":
    main()
