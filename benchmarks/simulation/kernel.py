"""A simulated operating system: one clock, one random source, tasks of which one runs at a time.

A seed decides every event, so a history can be repeated exactly, call by call.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet

CALL_SECONDS = 1e-5
"""Duration of a system call: time passes also for a task that never sleeps."""
PREEMPTED = 0.03
"""Share of the calls at which another task runs first."""
MAX_CALLS = 300_000
"""Most calls of a history; a longer one never ends."""
EPOCH = 1_700_000_000.0
"""A time long ago, so that files, which have the real time, are never old."""


class Killed(BaseException):
    """Ends a process in the middle of its work; it does nothing more."""


class Violation(BaseException):
    """An invariant is broken; only the history itself may catch this exception."""


@dataclass(eq=False)
class Process:
    """A simulated process: a supervisor, a person's command, or a run."""

    pid: int
    started: str
    kind: str
    arguments: str = ""
    run_folder: str | None = None
    devices: str = ""
    """Devices on which the supervisor placed a run."""
    parent: "Process | None" = None
    tasks: list["Task"] = field(default_factory=list)
    returncode: int | None = None
    """None while it is alive."""
    is_reaped: bool = False
    killed_at_call: int | None = None
    """The system call before which it is killed."""
    calls: int = 0
    stalled_until: float = 0.0
    on_signal: Callable[[int], None] | None = None
    locks: list[int] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        return self.returncode is None


@dataclass(eq=False)
class Task:
    """A thread of a process."""

    process: Process
    thread: greenlet
    is_ready: Callable[[], bool] | None = None
    """The condition that it waits for; None if it waits for time only."""
    wakes_at: float | None = 0.0
    """None if it waits without a limit."""


class Kernel:
    """Clock, tasks, processes and signals; pipes and files are in `boundary`."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.clock_offset = 0.0
        """Error of the wall clock, which people can set."""
        self.current: Task | None = None
        self.processes: list[Process] = []
        self.calls = 0
        self.trace = 0
        """Hash of all events: equal for equal histories."""
        self.said: list[str] = []
        self.on_death: list[Callable[[Process], None]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._pids = itertools.count(1000)
        self._main = getcurrent()

    def say(self, text: str) -> None:
        """Adds a line to the story of the history."""
        self.said.append(f"{self.now:9.4f} {text}")
        self.trace = hash((self.trace, round(self.now, 6), len(text)))

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Schedules an action after this many seconds."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), act))

    def new_process(self, kind: str, **fields: Any) -> Process:
        """Pids are soon used again, as on a small machine."""
        taken = {other.pid for other in self.processes if not (other.is_reaped or other.returncode)}
        free = [other.pid for other in self.processes if other.is_reaped and other.pid not in taken]
        pid = free[0] if free and self.chance.random() < 0.3 else next(self._pids)
        number = next(self._numbers)
        process = Process(pid=pid, started=f"boot/{number}", kind=kind, **fields)
        self.processes.append(process)
        return process

    def find(self, pid: int) -> Process | None:
        """The process with this pid, including dead ones that are not reaped."""
        return next(
            (
                process
                for process in reversed(self.processes)
                if process.pid == pid and not process.is_reaped
            ),
            None,
        )

    def spawn(self, process: Process, work: Callable[[], object]) -> Task:
        """Starts a thread of a process."""

        def run() -> None:
            try:
                work()
            except Killed:
                pass
            finally:
                process.tasks.remove(task)
                if not process.tasks and process.is_alive and process.kind != "run":
                    self.die(process, 0)

        task = Task(process=process, thread=greenlet(run, self._main), wakes_at=self.now)
        process.tasks.append(task)
        return task

    def call(self, name: str) -> None:
        """A system call of the current task: others may run first, or its process is killed."""
        task = self.current
        if task is None:
            return
        process = task.process
        if not process.is_alive:
            raise Killed
        self.calls += 1
        process.calls += 1
        self.now += CALL_SECONDS
        if process.calls == process.killed_at_call:
            self.say(f"{process.kind} {process.pid} is killed before {name}")
            self.die(process, -9)
            raise Killed
        due = bool(self._events) and self._events[0][0] <= self.now
        if due or self.chance.random() < PREEMPTED:
            self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        self.wait(None, seconds)

    def wait(self, is_ready: Callable[[], bool] | None, seconds: float | None) -> None:
        """Waits until a condition holds, or until the time is over."""
        task = self.current
        assert task is not None
        if not task.process.is_alive:
            raise Killed
        task.is_ready = is_ready
        task.wakes_at = None if seconds is None else self.now + max(0.0, seconds)
        self._main.switch()
        if not task.process.is_alive:
            raise Killed

    def die(self, process: Process, returncode: int) -> None:
        """Ends a process; its threads are unwound when none of them is running."""
        if not process.is_alive:
            return
        process.returncode = returncode
        process.is_reaped = process.parent is None or not process.parent.is_alive
        for other in self.processes:
            if other.parent is process:
                other.parent = None
                other.is_reaped |= not other.is_alive
        self.at(0.0, lambda: self._unwind(process))
        for act in self.on_death:
            act(process)

    def _unwind(self, process: Process) -> None:
        for task in list(process.tasks):
            if not task.thread:  # it never started
                process.tasks.remove(task)
                continue
            self.current = task
            task.thread.throw(Killed)
            self.current = None

    def run(self, until: float | None = None) -> None:
        """Runs until nothing is left to do, or until a time."""
        while until is None or self.now < until:
            if self.calls > MAX_CALLS:
                raise Violation(f"there is no end after {self.now:.1f} s")
            if self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
                continue
            tasks = [
                task for process in self.processes if process.is_alive for task in process.tasks
            ]
            ready = [task for task in tasks if self._may_run(task)]
            if ready:
                self._go_on(self.chance.choice(ready))
                continue
            moments = [moment for task in tasks if (moment := self._wakes(task)) is not None]
            moments += [self._events[0][0]] if self._events else []
            if not moments:
                return
            self.now = max(self.now, min(moments))
        self.now = max(self.now, until)

    def _may_run(self, task: Task) -> bool:
        if task.process.stalled_until > self.now:
            return False
        is_due = task.wakes_at is not None and task.wakes_at <= self.now
        return is_due or (task.is_ready is not None and task.is_ready())

    def _wakes(self, task: Task) -> float | None:
        stalled = task.process.stalled_until
        if stalled > self.now:
            return stalled
        return task.wakes_at

    def _go_on(self, task: Task) -> None:
        self.trace = hash((self.trace, task.process.pid, round(self.now, 6)))
        self.current = task
        try:
            task.thread.switch()
        finally:
            self.current = None

    def close(self) -> None:
        """Unwinds all remaining tasks."""
        for process in self.processes:
            self.die(process, -9)
            self._unwind(process)
