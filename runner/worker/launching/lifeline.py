"""A rank's end of its socket to the run's process: it ends when that does."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

BEAT_SECONDS = 1.0
PR_SET_PDEATHSIG = 1


class Lifeline:
    """Beats in a thread of its own, and kills this process when nobody listens any more."""

    def __init__(self, rank: int, address: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(address)
        self._lock = threading.Lock()
        self._is_open = True
        _die_with_parent()
        self.say("hello", rank=rank, pid=os.getpid())
        _, self.turn_fds, *_ = socket.recv_fds(self._connection, 1, 2)
        """Descriptors of the turn pipes; empty but for rank 0 of a run that is supervised."""
        threading.Thread(target=self._beat, name="beats", daemon=True).start()
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def say(self, word: str, **fields: Any) -> None:
        """Tells the run's process something; one that is gone is told nothing."""
        data = json.dumps({"say": word, **fields}).encode() + b"\n"
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def close(self) -> None:
        """Nothing is said or heard any more."""
        self._is_open = False

    def _beat(self) -> None:
        while self._is_open:
            time.sleep(BEAT_SECONDS)
            self.say("beat")

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while self._connection.recv(1):
                pass
        if self._is_open:
            os.killpg(os.getpgrp(), signal.SIGKILL)


def _die_with_parent() -> None:
    """A stopped process cannot watch anything; on Linux the kernel ends it with its parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
