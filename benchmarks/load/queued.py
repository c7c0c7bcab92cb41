"""A thousand runs that wait: what queueing one more takes, what the supervisor takes beside its
work, how soon the next experiment begins, and what the page with the queue takes."""

import asyncio
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.at_size.live import cpu_seconds
from benchmarks.breaking.world import FAKE, World
from benchmarks.load.logged import errors_in
from benchmarks.load.reader import reading
from runner.folders.data_dir import DataDir
from runner.folders.queue import cancel, find_experiment, submit
from runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from tests.helpers.serving import served

LABELS = ("one", "two", "three", "four")
RUNS_EACH = 1 + len(LABELS)
WATCHED_SECONDS = 15.0
LONG_STEPS = 600
"""Of a tenth of a second each: longer than all that is watched beside it."""
WORKED_OFF = 6
VISITS = 6


def spec(steps: int, *backends: str) -> ExperimentSpec:
    """Of runs that train nothing: two milliseconds a step, with `slow` a hundred."""
    return ExperimentSpec(name="queued", backends=backends, controls=0,
                          data=DataSpec(num_train_samples=steps),
                          training=TrainingSpec(batch_size=1))  # fmt: skip


def measure(folder: Path, num_runs: int) -> dict[str, Any]:
    """The same with nothing that waits and with so many runs; seconds, and shares of a core."""
    return {
        "nothing waits": _with_waiting(folder / "few", 0),
        f"{num_runs:,} runs wait": _with_waiting(folder / "many", num_runs // RUNS_EACH),
    }


def _with_waiting(folder: Path, num_waiting: int) -> dict[str, Any]:
    world = World(folder, FAKE)
    try:
        long_id = submit(world.data_dir, spec(LONG_STEPS, "slow"))
        supervisor = world.supervise()
        taking = []
        for _ in range(num_waiting + WORKED_OFF):
            begun = time.monotonic()
            submit(world.data_dir, spec(20, *LABELS))
            taking.append(time.monotonic() - begun)
        share = _share(supervisor.pid)
        with served(world.data_dir, supervised=False) as (address, server):
            page = asyncio.run(_pages(address, server.pid))
            cancel(find_experiment(world.data_dir, long_id))
            world.wait(lambda: _num_over(world.data_dir) >= 2, "the end of what was at work")
            begun = time.monotonic()
            enough = 2 + WORKED_OFF * RUNS_EACH
            world.wait(lambda: _num_over(world.data_dir) >= enough, "experiments")
            each = (time.monotonic() - begun) / WORKED_OFF
        return {
            "submit": median(taking[-WORKED_OFF:]),
            "supervisor_share": share,
            "seconds_an_experiment": each,
            **page,
            "logged": errors_in(world.data_dir),
        }
    finally:
        world.close()


def _share(pid: int) -> float:
    time.sleep(2.0)
    cpu, begun = cpu_seconds(pid), time.monotonic()
    time.sleep(WATCHED_SECONDS)
    return (cpu_seconds(pid) - cpu) / (time.monotonic() - begun)


async def _pages(address: str, pid: int) -> dict[str, float]:
    """The page that shows the queue: its first visit, the next ones, and what of a core it takes
    the server while somebody watches."""
    async with reading(address) as reader:
        first = await reader.visit("live")
        again = [await reader.visit("live") for _ in range(VISITS)]
        cpu, begun = cpu_seconds(pid), time.monotonic()
        await asyncio.sleep(WATCHED_SECONDS)
        passed = time.monotonic() - begun
        return {
            "page_first": first,
            "page_again": median(again),
            "dashboard_share": (cpu_seconds(pid) - cpu) / passed,
            "errors": len(reader.errors),
        }


def _num_over(data_dir: DataDir) -> int:
    return sum(run.is_recorded for run in data_dir.run_dirs())
