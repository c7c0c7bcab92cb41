"""The kernel's calls with the interfaces of the real modules: pipes, processes, threads, clocks."""

import os
import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.simulation.kernel import EPOCH, Kernel, Process, Task, Violation
from breakeven.runner.machine.placement import DEVICES_VARIABLE
from breakeven.runner.processes import RUN_VARIABLE, Member

FIRST_FD = 1_000_000
"""Descriptors from this number on are simulated."""
SPINNING = 3_000
"""Looks at the pipes within a second that show a busy loop."""
REAL_CLOSE, REAL_PID = os.close, os.getpid


class Pipe:
    """A pipe: its content, and the number of holders of each end."""

    def __init__(self) -> None:
        self.content = b""
        self.readers = 0
        self.writers = 0
        self.on_change: Callable[[], None] = lambda: None

    @property
    def is_readable(self) -> bool:
        return bool(self.content) or self.writers == 0


class End:
    """One end of a pipe in one process."""

    def __init__(self, pipe: Pipe, mode: str, owner: Process) -> None:
        self.pipe = pipe
        self.mode = mode
        self.owner = owner
        self._count(1)

    def close(self) -> None:
        self._count(-1)
        self.pipe.on_change()

    def _count(self, by: int) -> None:
        if self.mode == "r":
            self.pipe.readers += by
        else:
            self.pipe.writers += by


class System:
    """The kernel's calls with the interfaces of the modules that the real code uses."""

    def __init__(
        self, kernel: Kernel, start: Callable[[Process, Sequence[str], dict[int, End]], None]
    ) -> None:
        """`start` runs a new process: its command, and the ends that it inherits."""
        self.kernel = kernel
        self.disk_is_full_until = 0.0
        self.ends: dict[int, End] = {}
        """Pipe ends of supervisors, by descriptor."""
        self.inherited: dict[Process, list[End]] = {}
        """Pipe ends of runs."""
        self.before_replace: Callable[[Path], None] = lambda path: None
        self.looks = (0, 0)
        """The second of the latest look at the pipes, and the number of looks in it."""
        self._start = start
        self._next_fd = FIRST_FD
        kernel.on_death.append(self._release)

    @property
    def disk_is_full(self) -> bool:
        return self.kernel.now < self.disk_is_full_until

    def disk_usage(self, folder: Path) -> SimpleNamespace:
        """Sizes in bytes."""
        return SimpleNamespace(free=0 if self.disk_is_full else 10**12)

    # Pipes

    def pipe(self) -> tuple[int, int]:
        self.kernel.call("pipe")
        pipe = Pipe()
        return self._new_end(pipe, "r"), self._new_end(pipe, "w")

    def _new_end(self, pipe: Pipe, mode: str) -> int:
        task = self.kernel.current
        assert task is not None
        self._next_fd += 1
        self.ends[self._next_fd] = End(pipe, mode, task.process)
        return self._next_fd

    def read(self, fd: int, size: int) -> bytes:
        """Returns a part of the content, as pipes do under load."""
        pipe = self.ends[fd].pipe
        if not pipe.content and pipe.writers:
            raise BlockingIOError
        size = min(size, len(pipe.content))
        if size > 1 and self.kernel.chance.random() < 0.1:
            size = self.kernel.chance.randrange(1, size)
        data, pipe.content = pipe.content[:size], pipe.content[size:]
        return data

    def write(self, fd: int, data: bytes) -> int:
        self.kernel.call("write to a pipe")
        pipe = self.ends[fd].pipe
        if not pipe.readers:
            raise BrokenPipeError
        pipe.content += data
        self.kernel.at(0.0, pipe.on_change)
        return len(data)

    def close(self, fd: int) -> None:
        end = self.ends.pop(fd, None)
        if end is not None:
            end.close()

    def select(self, watched: dict[int, Any], timeout: float) -> list[Any]:
        self.kernel.call("select")
        second = int(self.kernel.now)
        self.looks = (second, self.looks[1] + 1 if self.looks[0] == second else 1)
        if self.looks[1] > SPINNING:
            heard = [(fd, self.ends[fd].pipe.content, self.ends[fd].pipe.writers) for fd in watched]
            raise Violation(f"it spins: it looks at its pipes without end: {heard}, {timeout}")

        def readable() -> list[int]:
            return [fd for fd in watched if self.ends[fd].pipe.is_readable]

        self.kernel.wait(lambda: bool(readable()), timeout)
        return [(SimpleNamespace(fileobj=fd, data=watched[fd]), 1) for fd in readable()]

    # Processes

    def popen(self, command: Sequence[str], **options: Any) -> "_Popen":
        self.kernel.call("fork")
        environment = options.get("env") or {}
        task = self.kernel.current
        assert task is not None
        is_run = RUN_VARIABLE in environment
        child = self.kernel.new_process(
            "run" if is_run else "supervisor",
            arguments=" ".join(command),
            run_folder=environment.get(RUN_VARIABLE),
            devices=environment.get(DEVICES_VARIABLE, ""),
            parent=task.process,
        )
        inherited = {
            fd: End(self.ends[fd].pipe, self.ends[fd].mode, child)
            for fd in options.get("pass_fds", ())
        }
        self.inherited[child] = list(inherited.values())
        self._start(child, command, inherited)
        return _Popen(self, child)

    def kill(self, pid: int, number: int) -> None:
        self.kernel.call("kill")
        process = self.kernel.find(pid)
        if process is None:
            raise ProcessLookupError
        if process.is_alive and process.on_signal is not None:
            process.on_signal(number)

    def killpg(self, group: int, number: int) -> None:
        """Runs lead their own group; a process that left the group gets no signal."""
        self.kill(group, number)

    def waitid(self, kind: int, pid: int, flags: int) -> object:
        process = self.kernel.find(pid)
        if process is None:
            raise ChildProcessError
        return None if process.is_alive else process

    def pid(self) -> int:
        task = self.kernel.current
        return REAL_PID() if task is None else task.process.pid

    def start_mark(self, pid: int) -> str | None:
        process = self.kernel.find(pid)
        return process.started if process is not None and process.is_alive else None

    def arguments(self, pid: int) -> str:
        process = self.kernel.find(pid)
        return "" if process is None else process.arguments

    def members(self, below: Path) -> Iterator[Member]:
        for process in self.kernel.processes:
            folder = None if process.run_folder is None else Path(process.run_folder)
            if process.is_alive and folder is not None and folder.is_relative_to(below):
                yield Member(pid=process.pid, run_folder=folder)

    def _release(self, process: Process) -> None:
        """Releases the pipe ends and locks of a dead process."""
        for fd in [fd for fd, end in self.ends.items() if end.owner is process]:
            self.ends.pop(fd).close()
        for end in self.inherited.pop(process, []):
            end.close()
        self.kernel.at(0.0, partial(_close, process.locks))

    # Threads and clocks

    def thread(self, target: Callable[..., None], args: tuple[Any, ...], **_: Any) -> "Thread":
        task = self.kernel.current
        assert task is not None
        return Thread(self.kernel, task.process, partial(target, *args))

    def monotonic(self) -> float:
        return 1000.0 + self.kernel.now

    def time(self) -> float:
        return EPOCH + self.kernel.now + self.kernel.clock_offset

    def sleep(self, seconds: float) -> None:
        self.kernel.sleep(seconds)


class _Popen:
    """The part of `subprocess.Popen` that the supervisor uses."""

    def __init__(self, system: System, process: Process) -> None:
        self.pid = process.pid
        self.returncode: int | None = None
        self._system = system
        self._process = process

    def wait(self) -> int:
        if self._process.is_alive:
            self._system.kernel.wait(lambda: not self._process.is_alive, None)
        self._process.is_reaped = True
        self.returncode = self._process.returncode
        assert self.returncode is not None
        return self.returncode


class Thread:
    """The part of `threading.Thread` that the supervisor uses."""

    def __init__(self, kernel: Kernel, process: Process, work: Callable[[], None]) -> None:
        self._kernel = kernel
        self._process = process
        self._work = work
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._kernel.spawn(self._process, self._work)

    def is_alive(self) -> bool:
        return self._task in self._process.tasks


class Lock:
    """`threading.Lock` among tasks."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self._kernel.wait(lambda: not self._is_held, None)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class Queue:
    """`queue.SimpleQueue` among tasks."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, timeout: float) -> Any:
        self._kernel.wait(lambda: bool(self._items), timeout)
        if not self._items:
            raise queue.Empty
        return self._items.pop(0)


class Selector:
    """`selectors.DefaultSelector` on simulated pipes."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._watched: dict[int, Any] = {}

    def register(self, fd: int, events: int, data: Any) -> None:
        self._watched[fd] = data

    def unregister(self, fd: int) -> None:
        del self._watched[fd]

    def select(self, timeout: float) -> list[Any]:
        return self._system.select(self._watched, timeout)

    def close(self) -> None:
        self._watched.clear()


def _close(files: Sequence[int]) -> None:
    """Closes the files that are still open; files that a process closes while it unwinds are no
    longer listed."""
    for file in files:
        with suppress(OSError):
            REAL_CLOSE(file)
