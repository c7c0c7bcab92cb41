"""`python -m runner.worker <run folder>`: what a supervisor starts, or a person by hand."""

import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

from runner.errors import RunnerError
from runner.folders.process import ProcessIdentity
from runner.folders.records import Claim, Exit
from runner.folders.run_dir import RunDir
from runner.machine.cpus import cpu_allowance
from runner.specs.experiment import RunSpec
from runner.supervision.exits import WorkerExit, explain
from runner.supervision.placing import placed
from runner.supervision.turns import TURN_PIPES_VARIABLE
from runner.worker.device.visible import show_only
from runner.worker.event_log import EventLog
from runner.worker.failures import is_disk_full, is_out_of_memory
from runner.worker.turn_source import open_turns

LEAVING_SECONDS = 20.0
"""How long a process may take to end once all is written down."""


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m runner.worker RUN_FOLDER\n")
        return 2
    run = RunDir(Path(sys.argv[1]).resolve())
    try:
        run.check_plain()
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if TURN_PIPES_VARIABLE in os.environ:
        return _work(run)
    # Nobody supervises: the run claims itself and records its own end.
    if run.claim_file.exists():
        sys.stderr.write(
            f"{run.path} was run already; `python -m runner resume` goes on from a checkpoint\n"
        )
        return 2
    run.write_claim(Claim.by(ProcessIdentity.of(os.getpid())))
    status = _work(run)
    try:
        run.write_exit(Exit.now(*explain(status), status))
    except OSError as error:
        sys.stderr.write(f"{run.exit_file} cannot be written: {error}\n")
    return status


def _work(run: RunDir) -> WorkerExit:
    log = EventLog(run.events_file)
    turns = open_turns(lambda: log.flush(durable=True))
    try:
        spec = placed(run.read_spec(), os.environ)
        _prepare_process(spec, run)
        # Torch reads the environment when it is imported, so it comes after the preparation.
        if spec.experiment.is_script:
            from runner.worker.script.running import run_script as work
        else:
            from runner.worker.session import run_session as work

        finished = work(run, spec, log, turns)
        status = WorkerExit.FINISHED if finished else WorkerExit.CANCELLED
    except Exception as error:
        status = WorkerExit.CANCELLED if turns.stop_requested else _report(error, log)
    try:
        log.close()
    except OSError as error:  # The exit status is all that can still be said.
        status = WorkerExit.DISK_FULL if is_disk_full(error) else WorkerExit.FAILED
    _leave_in_time(status)
    return status


def _leave_in_time(status: WorkerExit) -> None:
    """A person's code may have left threads, or work for the very end, that never come to one."""
    leaving = threading.Timer(LEAVING_SECONDS, os._exit, [status])
    leaving.daemon = True
    leaving.start()


def _prepare_process(spec: RunSpec, run: RunDir) -> None:
    """Settings that must stand before torch is imported."""
    threads = spec.experiment.cpu_threads or cpu_allowance().default_threads
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if spec.experiment.is_script:
        show_only(spec.experiment.device, os.environ)
    # A folder of its own makes every compilation a cold one, whatever other backends have compiled.
    # Only a warm run finds something there: the supervisor put it there when the cold one was over.
    if spec.variant.cache == "warm" and not run.compile_cache.exists():
        raise RunnerError(f"{run.run_id}: the cold run left no compile caches to begin with")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(run.compile_cache / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(run.compile_cache / "triton")
    if spec.experiment.keep_trace:
        os.environ["TORCH_TRACE"] = str(run.artifacts / "trace")


def _report(error: Exception, log: EventLog) -> WorkerExit:
    """Writes down why the run gives up: a sentence for user mistakes, a trace for the rest."""
    out_of_memory = is_out_of_memory(error)
    trace = traceback.format_exc()
    # Neither output.log nor the journal may have room for it; `log.close` tries once more.
    with suppress(OSError):
        sys.stderr.write(f"{error}\n" if isinstance(error, RunnerError) else trace)
        sys.stderr.flush()
    with suppress(OSError):
        log.append(
            "error",
            error=type(error).__name__,
            message=str(error),
            traceback=trace,
            out_of_memory=out_of_memory,
        )
    if is_disk_full(error):
        return WorkerExit.DISK_FULL
    return WorkerExit.OUT_OF_MEMORY if out_of_memory else WorkerExit.FAILED


if __name__ == "__main__":
    sys.exit(main())
