"""Other processes of this machine, as far as they are none of the same experiment."""

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
PROGRAMS = tuple(
    os.fsencode(path)
    for path in (
        *(
            folder / name
            for folder in (PROJECT_ROOT, PACKAGE)
            for name in ("serve.py", "dashboard.py")
        ),
        Path(sys.executable).with_name("breakeven"),
    )
)
"""The same, started by the path of a file."""
STATE, PARENT, FLAGS = 0, 1, 6
CPU_TIMES = slice(11, 13)
"""Places in /proc/PID/stat behind the command name, proc_pid_stat(5)."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KERNEL_THREAD = 0x0020_0000
"""PF_KTHREAD among the flags, of Linux's include/linux/sched.h."""


class Stranger(TypedDict):
    """A process that has nothing to do with the experiment."""

    pid: int
    name: str | None
    """As the system knows it; None for one that cannot be seen from here."""
    memory_bytes: int | None
    """Held on the CUDA device; None on the CPU, and where the driver does not tell."""


class Family:
    """The processes of one experiment: this run, the others that wait for their turn, and what
    they started, known by the run folder that a worker is started with; and the pages, supervisors
    and commands of this installation, which no advice should say to end."""

    def __init__(self, experiment_id: str) -> None:
        self._prefix = f"{experiment_id}.".encode()

    def includes(self, pid: int) -> bool:
        """Whether a process is one of these, or descends from one. Another experiment's training is
        none of them, though a supervisor of ours may have started it: it does disturb."""
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


def tools() -> list[int]:
    """The pages, supervisors and commands of this installation, of whatever data folder, and where
    this process is a rank of a run, the others."""
    pids = [int(entry.name) for entry in PROC.glob("[0-9]*")]
    return [pid for pid in pids if _is_tool(pid, _arguments(pid)) or _is_fellow(pid)]


def _is_fellow(pid: int) -> bool:
    """Whether it is another rank of the run that this process is one of."""
    mine = pid != os.getpid() and _parent(pid) == os.getppid()
    return mine and RANK_MODULE in _arguments(pid)


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """CPU time of processes so far; of those that are gone nothing. Without that of their children
    that have ended: of a supervisor these are whole runs, whose time passed long before."""
    found = {pid: _stat(pid)[CPU_TIMES] for pid in pids}
    return {pid: sum(map(int, ticks)) / TICKS_PER_SECOND for pid, ticks in found.items() if ticks}


def busy_strangers(family: Family) -> list[Stranger]:
    """Processes that run on a CPU at this moment and are none of the family's."""
    return [
        Stranger(pid=pid, name=process_name(pid), memory_bytes=None)
        for pid in _running()
        # The supervisor, which looks after runs four times a second, is no stranger either.
        if pid != os.getppid() and not family.includes(pid)
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


def _running() -> Iterator[int]:
    """Without the kernel's own threads, which work for somebody and cannot be ended."""
    for entry in PROC.glob("[0-9]*"):
        fields = _stat(int(entry.name))
        if fields and fields[STATE] == "R" and not int(fields[FLAGS]) & KERNEL_THREAD:
            yield int(entry.name)


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
