"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], patience_seconds: float = 90.0) -> None:
    """Looks again and again; fails when patience ends."""
    deadline = time.monotonic() + patience_seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
