"""Trains one run, `python -m breakeven.runner.worker RUN_FOLDER`; the supervisor starts this."""

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from breakeven.runner.errors import Refused, RunnerError
from breakeven.runner.machine.placement import placed
from breakeven.runner.processes import RUN_VARIABLE, ProcessIdentity
from breakeven.runner.protocol.exit_status import WorkerExit, explain
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.protocol.turns import RESERVE_OPTION, TURN_PIPES_VARIABLE, wait_in_reserve
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.process import (
    CUDA_VISIBLE,
    check_meanwhile,
    describe_failure,
    function_of,
    is_disk_full,
    leave_in_time,
    loading,
    only_own_packages,
    prepare,
    status_after,
)
from breakeven.runner.worker.turn_source import leave, open_turns


def main() -> int:
    only_own_packages()
    if sys.argv[1:2] == [RESERVE_OPTION]:
        return _wait_in_reserve(RunDir(Path(sys.argv[2])))
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


def _wait_in_reserve(like: RunDir) -> int:
    """Loads what a run of the same experiment needs, and becomes a run on request."""
    loaded: dict[str, Any] = {}
    with suppress(Exception):  # The run meets the same error, and reports it.
        loaded = _load_like(like)
    folder = wait_in_reserve()
    if folder is None:
        return WorkerExit.CANCELLED
    run = RunDir(folder)
    run.check_plain()
    os.environ[RUN_VARIABLE] = str(run.path)
    with run.output_file.open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
    return _work(run, loaded)


def _load_like(like: RunDir) -> dict[str, Any]:
    """Imports torch under the settings of a run, and loads its workload; returns arguments for
    `run_session`. The visible devices stay as they are, because the run chooses among them."""
    spec = placed(spec_in_use(like), os.environ)
    visible = {name: os.environ[name] for name in (CUDA_VISIBLE,) if name in os.environ}
    prepare(spec, like)
    os.environ.pop(CUDA_VISIBLE, None)
    os.environ.update(visible)
    with loading():
        if any(arm.backend == "inductor" for arm in spec.experiment.candidates):
            import torch._inductor.compile_fx  # noqa: F401  # as the first `torch.compile` does
        function_of(spec.experiment.entry)
        if spec.experiment.workload.is_own_program:
            return {}
        from breakeven.runner.worker.model.loaded_workload import load_workload

        return {"workload": load_workload(spec.experiment)}


def _work(run: RunDir, loaded: Mapping[str, Any] | None = None) -> WorkerExit:
    """`loaded`: arguments that a process in reserve has loaded."""
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

        finished = work(run, spec, log, turns, **(loaded or {}))
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


if __name__ == "__main__":
    sys.exit(main())
