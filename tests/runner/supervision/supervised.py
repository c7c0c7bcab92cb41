"""Supervisors that wait for nothing, and fake runs that begin as copies of the process that
supervises: what they import is there already, and takes longer than all else that they do. Real
runs, and those of supervisors that are processes of their own, begin as elsewhere."""

import gc
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from breakeven.runner.checks.user_code import CODE_VARIABLE
from breakeven.runner.commands import waiting
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import start_in_own_session
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.supervision import run_process, supervisor
from tests.helpers import fake_worker
from tests.helpers.in_process import storage_asked_here

SUPERVISE = """
import sys
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.supervision import supervisor
supervisor.LINGER_SECONDS = 0.0
supervisor.supervise(DataDir(sys.argv[1]), sys.argv[2:] or supervisor.WORKER_COMMAND)
"""
"""A supervisor as a process of its own."""
INSTALLED = (str(PROJECT_ROOT), sys.prefix, sys.base_prefix)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every test of a file that imports it."""
    hurry(monkeypatch)


@pytest.fixture
def supervisor_of(tmp_path: Path) -> Iterator[Callable[[DataDir], "subprocess.Popen[bytes]"]]:
    """Starts a supervisor of fake runs as a process of its own, which says what it does in `said`;
    kills what is left of it afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start(data_dir: DataDir) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", SUPERVISE, str(data_dir.path), *fake_worker.COMMAND]
        with (tmp_path / "said").open("w") as said:
            started.append(subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=said,
                                            start_new_session=True))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def hurry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    patch.setattr(supervisor, "POLL_SECONDS", 0.05)
    patch.setattr(supervisor, "LOCK_PATIENCE_SECONDS", 0.1)
    patch.setattr(run_process, "GRACE_SECONDS", 1.0)
    if sys.platform == "linux":
        patch.setattr(run_process, "start_in_own_session", start)


@contextmanager
def commands_here(
    worker: Sequence[str] = supervisor.WORKER_COMMAND,
) -> Iterator[pytest.MonkeyPatch]:
    """Commands whose supervisor works, and whose results are read, in this process."""

    def ensure_supervisor(data_dir: DataDir) -> None:
        supervisor.supervise(data_dir, worker)

    with pytest.MonkeyPatch.context() as patch, storage_asked_here():
        hurry(patch)
        patch.setenv(CODE_VARIABLE, "")  # Commands add folders to what this process allows.
        patch.setattr(waiting, "ensure_supervisor", ensure_supervisor)
        yield patch


class Copy:
    """A child process that is a copy of this one; as much of a `Popen` as supervisors use."""

    returncode: int | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def start(
    command: Sequence[str], output: Path, env: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> "subprocess.Popen[bytes] | Copy":
    """As the supervisor starts a run; fake runs are copies."""
    if tuple(command[:-1]) != fake_worker.COMMAND:
        return start_in_own_session(command, output, env, pass_fds)
    pid = os.fork()
    if pid:
        return Copy(pid)
    status = 1
    try:
        become_run(command[-1], output, env, pass_fds)
        status = fake_worker.main()
    except SystemExit as leaves:
        status = int(leaves.code or 0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    os._exit(status)


def become_run(folder: str, output: Path, env: Mapping[str, str], pass_fds: Sequence[int]) -> None:
    """Takes over nothing of the test: files, variables, output, signals and own code."""
    gc.disable()  # or a file of the test would close what the run opens under the same number
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    kept = sorted({0, 1, 2, *pass_fds, os.sysconf("SC_OPEN_MAX")})
    for before, after in pairwise(kept):
        os.closerange(before + 1, after)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
    logging.getLogger().handlers.clear()  # pytest's own write to files that are closed now
    os.chdir(PROJECT_ROOT)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["worker", folder]
    sys.path[1:1] = env.get("PYTHONPATH", "").split(os.pathsep)
    for name, module in list(sys.modules.items()):
        if not (getattr(module, "__file__", None) or sys.prefix).startswith(INSTALLED):
            del sys.modules[name]
