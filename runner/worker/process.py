"""A process that works at a run: what it is set to before torch is imported, and how it ends."""

import gc
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.run_environment import keep_others_out
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.supervision.exits import WorkerExit
from breakeven.runner.worker.data.hub import go_offline_without_hub
from breakeven.runner.worker.device.visible import show_only
from breakeven.runner.worker.failures import is_disk_full, is_out_of_memory

LEAVING_SECONDS = 20.0
"""How long a process may take to end once all is written down."""


def prepare(spec: RunSpec, run: RunDir) -> None:
    """Settings that must stand before torch is imported."""
    experiment = spec.experiment
    usual = max(1, cpu_allowance().default_threads // experiment.ranks_per_node)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(experiment.cpu_threads or usual)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if experiment.is_script:
        show_only(spec.device, os.environ)
    # A folder of its own makes every compilation a cold one, whatever other backends have compiled.
    # Only a warm run finds something there: the supervisor put it there when the cold one was over.
    if spec.variant.cache == "warm" and not run.compile_cache.exists():
        raise RunnerError(f"{run.run_id}: the cold run left no compile caches to begin with")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(run.compile_cache / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(run.compile_cache / "triton")
    keep_others_out()
    go_offline_without_hub(experiment)
    if experiment.keep_trace:
        os.environ["TORCH_TRACE"] = str(run.artifacts / "trace")


@contextmanager
def loading() -> Iterator[None]:
    """To import torch in. What is loaded stays: a garbage collector that looked through it again
    and again would take a sixth of the processor time that loading takes."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def describe_failure(error: Exception) -> dict[str, Any]:
    """The fields of an `error` event: a sentence for user mistakes, a trace for the rest. Says the
    same on stderr. To be called where the error is handled."""
    trace = traceback.format_exc()
    # output.log may have no room for it.
    with suppress(OSError):
        sys.stderr.write(f"{error}\n" if isinstance(error, RunnerError) else trace)
        sys.stderr.flush()
    return {
        "error": type(error).__name__,
        "message": str(error),
        "traceback": trace,
        "out_of_memory": is_out_of_memory(error),
    }


def status_after(error: Exception) -> WorkerExit:
    """The exit status that says why a run gave up."""
    if is_disk_full(error):
        return WorkerExit.DISK_FULL
    return WorkerExit.OUT_OF_MEMORY if is_out_of_memory(error) else WorkerExit.FAILED


def leave_in_time(status: int) -> None:
    """A person's code may have left threads, or work for the very end, that never come to one."""
    leaving = threading.Timer(LEAVING_SECONDS, os._exit, [status])
    leaving.daemon = True
    leaving.start()
