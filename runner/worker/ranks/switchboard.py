"""The run's process in touch with its ranks: a socket to each, over which it hands rank 0 the turn
pipes, and hears that they live and what went wrong with them.

Every message is a line of JSON. A rank says `hello` with its number and process id, then `beat`
every second, and before it fails `failed` with the fields of an `error` event.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from breakeven.runner.folders.process import signal_group

SILENCE_SECONDS = 20.0
"""How long a rank may be silent before it counts as hung: longer than any call of a compiler or a
driver holds up all threads of a process."""
CLOSING_SECONDS = 4.0
"""How long ranks may take to leave once they shall: a little longer than they give themselves."""
TICK_SECONDS = 0.25


@dataclass
class RankFailure:
    """Why a rank did not come to its end."""

    rank: int
    status: int | None
    """The exit status that it announced; None for one that could say nothing."""
    fields: dict[str, Any]
    """Of an `error` event."""


@dataclass
class _Line:
    """What is known of one rank."""

    connection: socket.socket
    rank: int = -1
    pid: int = 0
    unread: bytes = b""
    heard: float = field(default_factory=time.monotonic)
    is_silenced: bool = False


class Switchboard:
    """Listens to the ranks in a thread of its own; the main thread belongs to elastic."""

    def __init__(self, turn_fds: Sequence[int]) -> None:
        """`turn_fds` go to rank 0, and are closed here once it has them; none for a run without
        a supervisor."""
        self.failures: list[RankFailure] = []
        """In the order in which they were heard of."""
        self.was_abandoned = False
        """Whether rank 0 reported that the supervisor is gone."""
        self._turn_fds = list(turn_fds)
        self._folder = tempfile.TemporaryDirectory(prefix="breakeven-")
        self.address = str(Path(self._folder.name) / "ranks")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.address)
        self._server.listen()
        self._lines: list[_Line] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._is_open = True
        self._kill_at: float | None = None
        self._thread = threading.Thread(target=self._listen, name="switchboard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening; ranks that are still there are killed."""
        self._is_open = False
        self._thread.join()
        for line in self._lines:
            self._kill(line)
            line.connection.close()
        self._server.close()
        self._selector.close()
        self._folder.cleanup()

    def close_in_time(self) -> None:
        """Has those killed that have not left soon."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + CLOSING_SECONDS

    def _listen(self) -> None:
        while self._is_open:
            for key, _ in self._selector.select(TICK_SECONDS):
                if key.fileobj is self._server:
                    self._answer()
                else:
                    self._hear(key.data)
            now = time.monotonic()
            for line in list(self._lines):
                if now - line.heard > SILENCE_SECONDS and not line.is_silenced:
                    self._give_up(line)
                elif self._kill_at is not None and now > self._kill_at:
                    self._kill(line)

    def _answer(self) -> None:
        connection, _ = self._server.accept()
        line = _Line(connection)
        self._lines.append(line)
        self._selector.register(connection, selectors.EVENT_READ, line)

    def _hear(self, line: _Line) -> None:
        try:
            data = line.connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(line.connection)
            line.connection.close()
            self._lines.remove(line)
            # What it started lives in its session, and ends with it.
            self._kill(line)
            return
        line.heard = time.monotonic()
        *whole, line.unread = (line.unread + data).split(b"\n")
        for text in whole:
            self._take(line, json.loads(text))

    def _take(self, line: _Line, said: dict[str, Any]) -> None:
        match said.pop("say"):
            case "hello":
                line.rank, line.pid = said["rank"], said["pid"]
                fds = self._turn_fds if line.rank == 0 else []
                socket.send_fds(line.connection, [b"\n"], fds)
                for fd in fds:
                    os.close(fd)
                fds.clear()
            case "failed":
                status = said.pop("status")
                self.failures.append(RankFailure(line.rank, status, said))
                self.close_in_time()
            case "abandoned":
                self.was_abandoned = True

    def _give_up(self, line: _Line) -> None:
        """Kills a rank that says nothing; elastic then ends the others."""
        line.is_silenced = True
        message = (
            f"rank {line.rank} was silent for {SILENCE_SECONDS:g} s (stopped, hung, or swapped "
            "out) and was killed"
        )
        self.failures.append(
            RankFailure(line.rank, None, {"error": "RankLost", "message": message})
        )
        self._kill(line)
        self.close_in_time()

    def _kill(self, line: _Line) -> None:
        if line.pid:
            with contextlib.suppress(PermissionError):
                signal_group(line.pid, signal.SIGKILL)
