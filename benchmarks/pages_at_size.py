"""How long the server takes for each page, with few and with many runs in the data folder.

    python -m benchmarks.pages_at_size FOLDER [--runs 12 1002] [--steps 10000]

Makes the data folders in FOLDER (kept for the next time) and prints Markdown: milliseconds of the
first visit of an experiment (median of five) and of later visits (95th percentile), and the memory
of the process that drew all pages. Removes all stored results before, so a first visit also
compares the experiment. Compare ratios within one table: times depend on the machine.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.big_store import NUM_RUNS, added, make_store
from benchmarks.tables import markdown
from breakeven.runner.folders.data_dir import DataDir

PAGES = ("experiment", "experiments", "launch", "machine")
OF_EXPERIMENT = ("experiment",)
VISITED = 6
"""Experiments whose pages are opened; the first visit loads modules and is not timed."""
LATER_VISITS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, nargs="*", default=[12, 1002])
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    found = {runs: of_size(options.folder, runs, options.steps) for runs in options.runs}
    rows = [{"": name, **{f"{runs:,} runs": f"{one[name]:.0f}" for runs, one in found.items()}}
            for name in next(iter(found.values()))]  # fmt: skip
    print(markdown(rows))  # noqa: T201


def of_size(parent: Path, runs: int, steps: int) -> dict[str, float]:
    """Makes the data folder if it is missing, and measures in a process that has loaded nothing."""
    data_dir = DataDir(parent / f"{runs}-runs-of-{steps}-steps")
    before = len(list(added(data_dir)))
    make_store(data_dir, runs // NUM_RUNS - before, steps, before)
    with get_context("spawn").Pool(1) as process:
        return process.apply(measured, [data_dir])


def measured(data_dir: DataDir) -> dict[str, float]:
    """Milliseconds by page, and megabytes."""
    from breakeven.storage.index.store import Store
    from tests.helpers.pages import opened

    os.environ["BREAKEVEN_DATA"] = str(data_dir.path)
    with Store.open(data_dir) as store:
        store.ingest_all()
        store.write("DELETE FROM results")
    ids = list(added(data_dir))[-VISITED:]
    found: dict[str, float] = {}
    for page in PAGES:
        queries: Sequence[dict[str, Any]] = [{}] * 3
        if page in OF_EXPERIMENT:
            queries = [{"experiment": one} for one in ids]
        opened(page, **queries[0])
        first, again = [], []
        for query in queries[1:]:
            begun = time.perf_counter()
            app = opened(page, **query)
            first.append(1e3 * (time.perf_counter() - begun))
            again += [milliseconds(app.run) for _ in range(LATER_VISITS)]
        found[f"{page}, first visit"] = statistics.median(first)
        found[f"{page}, again"] = sorted(again)[int(0.95 * len(again))]
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return found | {"memory of the process, MB": int(resident.split()[1]) / 1e3}


def milliseconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return 1e3 * (time.perf_counter() - begun)


if __name__ == "__main__":
    main()
