"""Which of this machine's processes belong to a run, and which hold a file, as Linux tells.

Elsewhere (macOS) nothing can be told, and the answer is none. Only processes of the same user are
seen, unless root asks.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RUN_VARIABLE = "BREAKEVEN_RUN_FOLDER"
"""Environment variable that all processes of a run inherit, however far they removed themselves
from the one that the supervisor started."""
TABLE = Path("/proc")
MAX_LOOKS = 50
LOOK_SECONDS = 0.01
"""What a killed process takes to be gone."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A living process of a run."""

    pid: int
    run_folder: Path


def members(below: Path) -> Iterator[Member]:
    """Every process of a run whose folder is `below` that folder, or is it."""
    mark = f"{RUN_VARIABLE}=".encode()
    for pid in _pids():
        with suppress(OSError):
            environment = (TABLE / str(pid) / "environ").read_bytes()
            for entry in environment.split(b"\0"):
                folder = Path(os.fsdecode(entry[len(mark) :]))
                if entry.startswith(mark) and folder.is_relative_to(below) and is_running(pid):
                    yield Member(pid=pid, run_folder=folder)


def kill_members(run_folder: Path) -> int:
    """Kills what is left of a run's processes, those too that left its group; how many there were.

    Looks again until none is left: a process may start another while it is looked for.
    """
    killed: set[int] = set()
    for _ in range(MAX_LOOKS):
        found = {one.pid for one in members(run_folder)} - {os.getpid()}
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        time.sleep(LOOK_SECONDS)
    return len(killed)


def holders(file: Path) -> list[int]:
    """Processes that have the file open."""
    try:
        wanted = os.stat(file)
    except OSError:
        return []
    return [pid for pid in _pids() if _has_open(pid, wanted)]


def state_of(pid: int) -> str:
    """One letter, as proc(5) has it: R, S, D, T (stopped), Z (dead, not fetched); empty if gone."""
    try:
        return (TABLE / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_running(pid: int) -> bool:
    """Whether it is there and no zombie."""
    return state_of(pid) not in ("", "Z", "X")


def command_line(pid: int) -> str:
    """The words that a process was started with; empty if it is gone."""
    with suppress(OSError):
        return os.fsdecode((TABLE / str(pid) / "cmdline").read_bytes()).replace("\0", " ").strip()
    return ""


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with suppress(OSError):
        for entry in os.listdir(TABLE / str(pid) / "fd"):
            with suppress(OSError):
                found = os.stat(TABLE / str(pid) / "fd" / entry)
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    return False


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(TABLE) if name.isdigit()]
    except OSError:
        return []
