"""A process that works at a run: what it is set to before torch is imported, and how it ends."""

import gc
import os
import sys
import threading
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.run_environment import keep_others_out
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.supervision.exits import NO_ROOM, WorkerExit
from breakeven.runner.worker.data.hub import go_offline_without_hub

CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"
LEAVING_SECONDS = 20.0
"""How long a process may take to end once all is written down."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, on the device or on the host, somewhere down the chain of causes."""
    while error is not None:
        words = (
            "out of memory",
            "can't allocate memory",
            "not enough memory",
            "CUBLAS_STATUS_ALLOC_FAILED",
        )
        if isinstance(error, MemoryError) or any(word in str(error) for word in words):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it followed from, says that the disk has no room."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            return True
        error = error.__cause__ or error.__context__
    return False


def show_only(device: str, environment: MutableMapping[str, str]) -> None:
    """Hides all devices of CUDA but this one; torch must not be imported yet.

    `device` is as specifications name it, and counts among those that are visible now.
    """
    _, _, number = device.partition(":")
    listed = environment.get(CUDA_VISIBLE)
    if not number:
        environment[CUDA_VISIBLE] = ""
    elif listed is None:
        environment[CUDA_VISIBLE] = number
    else:
        names = listed.split(",")
        environment[CUDA_VISIBLE] = names[int(number)] if int(number) < len(names) else ""


def name_of_visible(device: str) -> str:
    """What the device is called where it alone is shown."""
    kind, _, number = device.partition(":")
    return f"{kind}:0" if number else kind


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
