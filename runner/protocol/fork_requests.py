"""How the supervisor asks a process that has imported what runs import for copies of itself.

Both have an end of a socket, on which each message is one packet. The process says when it is
loaded. A request brings the descriptors that the new run inherits; the answer is the number of the
new process, or why there is none. The process ends when the supervisor's end is closed.
"""

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

from breakeven.runner.texts import read_json

FORK_OPTION = "--fork-runs"
"""Option of the worker's command, before the number of its socket, the folder of a run like those
that it forks, and `ROOM`."""
ROOM = "." * 255
"""An argument in place of the longest name of a folder: the copies write their own arguments over
the command, so that the system's list of processes shows which run they are."""
MOST_BYTES = 4096
REQUEST = b"fork"


class ForkClient:
    """The supervisor's end."""

    def __init__(self) -> None:
        self._socket, self._server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @property
    def server_fd(self) -> int:
        """The descriptor that the process must inherit."""
        return self._server_end.fileno()

    def close_server_end(self) -> None:
        """Closes the other end once the process has it; else its death would not be noticed."""
        self._server_end.close()

    def ask(self, descriptors: Sequence[int], seconds: float) -> dict[str, Any]:
        """Asks for a copy that gets these descriptors; returns the answer. Raises `OSError`, also
        if none comes in time."""
        self._socket.settimeout(seconds)
        socket.send_fds(self._socket, [REQUEST], descriptors)
        return self._read()

    def hear(self) -> dict[str, Any] | None:
        """What the process says by itself; None if it says nothing now. Raises `OSError` if it is
        gone."""
        self._socket.settimeout(0.0)
        try:
            return self._read()
        except BlockingIOError:
            return None

    def _read(self) -> dict[str, Any]:
        message = self._socket.recv(MOST_BYTES)
        if not message:
            raise ConnectionResetError("its process has ended")
        content = read_json(message)
        return content if isinstance(content, dict) else {}

    def close(self) -> None:
        self._socket.close()


class ForkListener:
    """The end of the process that is copied."""

    def __init__(self, descriptor: int) -> None:
        # What it forks or starts must not keep the socket open.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)

    def say(self, **fields: object) -> None:
        """Sends a message; one that nobody can read any more is lost."""
        try:
            self._socket.send(json.dumps(fields).encode()[:MOST_BYTES])
        except OSError:
            return

    def next_request(self) -> list[int] | None:
        """The descriptors of the next request; None once the supervisor needs no more copies."""
        message, descriptors, _, _ = socket.recv_fds(self._socket, MOST_BYTES, 2)
        return list(descriptors) if message else None

    def close(self) -> None:
        self._socket.close()
