"""`python -m runner.worker.launching.rank <run folder>`: one rank of a run."""

import os
import sys
from pathlib import Path

from runner.folders.moved import spec_in_use
from runner.folders.run_dir import RunDir
from runner.supervision.exits import WorkerExit
from runner.supervision.placing import placed
from runner.supervision.turns import TurnTaker
from runner.worker.event_log import EventLog, SilentLog
from runner.worker.launching.lifeline import Lifeline
from runner.worker.launching.turns import SharedTurns, Termination
from runner.worker.process import describe_failure, leave_in_time, loading, status_after
from runner.worker.turn_source import end_abandoned


def main() -> int:
    run = RunDir(Path(sys.argv[1]))
    rank = int(os.environ["RANK"])
    lifeline = Lifeline(rank)
    log = EventLog(run.events_file) if rank == 0 else SilentLog()
    termination = Termination(lambda: log.flush(durable=True))
    try:
        finished = _work(run, lifeline, log, termination)
        log.close()
        status = WorkerExit.FINISHED if finished else WorkerExit.CANCELLED
    except Exception as error:
        fields = describe_failure(error)
        status = WorkerExit.CANCELLED if termination.is_asked else status_after(error)
        log.close_as_it_is()
        lifeline.say("failed", status=status, **fields)
    lifeline.close()
    leave_in_time(status)
    return status


def _work(run: RunDir, lifeline: Lifeline, log: EventLog, termination: Termination) -> bool:
    def abandoned() -> None:
        lifeline.say("abandoned")
        end_abandoned(lambda: log.flush(durable=True))

    # The supervisor's death must be seen from the beginning on.
    source = None
    if lifeline.turn_fds:
        read_fd, write_fd = lifeline.turn_fds
        source = TurnTaker(read_fd, write_fd, abandoned)
    spec = placed(spec_in_use(run), os.environ)
    with loading():
        from runner.worker.device.finding import open_device
        from runner.worker.ranks.group import RankGroup
        from runner.worker.session import run_session

    place = spec.experiment.devices[int(os.environ["LOCAL_RANK"])]
    device = open_device(place)
    group = RankGroup(device)
    turns = SharedTurns(group, source, termination)
    finished = run_session(run, spec, log, turns, device, group)
    group.close()
    return finished


if __name__ == "__main__":
    sys.exit(main())
