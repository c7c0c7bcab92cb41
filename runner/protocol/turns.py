"""Passes one turn per device over pipes: only the holder of the turn may use the device.

The supervisor keeps a `TurnPost` per run, the run a `TurnTaker`. Lines of JSON go both ways:

    supervisor -> run    {"round": 3, "position": 1,
                          "last": null,
                          "block_steps": null,
                          "again": false}                your turn: compute one block
    supervisor -> run    {"run": "runs/X.inductor"}     a forked process becomes this run
    run -> supervisor    {"say": "ready"}               set up; waits for the first turn
                         {"say": "done", "round": 3}    block over, more to come
                         {"say": "finished",
                          "round": 3}                   last block over

Replies to no current turn and all other lines are ignored: a user's code may write into any
descriptor, or fork a child that repeats earlier output.

Both pipes also show that the other side is alive. A closed reply pipe tells the supervisor that the
run is gone. A closed turn pipe tells the run that the supervisor is gone: the run then ends itself
and its whole process group, so that no training continues unobserved.
"""

import json
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from breakeven.runner.protocol.endings import Ending
from breakeven.runner.texts import read_json

TURN_PIPES_VARIABLE = "BREAKEVEN_TURN_PIPES"
"""Environment variable with the two descriptors of a run, as "read,write"."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The permission to run one block; `position` is the place in the round's order."""

    round: int
    position: int
    last: Ending | None = None
    """Why this block is the last one; None if another may follow."""
    block_steps: int | None = None
    """Most steps of each block after this one; None for those of the experiment."""
    again: bool = False
    """Whether a training that ends with this block starts again: more rounds are needed."""


class TurnPost:
    """The supervisor's end: gives turns, reads replies."""

    def __init__(self) -> None:
        self._run_reads, self._give = os.pipe()
        self.replies, self._run_writes = os.pipe()
        os.set_blocking(self.replies, False)
        self._unread = b""
        self._was_ready = False
        self._round: int | None = None
        """Round of the turn that has not been returned."""

    @property
    def run_fds(self) -> tuple[int, int]:
        """Descriptors that the run must inherit."""
        return self._run_reads, self._run_writes

    def close_run_ends(self) -> None:
        """Closes the run's ends once it has inherited them; else its death would not be noticed."""
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

    def assign(self, run_folder: Path) -> None:
        """Makes a forked process this run. Raises `OSError` if the process is gone."""
        os.write(self._give, _line(run=str(run_folder)))

    def read(self) -> list[str]:
        """New messages of the run: `ready`, `done`, `finished`, or `gone`."""
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
        """The message in a line, or None if it does not fit the current state."""
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


def wait_for_run(read_fd: int) -> Path | None:
    """Blocks until this forked process becomes a run; returns the run's folder, or None if the
    supervisor needs it no longer."""
    line = b""
    while not line.endswith(b"\n"):  # Further lines are turns, which belong to the `TurnTaker`.
        read = os.read(read_fd, 1)
        if not read:
            return None
        line += read
    return Path(read_json(line)["run"])


class TurnTaker:
    """The run's end: waits for turns, reports the end of each block.

    A daemon thread blocks on the turn pipe, at no cost. It notices the supervisor's death even
    during a long block and calls `on_abandoned`.
    """

    def __init__(self, read_fd: int, write_fd: int, on_abandoned: Callable[[], None]) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._on_abandoned = on_abandoned
        self._turns: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self._round: int | None = None
        """Round of this run's current turn."""
        threading.Thread(target=self._listen, name="turns", daemon=True).start()

    @classmethod
    def from_environment(cls, on_abandoned: Callable[[], None]) -> "TurnTaker | None":
        """The end that the run inherited from the supervisor, or None for a run started by hand."""
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
        """Blocks until this run has the turn; returns None after a call of `interrupt`."""
        turn = self._turns.get()
        if turn is not None:
            self._round = turn.round
        return turn

    def interrupt(self) -> None:
        """Ends the current or the next `wait`; may be called from a signal handler."""
        self._turns.put(None)

    def done(self, *, finished: bool) -> None:
        """Returns the turn."""
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
