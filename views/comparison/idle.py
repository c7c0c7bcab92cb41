"""Experiments that nobody opened yet are compared and drawn while nobody reads and nothing runs."""

import time
from contextlib import suppress
from typing import TypeAlias

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.states import RunState
from breakeven.storage.errors import StoreError
from breakeven.storage.index.store import Store
from breakeven.views.shared.resources import data_dir, open_store, process_wide

QUIET_SECONDS = 20.0
"""Without a page that was asked for, before the next experiment is compared."""
Tried: TypeAlias = set[tuple[str, int, int]]
"""Experiments, in which of their revisions: some have no charts that could be kept."""
REST_SECONDS = 1.0
"""Between two experiments: whoever comes waits for one at most, and most of the time for none."""


def compare_rest() -> None:
    """Until all are compared and drawn, for they are kept then; ends early once anything runs here,
    as the lists fill in whatever is missing when they are looked at."""
    # Whatever is wrong, pages say so.
    with suppress(StoreError, RunnerError, OSError):
        store = open_store()
        begun = time.monotonic()
        tried: Tried = set()
        while not _is_busy(store):
            quiet = time.monotonic() - max(begun, process_wide().read_at.get(data_dir().path, 0.0))
            if quiet < QUIET_SECONDS:
                time.sleep(QUIET_SECONDS - quiet)
            elif compare_next(store, tried):
                time.sleep(REST_SECONDS)
            else:
                return


def compare_next(store: Store, tried: Tried) -> bool:
    """Compares the newest experiment that is over, of which that is not cached and was not `tried`;
    False without one."""
    from breakeven.storage.compiling.ladder import find_ladder
    from breakeven.storage.library.ahead import next_to_compare, state_of
    from breakeven.storage.library.catalog import compute

    one = next_to_compare(store, tried, None)
    if one is None:
        return False
    tried.add(state_of(one))
    compute(store, 0.0, only=[one.experiment_id])
    with suppress(Exception):  # Whatever one experiment holds, its page tells of it.
        find_ladder(store, one.experiment_id)
    return True


def _is_busy(store: Store) -> bool:
    """As of now: without readers nobody else looks."""
    store.ingest()
    return any(count for state, count in store.run_counts.items() if RunState(state).is_active)
