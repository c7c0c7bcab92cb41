"""Waiting for what other processes and coroutines do."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], bool], patience_seconds: float = 90.0) -> None:
    """Looks again and again; fails when patience ends."""
    deadline = time.monotonic() + patience_seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def awaited(work: Coroutine[Any, Any, T], patience_seconds: float = 30.0) -> T:
    """What it comes to, in a thread of its own: a browser of other tests may have a loop in this
    one."""
    with ThreadPoolExecutor(1) as worker:
        return worker.submit(asyncio.run, work).result(patience_seconds)
