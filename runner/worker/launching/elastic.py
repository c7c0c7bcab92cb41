"""The run's process where a run has several ranks: it starts them through torchrun's elastic launch
and says how they ended."""

import logging
import os
import sys
import tempfile
from typing import TYPE_CHECKING

from runner.folders.run_dir import RunDir
from runner.specs.experiment import RunSpec
from runner.supervision.exits import WorkerExit, explain
from runner.supervision.turns import TURN_PIPES_VARIABLE
from runner.worker.launching.switchboard import ADDRESS_VARIABLE, Failure, Switchboard
from runner.worker.process import prepare

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig

RANK_MODULE = "runner.worker.launching.rank"


def launch(run: RunDir, spec: RunSpec) -> WorkerExit:
    """Runs all ranks to their end. What went wrong is in the journal then."""
    prepare(spec, run)
    pipes = os.environ.pop(TURN_PIPES_VARIABLE, "")
    board = Switchboard([int(fd) for fd in pipes.split(",") if fd])
    os.environ[ADDRESS_VARIABLE] = board.address
    try:
        return _launch(run, spec, board)
    finally:
        board.close()


def _launch(run: RunDir, spec: RunSpec, board: Switchboard) -> WorkerExit:
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    # What elastic has to say of a failure is said here, in the run's own words.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        started = elastic_launch(_config(spec, folder), sys.executable)
        try:
            started("-u", "-m", RANK_MODULE, str(run.path))
        except SignalException:
            return WorkerExit.CANCELLED
        except ChildFailedError as error:
            failure = _first_failure(board, error)
            board.close()
            if board.was_abandoned or failure.status == WorkerExit.CANCELLED:
                return WorkerExit.CANCELLED
            return _write_down(run, spec, failure)
    return WorkerExit.FINISHED


def _config(spec: RunSpec, folder: str) -> "LaunchConfig":
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig

    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.experiment.num_ranks,
        run_id=spec.run_id,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )


def _first_failure(board: Switchboard, error: "ChildFailedError") -> Failure:
    """A rank that was killed, here or by somebody, could say nothing, and what others say is a
    consequence: a peer closed the connection, they were asked to stop. Else what was heard first.
    """
    heard = sorted(board.failures, key=lambda one: one.status is not None)
    if heard and heard[0].status is None:
        return heard[0]
    for rank, ended in error.failures.items():
        if ended.exitcode < 0:
            return _lost(rank, ended.exitcode)
    told = [failure for failure in heard if failure.status != WorkerExit.CANCELLED]
    if told or heard:
        return (told or heard)[0]
    rank, first = error.get_first_failure()
    return _lost(rank, first.exitcode)


def _lost(rank: int, exitcode: int) -> Failure:
    _, reason = explain(exitcode)
    return Failure(rank, None, {"error": "RankLost", "message": f"rank {rank}: {reason}"})


def _write_down(run: RunDir, spec: RunSpec, failure: Failure) -> WorkerExit:
    """Nobody else writes into the journal any more."""
    from runner.worker.event_log import EventLog

    device = spec.experiment.devices[failure.rank]
    fields = {"traceback": "", "out_of_memory": False, **failure.fields}
    sys.stderr.write(f"rank {failure.rank} ({device}): {fields['message']}\n")
    try:
        log = EventLog(run.events_file)
        log.append("error", rank=failure.rank, **fields)
        log.close()
    except OSError:
        return WorkerExit.DISK_FULL
    return WorkerExit.RANK_LOST if failure.status is None else WorkerExit(failure.status)
