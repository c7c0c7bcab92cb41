"""What the server does besides answering: imports the modules of pages before it listens, and
compares finished experiments while nobody reads."""

import time
from contextlib import suppress
from importlib import import_module

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.states import RunState
from breakeven.storage.errors import StoreError
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import compute_missing
from breakeven.views.shared.resources import data_dir, open_store, process_wide

IMPORTED = (
    "breakeven.storage.team",
    "breakeven.storage.comparison.comparison",
    "breakeven.views.scenarios.by_name",
    "breakeven.views.report.report_files",
    "breakeven.views.report.menu",
    "breakeven.views.upkeep.health",
    "plotly.offline",
    "plotly.graph_objs",
)
"""Modules of Compare that take one or two seconds to import."""
QUIET_SECONDS = 20.0
"""Seconds without a page request before the next experiment is compared."""
REST_SECONDS = 1.0
"""Pause between two experiments: a new reader waits for at most one comparison, mostly for none."""


def import_pages() -> None:
    """Imports the modules before the first page: pages that import them at the same time could meet
    circular imports half done."""
    for name in IMPORTED:
        import_module(name)


def compare_ahead() -> None:
    """Compares finished experiments, newest first, while nothing runs and no page is open:
    comparing takes half of the time of a page's first visit."""
    # The first page shows the same error.
    with suppress(StoreError, RunnerError, OSError):
        compare_all()


def compare_all() -> None:
    """Compares experiments until a run is active; lists compute missing results when shown.
    Computes nothing in a team's store, which holds the experiments of others."""
    store, folder = open_store(), data_dir().path
    store.ingest_all()
    while store.is_own_file and not _is_busy(store):
        read_at = process_wide().read_at.get(folder)
        quiet = QUIET_SECONDS if read_at is None else time.monotonic() - read_at
        if quiet < QUIET_SECONDS:
            time.sleep(QUIET_SECONDS - quiet)
        elif compute_missing(store, 0.0):
            time.sleep(REST_SECONDS)
        else:
            return


def _is_busy(store: Store) -> bool:
    """Ingests new rows first: without readers no other thread does."""
    store.ingest()
    return any(count for state, count in store.run_counts.items() if RunState(state).is_active)
