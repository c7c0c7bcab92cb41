"""Passes values between the ranks of a script, in the process of their run, without torch."""

import json
import re
import socket
import threading
from contextlib import suppress
from typing import Any

CONSEQUENCE = re.compile(r"[Cc]onnection (closed|reset|refused)|Socket Timeout|NCCL|Broken pipe")
"""Errors of a rank that follow from the end of other ranks."""


class Exchange:
    """Waits for a value of every rank, and sends all values to each."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        self._given: dict[int, str] = {}

    def join(self, rank: int, connection: socket.socket) -> None:
        with self._lock:
            self._connections[rank] = connection

    def give(self, rank: int, value: str) -> None:
        """Takes what a rank gives, which then waits for the answer."""
        with self._lock:
            self._given[rank] = value
            if len(self._given) < self._num_ranks:
                return
            values = [self._given[number] for number in sorted(self._given)]
            self._given.clear()
            self._send_all("values", values)

    def end(self, rank: int, num_steps: int) -> None:
        """Tells all ranks that the script of one has ended."""
        with self._lock:
            self._send_all("ended", [rank, num_steps])

    def _send_all(self, kind: str, content: list[Any]) -> None:
        line = json.dumps({"kind": kind, "content": content}).encode() + b"\n"
        for connection in self._connections.values():
            with suppress(OSError):  # The rank is gone, which others notice.
                connection.sendall(line)
