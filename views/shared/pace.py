"""How often pages that poll have the store look at the run folders: so seldom that drawing what is
new takes a small part of a core, on the machine that is being timed, however long it takes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from breakeven.views.shared.resources import process_wide, take_in

if TYPE_CHECKING:
    from breakeven.storage.index.store import Store

SHARE = 0.03
"""Of a core, that looking and drawing what is new may take."""
SOONEST, LATEST = 1.8, 10.0
"""Seconds between two looks, at least and at most."""
AT_ONCE = 0.5
"""At least, where it is known that there is something new to tell."""


ALONE = 4
"""Readers who are served as often as if there were no others."""


def among_readers(seconds: float, at_most: float) -> float:
    """How long a part of a page waits until it draws itself anew, so that many readers take of one
    process about what `ALONE` of them take; it is asked when a page is opened."""
    return min(at_most, seconds * max(1.0, process_wide().num_readers / ALONE))


@contextmanager
def one_more_reader() -> Iterator[None]:
    """For as long as a page is connected."""
    shared = process_wide()
    with shared.lock:
        shared.num_readers += 1
    try:
        yield
    finally:
        with shared.lock:
            shared.num_readers -= 1


@contextmanager
def keeping_up(store: "Store", *, at_once: bool = False) -> Iterator[None]:
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
