"""Waiting for what other processes and coroutines do."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 300.0
"""When a test gives up. Tests wait for states, and a busy machine may take its time: whatever must
not end by itself meanwhile has to last longer."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Looks again and again; fails when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """What it comes to, in a thread of its own: a browser of other tests may have a loop in this
    one."""
    with ThreadPoolExecutor(1) as worker:
        return worker.submit(asyncio.run, work).result(PATIENCE_SECONDS)
