"""Processes that have torch loaded: one process a session imports what runs import, which takes
seconds, and each process that a test asks for is a fork of that one."""

import contextlib
import gc
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from breakeven.runner.protocol.run_dir import RunDir
from tests.helpers.waiting import PATIENCE_SECONDS

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "breakeven.runner.worker.session",
        "tests.runner.worker.forked",
        "breakeven.runner.worker.script.run_script",
    ]
)


def start(
    output: Path, work: Callable[..., Any], *arguments: Any, **changes: str
) -> ForkServerProcess:
    """A process that calls a function of a module, whose environment is this one's with changes,
    and which writes to a file."""
    environment = {**os.environ, **changes}
    process: ForkServerProcess = FORKS.Process(
        target=_call, args=(str(output), environment, work, arguments), daemon=True
    )
    process.start()
    return process


def fork(
    output: Path,
    work: Callable[..., Any],
    *arguments: Any,
    patience: float = PATIENCE_SECONDS,
    **changes: str,
) -> int:
    """The exit status of such a process once it has ended, negative for a signal's number."""
    process = start(output, work, *arguments, **changes)
    process.join(patience)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode is not None, "the process did not end"
    return process.exitcode


def fork_this(output: Path, work: Callable[..., Any], *arguments: Any, **changes: str) -> int:
    """As `fork`, but what is forked is this process, with all that it has loaded."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        _call(str(output), {**os.environ, **changes}, work, arguments)
    except SystemExit as leaving:
        status = int(leaving.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def work_on(run: RunDir, fork: Callable[..., int] = fork, **changes: str) -> int:
    """What `python -m breakeven.runner.worker` does with a run's folder."""
    return fork(run.output_file, _work, str(run.path), **changes)


def _work(folder: str) -> int:
    from breakeven.runner.worker.process import main

    sys.argv = ["worker", folder]
    return main()


def _call(
    output: str, environment: dict[str, str], work: Callable[..., Any], arguments: Any
) -> None:
    gc.freeze()  # as a run does once it has loaded torch
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1), os.dup2(file, 2)
    os.environ.clear()
    os.environ.update(environment)
    with contextlib.ExitStack() as stack:
        for name in ("stdout", "stderr"):
            number = {"stdout": 1, "stderr": 2}[name]
            setattr(sys, name, stack.enter_context(os.fdopen(os.dup(number), "w", buffering=1)))
        status = work(*arguments)
        sys.stdout.flush()
    sys.exit(status)
