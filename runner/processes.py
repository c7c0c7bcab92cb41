"""Processes: tells if one lives, starts one detached, ends a group. On Linux it also finds the
processes of a run and the processes that hold a file open; on other systems (macOS) it finds none.
Only root sees the processes of other users.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.fields import Bounds, Spec

RUN_VARIABLE = "BREAKEVEN_RUN_FOLDER"
"""Environment variable that all processes of a run inherit, also those that left its group or
session."""
TABLE = Path("/proc")
MAX_LOOKS = 50
LOOK_SECONDS = 0.01
"""Time that a killed process takes to disappear."""


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity(Spec):
    """A process by pid and start time, so that a later process with the same pid differs."""

    pid: Annotated[int, Bounds(1, 2**31 - 1, "no system counts further")]
    started: str
    """Opaque text; always equal for the same process, different after the pid was reused."""

    @classmethod
    def from_pid(cls, pid: int) -> "ProcessIdentity":
        """Identity of a living process; `started` is empty if it is already gone."""
        return cls(pid=pid, started=_start_mark(pid) or "")

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and _start_mark(self.pid) == self.started


def _start_mark(pid: int) -> str | None:
    """Start time of a process; None if it does not run (a zombie does not run)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        # The command name, in parentheses, may contain spaces: count the fields after it.
        after_name = stat.rpartition(")")[2].split()
        if after_name[0] in "ZX":
            return None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{after_name[19]}"
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return None
    answer = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or None


def start_in_own_session(
    command: Sequence[str], output: Path, env: Mapping[str, str], pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Starts `command` as the leader of a new session, its output appended to a file."""
    with output.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=PROJECT_ROOT,
            env=env,
            pass_fds=pass_fds,
        )


class ChildProcess(Protocol):
    """A child of this process, as `subprocess.Popen` describes it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | Any: ...

    def wait(self) -> int: ...


class AdoptedProcess:
    """A child of this process that it has not started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Reaps the process once it has ended; returns its exit status."""
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def has_exited(process: ChildProcess) -> bool:
    """Whether the process has ended, without reaping it: its pid stays ours until `end_group`."""
    if process.returncode is not None:
        return True
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


def end_group(process: ChildProcess) -> int:
    """Kills the rest of the process's group, reaps its leader and returns its exit status."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGKILL)
    return process.wait()


def signal_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to every process of a group; ignores a missing group."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def kill_abandoned(identity: ProcessIdentity, argument: str, patience_seconds: float = 5.0) -> None:
    """Kills the group of a session leader that is not our child, and waits until it is gone.

    Only if its command line contains `argument`: the identity comes from a file.
    """
    if not identity.is_alive or argument not in command_line(identity.pid):
        return
    signal_group(identity.pid, signal.SIGKILL)
    deadline = time.monotonic() + patience_seconds
    while identity.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)


def command_line(pid: int) -> str:
    """The command line of a process; empty if it is gone or not readable for this user."""
    if (TABLE / "self/cmdline").exists():
        with suppress(OSError):
            return os.fsdecode((TABLE / str(pid) / "cmdline").read_bytes()).replace("\0", " ")
        return ""
    command = ["ps", "-o", "args=", "-ww", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@dataclass(frozen=True, kw_only=True)
class Member:
    """A living process of a run."""

    pid: int
    run_folder: Path


def members(below: Path) -> Iterator[Member]:
    """Every process of a run whose folder is `below` or lies in it."""
    mark = f"{RUN_VARIABLE}=".encode()
    for pid in _pids():
        with suppress(OSError):
            environment = (TABLE / str(pid) / "environ").read_bytes()
            for entry in environment.split(b"\0"):
                folder = Path(os.fsdecode(entry[len(mark) :]))
                if entry.startswith(mark) and folder.is_relative_to(below) and is_running(pid):
                    yield Member(pid=pid, run_folder=folder)


def kill_members(run_folder: Path) -> int:
    """Kills all processes of a run, also those that left its group; returns their number.

    Searches again until none is left: a process may start another meanwhile.
    """
    killed: set[int] = set()
    for _ in range(MAX_LOOKS):
        pids = {member.pid for member in members(run_folder)} - {os.getpid()}
        if not pids:
            break
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
        time.sleep(LOOK_SECONDS)
    return len(killed)


def holders(file: Path) -> list[int]:
    """Processes that have the file open."""
    try:
        wanted = os.stat(file)
    except OSError:
        return []
    return [pid for pid in _pids() if _has_open(pid, wanted)]


def process_state(pid: int) -> str:
    """State letter from proc(5): R, S, D, T (stopped), Z (zombie); empty if the process is gone."""
    try:
        return (TABLE / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return process_state(pid) not in ("", "Z", "X")


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with suppress(OSError):
        for entry in os.listdir(TABLE / str(pid) / "fd"):
            with suppress(OSError):
                status = os.stat(TABLE / str(pid) / "fd" / entry)
                if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    return False


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(TABLE) if name.isdigit()]
    except OSError:
        return []
