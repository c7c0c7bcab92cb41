"""One rank of a run, started by torchrun's elastic launch:

python -m breakeven.runner.worker.ranks.rank RUN_FOLDER SOCKET [RENDEZVOUS_FILE]

The rank ends when its socket to the run's process closes. Rank 0 gets the turn from the supervisor
and shares it.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from breakeven.runner.machine.placement import placed
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.protocol.turns import Turn, TurnTaker
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.before_torch import (
    function_of,
    loading,
    name_of_visible,
    only_own_packages,
)
from breakeven.runner.worker.event_log import EventLog, SilentLog
from breakeven.runner.worker.process_end import describe_failure, leave_in_time, status_after
from breakeven.runner.worker.ranks.lifeline import Lifeline
from breakeven.runner.worker.turn_source import Turns, end_abandoned, leave

if TYPE_CHECKING:
    from breakeven.runner.worker.context import RankGroup
    from breakeven.runner.worker.device.base import Device

STOPPING_SECONDS = 2.0
"""Time for ranks that must stop to reach the end of a block, shorter than for a run on one device,
because the run's process ends after its ranks."""


class Termination:
    """Receives SIGTERM at once and ends the rank in time, even while the main thread waits in a
    collective, during which Python runs no handler."""

    def __init__(self, save: Callable[[], None]) -> None:
        """`save` writes the buffered rows."""
        self.is_requested = False
        self.when_requested: Callable[[], None] = lambda: None
        self._save = save
        self._woken, wakes = socket.socketpair()
        wakes.setblocking(False)
        self._wakes = wakes
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            # Without a handler, the signal would end the process before it saves its rows.
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._listen, name="termination", daemon=True).start()

    def _listen(self) -> None:
        while not set(self._woken.recv(16)) & {signal.SIGTERM, signal.SIGINT}:
            pass
        self.is_requested = True
        self.when_requested()
        time.sleep(STOPPING_SECONDS)
        leave(self._save, WorkerExit.CANCELLED)


class SharedTurns(Turns):
    """Turns of all ranks. They agree to stop only between blocks, because other ranks would wait
    for a rank that leaves a block early."""

    def __init__(
        self, group: "RankGroup", taker: TurnTaker | None, termination: Termination, log: EventLog
    ) -> None:
        """`taker` is only for rank 0 of a supervised run."""
        super().__init__(taker, log=log)
        self._group = group
        self._termination = termination
        if taker is not None:
            termination.when_requested = taker.interrupt
            if termination.is_requested:
                taker.interrupt()

    def ready(self) -> None:
        self._group.gather(None)  # waits for all ranks
        super().ready()

    def _next(self) -> Turn | None:
        sent = [self._next_of_all()] if self._group.rank == 0 else None
        (turn,) = self._group.share(sent)
        self.stop_requested = turn is None
        return turn

    def _next_of_all(self) -> Turn | None:
        return None if self._termination.is_requested else super()._next()


def main() -> int:
    only_own_packages()
    run = RunDir(Path(sys.argv[1]))
    rank = int(os.environ["RANK"])
    lifeline = Lifeline(rank, sys.argv[2])
    log = EventLog(run.events_file) if rank == 0 else SilentLog()
    termination = Termination(lambda: log.flush(durable=True))
    try:
        finished = _work(run, lifeline, log, termination)
        log.close()
        status = WorkerExit.FINISHED if finished else WorkerExit.CANCELLED
    except Exception as error:
        fields = describe_failure(error)
        status = WorkerExit.CANCELLED if termination.is_requested else status_after(error)
        log.close_as_it_is()
        lifeline.send("failed", status=status, **fields)
    lifeline.close()
    leave_in_time(status)
    return status


def _work(run: RunDir, lifeline: Lifeline, log: EventLog, termination: Termination) -> bool:
    def abandoned() -> None:
        lifeline.send("abandoned")
        end_abandoned(lambda: log.flush(durable=True))

    # First, to notice the supervisor's death from the beginning.
    taker = None
    if lifeline.turn_fds:
        read_fd, write_fd = lifeline.turn_fds
        taker = TurnTaker(read_fd, write_fd, abandoned)
    spec = placed(spec_in_use(run), os.environ)
    with loading():
        work = function_of(spec.experiment.entry)
    device, group = _device_and_group(spec, lifeline)
    turns = SharedTurns(group, taker, termination, log)
    finished = work(run, spec, log, turns, device, group)
    group.close()
    return finished


def _device_and_group(spec: RunSpec, lifeline: Lifeline) -> "tuple[Device, RankGroup]":
    from breakeven.runner.worker.context import DistributedGroup
    from breakeven.runner.worker.device.device_kinds import open_device
    from breakeven.runner.worker.ranks.script_group import ScriptGroup

    place = int(os.environ["LOCAL_RANK"])
    name = spec.experiment.devices[place]
    if not spec.experiment.workload.is_own_program:
        device = open_device(name)
        return device, DistributedGroup(device, *sys.argv[3:])
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    group = ScriptGroup(rank, size, lifeline)
    return open_device(name_of_visible(name, place)), group


if __name__ == "__main__":
    sys.exit(main())
