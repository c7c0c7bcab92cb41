"""Many who write at once."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.big_store import make_store
from benchmarks.team_store import NUM_STEPS
from runner.folders.run_dir import DataDir
from storage.index.store import Store
from storage.team.address import Address
from storage.team.lake import Lake
from tests.helpers.serving import ROOT
from tests.helpers.team.postgres import Postgres

PER_WRITER = 4
"""Experiments of a writer."""
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
