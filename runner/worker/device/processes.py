"""Other processes of this machine that do not belong to the experiment."""

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
MODULES = (b"breakeven", b"breakeven.storage", b"breakeven.views.report")
"""Behind `-m`: pages, supervisors and commands."""
PAGES = [
    folder / name for folder in (PROJECT_ROOT, PACKAGE) for name in ("serve.py", "dashboard.py")
]
PROGRAMS = tuple(map(os.fsencode, [*PAGES, Path(sys.executable).with_name("breakeven")]))
"""The same, started by the path of a file."""
STATE, PARENT, FLAGS = 0, 1, 6
CPU_TIMES = slice(11, 13)
"""Places in /proc/PID/stat behind the command name, proc_pid_stat(5)."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x0020_0000
"""PF_KTHREAD among the flags, of Linux's include/linux/sched.h."""


class OtherProcess(TypedDict):
    """A process that has nothing to do with the experiment."""

    pid: int
    name: str | None
    """As the system knows it; None for one that cannot be seen from here."""
    memory_bytes: int | None
    """Held on the CUDA device; None on the CPU, and where the driver does not tell."""


class ExperimentProcesses:
    """This run, the experiment's other runs, which the run folder in their arguments tells, and
    the processes that they started; also the pages, supervisors and commands of this installation,
    which no advice should say to end."""

    def __init__(self, experiment_id: str) -> None:
        self._prefix = f"{experiment_id}.".encode()

    def includes(self, pid: int) -> bool:
        """Whether a process is one of these or descends from one. The training of another
        experiment does not belong to them, although the same supervisor may have started it."""
        while pid > 1:
            if pid == os.getpid():
                return True
            arguments = _arguments(pid)
            if WORKER_MODULE in arguments:
                return self._is_mine(arguments)
            if _is_tool(pid, arguments):
                return True
            pid = _parent(pid)
        return False

    def _is_mine(self, arguments: list[bytes]) -> bool:
        folders = [argument.rpartition(b"/")[2] for argument in arguments]
        return any(folder.startswith(self._prefix) for folder in folders)


def breakeven_processes() -> list[int]:
    """The pages, supervisors and commands of this installation, for any data folder; for a rank of
    a run also the other ranks."""
    return [pid for pid in _pids() if _is_tool(pid, _arguments(pid)) or _is_other_rank(pid)]


def _is_other_rank(pid: int) -> bool:
    is_sibling = pid != os.getpid() and _parent(pid) == os.getppid()
    return is_sibling and RANK_MODULE in _arguments(pid)


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """CPU time of the processes that still exist, without that of their children that have ended:
    for a supervisor these are whole runs, which ended long before."""
    found = {pid: _stat(pid)[CPU_TIMES] for pid in pids}
    return {pid: sum(map(int, ticks)) / TICKS_PER_SECOND for pid, ticks in found.items() if ticks}


def busy_processes(experiment: ExperimentProcesses) -> list[OtherProcess]:
    """Processes that run on a CPU at this moment and do not belong to the experiment."""
    return [
        OtherProcess(pid=pid, name=process_name(pid), memory_bytes=None)
        for pid in filter(_is_running, _pids())
        # The supervisor, which looks after runs four times a second, belongs to it, too.
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
    if any(first == b"-m" and second in MODULES for first, second in pairwise(arguments)):
        return True
    try:
        folder = os.readlink(os.fsencode(PROC / str(pid) / "cwd"))
    except OSError:
        return False
    # A command begins with Python, its options and a file.
    return any(os.path.normpath(os.path.join(folder, one)) in PROGRAMS for one in arguments)


def _arguments(pid: int) -> list[bytes]:
    """What a process was started with; nothing for one that is gone or may not be seen."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.glob("[0-9]*"))


def _is_running(pid: int) -> bool:
    """False for the kernel's own threads, which work for other processes and cannot be ended."""
    fields = _stat(pid)
    return bool(fields) and fields[STATE] == "R" and not int(fields[FLAGS]) & KERNEL_THREAD


def _parent(pid: int) -> int:
    """0 for a process that is gone or has none."""
    fields = _stat(pid)
    return int(fields[PARENT]) if fields else 0


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty for a process that is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    # The command name, in parentheses, may itself hold spaces: count fields after it.
    return text.rpartition(")")[2].split()
