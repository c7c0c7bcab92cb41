"""Connects the run's process with its ranks, by a socket to each rank. Rank 0 gets the turn pipes;
ranks send heartbeats and failures.

Every message is a line of JSON. A rank sends `hello` with its number and process id, then `beat`
every second, and before it fails, `failed` with the fields of an `error` event.
"""

import contextlib
import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.runner.folders.process import signal_group

SILENCE_SECONDS = 20.0
"""Time without heartbeats after which a rank counts as hung: longer than any call of a compiler or
driver blocks all threads of a process."""
CLOSING_SECONDS = 4.0
"""Time for ranks that must end, a little longer than their own time limit."""
TICK_SECONDS = 0.25


@dataclass
class RankFailure:
    """The failure of a rank."""

    rank: int
    status: int | None
    """The exit status that it announced, if any."""
    fields: dict[str, Any]
    """Fields of an `error` event."""


class RankListener:
    """Listens to each rank in a separate thread; the main thread belongs to elastic."""

    def __init__(self, turn_fds: Sequence[int]) -> None:
        """Sends `turn_fds` to rank 0, then closes them here; they are empty for a run without a
        supervisor."""
        self.failures: list[RankFailure] = []
        """Failures in the order of their reports."""
        self.was_abandoned = False
        """Whether rank 0 reported that the supervisor is gone."""
        self._turn_fds = list(turn_fds)
        self._folder = tempfile.TemporaryDirectory(prefix="breakeven-")
        self.address = str(Path(self._folder.name) / "ranks")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.address)
        self._server.listen()
        self._server.settimeout(TICK_SECONDS)
        self._pids: set[int] = set()
        self._is_open = True
        self._kill_at: float | None = None
        self._thread = threading.Thread(target=self._accept, name="rank listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening, and kills the remaining ranks."""
        self._is_open = False
        self._thread.join()
        self._kill_all()
        self._server.close()
        self._folder.cleanup()

    def close_in_time(self) -> None:
        """Kills ranks that do not end soon."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + CLOSING_SECONDS

    def _accept(self) -> None:
        while self._is_open:
            with contextlib.suppress(TimeoutError):
                connection, _ = self._server.accept()
                connection.settimeout(SILENCE_SECONDS)
                threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                self._kill_all()

    def _listen(self, connection: socket.socket) -> None:
        rank, pid = -1, 0
        with connection, connection.makefile("rb") as lines, contextlib.suppress(OSError):
            try:
                for line in lines:
                    if not line.endswith(b"\n"):  # the rank was killed meanwhile
                        break
                    message = json.loads(line)
                    if message.get("kind") == "hello":
                        rank, pid = message["rank"], message["pid"]
                        self._pids.add(pid)
                        self._send_turn_fds(connection, rank)
                    else:
                        self._take(rank, message)
            except TimeoutError:
                self._give_up(rank)
        if pid:
            # Processes that the rank started belong to its session and end with it.
            self._kill(pid)
            self._pids.discard(pid)

    def _send_turn_fds(self, connection: socket.socket, rank: int) -> None:
        fds = self._turn_fds if rank == 0 else []
        socket.send_fds(connection, [b"\n"], fds)
        for fd in fds:
            os.close(fd)
        fds.clear()

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        match message.pop("kind"):
            case "failed":
                self.failures.append(RankFailure(rank, message.pop("status"), message))
                self.close_in_time()
            case "abandoned":
                self.was_abandoned = True

    def _give_up(self, rank: int) -> None:
        """Reports a silent rank; elastic then ends the other ranks."""
        message = (
            f"rank {rank} was silent for {SILENCE_SECONDS:g} s (stopped, hung, or swapped "
            "out) and was killed"
        )
        self.failures.append(RankFailure(rank, None, {"error": "RankLost", "message": message}))
        self.close_in_time()

    def _kill_all(self) -> None:
        for pid in list(self._pids):
            self._kill(pid)

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(PermissionError):
            signal_group(pid, signal.SIGKILL)
