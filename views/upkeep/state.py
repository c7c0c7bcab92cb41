"""The state of the dashboard, its data folder and the supervisor, for `/healthz` and `/metrics`.

A request costs the same with ten runs and with ten thousand: the store maintains the counts, and
only files of active runs are read.
"""

import os
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import MIN_FREE_BYTES
from breakeven.runner.folders.queue_order import read_order
from breakeven.runner.folders.states import RunState
from breakeven.runner.supervision.heartbeat import (
    STUCK_SECONDS,
    HeartbeatReading,
    read_heartbeat,
    seconds_busy,
)
from breakeven.runner.texts import duration, printable
from breakeven.storage.errors import StoreError
from breakeven.views.shared.resources import data_dir, open_store, process_wide

SOONEST_LOOK_SECONDS = 2.0
"""Frequent requests do not make the store look at the run folders more often than that."""
MAX_AGE_SECONDS = 60.0
"""What pages show may be older only if something keeps the store from looking."""
PATIENCE_SECONDS = 3.0
"""After that time a request gets the last known state."""
STARTING_SECONDS = 15.0
"""What a supervisor may take until it holds its lock."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Numbers at one moment; sizes in bytes, times in seconds. None where a number is unknown."""

    runs: dict[str, int]
    waiting: int
    """Experiments of which a run waits to be started, without those that are held."""
    oldest_waiting_seconds: float | None
    is_paused: bool
    heartbeat: HeartbeatReading
    ingest_age: float | None
    ingest_seconds: float
    """How long the index has been at what it takes in; 0 while it rests."""
    unreadable: int
    disk_free: int | None
    disk_size: int | None
    problems: tuple[str, ...] = ()
    """A sentence for each thing that is wrong."""

    @property
    def is_healthy(self) -> bool:
        return not self.problems


class _Missing:
    """Since when something is waited for that should be there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None

    def seconds(self, is_missing: bool) -> float:
        """How long it has been missing; 0 while it is not."""
        with self._lock:
            if not is_missing:
                self._since = None
            elif self._since is None:
                self._since = time.monotonic()
            return 0.0 if self._since is None else time.monotonic() - self._since


supervisor_missing = _Missing()


def look() -> State:
    """Has the store take in what is new, if it is time, and sums up; raises nothing."""
    folder = data_dir()
    problems = taking_in.problems()
    store = process_wide().stores.get(folder.path)
    order = read_order(folder)
    queued = {
        run.run_id.partition(".")[0]
        for run in ([] if store is None else store.open_runs)
        if run.state == RunState.QUEUED
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
        oldest_waiting_seconds=_oldest(folder, queued),
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
    missing = supervisor_missing.seconds(is_missing)
    if missing > STARTING_SECONDS:
        yield (
            f"{num_waiting} experiments wait, and no supervisor has been at work for "
            f"{duration(missing)}: `breakeven supervise` works them off"
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
        yield (
            f"run folders have been taken in for {duration(ingesting)} without an end: "
            "`breakeven doctor`"
        )
    elif age is not None and age > MAX_AGE_SECONDS:
        yield f"what pages show is {duration(age)} old"


def own_process() -> dict[str, float]:
    """Resident bytes, open files and threads of this process; processor time it has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {"cpu_seconds": used.ru_utime + used.ru_stime, "threads": threading.active_count()}
    with suppress(OSError):  # macOS has no /proc.
        found["open_fds"] = len(os.listdir("/proc/self/fd"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["resident_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
    return found


class _TakingIn:
    """Makes the store take in new rows, in a thread; callers wait only for a limited time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="take-in")
        self._going_on: Future[list[str]] | None = None

    def problems(self) -> list[str]:
        """What kept it from that; nothing, if it goes on for longer than a moment."""
        with self._lock:
            if self._going_on is None or self._going_on.done():
                self._going_on = self._workers.submit(_take_in)
            going_on = self._going_on
        try:
            return going_on.result(timeout=PATIENCE_SECONDS)
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


taking_in = _TakingIn()


def _disk(folder: DataDir) -> tuple[int | None, int | None, str | None]:
    """Free and all bytes, and what is wrong with them."""
    try:
        disk = shutil.disk_usage(folder.path)
    except OSError as error:
        return None, None, f"the data folder cannot be looked at: {error.strerror}"
    is_full = disk.free < MIN_FREE_BYTES
    problem = f"{disk.free / 1e6:.0f} MB are free where the data folder lies"
    return disk.free, disk.total, problem if is_full else None


def _oldest(folder: DataDir, queued: set[str]) -> float | None:
    """How long the one has been waiting that waits longest; ids begin with their time."""
    if not queued:
        return None
    oldest = min(queued)
    files = (run.spec_file for run in map(folder.run_dir, _names(folder, oldest)))
    with suppress(OSError, StopIteration):
        return max(0.0, time.time() - os.stat(next(files)).st_mtime)
    return None


def _names(folder: DataDir, experiment_id: str) -> list[str]:
    """A run folder of the experiment, without listing all others."""
    store = process_wide().stores.get(folder.path)
    runs = [] if store is None else store.open_runs
    return [run.run_id for run in runs if run.run_id.startswith(f"{experiment_id}.")]
