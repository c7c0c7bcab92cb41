"""Clocks for steps and peaks of memory, with no synchronisation inside a block."""

import resource
import time
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
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [end - begin for begin, end in pairs]


class CudaClock:
    """Events on the stream at step ends, read when the block is over."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        self._events = []
        self.mark()

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)

    def read(self) -> list[float]:
        torch.cuda.synchronize(self._device)
        pairs = zip(self._events, self._events[1:], strict=False)
        return [begin.elapsed_time(end) / 1000 for begin, end in pairs]


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

    def read(self) -> int | None:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return _resident_high_water_bytes() if self._can_reset else None

    def read_reserved(self) -> int | None:
        """What the CUDA allocator holds from the driver, pools of captured graphs included."""
        if self._device.type == "cuda":
            return torch.cuda.memory_reserved(self._device)
        return None


def _resident_high_water_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def make_clock(device: torch.device) -> StepClock:
    return CudaClock(device) if device.type == "cuda" else CpuClock()
