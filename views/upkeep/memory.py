"""What the server's memory is taken from, and how it gets back to the system.

Pages come and go in threads, and each takes tens of MB for a moment. Allocators hold freed memory:
glibc holds all that lies below a used piece, and Arrow's library has its own pool, which other code
cannot use. So Arrow allocates through glibc too, and glibc and DuckDB regularly return free memory
to the system. (If glibc returned each large piece at once, `M_MMAP_THRESHOLD`, comparing would take
half as long again.)

Why it stays: without it, 32 pages of 16 experiments left a process at 360 MB, with it at 339; a
server that was read for 25 minutes came to 506 of the 500 MB that it may have, with it.
"""

import ctypes
import time
from contextlib import suppress
from threading import Thread

from breakeven.views.shared.resources import process_wide

M_ARENA_MAX = -8
"""Of `mallopt`, in glibc's malloc.h."""
NUM_ARENAS = 2
REST_SECONDS = 2.0
"""Between two times that free memory is given back, which takes some milliseconds."""


def share_arenas() -> None:
    """Each run of a page is a thread of its own, and glibc would give up to eight threads per core
    a part of memory each, none of which the others use once it is free."""
    with suppress(OSError, AttributeError):  # Other libraries have none.
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, NUM_ARENAS)


def share_with_arrow() -> None:
    """Columns of texts are Arrow's."""
    import pyarrow  # Here: a server answers before it is there.

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def give_back() -> None:
    """Returns unused memory to the system."""
    for store in list(process_wide().stores.values()):
        store.give_back()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def keep_giving_back() -> None:
    """Now and then, as long as this process lives."""
    Thread(target=_go_on, name="memory", daemon=True).start()


def _go_on() -> None:
    while True:
        time.sleep(REST_SECONDS)
        give_back()
