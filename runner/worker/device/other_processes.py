"""Processes of this machine that do not belong to the experiment."""

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

from breakeven.runner.project import PACKAGE, PROJECT_ROOT

PROC = Path("/proc")
WORKER_MODULE = b"breakeven.runner.worker"
RANK_MODULE = b"breakeven.runner.worker.ranks.rank"
TOOL_MODULES = (b"breakeven", b"breakeven.storage", b"breakeven.views.report")
"""Modules after `-m` that are pages, supervisors or commands."""
PAGES = [
    folder / name for folder in (PROJECT_ROOT, PACKAGE) for name in ("serve.py", "dashboard.py")
]
TOOL_FILES = tuple(map(os.fsencode, [*PAGES, Path(sys.executable).with_name("breakeven")]))
"""Files that are pages, supervisors or commands."""
STATE, PARENT, FLAGS = 0, 1, 6
CPU_TIMES = slice(11, 13)
"""Places in /proc/PID/stat after the command name, proc_pid_stat(5)."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x0020_0000
"""The flag PF_KTHREAD of Linux's include/linux/sched.h."""


class OtherProcess(TypedDict):
    """A process that does not belong to the experiment."""

    pid: int
    name: str | None
    """Its name in the system; None for an invisible process."""
    memory_bytes: int | None
    """Memory held on the CUDA device; None on the CPU or if the driver does not report it."""


class ExperimentProcesses:
    """The experiment's runs (by the run folder in their arguments) and the processes that they
    started; also the pages, supervisors and commands of this installation, since no advice should
    recommend to end these."""

    def __init__(self, experiment_id: str) -> None:
        self._prefix = f"{experiment_id}.".encode()

    def includes(self, pid: int) -> bool:
        """Whether a process is one of these or descends from one. The training of another
        experiment is excluded, even if the same supervisor started it."""
        while pid > 1:
            if pid == os.getpid():
                return True
            arguments = _arguments(pid)
            if WORKER_MODULE in arguments:
                return self._belongs_to_experiment(arguments)
            if _is_tool(pid, arguments):
                return True
            pid = _parent(pid)
        return False

    def _belongs_to_experiment(self, arguments: list[bytes]) -> bool:
        folders = [argument.rpartition(b"/")[2] for argument in arguments]
        return any(folder.startswith(self._prefix) for folder in folders)


def breakeven_processes() -> list[int]:
    """The pages, supervisors and commands of this installation, for any data folder; in a rank,
    also the other ranks of its run."""
    return [pid for pid in _pids() if _is_tool(pid, _arguments(pid)) or _is_other_rank(pid)]


def _is_other_rank(pid: int) -> bool:
    is_sibling = pid != os.getpid() and _parent(pid) == os.getppid()
    return is_sibling and RANK_MODULE in _arguments(pid)


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """CPU time of the processes that still exist, without their ended children: a supervisor's
    children are whole runs, which may have ended long before."""
    ticks_by_pid = {pid: _stat(pid)[CPU_TIMES] for pid in pids}
    return {
        pid: sum(map(int, ticks)) / TICKS_PER_SECOND for pid, ticks in ticks_by_pid.items() if ticks
    }


def busy_processes(experiment: ExperimentProcesses) -> list[OtherProcess]:
    """Processes that run on a CPU right now and do not belong to the experiment."""
    return [
        OtherProcess(pid=pid, name=process_name(pid), memory_bytes=None)
        for pid in filter(_is_running, _pids())
        # The supervisor, which checks runs four times a second, belongs to the experiment, too.
        if pid != os.getppid() and not experiment.includes(pid)
    ]


def process_name(pid: int) -> str | None:
    arguments = _arguments(pid)
    if WORKER_MODULE in arguments:
        return f"another training: {os.fsdecode(arguments[-1].rpartition(b'/')[2])}"
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return None


def _is_tool(pid: int, arguments: list[bytes]) -> bool:
    if any(first == b"-m" and second in TOOL_MODULES for first, second in pairwise(arguments)):
        return True
    try:
        folder = os.readlink(os.fsencode(PROC / str(pid) / "cwd"))
    except OSError:
        return False
    # The arguments begin with Python, its options and a file.
    return any(
        os.path.normpath(os.path.join(folder, argument)) in TOOL_FILES for argument in arguments
    )


def _arguments(pid: int) -> list[bytes]:
    """The arguments of a process; empty if it is gone or invisible."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.glob("[0-9]*"))


def _is_running(pid: int) -> bool:
    """Whether a process runs; False for kernel threads, which work for others and cannot end."""
    fields = _stat(pid)
    return bool(fields) and fields[STATE] == "R" and not int(fields[FLAGS]) & KERNEL_THREAD


def _parent(pid: int) -> int:
    """The parent's id; 0 if the process is gone or has none."""
    fields = _stat(pid)
    return int(fields[PARENT]) if fields else 0


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    # The command name, in parentheses, may contain spaces: count fields after it.
    return text.rpartition(")")[2].split()
