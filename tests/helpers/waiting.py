"""Waits for other processes and coroutines."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_SECONDS = 300.0
"""Seconds until a test gives up. Tests wait for states, and a busy machine may take long: a state
that must not end by itself meanwhile has to last longer."""


def wait_until(condition: Callable[[], bool]) -> None:
    """Tests the condition repeatedly; fails when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, computed in its own thread: browser tests may run a loop in this
    one."""
    with ThreadPoolExecutor(1) as worker:
        return worker.submit(asyncio.run, work).result(PATIENCE_SECONDS)
