"""State that all pages and sessions of the dashboard share: the store and the machine's probe.

It is in a module of its own without a file. Streamlit's hot reload drops and reimports every module
whose file changed, and `st.cache_resource` forgets the result of a changed function without
releasing it; a second store in the same process would then find the database locked by the first.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import streamlit as st

from breakeven.runner.errors import NotWritable, ProbeFailed
from breakeven.runner.experiments.queue import ensure_supervisor, experiments
from breakeven.runner.machine.capabilities import (
    Capabilities,
    fits_this_machine,
    probe,
    read_capabilities,
)
from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.data_dir import DataDir, default_data_folder
from breakeven.runner.protocol.states import RunState
from breakeven.storage import team
from breakeven.storage.errors import StoreLocked, StoreUnusable, TeamStoreUnusable
from breakeven.storage.index.store import Store
from breakeven.views.shared.inert import prose

EXAMPLES = PACKAGE / "examples"
PROCESS_WIDE = "breakeven_process_wide"


class ProcessWide(ModuleType):
    """State that outlives pages, sessions and hot reloads; ends with the process."""

    def __init__(self) -> None:
        super().__init__(PROCESS_WIDE)
        self.lock = threading.RLock()
        self.stores: dict[Path, Store] = {}
        self.due: dict[Path, float] = {}
        self.looked: dict[Path, float] = {}
        """For each store: when a polling page may next read its run folders (`due`), and when they
        were last read (`looked`)."""
        self.probes: dict[Path, Future[Capabilities]] = {}
        self.read: set[Path] = set()
        """The data folders that pages have requested."""
        self.read_at: dict[Path, float] = {}
        """Time of the latest request of each."""
        self.num_readers = 0
        """Number of connected pages."""
        self.workers = ThreadPoolExecutor(1, thread_name_prefix="probe")


def process_wide() -> ProcessWide:
    """The state of this process; the first call creates it."""
    shared: ProcessWide = sys.modules.setdefault(PROCESS_WIDE, ProcessWide())  # type: ignore[assignment]
    return shared


def data_dir() -> DataDir:
    """The data folder: BREAKEVEN_DATA, or the folder `data` of this project."""
    return DataDir(default_data_folder())


def get_store() -> Store:
    """The one store of this process, up to date; stops the page if it cannot be opened."""
    process_wide().read.add(data_dir().path)
    process_wide().read_at[data_dir().path] = time.monotonic()
    try:
        store = open_store()
    except (StoreLocked, StoreUnusable, OSError) as error:
        show_unopened(error)
    ingest_or_warn(store.ingest_all)
    return store


def open_store() -> Store:
    """The one store of this process; raises `StoreLocked`, `StoreUnusable` or `OSError`.

    The first call also starts a supervisor if work is left over, and the probe of this machine, so
    that its answer is ready when somebody launches.
    """
    folder = data_dir()
    shared = process_wide()
    with shared.lock:
        store = shared.stores.get(folder.path)
        if store is None:
            folder.make()
            store = shared.stores[folder.path] = team.open_store(folder, EXAMPLES)
            if has_open_work(folder):
                with contextlib.suppress(NotWritable):  # Runs stay queued; pages show the rest.
                    ensure_supervisor(folder)
            look_at_machine(folder)
    return store


def ingest_or_warn(ingest: Callable[[], int]) -> None:
    """Ingests new rows of the run folders; if that fails, shows why, and the page continues."""
    try:
        ingest()
    except StoreUnusable as error:
        st.warning(prose(error), icon=":material/database_off:")


def has_open_work(folder: DataDir) -> bool:
    """Whether a run is queued, or claimed on this machine and not closed."""
    unclosed = folder.open_experiments()
    return bool(unclosed) and any(
        (run.state.is_active or run.state is RunState.LOST) and not run.exit_file.exists()
        for experiment in experiments(folder, unclosed)
        for run in experiment.runs
    )


def look_at_machine(folder: DataDir, *, again: bool = False) -> Future[Capabilities]:
    """The capabilities of this machine once the probe answers; immediately if they are stored."""
    shared = process_wide()
    with shared.lock:
        known = None if again else read_capabilities(folder)
        future = shared.probes.get(folder.path)
        if known is not None:
            future = Future()
            future.set_result(known)
        elif future is None or (future.done() and (again or _is_outdated(future))):
            future = shared.workers.submit(probe, folder)
        shared.probes[folder.path] = future
        return future


def _is_outdated(answer: Future[Capabilities]) -> bool:
    """Whether the machine changed since torch answered. A failed probe is not repeated
    automatically, and an old answer alone does not justify seconds of work during a measurement."""
    return answer.exception() is None and not fits_this_machine(answer.result())


def capabilities() -> Capabilities | None:
    """The devices and features of this machine; None while the probe runs or after it failed."""
    future = look_at_machine(data_dir())
    with contextlib.suppress(ProbeFailed):
        return future.result() if future.done() else None
    return None


def show_unopened(error: Exception) -> NoReturn:
    """Shows why the store cannot be opened, and stops the page."""
    if isinstance(error, StoreLocked):
        problem = f"**The database is in use.** {prose(error)}"
        remedy = "One process at a time may own it: close the other dashboard, or start this one"
    elif isinstance(error, TeamStoreUnusable):
        problem = f"**The team's store cannot be used.** {prose(error)}"
        remedy = (
            "To see the runs of this machine alone, take `store.address` out of `breakeven.toml`"
        )
    else:
        problem = f"**The data folder cannot be used.** {prose(error)}"
        remedy = "Make it writable, or start the dashboard"
    st.error(problem, icon=":material/database_off:")
    other = "with another data folder: `BREAKEVEN_DATA=/another/folder make run`"
    st.markdown(f"{remedy}." if isinstance(error, TeamStoreUnusable) else f"{remedy} {other}.")
    st.button("Try again", key="retry_store")
    st.stop()


SHARE = 0.03
"""Share of a core for reading and drawing new rows."""
SOONEST, LATEST = 1.8, 10.0
"""Least and most seconds between two reads."""
FEW_READERS = 4
"""Readers up to this number do not slow down each other's updates."""


def among_readers(seconds: float, at_most: float) -> float:
    """Seconds until a part of a page redraws, such that many readers use about as much of one
    process as `FEW_READERS` readers. The page calls it when it is opened."""
    return min(at_most, seconds * max(1.0, process_wide().num_readers / FEW_READERS))


@contextlib.contextmanager
def one_more_reader() -> Iterator[None]:
    """Counts a reader as long as a page is connected."""
    shared = process_wide()
    with shared.lock:
        shared.num_readers += 1
    try:
        yield
    finally:
        with shared.lock:
            shared.num_readers -= 1


@contextlib.contextmanager
def keeping_up(store: Store) -> Iterator[None]:
    """Ingests new rows of the run folders, if due, before the body draws them.

    Several parts of a page, and several readers, share the rows and the charts drawn from them.
    """
    shared, folder = process_wide(), store.data_dir.path
    moment, begun = time.monotonic(), time.thread_time()
    with shared.lock:
        is_due = moment >= shared.due.get(folder, 0.0)
        if is_due:
            shared.due[folder], shared.looked[folder] = moment + LATEST, moment
    if not is_due:
        yield
        return
    ingest_or_warn(store.ingest)
    yield
    pause = (time.thread_time() - begun) / SHARE
    with shared.lock:
        shared.due[folder] = moment + min(LATEST, max(SOONEST, pause))
