"""Takes part in a run as an additional machine; arguments: RUN_FOLDER NUMBER.

It starts the ranks of this machine, which connect to the ranks of the first machine. The first
machine takes the turns, writes the journal and ends the run.
"""

import os
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.meetings import Meeting, Meetings
from breakeven.runner.folders.run_dir import RunDir, spec_in_use
from breakeven.runner.machine.placement import DEVICES_VARIABLE, placed
from breakeven.runner.supervision.exits import WorkerExit
from breakeven.runner.worker.process import prepare
from breakeven.runner.worker.ranks.elastic import RankListener, run_ranks

LOOK_SECONDS = 1.0
CLOSING_SECONDS = 10.0
"""Time that it continues after its run, for ranks to notice the end of other ranks."""


def main() -> int:
    run, number = RunDir(Path(sys.argv[1])), int(sys.argv[2])
    meetings = Meetings(DataDir(run.path.parent.parent))
    meeting = meetings.read(run.run_id)
    if meeting is None:
        sys.stderr.write(f"{run.run_id} has no place to meet\n")
        return WorkerExit.FAILED
    threading.Thread(target=_watch, args=(run, meetings, meeting), daemon=True).start()
    os.environ[DEVICES_VARIABLE] = ",".join(meeting.devices)
    spec = placed(spec_in_use(run), os.environ)
    prepare(spec, run)
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        # Compile caches should not lie on a network drive.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        listener = RankListener([])
        meetings.come(run.run_id, number)
        try:
            failure = run_ranks(run, spec, listener, meeting, number)
        finally:
            listener.close()
    if failure is None or failure.status == WorkerExit.CANCELLED:
        return WorkerExit.FINISHED
    meetings.fail(run.run_id, number, asdict(failure))
    return WorkerExit.FAILED


def _watch(run: RunDir, meetings: Meetings, meeting: Meeting) -> None:
    """Ends this process and its ranks when the run is over or has begun again without it."""
    while not _is_over(run) and meetings.read(run.run_id) == meeting:
        time.sleep(LOOK_SECONDS)
    time.sleep(CLOSING_SECONDS)
    os._exit(WorkerExit.CANCELLED)


def _is_over(run: RunDir) -> bool:
    try:
        return run.is_recorded
    except RunnerError:
        return True


if __name__ == "__main__":
    sys.exit(main())
