"""What the server does besides answering: prepares the first page, and returns free memory.

The server answers before the first page is prepared, because browsers need as long to load their
own code.

Each page runs in a thread and briefly takes tens of MB. Allocators hold freed memory: glibc holds
everything below a used piece, and Arrow's library has its own pool, which other code cannot use. So
Arrow allocates through glibc too, and glibc and DuckDB regularly return free memory to the system.
(If glibc returned each large piece at once, `M_MMAP_THRESHOLD`, comparing would take 50 % longer.)

Measured: after 32 pages of 16 experiments a process had 360 MB without this and 339 MB with it.
With it, after 25 minutes of reading, a server had 506 MB; its limit is 500 MB.
"""

import asyncio
import ctypes
import gc
import time
from contextlib import suppress
from importlib import import_module
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.states import RunState
from breakeven.storage.errors import StoreError
from breakeven.views.shared.resources import data_dir, open_store, process_wide

if TYPE_CHECKING:
    from breakeven.storage.index.store import Store

IMPORTED = (
    "breakeven.storage.team",
    "breakeven.storage.comparison.comparison",
    "breakeven.views.tabs.experiment",
    "breakeven.views.comparison.answers",
    "breakeven.views.comparison.cards",
    "breakeven.views.comparison.why",
    "breakeven.views.comparison.cause",
    "breakeven.views.comparison.scenarios",
    "breakeven.views.parts.exchange",
    "breakeven.views.report.files",
    "breakeven.views.report.menu",
    "breakeven.views.upkeep.health",
    "plotly.offline",
    "plotly.graph_objs",
)
"""Modules of Compare that take one or two seconds to import."""
_importing = Lock()
QUIET_SECONDS = 20.0
"""Seconds without a page request before the next experiment is compared."""
REST_SECONDS = 1.0
"""Pause between two experiments: a new reader waits for at most one comparison, mostly for none."""


def prepare() -> None:
    """Imports modules, then compares finished experiments, newest first, while nothing runs and no
    page is open: comparing takes half of the time of a page's first visit."""
    import_all()
    # The first page shows the same error.
    with suppress(StoreError, RunnerError, OSError):
        compare_all()


def import_all() -> None:
    """Imports the modules, then exempts all objects in memory from garbage collection, which would
    scan them again and again for 0.25 s. Collection was off until then."""
    try:
        with _importing:
            for name in IMPORTED:
                import_module(name)
        share_with_arrow()
    finally:
        gc.freeze()
        gc.enable()


class Imported:
    """ASGI middleware that holds back websockets, which deliver pages, until all modules are
    imported. A page that imported them at the same time would slow both down and could meet
    circular imports half done."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await asyncio.to_thread(_wait)
        await self.app(scope, receive, send)


def _wait() -> None:
    with _importing:
        pass


def compare_all() -> None:
    """Compares experiments until a run is active; lists compute missing results when shown.
    Computes nothing in a team's store, which holds the experiments of others."""
    from breakeven.storage.library.catalog import compute

    store, folder = open_store(), data_dir().path
    store.ingest_all()
    while store.is_own_file and not _is_busy(store):
        read_at = process_wide().read_at.get(folder)
        quiet = QUIET_SECONDS if read_at is None else time.monotonic() - read_at
        if quiet < QUIET_SECONDS:
            time.sleep(QUIET_SECONDS - quiet)
        elif compute(store, 0.0):
            time.sleep(REST_SECONDS)
        else:
            return


def _is_busy(store: "Store") -> bool:
    """Ingests new rows first: without readers no other thread does."""
    store.ingest()
    return any(count for state, count in store.run_counts.items() if RunState(state).is_active)


M_ARENA_MAX = -8
"""The option of `mallopt` in glibc's malloc.h."""
NUM_ARENAS = 2
GIVE_BACK_SECONDS = 2.0
"""Pause between two calls of `give_back`, each of which takes some milliseconds."""


def share_arenas() -> None:
    """Limits glibc's arenas. Each run of a page is a thread; glibc would give up to eight threads
    per core an arena each, whose free memory other threads cannot use."""
    with suppress(OSError, AttributeError):  # Other C libraries lack it.
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, NUM_ARENAS)


def share_with_arrow() -> None:
    """Makes Arrow, which holds columns of texts, allocate through glibc."""
    import pyarrow  # Here, so that the server answers earlier.

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def give_back() -> None:
    """Returns unused memory to the system."""
    for store in list(process_wide().stores.values()):
        store.give_back()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_giving_back() -> None:
    """Starts a thread that calls `give_back` regularly until the process ends."""
    Thread(target=_loop, name="memory", daemon=True).start()


def _loop() -> None:
    while True:
        time.sleep(GIVE_BACK_SECONDS)
        give_back()
