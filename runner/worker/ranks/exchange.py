"""Passes values between the ranks of a script, in the process of their run, without torch."""

import json
import re
import socket
import threading
from contextlib import suppress
from typing import Any

CONSEQUENCE = re.compile(r"[Cc]onnection (closed|reset|refused)|Socket Timeout|NCCL|Broken pipe")
"""Errors of a rank that follow from the end of other ranks."""


STANDSTILL = (
    "rank {blocked} waits for another rank before its first step, and rank {waiting} waits within "
    "its own first step until all ranks have begun one: a script whose ranks do not begin a step "
    "together, as those of a pipeline, cannot be measured"
)


class Exchange:
    """Waits for a value of every rank, and sends all values to each."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._given: dict[int, str] = {}
        self._blocked: set[int] = set()
        """Ranks that have not begun a step and wait for others."""

    def join(self, rank: int, connection: socket.socket) -> None:
        with self._lock:
            self._connections[rank] = connection

    def give(self, rank: int, value: str) -> None:
        """Takes what a rank gives, which then waits for the answer."""
        with self._lock:
            self._given[rank] = value
            if len(self._given) < self._num_ranks:
                self._find_standstill()
                return
            values = [self._given[number] for number in sorted(self._given)]
            self._given.clear()
            self._send_all("values", values)

    def block(self, rank: int, is_blocked: bool) -> None:
        """Takes whether a rank waits for others before its first step."""
        with self._lock:
            (self._blocked.add if is_blocked else self._blocked.discard)(rank)
            self._find_standstill()

    def _find_standstill(self) -> None:
        """Tells the blocked ranks if no rank can go on."""
        waiting = set(self._given) - self._blocked
        if waiting and self._blocked and len(waiting | self._blocked) == self._num_ranks:
            reason = STANDSTILL.format(blocked=min(self._blocked), waiting=min(waiting))
            self._send_all("standstill", [reason])

    def end(self, rank: int, num_steps: int) -> None:
        """Tells all ranks that the script of one has ended."""
        with self._lock:
            self._send_all("ended", [rank, num_steps])

    def _send_all(self, kind: str, content: list[Any]) -> None:
        line = json.dumps({"kind": kind, "content": content}).encode() + b"\n"
        for connection in self._connections.values():
            with suppress(OSError):  # The rank is gone, which others notice.
                connection.sendall(line)
