"""The process that imports what all runs of an experiment import, and becomes each of them by a
fork. It computes nothing and opens no device, because a fork of a process that did may hang.

A forked process is a child of the supervisor, as one that the supervisor starts: it leads a session
of its own, and its first parent ends at once, so that it goes to the supervisor, which adopts
children meanwhile (`runner/supervision/fork_server.py`).
"""

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from breakeven.runner.processes import RUN_VARIABLE
from breakeven.runner.protocol.fork_requests import FORK_OPTION, ForkListener
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import TURN_PIPES_VARIABLE, wait_for_run

SELF = Path("/proc/self")
HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/shm/")
HARMLESS_THREADS = ("jemalloc_bg_thd",)
"""Threads of libraries that prepare for a fork themselves: jemalloc, which pyarrow has, locks what
this thread uses before a fork, and its copy goes on without it (background_thread.c)."""
ADDRESSES = slice(45, 49)
"""Places in /proc/self/stat, after the command's name, of the addresses where arguments and
environment of the process begin and end, proc_pid_stat(5)."""


def become_forked_run(load: Callable[[RunDir], None]) -> RunDir | None:
    """Serves the supervisor's requests. Returns in each process that it forks, with the run that
    this process is to execute; in the serving process None, once it is no longer needed.

    `load` imports what a run of this folder imports.
    """
    descriptor, like = sys.argv[2:4]
    requests = ForkListener(int(descriptor))
    try:
        load(RunDir(Path(like)))
    except Exception as error:  # A run that starts afresh meets the same error, and reports it.
        requests.say(refused=f"{type(error).__name__}: {error}")
        return None
    gc.freeze()
    _stop_threads_of_libraries()
    why = why_not_forked()
    requests.say(**({"loaded": True} if why is None else {"refused": why}))
    while (pipes := requests.next_request()) is not None:
        why = why_not_forked()
        process = None
        if why is None:
            process = _forked()
            if process == 0:
                requests.close()
                return _wait_for_run(pipes)
        for pipe in pipes:
            os.close(pipe)
        requests.say(**({"forked": process} if process else {"refused": why or "it died at once"}))
    return None


def why_not_forked() -> str | None:
    """Why a copy of this process might hang or lack a device; None if it is safe."""
    threads = _threads()
    if len(threads) > 1:
        return f"it has {len(threads)} threads instead of one: {', '.join(threads)}"
    devices = sorted(set(_opened_devices()))
    return f"it has opened {', '.join(devices)}" if devices else None


def _threads() -> list[str]:
    """The names of this process's threads, without those that a fork cannot harm."""
    names = []
    for entry in (SELF / "task").iterdir():
        with suppress(OSError):  # It has just ended.
            names.append((entry / "comm").read_text().strip())
    return sorted(name for name in names if name not in HARMLESS_THREADS)


def _opened_devices() -> Iterator[str]:
    for entry in os.listdir(SELF / "fd"):
        with suppress(OSError):
            target = os.readlink(SELF / "fd" / entry)
            is_harmless = target in HARMLESS_DEVICES or target.startswith(TERMINALS)
            if target.startswith("/dev/") and not is_harmless:
                yield target


def _stop_threads_of_libraries() -> None:
    """Forks once in vain: libraries that start threads when they are imported, and can be forked,
    end these before a fork and start them again when they need them. So OpenBLAS does."""
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)


def _forked() -> int | None:
    """Forks a process that leads a session and is no child of this one. Returns its number here, 0
    in it, and None if it ended before it could say so."""
    reads, writes = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.write(writes, str(os.getpid()).encode())
        os.close(reads)
        os.close(writes)
        return 0
    os.close(writes)
    os.waitpid(between, 0)
    number = os.read(reads, 32)
    os.close(reads)
    return int(number) if number else None


def _wait_for_run(pipes: Sequence[int]) -> RunDir | None:
    """Becomes the run that the supervisor names, as if it had been started as this run."""
    folder = wait_for_run(pipes[0])
    if folder is None:
        return None
    run = RunDir(folder)
    run.check_plain()
    os.environ[TURN_PIPES_VARIABLE] = ",".join(map(str, pipes))
    os.environ[RUN_VARIABLE] = str(run.path)
    show_as(run)
    with run.output_file.open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
    return run


def show_as(run: RunDir) -> None:
    """Writes the run's folder into what the system shows as arguments and environment of this
    process, by which a later supervisor finds it."""
    fields = (SELF / "stat").read_text().rpartition(")")[2].split()
    begin, end, environment, environment_end = map(int, fields[ADDRESSES])
    if begin:  # a kernel that does not tell them says 0
        command = ctypes.string_at(begin, end - begin).split(b"\0")
        before = command[: command.index(os.fsencode(FORK_OPTION))]
        _overwrite(begin, end - begin - 1, b"\0".join([*before, os.fsencode(run.path)]))
        mark = os.fsencode(f"{RUN_VARIABLE}=")
        for entry in ctypes.string_at(environment, environment_end - environment).split(b"\0"):
            if entry.startswith(mark):
                _overwrite(environment, len(entry), mark + os.fsencode(run.path))
            environment += len(entry) + 1
    sys.argv = [sys.argv[0], str(run.path)]


def _overwrite(address: int, length: int, content: bytes) -> None:
    if len(content) <= length:
        ctypes.memmove(address, content.ljust(length, b"\0"), length)
