"""A rank's connection to the process of its run."""

import contextlib
import ctypes
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from typing import Any

BEAT_SECONDS = 1.0
PR_SET_PDEATHSIG = 1


class Lifeline:
    """Sends heartbeats from a thread, and kills this process when its listener is gone."""

    def __init__(self, rank: int, address: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(address)
        self._lock = threading.Lock()
        self._is_open = True
        _die_with_parent()
        self.send("hello", rank=rank, pid=os.getpid())
        _, self.turn_fds, *_ = socket.recv_fds(self._connection, 1, 2)
        """Descriptors of the turn pipes, only for rank 0 of a supervised run."""
        self.answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        """Values of all ranks of a script."""
        self.ended: dict[int, int] = {}
        """Number of steps of each rank whose script has ended."""
        self.standstill: str | None = None
        """Why no rank of a script can go on."""
        threading.Thread(target=self._beat, name="beats", daemon=True).start()
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        """Sends a message to the run's process; does nothing if this process is gone."""
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def close(self) -> None:
        """Stops the heartbeats; this process continues even when the listener is gone."""
        self._is_open = False

    def _beat(self) -> None:
        while self._is_open:
            time.sleep(BEAT_SECONDS)
            self.send("beat")

    def _watch(self) -> None:
        with contextlib.suppress(OSError), self._connection.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message["kind"] == "ended":
                    rank, num_steps = message["content"]
                    self.ended[rank] = num_steps
                elif message["kind"] == "standstill":
                    (self.standstill,) = message["content"]
                else:
                    self.answers.put(message["content"])
        if self._is_open:
            os.killpg(os.getpgrp(), signal.SIGKILL)


def _die_with_parent() -> None:
    """Makes Linux kill this process with its parent, even a stopped one, which could not exit."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
