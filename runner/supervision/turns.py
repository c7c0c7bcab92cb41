"""One turn per device, passed over pipes: only the holder of the turn may use the device.

The supervisor keeps a `TurnPost` per run, the run a `TurnTaker`. Lines of JSON go both ways:

    supervisor -> run    {"round": 3, "position": 1,
                          "last": null}                  your turn: one block, please
    run -> supervisor    {"say": "ready"}               set up; waiting for the first turn
                         {"say": "done", "round": 3}    block over, more to come
                         {"say": "finished",
                          "round": 3}                   last block over

What answers no turn that is out, and what is no such line, changes nothing: code of a person's own
may write into any descriptor, or have what was written before written again by a child that it
forks.

Both pipes double as lifelines. A closed reply pipe tells the supervisor that the run is gone; a
closed turn pipe tells the run that the supervisor is gone, and the run ends itself and its whole
process group, so that no training continues unobserved.
"""

import json
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from breakeven.runner.supervision.stopping_rule import Ending
from breakeven.runner.texts import read_json

TURN_PIPES_VARIABLE = "BREAKEVEN_TURN_PIPES"
"""Environment variable that hands a run its two descriptors, as "read,write"."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The permission to run one block; `position` is the place in the round's order."""

    round: int
    position: int
    last: Ending | None = None
    """Why no block will follow this one; None if that is not decided."""


class TurnPost:
    """The supervisor's end: gives turns, reads replies."""

    def __init__(self) -> None:
        self._run_reads, self._give = os.pipe()
        self.replies, self._run_writes = os.pipe()
        os.set_blocking(self.replies, False)
        self._unread = b""
        self._was_ready = False
        self._round: int | None = None
        """Of the turn that has not come back."""

    @property
    def run_fds(self) -> tuple[int, int]:
        """Descriptors that the run must inherit."""
        return self._run_reads, self._run_writes

    def close_run_ends(self) -> None:
        """Forgets the run's ends, once it has inherited them; else its death would go unseen."""
        os.close(self._run_reads)
        os.close(self._run_writes)

    def give(self, turn: Turn) -> bool:
        """Passes the turn; False if the run is already gone."""
        try:
            os.write(self._give, _line(**asdict(turn)))
        except BrokenPipeError:
            return False
        self._round = turn.round
        return True

    def read(self) -> list[str]:
        """Messages of the run since the last look: `ready`, `done`, `finished`, or `gone`."""
        ended = []
        while True:
            try:
                data = os.read(self.replies, 4096)
            except BlockingIOError:
                break
            if not data:
                ended.append("gone")
                break
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        return [word for line in lines if (word := self._word(line)) is not None] + ended

    def _word(self, line: bytes) -> str | None:
        """What a line says, if it is for this moment."""
        try:
            content = read_json(line)
            word, number = content["say"], content.get("round")
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        if word == "ready" and not self._was_ready:
            self._was_ready = True
            return "ready"
        if word in ("done", "finished") and self._round is not None and number == self._round:
            self._round = None
            return str(word)
        return None

    def close(self) -> None:
        os.close(self._give)
        os.close(self.replies)


class TurnTaker:
    """The run's end: waits for turns, says when a block is over.

    A daemon thread blocks on the turn pipe, at no cost, so that the supervisor's death is noticed
    even in the middle of a long block; it then calls `on_abandoned`.
    """

    def __init__(self, read_fd: int, write_fd: int, on_abandoned: Callable[[], None]) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._on_abandoned = on_abandoned
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._round: int | None = None
        """Of the turn that this run has."""
        threading.Thread(target=self._listen, name="turns", daemon=True).start()

    @classmethod
    def from_environment(cls, on_abandoned: Callable[[], None]) -> "TurnTaker | None":
        """The end that the supervisor handed down, or None for a run started by hand."""
        descriptors = os.environ.pop(TURN_PIPES_VARIABLE, "")
        if not descriptors:
            return None
        read_fd, write_fd = map(int, descriptors.split(","))
        # Compilers and data loaders that the run starts must not keep the pipes open.
        os.set_inheritable(read_fd, False)
        os.set_inheritable(write_fd, False)
        return cls(read_fd, write_fd, on_abandoned)

    def ready(self) -> None:
        self._say(say="ready")

    def wait(self) -> Turn | None:
        """Blocks until it is this run's turn; None once `interrupt` was called."""
        turn = self._turns.get()
        if turn is not None:
            self._round = turn.round
        return turn

    def interrupt(self) -> None:
        """Ends a `wait`, now or the next; may be called from a signal handler."""
        self._turns.put(None)

    def done(self, *, finished: bool) -> None:
        """Hands the turn back."""
        self._say(say="finished" if finished else "done", round=self._round)

    def _say(self, **fields: object) -> None:
        try:
            os.write(self._write_fd, _line(**fields))
        except BrokenPipeError:
            self._on_abandoned()

    def _listen(self) -> None:
        with os.fdopen(self._read_fd, "rb") as pipe:
            for line in pipe:
                fields = read_json(line)
                last = fields.pop("last")
                self._turns.put(Turn(**fields, last=last and Ending.from_dict(last)))
        self._on_abandoned()


def _line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"
