"""What pages ask of a store with many runs that were not asked for before."""

import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.big_store import experiment_id, make_store
from benchmarks.team_store import NUM_STEPS
from runner.folders.run_dir import DataDir
from storage import queries
from storage.comparison.comparison import compare
from storage.index.ingest import run_tick, start_watch
from storage.index.journal_rows import EVENT_TABLES, Cursor
from storage.index.store import CONFIG, Store
from storage.library.catalog import catalog
from storage.queries.latest import latest_runs
from storage.team.address import Address
from storage.team.lake import LAKE
from storage.team.store import TeamStore
from storage.team.upkeep import size, upkeep
from tests.helpers.team.postgres import Postgres

Times = tuple[float, float]
"""Seconds, and processor seconds of this process."""
NUM_VISITS = 60
AT_ONCE = 20
"""Generated experiments that are written together."""


def reading(server: Postgres, folder: Path, num_experiments: int, *, is_compared: bool) -> str:
    """The table of what pages ask; `is_compared`: also of the embedded store."""
    template = DataDir(folder / "template")
    if not template.runs.exists():
        template.runs.mkdir(parents=True)
        make_store(template, 1, NUM_STEPS)
    address = Address("postgres", server.new_database(), str(folder / f"rows-{time.time():.0f}"))
    nobody = DataDir(folder / "nobody")
    nobody.runs.mkdir(parents=True, exist_ok=True)
    with TeamStore.at(address, template) as one:
        one._connection.execute("SET memory_limit = '3GB'")
        one.ingest_all()
        one.number_of(experiment_id(0))
        begun = time.perf_counter()
        with one._lake.connection.cursor() as cursor:
            rows = generate(cursor, f"{LAKE}.", num_experiments)
        generated = time.perf_counter() - begun
        begun = time.perf_counter()
        list(upkeep(one._lake))
        kept_up = time.perf_counter() - begun
        held = size(one._lake)
    lines = [f"{rows:,} rows of {num_experiments * 6:,} runs: {held.files:,} files, "
             f"{held.bytes / 1e9:.2f} GB; generated in {generated:.0f} s, upkeep {kept_up:.0f} s",
             "", "| asked: median, p95 (of processor seconds) | team | embedded |",
             "|---|---|---|"]  # fmt: skip
    begun = time.perf_counter()
    team = TeamStore.at(address, nobody)
    opened = time.perf_counter() - begun
    ours = visits(team, num_experiments)
    team.close()
    theirs = _of_embedded(folder / "embedded", template, num_experiments) if is_compared else {}
    lines.append(f"| opening the store | {opened:.2f} s | |")
    lines += [f"| {name} | {_spread(taken)} | {_spread(theirs.get(name, []))} |"
              for name, taken in ours.items()]  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return "\n".join([*lines, "", f"(most memory of this process: {peak:.1f} GB)"])


def _of_embedded(folder: Path, template: DataDir, num_experiments: int) -> dict[str, list[Times]]:
    data_dir = DataDir(folder)
    data_dir.runs.mkdir(parents=True, exist_ok=True)
    data_dir.database_file.unlink(missing_ok=True)
    with Store.open(data_dir) as store:
        _copy_template(store, template)
        with store._connection.cursor() as cursor:
            cursor.execute("SET memory_limit = '3GB'")
            generate(cursor, "", num_experiments)
            cursor.execute("CHECKPOINT")
            cursor.execute(f"SET memory_limit = '{CONFIG['memory_limit']}'")
        return visits(store, num_experiments)


def _copy_template(store: Store, template: DataDir) -> None:
    with store._connection.cursor() as cursor:
        watch = start_watch(cursor, template.runs, None)
        while run_tick(cursor, watch, 4)[1]:
            pass


def generate(cursor: Cursor, where: str, num_experiments: int) -> int:
    """Copies experiment 1, of a database with its events in tables of its own, so often, into the
    store whose tables' names begin with `where`; returns the number of rows of events then."""
    pattern = experiment_id(0)
    filled = [table for table in EVENT_TABLES.values()
              if cursor.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()]  # fmt: skip
    cursor.execute("CREATE OR REPLACE TEMP TABLE ids (number INTEGER, id VARCHAR)")
    for table in ("runs", "progress", *filled):
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE one_{table} AS FROM {table}")
    for first in range(2, num_experiments + 1, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, num_experiments + 1))
        cursor.execute("DELETE FROM ids")
        cursor.executemany("INSERT INTO ids VALUES (?, ?)",
                           [(number, experiment_id(number)) for number in numbers])  # fmt: skip
        cursor.begin()
        run_id = f"replace(run_id, '{pattern}', id)"
        for table in filled:
            loss = ", loss * (1 + 1e-4 * number) AS loss" if table == "steps" else ""
            cursor.execute(
                f"INSERT INTO {where}{table} SELECT one.* REPLACE (number::INTEGER AS experiment, "
                f"{run_id} AS run_id{loss}) FROM one_{table} one, ids ORDER BY number"
            )
        cursor.execute(
            f"INSERT INTO {where}runs SELECT one.* REPLACE (number::INTEGER AS experiment, "
            f"{run_id} AS run_id, id AS experiment_id, "
            f"replace(spec, '{pattern}', id) AS spec) FROM one_runs one, ids"
        )
        cursor.execute(
            f"INSERT INTO {where}progress SELECT one.* REPLACE ({run_id} AS run_id, "
            f"replace(folder, '{pattern}', id) AS folder, 'generated' AS data_folder, "
            f"number + 1000000 AS revision) FROM one_progress one, ids"
        )
        cursor.execute(f"INSERT INTO {where}experiments SELECT id, number FROM ids")
        if where:
            names = ", ".join(f"('{table}')" for table in filled)
            cursor.execute(
                f"INSERT INTO {where}present SELECT number, name FROM ids, (VALUES {names}) t(name)"
            )
        cursor.commit()
        sys.stderr.write(f"\r{numbers[-1]} ")
    counts = [cursor.execute(f"SELECT count(*) FROM one_{table}").fetchall() for table in filled]
    return num_experiments * sum(int(count) for ((count,),) in counts)


def visits(store: Store, num_experiments: int) -> dict[str, list[Times]]:
    """How long pages ask, each time of an experiment that nobody asked for before."""
    count = min(NUM_VISITS * 3, num_experiments - 1)
    chosen = random.Random(5).sample(range(2, num_experiments + 1), count)
    ids = [experiment_id(number) for number in chosen]
    third = len(ids) // 3
    asked: dict[str, tuple[Callable[[str], Any], list[str]]] = {
        "Experiments: the list": (lambda one: (queries.list_experiments(store), catalog(store)),
                                  ids[:1]),
        "Compare, first visit": (lambda one: (
            compare(store, one), queries.losses(store, one), queries.step_times(store, one),
            queries.blocks(store, one)), ids[:third]),
        "Run, first visit": (lambda one: (
            queries.run_record(store, f"{one}.inductor"), queries.losses(store, one),
            queries.cumulative_times(store, one)), ids[third : 2 * third]),
        "Live, first visit": (lambda one: latest_runs(store, one), ids[2 * third : -third // 2]),
        "an experiment's events alone": (store.number_of, ids[-third // 2 :]),
    }  # fmt: skip
    asked["Compare, again"] = asked["Compare, first visit"]
    return {name: [_timed(ask, one) for one in wanted] for name, (ask, wanted) in asked.items()}


def _timed(ask: Callable[[str], Any], one: str) -> Times:
    begun, cpu = time.perf_counter(), time.process_time()
    ask(one)
    return time.perf_counter() - begun, time.process_time() - cpu


def _spread(taken: Sequence[Times]) -> str:
    """Median and 95th percentile of seconds, and in parentheses of processor seconds."""
    if len(taken) < 3:
        return "".join(f"{seconds:.2f} s ({cpu:.2f})" for seconds, cpu in taken)
    told = []
    for values in zip(*taken, strict=True):
        told.append(
            f"{statistics.median(values):.2f}, {statistics.quantiles(values, n=20)[-1]:.2f}"
        )
    return f"{told[0]} s ({told[1]})"
