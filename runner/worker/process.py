"""The process of a run from start to end: `python -m breakeven.runner.worker RUN_FOLDER`."""

import gc
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from breakeven.runner.errors import Refused, RunnerError
from breakeven.runner.machine.placement import placed
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.exit_status import WorkerExit, explain
from breakeven.runner.protocol.fork_requests import FORK_OPTION
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.protocol.turns import TURN_PIPES_VARIABLE
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.before_torch import (
    check_meanwhile,
    function_of,
    loading,
    only_own_packages,
    prepare,
)
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.forking import become_forked_run
from breakeven.runner.worker.process_end import (
    describe_failure,
    is_disk_full,
    leave_in_time,
    status_after,
)
from breakeven.runner.worker.turn_source import leave, open_turns


def main() -> int:
    only_own_packages()
    if sys.argv[1:2] == [FORK_OPTION]:
        forked = become_forked_run(_import_for)
        return WorkerExit.CANCELLED if forked is None else _work(forked)
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m breakeven.runner.worker RUN_FOLDER\n")
        return 2
    run = RunDir(Path(sys.argv[1]).resolve())
    try:
        run.check_plain()
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if TURN_PIPES_VARIABLE in os.environ:
        return _work(run)
    # Without a supervisor the run claims itself and records its own end.
    if run.claim_file.exists():
        sys.stderr.write(
            f"{run.path} was run already; `breakeven resume {run.run_id.partition('.')[0]}` goes "
            "on from a checkpoint\n"
        )
        return 2
    run.drop_cache()
    run.write_claim(Claim.by(ProcessIdentity.from_pid(os.getpid())))
    status = _work(run)
    try:
        run.write_exit(Exit.now(*explain(status), status))
    except OSError as error:
        sys.stderr.write(f"{run.exit_file} cannot be written: {error}\n")
    return status


def _import_for(like: RunDir) -> None:
    """Imports what all runs of this run's experiment import before their first turn, under their
    settings."""
    spec = placed(spec_in_use(like), os.environ)
    prepare(spec, like)
    with loading():
        function_of(spec.experiment.entry)
        from breakeven.runner.worker.model.loaded_workload import import_workload

        import_workload(spec.experiment)


def _work(run: RunDir) -> WorkerExit:
    ranked = _spec_of_ranks(run)
    if ranked is not None:
        _check_before(run)
        from breakeven.runner.worker.ranks.elastic import launch

        return launch(run, ranked)
    log = EventLog(run.events_file)
    checked = check_meanwhile(run, partial(_end_refused, log))
    turns = open_turns(lambda: log.flush(durable=True), checked, log)
    try:
        spec = placed(spec_in_use(run), os.environ)
        prepare(spec, run)
        # Torch reads the environment at its import, so the preparation comes first.
        with loading():
            work = function_of(spec.experiment.entry)
        if spec.experiment.workload.is_own_program:
            checked()  # A user's script may catch an exception that ends it later.
        gc.freeze()  # or each import of a model's or a script's packages would visit all of torch

        finished = work(run, spec, log, turns)
        status = WorkerExit.FINISHED if finished else WorkerExit.CANCELLED
    except Exception as error:
        checked()  # A refusal explains more than the error that follows it.
        status = WorkerExit.CANCELLED if turns.stop_requested else _report(error, log)
    try:
        log.close()
    except OSError as error:  # Only the exit status can report it now.
        status = WorkerExit.DISK_FULL if is_disk_full(error) else WorkerExit.FAILED
    leave_in_time(status)
    return status


def _check_before(run: RunDir) -> None:
    """Waits for the check before ranks start, since rank 0 then writes the journal."""
    if run.is_unchecked:
        log = EventLog(run.events_file)
        check_meanwhile(run, partial(_end_refused, log))()
        log.close()


def _end_refused(log: EventLog, error: Refused) -> None:
    """Ends the process at once: loading an unneeded model may take minutes."""
    leave(log.close_as_it_is, _report(error, log))


def _spec_of_ranks(run: RunDir) -> RunSpec | None:
    """The specification of a run with several processes, else None; also None if it cannot be
    read: `_work` reads it again and reports the error."""
    with suppress(RunnerError):
        spec = placed(spec_in_use(run), os.environ)
        return spec if spec.experiment.num_ranks > 1 else None
    return None


def _report(error: Exception, log: EventLog) -> WorkerExit:
    """Records the error that ends the run."""
    fields = describe_failure(error)
    # The journal may have no room for it; `log.close` tries once more.
    with suppress(OSError):
        log.append("error", **fields)
    return status_after(error)
