"""Other processes of this machine, told apart from those of the same experiment."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

PROC = Path("/proc")
WORKER_MODULE = b"runner.worker"
STATE, PARENT, FLAGS = 0, 1, 6
"""Places in /proc/PID/stat behind the command name, proc_pid_stat(5)."""
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
    they started. Known by the run folder that a worker is started with."""

    def __init__(self, experiment_id: str) -> None:
        self._prefix = f"{experiment_id}.".encode()

    def includes(self, pid: int) -> bool:
        """Whether a process, or one that it descends from, works for the experiment."""
        while pid > 1:
            if pid == os.getpid() or self._is_worker(pid):
                return True
            pid = _parent(pid)
        return False

    def _is_worker(self, pid: int) -> bool:
        try:
            arguments = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        folders = [argument.rpartition(b"/")[2] for argument in arguments]
        return WORKER_MODULE in arguments and any(
            folder.startswith(self._prefix) for folder in folders
        )


def busy_strangers(family: Family) -> list[Stranger]:
    """Processes that run on a CPU at this moment and are none of the family's."""
    return [
        Stranger(pid=pid, name=process_name(pid), memory_bytes=None)
        for pid in _running()
        # The supervisor, which looks after runs four times a second, is no stranger either.
        if pid != os.getppid() and not family.includes(pid)
    ]


def process_name(pid: int) -> str | None:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return None


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
