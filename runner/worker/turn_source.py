"""Sources of turns: a supervisor, or, for a run started by hand, the run itself."""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from breakeven.runner.processes import signal_group
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.turns import Turn, TurnTaker
from breakeven.runner.worker.event_log import EventLog

SAVING_SECONDS = 1.0
"""Time for writing the journal of a run that must end at once."""
STOPPING_SECONDS = 3.0
"""Time for finishing the step of a run that must stop."""


class Turns:
    """The turns of a supervisor; without one, of a run that shares its device with no other run.

    The journal says when turns begin and end, so that pages show whose turn it is. No clock runs
    meanwhile.
    """

    def __init__(
        self,
        taker: TurnTaker | None = None,
        checked: Callable[[], None] = lambda: None,
        log: EventLog | None = None,
    ) -> None:
        """`checked` returns once the experiment may train."""
        self.stop_requested = False
        """Whether the run has to stop at the next step."""
        self._taker, self._checked, self._log = taker, checked, log
        self._round = -1

    def ready(self) -> None:
        """Reports that everything is set up for the first turn."""
        self._checked()
        if self._taker is not None:
            self._taker.ready()

    def wait(self) -> Turn | None:
        """Blocks until it is this run's turn; None if the run has to stop instead."""
        turn = self._next()
        if turn is not None:
            self._record("training")
        return turn

    def done(self, *, finished: bool) -> None:
        """Gives the turn back after a block; `finished` after the last one."""
        if not finished:  # otherwise the run records its end
            self._record("waiting")
        if self._taker is not None:
            self._taker.done(finished=finished)

    def _next(self) -> Turn | None:
        if self._taker is not None:
            return self._taker.wait()
        self._round += 1
        return None if self.stop_requested else Turn(round=self._round, position=0)

    def _record(self, phase: str) -> None:
        if self._log is not None:
            self._log.append("phase", phase=phase)
            self._log.flush()


def open_turns(
    save: Callable[[], None],
    checked: Callable[[], None] = lambda: None,
    log: EventLog | None = None,
) -> Turns:
    """The supervisor's turns, else the run's own. `save` writes buffered rows before an abandoned
    run kills itself; `checked` returns once the experiment may train. SIGTERM stops the run, and
    so does the supervisor's death."""
    taker = TurnTaker.from_environment(lambda: end_abandoned(save))
    turns = Turns(taker, checked, log)

    def leave_in_time() -> None:
        """Ends the process: compilations and long steps do not notice a request to stop."""
        time.sleep(STOPPING_SECONDS)
        leave(save, WorkerExit.CANCELLED)

    def stop(number: int, frame: FrameType | None) -> None:
        is_first, turns.stop_requested = not turns.stop_requested, True
        if taker is not None and is_first:
            taker.interrupt()
            threading.Thread(target=leave_in_time, daemon=True).start()

    for number in (signal.SIGTERM,) if taker is not None else (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return turns


def end_abandoned(save: Callable[[], None]) -> None:
    """Writes the journal within a time limit, then kills this process and its children."""
    _save_in_time(save)
    signal_group(os.getpgrp(), signal.SIGKILL)
    time.sleep(SAVING_SECONDS)


def leave(save: Callable[[], None], status: int) -> NoReturn:
    """Writes the journal within a time limit, then ends this process."""
    _save_in_time(save)
    os._exit(status)


def _save_in_time(save: Callable[[], None]) -> None:
    """Saves, but gives up soon if the journal is locked or the disk does not answer."""
    saving = threading.Thread(target=save, daemon=True)
    saving.start()
    saving.join(SAVING_SECONDS)
