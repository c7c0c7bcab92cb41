"""The turn of a run of several ranks: rank 0 has it from the supervisor and shares it."""

import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

from breakeven.runner.supervision.exits import WorkerExit
from breakeven.runner.supervision.turns import Turn, TurnTaker
from breakeven.runner.worker.ranks.group import Group
from breakeven.runner.worker.turn_source import leave

STOPPING_SECONDS = 2.0
"""How long ranks that were asked to stop may take to come to the end of a block: less than a run on
one device has, because the run's process ends after them."""


class Termination:
    """SIGTERM to a rank: noted at once and acted on in time, also while the main thread waits in a
    collective, where Python runs no handler."""

    def __init__(self, save: Callable[[], None]) -> None:
        """`save` writes down what is buffered."""
        self.is_asked = False
        self.when_asked: Callable[[], None] = lambda: None
        self._save = save
        self._woken, wakes = socket.socketpair()
        wakes.setblocking(False)
        self._wakes = wakes
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _nothing)
        threading.Thread(target=self._listen, name="termination", daemon=True).start()

    def _listen(self) -> None:
        while not set(self._woken.recv(16)) & {signal.SIGTERM, signal.SIGINT}:
            pass
        self.is_asked = True
        self.when_asked()
        time.sleep(STOPPING_SECONDS)
        leave(self._save, WorkerExit.CANCELLED)


def _nothing(number: int, frame: FrameType | None) -> None:
    """A signal without a handler would end the process before anything is saved."""


class SharedTurns:
    """Turns as every rank gets them. Whether to stop is agreed on between blocks alone, because a
    rank that left a block early would leave the others waiting in it."""

    def __init__(self, group: Group, source: TurnTaker | None, termination: Termination) -> None:
        """`source`: rank 0's, of a run that is supervised."""
        self.stop_requested = False
        self._group = group
        self._source = source
        self._termination = termination
        self._round = -1
        if source is not None:
            termination.when_asked = source.interrupt
            if termination.is_asked:
                source.interrupt()

    def ready(self) -> None:
        self._group.barrier()
        if self._source is not None:
            self._source.ready()

    def wait(self) -> Turn | None:
        (turn,) = self._group.share([self._next()] if self._group.rank == 0 else None)
        self.stop_requested = turn is None
        return turn

    def done(self, *, finished: bool) -> None:
        if self._source is not None:
            self._source.done(finished=finished)

    def _next(self) -> Turn | None:
        if self._termination.is_asked:
            return None
        if self._source is not None:
            return self._source.wait()
        self._round += 1
        return Turn(round=self._round, position=0)
