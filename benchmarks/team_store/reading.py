"""What pages ask of a store with many runs that were not asked for before."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.big_store import experiment_id
from benchmarks.team_store.making import DATABASE, embedded_store, team_store
from runner.folders.data_dir import DataDir
from storage import queries
from storage.comparison.comparison import compare
from storage.index.store import Store
from storage.library.catalog import catalog
from storage.queries.latest import latest_runs
from storage.team.results import TABLE
from storage.team.store import TeamStore

Times = tuple[float, float]
"""Seconds, and processor seconds of this process."""
NUM_VISITS = 60


def reading(folder: Path, num_experiments: int, which: Sequence[str]) -> str:
    """The table of what pages ask, of the stores of `which`, `STORES` or some of them."""
    lines = [
        f"{num_experiments * 6:,} runs; seconds, and of processor", "",
        f"| asked: median, p95, longest | {' | '.join(which)} |", "|---" * (len(which) + 1) + "|",
    ]  # fmt: skip
    taken = {name: STORES[name](folder, num_experiments) for name in which}
    for asked in taken[which[0]]:
        lines.append(f"| {asked} | {' | '.join(_spread(taken[name][asked]) for name in which)} |")
    return "\n".join(lines)


def _of_team(folder: Path, num_experiments: int) -> dict[str, list[Times]]:
    nobody = DataDir(folder / "nobody")
    nobody.runs.mkdir(parents=True, exist_ok=True)
    server, address = team_store(folder, num_experiments)
    forget = f"DROP TABLE IF EXISTS {TABLE}"  # What an earlier measurement had computed.
    server.client("psql", "-q", "-d", DATABASE, "-c", forget)
    try:
        return _opened_twice(lambda: TeamStore.at(address, nobody), num_experiments)
    finally:
        server.stop()


def _of_embedded(folder: Path, num_experiments: int) -> dict[str, list[Times]]:
    data_dir = embedded_store(folder, num_experiments)
    with Store.open(data_dir) as store:
        store.write("DELETE FROM results")
    return _opened_twice(lambda: Store.open(data_dir), num_experiments)


def _opened_twice(open_store: Callable[[], Store], num_experiments: int) -> dict[str, list[Times]]:
    """What a process takes for which all is new, and what one for which another has compared."""
    opening = _timed(lambda _: open_store().close(), "")
    with open_store() as store:
        taken = {"opening the store": [opening]} | visits(store, num_experiments)
    with open_store() as store:
        name, (ask, ids) = next(iter(_compare_visits(store, num_experiments).items()))
        return taken | {f"{name}, compared before": [_timed(ask, one) for one in ids]}


STORES = {"team": _of_team, "embedded": _of_embedded}


Visits = dict[str, tuple[Callable[[str], Any], list[str]]]
"""What is asked, and of which experiments."""


def _compare_visits(store: Store, num_experiments: int) -> Visits:
    ids = _chosen(num_experiments)
    return {"Compare, first visit": (lambda one: (
        compare(store, one), queries.losses(store, one), queries.step_times(store, one),
        queries.blocks(store, one)), ids[: len(ids) // 3])}  # fmt: skip


def visits(store: Store, num_experiments: int) -> dict[str, list[Times]]:
    """How long pages ask, each time of an experiment that nobody asked for before."""
    ids = _chosen(num_experiments)
    third = len(ids) // 3
    comparing = _compare_visits(store, num_experiments)
    asked: Visits = {
        "Experiments: the list": (lambda one: (queries.list_experiments(store), catalog(store)),
                                  ids[:1]),
        **comparing,
        "Run, first visit": (lambda one: (
            queries.run_record(store, f"{one}.inductor"), queries.losses(store, one),
            queries.cumulative_times(store, one)), ids[third : 2 * third]),
        "Live, first visit": (lambda one: latest_runs(store, one), ids[2 * third : -third // 2]),
        "an experiment's events alone": (store.number_of, ids[-third // 2 :]),
        "Compare, again": comparing["Compare, first visit"],
    }  # fmt: skip
    return {name: [_timed(ask, one) for one in wanted] for name, (ask, wanted) in asked.items()}


def _chosen(num_experiments: int) -> list[str]:
    count = min(NUM_VISITS * 3, num_experiments - 1)
    chosen = random.Random(5).sample(range(2, num_experiments + 1), count)
    return [experiment_id(number) for number in chosen]


def _timed(ask: Callable[[str], Any], one: str) -> Times:
    begun, cpu = time.perf_counter(), time.process_time()
    ask(one)
    return time.perf_counter() - begun, time.process_time() - cpu


def _spread(taken: Sequence[Times]) -> str:
    """Median, 95th percentile and longest of seconds, and in parentheses of processor seconds."""
    if len(taken) < 3:
        return "".join(f"{seconds:.2f} s ({cpu:.2f})" for seconds, cpu in taken)
    told = []
    for values in zip(*taken, strict=True):
        spread = (statistics.median(values), statistics.quantiles(values, n=20)[-1], max(values))
        told.append(", ".join(f"{value:.2f}" for value in spread))
    return f"{told[0]} s ({told[1]})"
