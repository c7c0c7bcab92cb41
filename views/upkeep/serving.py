"""The page that browsers load first, with our styles; `/healthz` for probes; and the message to a
reader if a page fails unexpectedly.

`/healthz` reports problems, without names of experiments and paths. Viewers may read it. A request
costs the same with ten runs and with ten thousand: the store maintains the counts, and only files
of active runs are read.
"""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from traceback import format_exception
from typing import Any

import streamlit as st
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from breakeven.runner.disk_space import QUEUES_FROM_BYTES
from breakeven.runner.experiments.queue_order import read_order
from breakeven.runner.logs import log
from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.heartbeat import (
    STUCK_SECONDS,
    HeartbeatReading,
    read_heartbeat,
    seconds_busy,
)
from breakeven.runner.protocol.states import RunState
from breakeven.runner.texts import duration, printable
from breakeven.storage.errors import StoreError
from breakeven.views.access import permissions
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import data_dir, open_store, process_wide

SOONEST_LOOK_SECONDS = 2.0
"""Least time between two looks at the run folders, however frequent the requests are."""
MAX_AGE_SECONDS = 60.0
"""If data on pages are older, something prevents the store from reading the run folders."""
PATIENCE_SECONDS = 3.0
"""After this time a request gets the last known state."""
STARTING_SECONDS = 15.0
"""Most seconds that a supervisor needs until it holds its lock."""


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of everything at one moment."""

    runs: Mapping[str, int]
    """Runs of the data folder by state."""
    experiments_waiting: int
    """Without held ones."""
    supervisor_alive: bool
    ingest_age_seconds: float | None
    """Seconds since the index last had all rows; None before the first time."""
    disk_free_bytes: int | None
    problems: tuple[str, ...]
    """A sentence for each problem."""

    @property
    def is_healthy(self) -> bool:
        return not self.problems


@dataclass
class _Watch:
    """State that one request leaves for the next."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    taking_in: Future[list[str]] | None = None
    missing_since: float | None = None
    """Since when experiments have been waiting without a supervisor."""


watch = _Watch()
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
    age = None if store is None else store.age
    problems += _of_index(seconds_busy(folder.database_lock), age)
    free, full = _disk(folder)
    problems += [] if full is None else [full]
    return State(
        runs={} if store is None else store.run_counts,
        experiments_waiting=len(queued),
        supervisor_alive=heartbeat.is_alive,
        ingest_age_seconds=age,
        disk_free_bytes=free,
        problems=tuple(problems),
    )


def _of_supervisor(heartbeat: HeartbeatReading, num_waiting: int, is_paused: bool) -> Iterator[str]:
    is_missing = bool(num_waiting) and not is_paused and not heartbeat.is_alive
    with watch.lock:
        now = time.monotonic()
        watch.missing_since = (watch.missing_since or now) if is_missing else None
        missing = now - (watch.missing_since or now)
    if missing > STARTING_SECONDS:
        yield (
            f"{num_waiting} experiments wait, and no supervisor has run for "
            f"{duration(missing)}: `breakeven queue start` runs them"
        )
    if heartbeat.is_hung:
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


def problems_of_ingest() -> list[str]:
    """Problems of the latest ingest; empty if it takes longer than `PATIENCE_SECONDS`."""
    with watch.lock:
        if watch.taking_in is None or watch.taking_in.done():
            watch.taking_in = workers.submit(_take_in)
        taking_in = watch.taking_in
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


def _disk(folder: DataDir) -> tuple[int | None, str | None]:
    """Free bytes, and the problem, if there is one."""
    try:
        free = shutil.disk_usage(folder.path).free
    except OSError as error:
        return None, f"the data folder cannot be read: {error.strerror}"
    problem = f"{free / 1e6:.0f} MB are free on the disk of the data folder"
    return free, problem if free < QUEUES_FROM_BYTES else None


NOT_STORED = {"cache-control": "no-store"}
LIMIT_SECONDS = 10.0
"""The longest wait for a disk that hangs."""
SILENT = "the data folder does not respond: its disk hangs or is very slow"
lookers = ThreadPoolExecutor(2, thread_name_prefix="probe")


async def state_in_time() -> State | None:
    """The state of everything; None if it could not be determined in time."""
    try:
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.run_in_executor(lookers, look), LIMIT_SECONDS)
    except TimeoutError:
        return None


async def healthz(request: Request) -> Response:
    """200 if everything works, else 503 with the problems."""
    state, where = await state_in_time(), str(data_dir().path)
    content: dict[str, Any] = {"status": "wrong", "problems": [SILENT]}
    if state is not None:
        content = {
            "status": "ok" if state.is_healthy else "wrong",
            "problems": [problem.replace(where, "the data folder") for problem in state.problems],
            "experiments_waiting": state.experiments_waiting,
            "runs": state.runs,
            "supervisor_alive": state.supervisor_alive,
            "ingest_age_seconds": state.ingest_age_seconds,
            "disk_free_bytes": state.disk_free_bytes,
        }
    status = 200 if content["status"] == "ok" else 503
    return Response(json.dumps(content) + "\n", status, NOT_STORED, "application/json")


STYLE = PACKAGE / "views/shared/style.css"
ADDRESSES = ("", "experiment", "launch", "machine", "definitions")
"""Of the pages in dashboard.py."""


@cache
def front_page() -> str:
    """Streamlit's page with our styles at its end. As an element of a page they would come after
    the elements before it, which would then jump to their places."""
    page = (Path(st.__file__).parent / "static/index.html").read_text()
    return page.replace("</body>", f"<style>{STYLE.read_text()}</style></body>")


async def front(request: Request) -> Response:
    return HTMLResponse(front_page(), headers={"cache-control": "no-cache"})


ROUTES = [Route("/healthz", healthz), *(Route(f"/{address}", front) for address in ADDRESSES)]


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
