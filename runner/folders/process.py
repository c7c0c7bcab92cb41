"""Processes and process groups: who is alive, how to start one detached, how to end a group."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process, told apart from a later one that was given the same pid."""

    pid: int
    started: str
    """Opaque; equal for two looks at the same process, different after a pid was reused."""

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity":
        """Identity of a living process; `started` is empty if it is already gone."""
        return cls(pid=pid, started=_start_mark(pid) or "")

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and _start_mark(self.pid) == self.started


def _start_mark(pid: int) -> str | None:
    """When a process started, or None if no such process runs (a zombie does not run)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        # The command name, in parentheses, may itself hold spaces: count fields after it.
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
    command: Sequence[str],
    *,
    output: Path,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts `command` as the leader of a new session, its output appended to a file."""
    with output.open("ab") as log:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=cwd,
            env=None if env is None else dict(env),
            pass_fds=pass_fds,
        )


def has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended, without reaping it: its pid stays ours until `end_group`."""
    if process.returncode is not None:
        return True
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, flags) is not None


def end_group(process: subprocess.Popen[bytes]) -> int:
    """Kills what is left of the process's group, reaps its leader and returns its exit status."""
    if process.returncode is None:
        signal_group(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode


def signal_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to every process of a group; a group that is gone is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def kill_abandoned(identity: ProcessIdentity, argument: str, patience_seconds: float = 5.0) -> None:
    """Kills the group of a session leader that is not our child, and waits until it is gone.

    Only if `argument` is among those that it was started with: who it is was read from a file.
    """
    if not identity.is_alive or argument not in _arguments(identity.pid):
        return
    signal_group(identity.pid, signal.SIGKILL)
    deadline = time.monotonic() + patience_seconds
    while identity.is_alive and time.monotonic() < deadline:
        time.sleep(0.02)


def _arguments(pid: int) -> str:
    """The command line of a process; empty if it is gone or somebody else's secret."""
    if Path("/proc/self/cmdline").exists():
        try:
            return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            return ""
    command = ["ps", "-o", "args=", "-ww", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
