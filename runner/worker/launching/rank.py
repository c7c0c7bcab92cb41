"""One rank of a run, started by torchrun's elastic launch:

python -m breakeven.runner.worker.launching.rank RUN_FOLDER SWITCHBOARD [RENDEZVOUS_FILE]
"""

import os
import sys
from pathlib import Path

from breakeven.runner.folders.moved import spec_in_use
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.machine.placement import placed
from breakeven.runner.supervision.exits import WorkerExit
from breakeven.runner.supervision.turns import TurnTaker
from breakeven.runner.worker.event_log import EventLog, SilentLog
from breakeven.runner.worker.launching.lifeline import Lifeline
from breakeven.runner.worker.launching.turns import SharedTurns, Termination
from breakeven.runner.worker.process import describe_failure, leave_in_time, loading, status_after
from breakeven.runner.worker.turn_source import end_abandoned


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
        from breakeven.runner.worker.device.finding import open_device
        from breakeven.runner.worker.ranks.group import RankGroup
        from breakeven.runner.worker.session import run_session

    place = spec.experiment.devices[int(os.environ["LOCAL_RANK"])]
    device = open_device(place)
    group = RankGroup(device, *sys.argv[3:])
    turns = SharedTurns(group, source, termination)
    finished = run_session(run, spec, log, turns, device, group)
    group.close()
    return finished


if __name__ == "__main__":
    sys.exit(main())
