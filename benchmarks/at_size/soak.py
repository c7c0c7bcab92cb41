"""What memory the server holds while its pages are visited in turn for a long time.

    python -m benchmarks.at_size.soak FOLDER [--minutes 30]

FOLDER is a data folder as `benchmarks.big_store` makes it; into a copy of it (of links, so that it
takes no room) six more runs write ten steps a second each. One reader in Chromium opens page after
page, each of experiments that follow each other. Prints a line a minute and, at the end, how much
the memory grew per hour by the line through the second half.
"""

import argparse
import json
import os
import tempfile
import time
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.at_size.live import EXPERIMENT_ID, cpu_seconds, resident, written
from benchmarks.big_store import added
from runner.folders.run_dir import DataDir
from tests.helpers.serving import served

RATE = 10
"""Steps a second of each run."""
PATIENCE = 60_000
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
    """Memory in MB at the start (after a first round of all pages), in the middle and at the end,
    its growth per hour, the pages visited and the share of a core that the server took."""
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

    found: list[tuple[float, float]] = []
    num_pages = 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        tab = chromium.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(address)  # takes all journals in
        tab.locator(OVER).wait_for(timeout=10 * PATIENCE)
        begun, cpu = time.monotonic(), cpu_seconds(pid)
        for number, page in enumerate(cycle(PAGES)):
            one, other = ids[number % len(ids)], ids[(number + 1) % len(ids)]
            tab.goto(f"{address}/{page.format(one=one, other=other, live=EXPERIMENT_ID)}")
            tab.locator(OVER).wait_for(timeout=PATIENCE)
            tab.wait_for_timeout(1000)
            num_pages += 1
            passed = (time.monotonic() - begun) / 60
            if number >= len(PAGES) and (not found or passed - found[-1][0] >= 1):
                found.append((passed, resident(pid)))
                print(f"{passed:5.1f} min {found[-1][1]:6.0f} MB, {num_pages} pages", flush=True)  # noqa: T201
            if passed >= minutes:
                break
        chromium.close()
    times, sizes = np.array(found).T
    late = times >= times[-1] / 2
    return {
        "start": sizes[0],
        "middle": sizes[len(sizes) // 2],
        "end": sizes[-1],
        "most": sizes.max(),
        "growth": 60 * float(np.polyfit(times[late], sizes[late], 1)[0]),
        "pages": num_pages,
        "share": (cpu_seconds(pid) - cpu) / (time.monotonic() - begun),
    }


if __name__ == "__main__":
    main()
