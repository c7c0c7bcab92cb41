"""The boundary of supervisor and system: every name that is replaced while a history is played.

The supervisor, the queue and the run folders are real code on real files. Clocks, pipes, processes,
threads and signals are the kernel's. At each call that changes a file, its process may be killed,
other processes may run first, and a full disk raises its error.
`tests/benchmarks/test_simulation.py` searches the supervisor's sources for names that are missing
here.
"""

import errno
import fcntl
import os
import queue
import random
import secrets
import selectors
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.simulation.system import FIRST_FD, Lock, Queue, Selector, System
from breakeven.runner import disk_space, processes
from breakeven.runner.experiments import queue as experiment_queue
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.machine.placement import Machine
from breakeven.runner.supervision import exit_records, orphans, scheduler, search, supervisor
from breakeven.runner.supervision.fork_server import ForkServer

CPUS = frozenset(range(4))
MACHINE = Machine(
    cpus=CPUS,
    cpus_by_device={"cuda:0": frozenset({0, 1}), "cuda:1": frozenset({2, 3})},
    is_known=True,
)
LINGER_SECONDS = 0.6
CHANGING = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "utime", "chmod", "fsync")
"""Functions of `os` that change files."""
OPEN, CLOSE, READ, WRITE = os.open, os.close, os.read, os.write
FLOCK = fcntl.flock


@contextmanager
def simulated(system: System) -> Iterator[None]:
    """A context in which the real code runs in the simulated system."""
    with ExitStack() as stack:
        for module, name, substitute in (*_files(system), *_processes(system), *_others(system)):
            create = not hasattr(module, name)
            stack.enter_context(mock.patch.object(module, name, substitute, create=create))
        yield


Replaced = list[tuple[Any, str, Any]]


def _files(system: System) -> Replaced:
    """Files are real; a process that changes them may be interrupted or killed."""
    files = _Files(system)
    return [
        *((os, name, partial(files.change, name, getattr(os, name))) for name in CHANGING),
        (os, "open", files.open),
        (os, "close", files.close),
        (os, "read", files.read),
        (os, "write", files.write),
        (os, "pipe", system.pipe),
        (os, "set_blocking", lambda fd, blocking: None),
        (fcntl, "flock", files.flock),
        (tempfile, "_name_sequence", (f"{n:08}" for n in range(10**9))),
    ]


def _processes(system: System) -> Replaced:
    threads = SimpleNamespace(Thread=system.thread, Lock=lambda: Lock(system.kernel))
    queues = SimpleNamespace(SimpleQueue=lambda: Queue(system.kernel), Empty=queue.Empty)
    return [
        (os, "getpid", system.pid),
        (os, "kill", system.kill),
        (os, "killpg", system.killpg),
        (os, "waitid", system.waitid),
        (os, "sched_setaffinity", lambda pid, cpus: None),
        # Forks are not simulated: all runs start afresh.
        (ForkServer, "is_possible", lambda: False),
        (processes, "subprocess", SimpleNamespace(Popen=system.popen, DEVNULL=-3, STDOUT=-2)),
        (processes, "_start_mark", system.start_mark),
        (processes, "command_line", system.arguments),
        (processes, "members", system.members),
        (orphans, "members", system.members),
        (supervisor, "threading", threads),
        (supervisor, "queue", queues),
        (scheduler, "threading", threads),
        (exit_records, "threading", threads),
        (search, "threading", threads),
    ]


def _others(system: System) -> Replaced:
    """Clocks, randomness and the machine; and log messages, which nobody reads."""
    chance = random.Random(system.kernel.chance.random())
    pipes = SimpleNamespace(
        DefaultSelector=partial(Selector, system), EVENT_READ=selectors.EVENT_READ
    )
    allowance = CpuAllowance(num_in_machine=len(CPUS), cpus=CPUS, quota=None)
    return [
        (time, "monotonic", system.monotonic),
        (time, "time", system.time),
        (time, "sleep", system.sleep),
        (secrets, "token_hex", lambda size: chance.randbytes(size).hex()),
        (scheduler, "selectors", pipes),
        (scheduler, "cpu_allowance", lambda: allowance),
        (supervisor, "cpu_allowance", lambda: allowance),
        (supervisor, "this_machine", lambda data_dir: MACHINE),
        (supervisor, "learn_devices", lambda data_dir, requests, in_vain: None),
        (supervisor, "LINGER_SECONDS", LINGER_SECONDS),
        (supervisor, "open_log", lambda folder, part: None),
        (exit_records, "print", lambda *words, **options: None),
        (disk_space, "shutil", SimpleNamespace(disk_usage=system.disk_usage)),
        (experiment_queue, "refuse_secrets", lambda text: None),
    ]


class _Files:
    """System calls on files and pipes."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._kernel = system.kernel

    def change(self, name: str, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._kernel.current is not None:
            self._kernel.call(name)
            needs_room = name == "fsync" or (name == "mkdir" and not os.path.exists(args[0]))
            if needs_room and self._system.disk_is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if name in ("replace", "rename"):
                self._system.before_replace(Path(os.fspath(args[1])))
        return real(*args, **options)

    def open(self, path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            self._kernel.call("open")
        return OPEN(path, flags, *args, **options)

    def close(self, fd: int) -> None:
        if fd >= FIRST_FD:
            self._system.close(fd)
            return
        task = self._kernel.current
        if task is not None and fd in task.process.locks:
            task.process.locks.remove(fd)
        CLOSE(fd)

    def read(self, fd: int, size: int) -> bytes:
        return self._system.read(fd, size) if fd >= FIRST_FD else READ(fd, size)

    def write(self, fd: int, data: bytes) -> int:
        return self._system.write(fd, data) if fd >= FIRST_FD else WRITE(fd, data)

    def flock(self, fd: int, operation: int) -> None:
        FLOCK(fd, operation)
        if self._kernel.current is not None:
            self._kernel.current.process.locks.append(fd)
