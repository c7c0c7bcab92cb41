"""What memory the server holds while its pages are visited in turn for a long time.

    python -m benchmarks.at_size.soak FOLDER [--minutes 30]

FOLDER is a data folder as `benchmarks.big_store` makes it; into a copy of it (of links, so that it
takes no room) six more runs write ten steps a second each. One reader in Chromium opens page after
page, each of experiments that follow each other. Memory is looked at twice a second. Prints a line
a minute and, at the end, the highest of it, the share of minutes in which it was above what was
asked for, and whether it is flat: how much the medians of the minutes grew per hour by the line
through their second half, with its 95 % interval. Minutes that follow each other are alike, so the
interval counts as many of them as their autocorrelation of order 1 leaves (Santer et al. 2000, J.
Geophys. Res. 105, 7337); it holds 0 where no growth is shown.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.at_size.live import EXPERIMENT_ID, cpu_seconds, resident, written
from benchmarks.big_store import added
from benchmarks.load.soak import slope
from runner.folders.data_dir import DataDir
from tests.helpers.serving import served

RATE = 10
"""Steps a second of each run."""
PATIENCE = 60_000
ASKED = 500.0
"""MB that the server is to stay below."""
LOOK_SECONDS = 0.5
Look = tuple[float, float]
"""Minutes since the first round of pages, and MB."""
OVER = "[data-testid=stApp][data-test-script-state=notRunning]"
PAGES = (
    "?experiment={one}", "run?experiment={one}", "live?experiment={live}", "experiments", "launch",
    "difference?side={one}&side={other}", "?experiment={live}", "suites", "matrix",
    "trends", "definitions",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    arguments = parser.parse_args()
    print(json.dumps(soak(DataDir(arguments.folder), arguments.minutes)))  # noqa: T201


def soak(data_dir: DataDir, minutes: float) -> dict[str, float]:
    """What `summary` tells, the pages visited and the share of a core that the server took."""
    with tempfile.TemporaryDirectory(prefix="breakeven-soak-", dir=data_dir.path.parent) as folder:
        mine = linked(data_dir, DataDir(Path(folder)))
        with (
            written(mine, RATE, 0),
            served(mine, supervised=False) as (address, server),
        ):
            return visit(address, server.pid, list(added(data_dir)), minutes)


def linked(data_dir: DataDir, copy: DataDir) -> DataDir:
    for run in data_dir.runs.iterdir():
        (copy.runs / run.name).mkdir(parents=True)
        for file in run.iterdir():
            os.link(file, copy.runs / run.name / file.name)
    return copy


def visit(address: str, pid: int, ids: list[str], minutes: float) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        tab = chromium.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(address)  # takes all journals in
        tab.locator(OVER).wait_for(timeout=10 * PATIENCE)
        pages = enumerate(cycle(PAGES))
        for _ in PAGES:
            _open(tab, address, ids, *next(pages))
        begun, cpu, told = time.monotonic(), cpu_seconds(pid), 0
        with looking(pid) as looks:
            while (passed := (time.monotonic() - begun) / 60) < minutes:
                _open(tab, address, ids, *next(pages))
                if passed >= told + 1:
                    told += 1
                    of_minute = [size for when, size in looks if told - 1 <= when < told]
                    print(f"{told:3d} min {np.median(of_minute):6.0f} MB, at most "  # noqa: T201
                          f"{max(of_minute):.0f}", flush=True)  # fmt: skip
        share = (cpu_seconds(pid) - cpu) / (time.monotonic() - begun)
        chromium.close()
    return summary(looks) | {"pages": next(pages)[0], "share": share}


def _open(tab: Any, address: str, ids: Sequence[str], number: int, page: str) -> None:
    one, other = ids[number % len(ids)], ids[(number + 1) % len(ids)]
    tab.goto(f"{address}/{page.format(one=one, other=other, live=EXPERIMENT_ID)}")
    tab.locator(OVER).wait_for(timeout=PATIENCE)
    tab.wait_for_timeout(1000)


@contextmanager
def looking(pid: int) -> Iterator[list[Look]]:
    """What the process holds, looked at until the end."""
    looks: list[Look] = []
    is_over, begun = threading.Event(), time.monotonic()

    def look() -> None:
        while not is_over.wait(LOOK_SECONDS):
            looks.append(((time.monotonic() - begun) / 60, resident(pid)))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield looks
    finally:
        is_over.set()
        looker.join()


def summary(looks: Sequence[Look]) -> dict[str, float]:
    """MB at first, in the median and at most; the share of whole minutes in which it was above what
    was asked for at any time; growth in MB an hour, and the ends of its 95 % interval."""
    times, sizes = np.array(looks).T
    of_minutes = [sizes[times.astype(int) == minute] for minute in range(int(times[-1]))]
    medians = np.array([np.median(one) for one in of_minutes])
    late = np.arange(len(medians)) >= len(medians) / 2
    growth, half = slope(np.flatnonzero(late) / 60, medians[late])
    return {
        "start": sizes[0],
        "median": float(np.median(sizes)),
        "most": sizes.max(),
        "above": float(np.mean([one.max() > ASKED for one in of_minutes])),
        "growth": growth,
        "growth_low": growth - half,
        "growth_high": growth + half,
    }


if __name__ == "__main__":
    main()
