"""One rank of a run, started by torchrun's elastic launch:

python -m breakeven.runner.worker.ranks.rank RUN_FOLDER SOCKET [RENDEZVOUS_FILE]

The rank ends when its socket to the run's process closes. Rank 0 gets the turn from the supervisor
and shares it.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breakeven.runner.machine.placement import placed
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.protocol.turns import Turn, TurnTaker
from breakeven.runner.worker.event_log import EventLog, SilentLog
from breakeven.runner.worker.process import describe_failure, leave_in_time, loading, status_after
from breakeven.runner.worker.turn_source import Turns, end_abandoned, leave

if TYPE_CHECKING:
    from breakeven.runner.worker.context import RankGroup

BEAT_SECONDS = 1.0
PR_SET_PDEATHSIG = 1
STOPPING_SECONDS = 2.0
"""Time for ranks that must stop to reach the end of a block, shorter than for a run on one device,
because the run's process ends after its ranks."""


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
        with contextlib.suppress(OSError):
            while self._connection.recv(1):
                pass
        if self._is_open:
            os.killpg(os.getpgrp(), signal.SIGKILL)


def _die_with_parent() -> None:
    """Makes Linux kill this process with its parent, even a stopped one, which could not exit."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


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
    source = None
    if lifeline.turn_fds:
        read_fd, write_fd = lifeline.turn_fds
        source = TurnTaker(read_fd, write_fd, abandoned)
    spec = placed(spec_in_use(run), os.environ)
    with loading():
        from breakeven.runner.worker.context import DistributedGroup
        from breakeven.runner.worker.device.device_kinds import open_device
        from breakeven.runner.worker.session import run_session

    place = spec.experiment.devices[int(os.environ["LOCAL_RANK"])]
    device = open_device(place)
    group = DistributedGroup(device, *sys.argv[3:])
    turns = SharedTurns(group, source, termination, log)
    finished = run_session(run, spec, log, turns, device, group)
    group.close()
    return finished


if __name__ == "__main__":
    sys.exit(main())
