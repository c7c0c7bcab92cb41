"""So many events a second for a while: what the dashboard tells meanwhile, how far it falls
behind, how long it takes to catch up, and whether any step is lost or there twice."""

import json
import re
import statistics
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from benchmarks.at_size.live import cpu_seconds, resident
from benchmarks.load.logged import errors_in
from benchmarks.load.writing import writing
from runner.folders.data_dir import DataDir
from runner.locks import FileLock
from storage.index.store import Store
from tests.helpers.serving import served

PROCESSES, RUNS_EACH = 4, 2
LOOK_SECONDS = 0.5
CATCHING_UP_SECONDS = 600.0
SIZE = "SELECT count(*), count(DISTINCT (run_id, step)) FROM steps"


def measure(folder: Path, rate: float, seconds: float) -> dict[str, float]:
    """Figures of one load; every number is in seconds, MB or events."""
    data_dir = DataDir(folder)
    data_dir.path.mkdir(parents=True)
    lock = FileLock(data_dir.supervisor_lock)  # runs without one would be taken for lost
    assert lock.try_acquire()
    answers, behind, memory = [], [], []
    with served(data_dir, supervised=False) as (address, server):
        with writing(data_dir, rate, seconds, PROCESSES, RUNS_EACH) as writers:
            cpu, begun = cpu_seconds(server.pid), time.monotonic()
            while any(writer.poll() is None for writer in writers):
                at = time.monotonic()
                told = metrics(address)
                answers.append(time.monotonic() - at)
                behind += [told["breakeven_ingest_age_seconds"]] if told else []
                memory.append(resident(server.pid))
                time.sleep(LOOK_SECONDS)
            said = [writer.stdout.read().split() for writer in writers if writer.stdout]
            assert all(said), "a writer failed"
            share = (cpu_seconds(server.pid) - cpu) / (time.monotonic() - begun)
        ended = time.monotonic()
        while time.monotonic() < ended + CATCHING_UP_SECONDS:
            told = metrics(address)
            memory.append(resident(server.pid))
            if told.get("breakeven_ingest_age_seconds", 9.0) < 3 and is_all_in(data_dir, told):
                break
            time.sleep(0.2)
        caught_up = time.monotonic() - ended
    written = sum(int(count) for count, _, _ in said)
    with Store.open(data_dir) as store:
        left = store.ingest()
        ((steps, distinct),) = store.rows(SIZE)
    lock.release()
    return {
        "asked": rate,
        "written_a_second": written / max(float(took) for _, took, _ in said),
        "events": written,
        "lost": written - distinct,
        "doubled": steps - distinct,
        "taken_in_after": left,
        "age_median": statistics.median(behind),
        "age_most": max(behind),
        "caught_up": caught_up,
        "answer_p95": sorted(answers)[int(0.95 * len(answers))],
        "share": share,
        "memory": max(memory),
        "errors": len(errors_in(data_dir)),
    }


def is_all_in(data_dir: DataDir, told: dict[str, float]) -> bool:
    """Whether the dashboard has looked since the last writer ended, and nothing waits."""
    newest = max(run.events_file.stat().st_mtime for run in data_dir.run_dirs())
    return time.time() - told.get("breakeven_ingest_age_seconds", 1e9) > newest


def metrics(address: str) -> dict[str, float]:
    with suppress(OSError), urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        found = re.findall(r"^(\w+) (\S+)$", answer.read().decode(), re.M)
        return {name: float(value) for name, value in found}
    return {}


def told(figures: dict[str, float]) -> str:
    return json.dumps({name: round(value, 3) for name, value in figures.items()})
