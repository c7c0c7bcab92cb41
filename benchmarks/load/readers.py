"""Thirty readers, ten of them on Live, one in Chromium, of a thousand runs; six are training."""

import asyncio
import random
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.at_size.live import BACKENDS, EXPERIMENT_ID, cpu_seconds, resident, written
from benchmarks.big_store import NUM_RUNS, added, make_store
from benchmarks.load import chromium
from benchmarks.load.ages import ages, summary
from benchmarks.load.logged import errors_in
from benchmarks.load.reader import Reader, reading
from runner.folders.data_dir import DataDir
from tests.helpers.journals import experiment_spec
from tests.helpers.serving import served

RATE = 100
"""Steps a second of each of the six runs."""
READING_SECONDS = 8.0
"""From a page to the next one, on the average."""
SETTLING_SECONDS = 5.0
PAGES = (
    ("", "experiment={one}"), ("run", "experiment={one}"), ("experiments", ""), ("launch", ""),
    ("difference", "experiments={one}&experiments={other}"), ("trends", ""), ("suites", ""),
)  # fmt: skip


def measure(
    folder: Path, watching: int, visiting: int, seconds: float, runs: int
) -> dict[str, Any]:
    """Pages and data of one reader of each kind alone, and then of all of them."""
    data_dir = DataDir(folder)
    make_store(data_dir, runs // NUM_RUNS, 100)
    ids = list(added(data_dir))
    with written(data_dir, RATE, 0), served(data_dir, supervised=False) as (address, server):
        found = {}
        for name, counts in (("alone", (1, 1)), ("all", (watching, visiting))):
            cpu, begun = cpu_seconds(server.pid), time.monotonic()
            found[name] = asyncio.run(_load(data_dir, address, *counts, seconds, ids))
            found[name]["share"] = (cpu_seconds(server.pid) - cpu) / (time.monotonic() - begun)
            found[name]["memory"] = resident(server.pid)
    return {**found, "logged": errors_in(data_dir)}


async def _load(
    data_dir: DataDir, address: str, watching: int, visiting: int, seconds: float, ids: list[str]
) -> dict[str, Any]:
    until = time.monotonic() + SETTLING_SECONDS + seconds
    async with asyncio.TaskGroup() as group:
        live = [group.create_task(_watch(address, until)) for _ in range(watching)]
        visits = [group.create_task(visit(address, until, ids, number))
                  for number in range(visiting)]  # fmt: skip
        browser = group.create_task(asyncio.to_thread(chromium.visits, address, until, ids))
    spec = experiment_spec(10, 10, backends=BACKENDS)
    runs = [data_dir.run_dir(f"{EXPERIMENT_ID}.{one.label}") for one in spec.variants]
    seen = [task.result()[0] for task in live]
    ended = max(moment for one in seen for moment, _ in one)
    old = [age for one in seen for age in ages(_settled(one), runs, ended)]
    pages = [took for task in visits for took in task.result()[0]]
    in_chromium, complaints = browser.result()
    problems = [text for task in (*live, *visits) for text in task.result()[1]] + complaints
    return {
        "age": summary(old),
        "page": summary(pages),
        "pages": len(pages),
        "in_chromium": summary(in_chromium),
        "errors": problems,
    }


def _settled(seen: list[tuple[float, list[int]]]) -> list[tuple[float, list[int]]]:
    return [one for one in seen if one[0] > seen[0][0] + SETTLING_SECONDS]


async def _watch(address: str, until: float) -> tuple[list[tuple[float, list[int]]], list[str]]:
    async with reading(address) as reader:
        await reader.visit("live", f"experiment={EXPERIMENT_ID}")
        await asyncio.sleep(until - time.monotonic())
        return reader.seen, reader.errors


async def visit(
    address: str, until: float, ids: list[str], number: int
) -> tuple[list[float], list[str]]:
    """Page after page, each of experiments that this reader alone opens, from another page on than
    the readers beside; the first of a session, which everything is imported for, does not count."""
    chance = random.Random(number)
    mine = cycle(ids[number::30] or ids)
    times = []
    async with reading(address) as reader:
        await asyncio.sleep(chance.uniform(0, READING_SECONDS))
        for page, query in islice(cycle(PAGES), number % len(PAGES), None):
            took = await _ask(reader, page, query.format(one=next(mine), other=next(mine)))
            times.append(took)
            pause = chance.uniform(0.5, 1.5) * READING_SECONDS
            if time.monotonic() + pause > until:
                return times[1:], reader.errors
            await asyncio.sleep(pause)
    raise AssertionError("pages do not end")


async def _ask(reader: Reader, page: str, query: str) -> float:
    try:
        return await reader.visit(page, query)
    except TimeoutError:
        reader.errors.append(f"{page}?{query} did not come")
        return float("inf")
