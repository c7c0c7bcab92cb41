"""Addresses for monitoring: `/healthz` for probes, `/metrics` for readers of OpenMetrics; and the
message to a reader if a page fails unexpectedly.

Both report numbers and problems, without names of experiments and paths. Viewers may read them. A
request costs the same with ten runs and with ten thousand: the store maintains the counts, and only
files of active runs are read.
"""

import asyncio
import json
import os
import resource
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception
from typing import Any

import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import MIN_FREE_BYTES
from breakeven.runner.folders.queue_order import read_order
from breakeven.runner.folders.states import RunState
from breakeven.runner.logs import log
from breakeven.runner.supervision.heartbeat import (
    STUCK_SECONDS,
    HeartbeatReading,
    read_heartbeat,
    seconds_busy,
)
from breakeven.runner.texts import duration, printable
from breakeven.storage.errors import StoreError
from breakeven.storage.index.folders import IndexedRun
from breakeven.views.access import permissions
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import data_dir, open_store, process_wide

SOONEST_LOOK_SECONDS = 2.0
"""Least time between two looks at the run folders, however frequent the requests are."""
MAX_AGE_SECONDS = 60.0
"""Pages show older data only if something prevents the store from looking."""
PATIENCE_SECONDS = 3.0
"""After this time a request gets the last known state."""
STARTING_SECONDS = 15.0
"""Most seconds that a supervisor needs until it holds its lock."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Numbers at one moment; sizes in bytes, times in seconds. None where a number is unknown."""

    runs: dict[str, int]
    waiting: int
    """Experiments with a run that waits for its start, without held ones."""
    oldest_waiting_seconds: float | None
    is_paused: bool
    heartbeat: HeartbeatReading
    ingest_age: float | None
    ingest_seconds: float
    """Duration of the current ingest; 0 if there is none."""
    unreadable: int
    disk_free: int | None
    disk_size: int | None
    problems: tuple[str, ...] = ()
    """A sentence for each problem."""

    @property
    def is_healthy(self) -> bool:
        return not self.problems


@dataclass
class _Known:
    """State that one request leaves for the next."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    taking_in: Future[list[str]] | None = None
    missing_since: float | None = None
    """Since when experiments have been waiting without a supervisor."""


known = _Known()
workers = ThreadPoolExecutor(1, thread_name_prefix="take-in")


def look() -> State:
    """Has the store ingest new rows, if due, and returns the state; raises nothing."""
    folder = data_dir()
    problems = problems_of_ingest()
    store = process_wide().stores.get(folder.path)
    open_runs = [] if store is None else store.open_runs
    order = read_order(folder)
    queued = {
        run.run_id.partition(".")[0] for run in open_runs if run.state == RunState.QUEUED
    } - set(order.held)
    heartbeat = read_heartbeat(folder)
    problems += _of_supervisor(heartbeat, len(queued), order.paused)
    ingesting = seconds_busy(folder.database_lock)
    age = None if store is None else store.age
    problems += _of_index(ingesting, age)
    free, size, full = _disk(folder)
    problems += [] if full is None else [full]
    return State(
        runs={} if store is None else store.run_counts,
        waiting=len(queued),
        oldest_waiting_seconds=_oldest(folder, queued, open_runs),
        is_paused=order.paused,
        heartbeat=heartbeat,
        ingest_age=age,
        ingest_seconds=ingesting,
        unreadable=0 if store is None else store.num_unreadable,
        disk_free=free,
        disk_size=size,
        problems=tuple(problems),
    )


def _of_supervisor(heartbeat: HeartbeatReading, num_waiting: int, is_paused: bool) -> Iterator[str]:
    is_missing = bool(num_waiting) and not is_paused and not heartbeat.is_alive
    with known.lock:
        now = time.monotonic()
        known.missing_since = (known.missing_since or now) if is_missing else None
        missing = now - (known.missing_since or now)
    if missing > STARTING_SECONDS:
        yield (
            f"{num_waiting} experiments wait, and no supervisor has run for "
            f"{duration(missing)}: `breakeven supervise` runs them"
        )
    if heartbeat.is_still:
        silent = duration(heartbeat.seconds_since_beat or 0.0)
        yield f"the supervisor gave no sign for {silent}; `breakeven doctor`"
    if heartbeat.stuck:
        longest = duration(max(0.0, time.time() - min(heartbeat.stuck.values())))
        yield (
            f"{len(heartbeat.stuck)} of the active experiments had no supervision for "
            f"{longest}: a thread hangs; `breakeven doctor`"
        )


def _of_index(ingesting: float, age: float | None) -> Iterator[str]:
    if ingesting > STUCK_SECONDS:
        yield (f"reading run folders has taken {duration(ingesting)} so far: `breakeven doctor`")
    elif age is not None and age > MAX_AGE_SECONDS:
        yield f"the data on pages are {duration(age)} old"


def own_process() -> dict[str, float]:
    """Resident bytes, open files and threads of this process; processor time it has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {"cpu_seconds": used.ru_utime + used.ru_stime, "threads": threading.active_count()}
    with suppress(OSError):  # macOS has no /proc.
        found["open_fds"] = len(os.listdir("/proc/self/fd"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["resident_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
    return found


def problems_of_ingest() -> list[str]:
    """Problems of the latest ingest; empty if it takes longer than `PATIENCE_SECONDS`."""
    with known.lock:
        if known.taking_in is None or known.taking_in.done():
            known.taking_in = workers.submit(_take_in)
        taking_in = known.taking_in
    try:
        return taking_in.result(timeout=PATIENCE_SECONDS)
    except TimeoutError:
        return []


def _take_in() -> list[str]:
    try:
        store = open_store()
        shared, now = process_wide(), time.monotonic()
        with shared.lock:
            is_due = now >= shared.looked.get(store.data_dir.path, 0.0) + SOONEST_LOOK_SECONDS
            if is_due:
                shared.looked[store.data_dir.path] = now
        if is_due:
            store.ingest()
    except (StoreError, OSError) as error:
        return [printable(error)]
    return []


def _disk(folder: DataDir) -> tuple[int | None, int | None, str | None]:
    """Free and total bytes, and the problem, if there is one."""
    try:
        disk = shutil.disk_usage(folder.path)
    except OSError as error:
        return None, None, f"the data folder cannot be read: {error.strerror}"
    is_full = disk.free < MIN_FREE_BYTES
    problem = f"{disk.free / 1e6:.0f} MB are free on the disk of the data folder"
    return disk.free, disk.total, problem if is_full else None


def _oldest(folder: DataDir, queued: set[str], open_runs: Iterable[IndexedRun]) -> float | None:
    """Seconds that the oldest request has been waiting; ids begin with their time."""
    oldest = min(queued, default=None)
    mine = (one.run_id for one in open_runs if one.run_id.partition(".")[0] == oldest)
    with suppress(OSError, StopIteration):
        written = os.stat(folder.run_dir(next(mine)).spec_file).st_mtime
        return max(0.0, time.time() - written)
    return None


NOT_STORED = {"cache-control": "no-store"}
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LIMIT_SECONDS = 10.0
"""The longest wait for a disk that hangs."""
SILENT = "the data folder does not respond: its disk hangs or is very slow"
lookers = ThreadPoolExecutor(2, thread_name_prefix="probe")


async def looked() -> State | None:
    """The state of everything; None if it could not be determined in time."""
    try:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.run_in_executor(lookers, look), LIMIT_SECONDS)
    except TimeoutError:
        return None


async def healthz(request: Request) -> Response:
    """200 if everything works, else 503 with the problems."""
    state, where = await looked(), str(data_dir().path)
    content: dict[str, Any] = {"status": "wrong", "problems": [SILENT]}
    if state is not None:
        content = {
            "status": "ok" if state.is_healthy else "wrong",
            "problems": [problem.replace(where, "the data folder") for problem in state.problems],
            "runs": state.runs,
            "experiments_waiting": state.waiting,
            "supervisor_alive": state.heartbeat.is_alive,
            "ingest_age_seconds": state.ingest_age,
            "disk_free_bytes": state.disk_free,
        }
    status = 200 if content["status"] == "ok" else 503
    return Response(json.dumps(content) + "\n", status, NOT_STORED, "application/json")


async def metrics(request: Request) -> Response:
    text = open_metrics(await looked(), own_process())
    return Response(text, headers=NOT_STORED, media_type=OPEN_METRICS)


ROUTES = [Route("/healthz", healthz), Route("/metrics", metrics)]


def open_metrics(state: State | None, process: Mapping[str, float]) -> str:
    """The state as OpenMetrics 1.0, without unknown numbers."""
    families = [
        _family("healthy", "gauge", "1 while /healthz is ok.", bool(state and state.is_healthy)),
        *([] if state is None else _of_data_folder(state)),
        _family("process_resident_bytes", "gauge", "Memory of the dashboard.",
                process.get("resident_bytes"), "bytes"),
        _family("process_open_fds", "gauge", "Open files of the dashboard.",
                process.get("open_fds")),
        _family("process_threads", "gauge", "Threads of the dashboard.", process.get("threads")),
        _family("process_cpu_seconds", "counter", "Processor time of the dashboard.",
                process.get("cpu_seconds"), "seconds"),
    ]  # fmt: skip
    return "".join(families) + "# EOF\n"


def _of_data_folder(state: State) -> list[str]:
    heartbeat, is_alive = state.heartbeat, state.heartbeat.is_alive
    return [
        _family("runs", "gauge", "Runs of the data folder by state.",
                {str(name): state.runs.get(name, 0) for name in RunState}),
        _family("queue_experiments", "gauge", "Waiting experiments without held ones.",
                state.waiting),
        _family("queue_oldest_seconds", "gauge", "Waiting time of the oldest of them.",
                state.oldest_waiting_seconds, "seconds"),
        _family("queue_paused", "gauge", "1 while the queue is paused.", state.is_paused),
        _family("supervisor_alive", "gauge", "1 while a supervisor holds the data folder.",
                is_alive),
        _family("supervisor_silence_seconds", "gauge", "Time since its last sign of life.",
                heartbeat.seconds_since_beat if is_alive else None, "seconds"),
        _family("supervisor_stuck_experiments", "gauge",
                "Running experiments with a hanging thread.",
                len(heartbeat.stuck) if is_alive else None),
        _family("ingest_age_seconds", "gauge", "Time since the index last had all rows.",
                state.ingest_age, "seconds"),
        _family("ingest_seconds", "gauge", "How long the index has been reading its current input.",
                state.ingest_seconds, "seconds"),
        _family("run_folders_unreadable", "gauge", "Run folders that cannot be read.",
                state.unreadable),
        _family("disk_free_bytes", "gauge", "Free space on the disk of the data folder.",
                state.disk_free, "bytes"),
        _family("disk_size_bytes", "gauge", "Size of the disk of the data folder.",
                state.disk_size, "bytes"),
    ]  # fmt: skip


def _family(
    name: str, kind: str, text: str, value: float | Mapping[str, float] | None, unit: str = ""
) -> str:
    """One metric with its value, or its values by state; without a value only its description."""
    whole = f"breakeven_{name}"
    lines = [f"# TYPE {whole} {kind}", *([f"# UNIT {whole} {unit}"] if unit else []),
             f"# HELP {whole} {text}"]  # fmt: skip
    if isinstance(value, Mapping):
        lines += [f'{whole}{{state="{state}"}} {float(one)!r}' for state, one in value.items()]
    elif value is not None:
        lines.append(f"{whole}{'_total' if kind == 'counter' else ''} {float(value)!r}")
    return "\n".join(lines) + "\n"


FOR_VIEWERS: Markdown = (
    "This page failed. The dashboard's log has the reason for the administrator."
)


def show_failure(error: Exception) -> bool:
    """Logs the error. Users who may act see all of it; others only see that the page failed: a
    traceback contains paths, sources and values, and a forged message can provoke it. Returns True,
    so that Streamlit shows nothing itself."""
    log.error("a page failed: %s", error, exc_info=error)
    if permissions.may_act():
        st.error(f"This page failed: {inert(error)}", icon=":material/error:")
        st.code("".join(format_exception(error)), language="pytb", wrap_lines=True)
    else:
        st.error(FOR_VIEWERS, icon=":material/error:")
    return True
