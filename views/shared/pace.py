"""How often pages that poll have the store look at the run folders: so seldom that drawing what is
new takes a small part of a core, on the machine that is being timed, however long it takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from storage.index.store import Store
from views.shared.resources import process_wide, take_in

SHARE = 0.03
"""Of a core, that looking and drawing what is new may take."""
SOONEST, LATEST = 1.8, 10.0
"""Seconds between two looks, at least and at most."""
AT_ONCE = 0.5
"""At least, where it is known that there is something new to tell."""


@contextmanager
def keeping_up(store: Store, *, at_once: bool = False) -> Iterator[None]:
    """Takes in what the run folders gained, if it is time, and then has the body draw it.

    Several parts of a page, and several readers, look at the same. What only one of them has drawn
    anew the others find drawn.
    """
    shared, folder = process_wide(), store.data_dir.path
    moment, begun = time.monotonic(), time.thread_time()
    with shared.lock:
        due = shared.due.get(folder, 0.0)
        is_due = moment >= due or (at_once and moment >= shared.looked.get(folder, 0.0) + AT_ONCE)
        if is_due:
            shared.due[folder], shared.looked[folder] = moment + LATEST, moment
    if not is_due:
        yield
        return
    take_in(store.ingest)
    yield
    pause = (time.thread_time() - begun) / SHARE
    with shared.lock:
        shared.due[folder] = moment + min(LATEST, max(SOONEST, pause))
