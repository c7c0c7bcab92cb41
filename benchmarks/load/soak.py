"""Hours: what dashboard and supervisor hold and take while trainings come and go and readers look.

    python -m benchmarks.load.soak [--minutes 480] [--real] [--watching 2] [--visiting 3]
                                   [--runs 1002] [--records FILE.jsonl]

A supervisor works off a queue that is filled again, a dashboard serves readers over websockets.
Each half minute both are looked at; at the end a table tells how much each number grows in an hour,
by a line through all but the first quarter of an hour (or half of all), with the 95 % interval of
its slope. Looks that follow each other are alike: the interval counts as many of them as are worth
(autocorrelation of order 1).
"""

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.at_size.live import cpu_seconds, resident
from benchmarks.big_store import NUM_RUNS, added, make_store
from benchmarks.breaking.trials import small, toy
from benchmarks.breaking.world import FAKE, REAL, World
from benchmarks.load.ages import Shown, ages, summary
from benchmarks.load.logged import errors_in
from benchmarks.load.reader import reading
from benchmarks.load.readers import visit
from runner.folders import queue_order
from tests.helpers.serving import served

LOOK_SECONDS = 30.0
WARMING_HOURS, WARMING_SHARE = 0.25, 0.5
"""In which caches fill, and at most this share of the time: not part of a slope."""
WATCHED_SECONDS = 60.0
NAMES = {"memory": "memory, MB", "descriptors": "open files", "threads": "threads",
         "share": "of a core, %"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a process stands."""

    of: str
    hours: float
    memory: float
    """MB."""
    descriptors: int
    threads: int
    share: float
    """Percent of a core since the last look."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=480.0)
    parser.add_argument("--real", action="store_true", help="trainings with torch")
    parser.add_argument("--watching", type=int, default=2, help="readers of Live")
    parser.add_argument("--visiting", type=int, default=3, help="readers of other pages")
    parser.add_argument("--runs", type=int, default=1002, help="that are there already")
    parser.add_argument("--records", type=Path, help="where each look is appended")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="breakeven-soak-") as folder:
        world = World(Path(folder, "data"), REAL if options.real else FAKE)
        make_store(world.data_dir, options.runs // NUM_RUNS, 100)
        try:
            looks, readers, logged = soak(world, options)
        finally:
            world.close()
    print(table(looks))  # noqa: T201
    print(json.dumps({**readers, "logged": logged[:20], "num_logged": len(logged)}))  # noqa: T201


def soak(world: World, options: argparse.Namespace) -> tuple[list[Look], dict[str, Any], list[str]]:
    ids, until = list(added(world.data_dir)), time.monotonic() + 60 * options.minutes
    _refill(world)
    supervisor = world.supervise()
    with served(world.data_dir, supervised=False) as (address, dashboard):
        processes = {"dashboard": dashboard, "supervisor": supervisor}
        readers = asyncio.run(_readers(world, address, processes, ids, until, options))
        looks = readers.pop("looks")
    return looks, readers, errors_in(world.data_dir)


async def _readers(
    world: World, address: str, processes: dict[str, "subprocess.Popen[bytes]"], ids: list[str],
    until: float, options: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(_look(world, processes, until, options.records))
        live = [group.create_task(_watch(world, address, until)) for _ in range(options.watching)]
        visits = [group.create_task(visit(address, until, ids, number))
                  for number in range(options.visiting)]  # fmt: skip
    old = [age for task in live for age in task.result()[0]]
    pages = [took for task in visits for took in task.result()[0]]
    third = len(pages) // 3
    return {
        "looks": looking.result(), "age": summary(old), "page": summary(pages),
        "page_first_third": summary(pages[:third]), "pages": len(pages),
        "errors": [text for task in (*live, *visits) for text in task.result()[1]],
        "trainings": sum(run.is_recorded for run in world.data_dir.run_dirs()) - options.runs,
    }  # fmt: skip


async def _look(
    world: World, processes: dict[str, "subprocess.Popen[bytes]"], until: float, file: Path | None
) -> list[Look]:
    looks, begun = [], time.monotonic()
    before = {name: cpu_seconds(one.pid) for name, one in processes.items()}
    while time.monotonic() < until:
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(_refill, world)
        for name, process in processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"the {name} ended with status {process.returncode}")
            cpu = cpu_seconds(process.pid)
            look = Look(
                of=name, hours=(time.monotonic() - begun) / 3600, memory=resident(process.pid),
                descriptors=len(os.listdir(f"/proc/{process.pid}/fd")),
                threads=len(os.listdir(f"/proc/{process.pid}/task")),
                share=100 * (cpu - before[name]) / LOOK_SECONDS,
            )  # fmt: skip
            before[name] = cpu
            looks.append(look)
            if file:
                with file.open("a") as lines:
                    lines.write(json.dumps(asdict(look)) + "\n")
    return looks


def _refill(world: World) -> None:
    """So that the supervisor never leaves: one experiment takes longer than a look."""
    for _ in range(3 - len(queue_order.waiting(world.data_dir))):
        real = world.command == REAL
        world.submit(small("compile") if real else toy("slow", steps=200))


async def _watch(world: World, address: str, until: float) -> tuple[list[float], list[str]]:
    """Live, of what is at work; how late it was."""
    found: list[float] = []
    errors: list[str] = []
    while time.monotonic() < until:
        at_work = await asyncio.to_thread(queue_order.at_work, world.data_dir)
        if not at_work:
            await asyncio.sleep(0.5)
            continue
        one = at_work[0]
        async with reading(address) as reader:
            await reader.visit("live", f"experiment={one.experiment_id}")
            end = min(until, time.monotonic() + WATCHED_SECONDS)
            while time.monotonic() < end and not one.is_over:
                await asyncio.sleep(0.5)
            errors += reader.errors
        found += await asyncio.to_thread(_late, reader.seen, one.runs)
    return found, errors


def _late(seen: Sequence[Shown], runs: Sequence[Any]) -> list[float]:
    written = [run for run in runs if run.events_file.exists()]
    return ages(seen, runs, seen[-1][0]) if seen and len(written) == len(runs) else []


def table(looks: Sequence[Look]) -> str:
    """A row for each number of each process."""
    lines = ["| | number | at first | at last | most | growth an hour | 95 % interval |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for name in dict.fromkeys(one.of for one in looks):
        mine = [one for one in looks if one.of == name]
        warm = min(WARMING_HOURS, WARMING_SHARE * mine[-1].hours)
        kept = [one for one in mine if one.hours >= warm]
        hours = np.array([one.hours for one in kept])
        for field, title in NAMES.items():
            values = np.array([getattr(one, field) for one in kept], float)
            growth, half = slope(hours, values)
            lines.append(
                f"| {name} | {title} | {values[0]:.4g} | {values[-1]:.4g} | {values.max():.4g} | "
                f"{growth:.3g} | {growth - half:.3g} to {growth + half:.3g} |"
            )
    return "\n".join(lines)


def slope(hours: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Growth an hour by least squares, and half of the width of its 95 % interval; with the number
    of looks corrected for how alike residuals that follow each other are."""
    if len(hours) < 4 or np.ptp(values) == 0:
        return 0.0, 0.0 if len(hours) >= 4 else float("inf")
    line = stats.linregress(hours, values)
    residuals = values - line.intercept - line.slope * hours
    alike = float(np.corrcoef(residuals[:-1], residuals[1:])[0, 1]) if residuals.any() else 0.0
    alike = min(max(alike, 0.0), 0.99)
    worth = max(3.0, len(hours) * (1 - alike) / (1 + alike))
    wider = np.sqrt(max(1.0, (len(hours) - 2) / (worth - 2)))
    return float(line.slope), float(stats.t.ppf(0.975, worth - 2) * line.stderr * wider)


if __name__ == "__main__":
    main()
