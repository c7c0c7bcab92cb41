"""Clocks for steps and peaks of memory, with no synchronisation inside a block."""

import resource
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import torch


class StepClock(Protocol):
    """Times the steps of one block."""

    def start(self) -> None:
        """Begins a block; the device is idle afterwards and the first step may start."""

    def mark(self) -> None:
        """A step was issued."""

    def read(self) -> list[float]:
        """Waits for the device; seconds of each step since `start`."""


class CpuClock:
    """The CPU computes while the call lasts, so the wall clock is the step time."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def start(self) -> None:
        self._marks = [time.perf_counter()]

    def mark(self) -> None:
        self._marks.append(time.perf_counter())

    def read(self) -> list[float]:
        return [end - begin for begin, end in pairwise(self._marks)]


class CudaClock:
    """Events on the stream at step ends, read when the block is over."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Made once and used again in every block: making one costs as much as recording it.
        self._events: list[torch.cuda.Event] = []
        self._num_marks = 0

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        self._stream = torch.cuda.current_stream(self._device)
        self._num_marks = 0
        self.mark()

    def mark(self) -> None:
        if self._num_marks == len(self._events):
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._events.append(event)
        self._events[self._num_marks].record(self._stream)
        self._num_marks += 1

    def read(self) -> list[float]:
        marks = self._events[: self._num_marks]
        marks[-1].synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in pairwise(marks)]


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """In bytes; None where it cannot be told."""

    peak_bytes: int | None
    """Highest since the last `reset`."""
    reserved_bytes: int | None
    """What the CUDA allocator holds from the driver, pools of captured graphs included."""


class PeakMemory:
    """The highest memory use since the last `reset`, in bytes.

    On CUDA what the caching allocator handed out (`torch.cuda.max_memory_allocated`). On the CPU
    the peak resident set: Linux can set its mark back (`/proc/self/clear_refs`, proc(5)); where
    that is refused a block's own peak cannot be told apart, and `read` returns None.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._can_reset = True

    def reset(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self._can_reset = False

    def read(self) -> MemoryUse:
        if self._device.type == "cuda":
            # The flat form of these statistics costs a quarter of a millisecond more.
            statistics = torch.cuda.memory_stats_as_nested_dict(self._device)
            return MemoryUse(
                peak_bytes=statistics["allocated_bytes"]["all"]["peak"],
                reserved_bytes=statistics["reserved_bytes"]["all"]["current"],
            )
        peak = _resident_high_water_bytes() if self._can_reset else None
        return MemoryUse(peak_bytes=peak, reserved_bytes=None)


def _resident_high_water_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def make_clock(device: torch.device) -> StepClock:
    return CudaClock(device) if device.type == "cuda" else CpuClock()
