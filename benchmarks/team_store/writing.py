"""Many who write at once."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.big_store import make_store
from benchmarks.team_store import NUM_STEPS
from benchmarks.team_store.committing import Work, commits_alone, work_of
from runner.folders.data_dir import DataDir
from storage.index.store import Store
from storage.team.address import Address
from storage.team.lake import Lake
from tests.helpers.serving import ROOT
from tests.helpers.team.postgres import Postgres

PER_WRITER = 4
"""Experiments of a writer."""
STATISTICS_SECONDS = 2
"""Until PostgreSQL has counted what was done."""
LIMITS = (
    "| writers | writes | ms alone with the store, each | asked of PostgreSQL by each | "
    "PostgreSQL by itself, ms | writes/s | rows/s that would be |"
)
FEEDING = """
import sys, time, resource
from pathlib import Path
from runner.folders.data_dir import DataDir
from storage.team.address import Address
from storage.team.feed import Feed
from storage.team.lake import LAKE, Lake

held, writes = 0.0, 0
class Timed(Lake):
    def _alone(self):
        return Held(super()._alone())

class Held:
    def __init__(self, lock): self.lock = lock
    def __enter__(self):
        global writes
        self.lock.__enter__(); self.since = time.perf_counter(); writes += 1
    def __exit__(self, *error):
        global held
        held += time.perf_counter() - self.since
        return self.lock.__exit__(*error)

lake = Timed(Address("postgres", sys.argv[1], sys.argv[2]))
feed = Feed(lake, DataDir(Path(sys.argv[3])), None)
held, writes = 0.0, 0
print("ready", flush=True); sys.stdin.readline()
before = resource.getrusage(resource.RUSAGE_SELF)
rows, behind = 0, True
while behind:
    new, behind = feed.tick(4)
    rows += new
used = resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
print(rows, held, cpu, writes, flush=True)
"""
"""A writer: number of rows, seconds for which it kept the others out, processor seconds, how often
it wrote."""


@dataclass(frozen=True)
class Written:
    """What writers took together."""

    rows: int
    held: float
    """Seconds for which one kept the others out, in sum."""
    cpu: float
    writes: int
    seconds: float


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
    limits = []
    for count in sorted({1, num_writers}):
        place = server.new_database()
        database = place.split("dbname=")[1].split()[0]
        address = Address("postgres", place, str(folder / f"rows{count}-{time.time():.0f}"))
        Lake(address).close()
        before = work_of(server, database)
        done = _write(address, sources[:count])
        time.sleep(STATISTICS_SECONDS)
        asked = work_of(server, database).since(before)
        lines.append(_row(str(count), done.rows, done.seconds, done.cpu, done.held))
        limits.append(_limits(server, count, done, asked))
    return "\n".join([*lines, "", LIMITS, "|---|---|---|---|---|---|---|", *limits])


def _limits(server: Postgres, count: int, done: Written, asked: Work) -> str:
    """What a write asks of PostgreSQL, and how fast that is by itself."""
    rows, log_bytes = asked.rows // done.writes, asked.log_bytes // done.writes
    alone = commits_alone(server, count, rows, log_bytes)
    per_write = done.rows / done.writes
    return (f"| {count} | {done.writes} | {done.held / done.writes * 1e3:.0f} | {rows} rows, "
            f"{log_bytes / 1e3:.0f} KB of log | {1e3 / alone:.1f} | {alone:.0f} | "
            f"{alone * per_write / 1e6:.1f} M |")  # fmt: skip


def _write(address: Address, sources: Sequence[DataDir]) -> Written:
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
    rows, held, cpu, writes = (sum(map(float, column)) for column in zip(*told, strict=True))
    return Written(int(rows), held, cpu, int(writes), taken)


def _row(name: str, rows: int, taken: float, cpu: float, held: float | None) -> str:
    per = 1e6 / rows
    alone = "" if held is None else f"{held * per:.2f}"
    return (f"| {name} | {rows:,} | {taken:.1f} | {rows / taken:,.0f} | {cpu * per:.1f} | "
            f"{alone} |")  # fmt: skip


@contextmanager
def _embedded(folder: Path, sources: Sequence[DataDir]) -> Iterator[DataDir]:
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
