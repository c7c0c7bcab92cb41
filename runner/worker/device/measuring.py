"""Clocks for steps and peaks of memory, as every type of device has them."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol


class StepClock(Protocol):
    """Times the steps of one block."""

    def start(self) -> None:
        """Begins a block; the device is idle afterwards and the first step may start."""

    def mark(self) -> None:
        """A step was issued."""

    def skip(self) -> None:
        """What was done since the last mark is part of no step."""

    def pause(self) -> None:
        """What is done until `resume` is part of no step."""

    def resume(self) -> None:
        """The step goes on that was interrupted."""

    def read(self) -> list[float]:
        """Waits for the device; seconds of each step since `start`."""


class WallClock:
    """For a device that computes while the call lasts: the wall clock is the step time."""

    def start(self) -> None:
        self._begins = [time.perf_counter()]
        self._ends: list[float] = []

    def mark(self) -> None:
        now = time.perf_counter()
        self._ends.append(now)
        self._begins.append(now)

    def skip(self) -> None:
        self._begins[-1] = time.perf_counter()

    def pause(self) -> None:
        self._paused_at = time.perf_counter()

    def resume(self) -> None:
        self._begins[-1] += time.perf_counter() - self._paused_at

    def read(self) -> list[float]:
        return [end - begin for begin, end in zip(self._begins, self._ends, strict=False)]


class EventClock(ABC):
    """For a device that is given work and goes on with it by itself: events recorded among the work
    at step ends, and read when the block is over."""

    def __init__(self) -> None:
        # Made once and used again in every block: making one costs as much as recording it.
        self._events: list[Any] = []
        self._num_recorded = 0

    @abstractmethod
    def _synchronize(self) -> None:
        """Waits until the device has nothing left to do."""

    @abstractmethod
    def _new_event(self) -> Any:
        """An event of torch that keeps time."""

    @abstractmethod
    def _record(self, event: Any) -> None:
        """Puts an event behind the work issued so far."""

    def start(self) -> None:
        self._synchronize()
        self._num_recorded = 0
        self._begins = [self._now()]
        self._ends: list[Any] = []
        self._pauses: list[tuple[int, Any, Any]] = []

    def mark(self) -> None:
        now = self._now()
        self._ends.append(now)
        self._begins.append(now)

    def skip(self) -> None:
        self._begins[-1] = self._now()
        place = len(self._ends)
        self._pauses = [pause for pause in self._pauses if pause[0] != place]

    def pause(self) -> None:
        self._paused_at = self._now()

    def resume(self) -> None:
        self._pauses.append((len(self._ends), self._paused_at, self._now()))

    def read(self) -> list[float]:
        self._events[self._num_recorded - 1].synchronize()
        steps = zip(self._begins, self._ends, strict=False)
        seconds = [begin.elapsed_time(end) / 1000 for begin, end in steps]
        for place, paused, resumed in self._pauses:
            if place < len(seconds):  # else no step followed it
                seconds[place] -= paused.elapsed_time(resumed) / 1000
        return seconds

    def _now(self) -> Any:
        """An event behind the work issued so far."""
        if self._num_recorded == len(self._events):
            self._events.append(self._new_event())
        event = self._events[self._num_recorded]
        self._record(event)
        self._num_recorded += 1
        return event


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """In bytes; None where it cannot be told."""

    peak_bytes: int | None
    """Highest since the last `reset`."""
    reserved_bytes: int | None
    """The most that torch's allocator held from the driver since the last `reset`, private pools of
    captured graphs included; on MPS what Metal gives right now."""


class PeakMemory(Protocol):
    """The highest memory use since the last `reset`."""

    def reset(self) -> None:
        """A block is about to start."""

    def read(self) -> MemoryUse:
        """The block is over."""
