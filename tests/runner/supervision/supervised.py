"""Supervisors that wait for nothing."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.commands import waiting
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.supervision import run_process, supervisor
from tests.helpers import fake_worker
from tests.helpers.in_process import storage_asked_here

SUPERVISE = """
import sys
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.supervision import supervisor
supervisor.LINGER_SECONDS = 0.0
supervisor.supervise(DataDir(sys.argv[1]), sys.argv[2:] or supervisor.WORKER_COMMAND)
"""
"""A supervisor as a process of its own."""


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
            started.append(
                subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=said, start_new_session=True)
            )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@contextmanager
def file_system(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, of so many megabytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a file system of its own")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def hurry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    patch.setattr(supervisor, "POLL_SECONDS", 0.05)
    patch.setattr(supervisor, "LOCK_PATIENCE_SECONDS", 0.1)
    patch.setattr(run_process, "GRACE_SECONDS", 1.0)


@contextmanager
def commands_here(
    worker: Sequence[str] = supervisor.WORKER_COMMAND,
) -> Iterator[pytest.MonkeyPatch]:
    """Commands whose supervisor works, and whose results are read, in this process."""

    def ensure_supervisor(data_dir: DataDir) -> None:
        supervisor.supervise(data_dir, worker)

    with storage_asked_here(), pytest.MonkeyPatch.context() as patch:
        hurry(patch)
        patch.setenv(CODE_VARIABLE, "")  # Commands add folders to what this process allows.
        patch.setattr(waiting, "ensure_supervisor", ensure_supervisor)
        yield patch
