"""What a team's store takes, beside the embedded one on the same work; makes the tables of
docs/team-store.md.

    python -m benchmarks.team_store --folder FOLDER [--writers 8] [--experiments 1667]

Starts a PostgreSQL server of its own; FOLDER keeps what was generated: about 10 GB for 1,667
experiments of six runs and 10,000 steps. Writing: as many processes as `--writers`, each with
run folders of its own. Reading: a store of `--experiments`, and what pages ask of some of them that
were not asked for before.
"""

import argparse
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.big_store import experiment_id, make_store
from runner.folders.run_dir import DataDir
from storage import queries
from storage.comparison.comparison import compare
from storage.index.journal_rows import EVENT_TABLES, Cursor
from storage.index.store import CONFIG, Store
from storage.library.catalog import catalog
from storage.queries.latest import latest_runs
from storage.team.address import Address
from storage.team.lake import LAKE, Lake
from storage.team.store import TeamStore
from storage.team.upkeep import size, upkeep
from tests.helpers.team.postgres import Postgres, postgres_server

NUM_STEPS = 10_000
NUM_VISITS = 60
PER_WRITER = 4
"""Experiments of a writer."""
AT_ONCE = 20
"""Generated experiments that are written together."""
FEEDING = """
import sys, time, resource
from pathlib import Path
from runner.folders.run_dir import DataDir
from storage.team.address import Address
from storage.team.feed import Feed
from storage.team.lake import LAKE, Lake

held = 0.0
class Timed(Lake):
    def _alone(self):
        return Held(super()._alone())

class Held:
    def __init__(self, lock): self.lock = lock
    def __enter__(self):
        self.lock.__enter__(); self.since = time.perf_counter()
    def __exit__(self, *error):
        global held
        held += time.perf_counter() - self.since
        return self.lock.__exit__(*error)

lake = Timed(Address("postgres", sys.argv[1], sys.argv[2]))
feed = Feed(lake, DataDir(Path(sys.argv[3])), None)
held = 0.0
print("ready", flush=True); sys.stdin.readline()
before = resource.getrusage(resource.RUSAGE_SELF)
rows, behind = 0, True
while behind:
    new, behind = feed.tick(4)
    rows += new
used = resource.getrusage(resource.RUSAGE_SELF)
print(rows, held, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, flush=True)
"""
"""A writer: number of rows, seconds for which it kept the others out, processor seconds."""
ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--experiments", type=int, default=1667)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with postgres_server() as server:
        _say(writing(server, options.folder / "writing", options.writers))
        _say(reading(server, options.folder / "reading", options.experiments))


def writing(server: Postgres, folder: Path, num_writers: int) -> str:
    """The table of those who write at once."""
    sources = [DataDir(folder / f"machine{number}") for number in range(num_writers)]
    for number, source in enumerate(sources):
        if not source.runs.exists():
            source.runs.mkdir(parents=True)
            make_store(source, PER_WRITER, NUM_STEPS, number * PER_WRITER)
    lines = ["| writers | rows | seconds | rows/s in sum | processor s per million rows | "
             "alone with the store, s per million rows |", "|---|---|---|---|---|---|"]  # fmt: skip
    with _embedded(folder / "all", sources) as data_dir, Store.open(data_dir) as store:
        begun, cpu = time.perf_counter(), time.process_time()
        rows = store.ingest_all()
        taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
        lines.append(_row("the embedded store", rows, taken, cpu, None))
    for count in sorted({1, num_writers}):
        address = Address("postgres", server.new_database(), str(folder / f"rows{count}"))
        Lake(address).close()
        rows, taken, held, cpu = _write(address, sources[:count])
        lines.append(_row(str(count), rows, taken, cpu, held))
    return "\n".join(lines)


def _write(address: Address, sources: Sequence[DataDir]) -> tuple[int, float, float, float]:
    command = [sys.executable, "-c", FEEDING, address.place, str(address.data)]
    writers = [subprocess.Popen([*command, str(source.path)], cwd=ROOT, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
               for source in sources]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    begun = time.perf_counter()
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    told = [writer.communicate()[0].split() for writer in writers]
    taken = time.perf_counter() - begun
    return (sum(int(one[0]) for one in told), taken,
            sum(float(one[1]) for one in told), sum(float(one[2]) for one in told))  # fmt: skip


def _row(name: str, rows: int, taken: float, cpu: float, held: float | None) -> str:
    per = 1e6 / rows
    alone = "" if held is None else f"{held * per:.2f}"
    return (f"| {name} | {rows:,} | {taken:.1f} | {rows / taken:,.0f} | {cpu * per:.1f} | "
            f"{alone} |")  # fmt: skip


@contextmanager
def _embedded(folder: Path, sources: Sequence[DataDir]) -> Any:
    """A data folder with all runs, and no database yet."""
    data_dir = DataDir(folder)
    data_dir.runs.mkdir(parents=True, exist_ok=True)
    for source in sources:
        for run in source.run_dirs():
            link = data_dir.runs / run.run_id
            if not link.exists():
                link.symlink_to(run.path)
    data_dir.database_file.unlink(missing_ok=True)
    yield data_dir


def reading(server: Postgres, folder: Path, num_experiments: int) -> str:
    """The table of what pages ask."""
    template = DataDir(folder / "template")
    if not template.runs.exists():
        template.runs.mkdir(parents=True)
        make_store(template, 1, NUM_STEPS)
    address = Address("postgres", server.new_database(), str(folder / f"rows-{time.time():.0f}"))
    nobody = DataDir(folder / "nobody")
    nobody.runs.mkdir(parents=True, exist_ok=True)
    embedded_dir = DataDir(folder / "embedded")
    embedded_dir.runs.mkdir(parents=True, exist_ok=True)
    embedded_dir.database_file.unlink(missing_ok=True)
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
             "", "| asked | team: median, p95, longest | embedded: median, p95, longest |",
             "|---|---|---|"]  # fmt: skip
    begun = time.perf_counter()
    team = TeamStore.at(address, nobody)
    opened = time.perf_counter() - begun
    ours = visits(team, num_experiments)
    team.close()
    with Store.open(embedded_dir) as store:
        _copy_template(store, template)
        with store._connection.cursor() as cursor:
            cursor.execute("SET memory_limit = '3GB'")
            generate(cursor, "", num_experiments)
            cursor.execute(f"SET memory_limit = '{CONFIG['memory_limit']}'")
        theirs = visits(store, num_experiments)
    lines.append(f"| opening the store | {opened:.2f} s | |")
    lines += [f"| {name} | {_spread(taken)} | {_spread(theirs[name])} |"
              for name, taken in ours.items()]  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return "\n".join([*lines, "", f"(most memory of this process: {peak:.1f} GB)"])


def _copy_template(store: Store, template: DataDir) -> None:
    from storage.index.ingest import run_tick, start_watch

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


def visits(store: Store, num_experiments: int) -> dict[str, list[float]]:
    """Seconds that pages ask for, each time of an experiment that nobody asked for before."""
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
        "Live, first visit": (lambda one: latest_runs(store, one), ids[2 * third :]),
    }  # fmt: skip
    asked["Compare, again"] = asked["Compare, first visit"]
    return {name: [_timed(ask, one) for one in wanted] for name, (ask, wanted) in asked.items()}


def _timed(ask: Callable[[str], Any], one: str) -> float:
    begun = time.perf_counter()
    ask(one)
    return time.perf_counter() - begun


def _spread(taken: Sequence[float]) -> str:
    if len(taken) < 3:
        return f"{taken[0]:.2f} s"
    p95 = statistics.quantiles(taken, n=20)[-1]
    return f"{statistics.median(taken):.2f}, {p95:.2f}, {max(taken):.2f} s"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
