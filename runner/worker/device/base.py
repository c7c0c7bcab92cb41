"""The interface of all devices: clocks, peaks of memory, random numbers.

There is a class for each type. No module outside this package checks the type of a device: every
difference is a method or an attribute here.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from breakeven.runner.worker.device.processes import OtherProcess

DeviceType = Literal["cpu", "cuda", "rocm", "mps"]
NOT_RECORDED = (
    "Clocks, temperature, power, throttling and other processes on the device were not recorded"
)
NOT_TRIED = (
    "Breakeven was never tried on a device of this type: check its step times against a clock of "
    "your own before you trust them."
)


class WallClock:
    """For a device that computes while the call lasts: the wall clock is the step time."""

    def start(self) -> None:
        """Begins a block. The device is idle afterwards, for the first step."""
        self._begins = [time.perf_counter()]
        self._ends: list[float] = []

    def mark(self) -> None:
        """Marks the end of a step's calls."""
        now = time.perf_counter()
        self._ends.append(now)
        self._begins.append(now)

    def skip(self) -> None:
        """Leaves the time since the last mark out of the next step."""
        self._begins[-1] = time.perf_counter()

    def pause(self) -> None:
        """Leaves the time until `resume` out of the step."""
        self._paused_at = time.perf_counter()

    def resume(self) -> None:
        self._begins[-1] += time.perf_counter() - self._paused_at

    def read(self) -> list[float]:
        """Waits for the device; returns the seconds of each step since `start`."""
        return [end - begin for begin, end in zip(self._begins, self._ends, strict=False)]


class EventClock(ABC):
    """For a device that works asynchronously: events recorded at the ends of steps, and read at the
    end of the block."""

    def __init__(self) -> None:
        # Made once and used again in every block: making one costs as much as recording it.
        self._events: list[Any] = []
        self._num_recorded = 0

    @abstractmethod
    def _synchronize(self) -> None:
        """Waits until the device is idle."""

    @abstractmethod
    def _new_event(self) -> Any:
        """An event of torch that keeps time."""

    @abstractmethod
    def _record(self, event: Any) -> None:
        """Records an event behind the work issued so far."""

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
    """In bytes; None if unknown."""

    peak_bytes: int | None
    """Highest since the last `reset_memory`."""
    reserved_bytes: int | None
    """The most that torch's allocator reserved since then, including private pools of captured
    graphs; on MPS the memory of Metal right now."""


class Unavailable(Exception):
    """Why no driver reports on the device, as a sentence for the record."""


class Driver(Protocol):
    """Reports facts of a device that torch does not know."""

    @property
    def limits(self) -> dict[str, Any]:
        """Settings of the device: fields of the `environment` event."""

    def begin(self) -> None:
        """A block is about to start."""

    def end(self) -> dict[str, Any]:
        """The fields of a `device` event: the state of the device now and since `begin`."""

    def other_processes(self) -> list[OtherProcess] | None:
        """Processes on the device that do not belong to the experiment; None if unknown."""


class Device(ABC):
    """Where a run computes."""

    type: ClassVar[DeviceType]
    """Name in the journal; torch calls ROCm `cuda`."""
    captures_graphs: ClassVar[bool] = False
    """Whether CUDA graphs can be captured on it: optimizers then keep their step count there."""
    works_by_itself: ClassVar[bool] = True
    """Whether it works asynchronously to the host."""
    collectives: ClassVar[Literal["gloo", "nccl"]] = "gloo"
    """The backend of torch.distributed for several devices of this type."""
    profiler_activities: ClassVar[tuple[ProfilerActivity, ...]] = ()
    """What torch's profiler records here; nothing if it does not support the device."""
    training_tolerance: ClassVar[float] = 1e-4
    """The tolerance of PyTorch's Dynamo harness for a training in float32."""
    notes: ClassVar[tuple[str, ...]] = ()
    """Sentences on measurements with this type of device that readers would not guess."""

    def __init__(self, torch_device: torch.device) -> None:
        self.torch_device = torch_device

    @property
    @abstractmethod
    def name(self) -> str:
        """The model, as precisely as the system reports it."""

    @property
    def memory_bytes(self) -> int | None:
        """Of the device's own memory; None if it has none or if unknown."""
        return None

    @property
    def free_bytes(self) -> int:
        """The part of it that no process uses, nor torch reserves; 0 if unknown."""
        return 0

    @property
    def numa_node(self) -> int | None:
        """The node whose CPUs and memory are near; None for none, or if unknown."""
        return None

    @abstractmethod
    def clock(self) -> WallClock | EventClock:
        """A clock that waits for the device at the ends of a block only."""

    def reset_memory(self) -> None:  # noqa: B027 - not every device has a mark to set back
        """A block is about to start."""

    @abstractmethod
    def memory_use(self) -> MemoryUse:
        """The highest use since `reset_memory`."""

    @abstractmethod
    def open_driver(self, experiment_id: str) -> Driver | None:
        """None where the CPUs are the device; raises `Unavailable` where no driver answers."""

    def select(self) -> None:  # noqa: B027 - most types have only one
        """Makes it torch's default device of its type."""

    def synchronize(self) -> None:  # noqa: B027 - the CPU has nothing to wait for
        """Waits until the device is idle."""

    def seed(self, number: int) -> None:
        """Seeds what models draw from here: the CPU's generator, and the device's own.

        Takes 1 to 2 us, so that every step can begin with it; `torch.manual_seed` asks for devices
        first and takes 100."""
        torch.default_generator.manual_seed(number)

    def random_state(self) -> dict[str, Tensor]:
        """The state of the device's own generator by its name in a checkpoint; empty if it draws
        from the CPU's."""
        return {}

    def set_random_state(self, state: dict[str, Any]) -> None:  # noqa: B027 - as above
        """Sets the generator to a state from `random_state`."""

    def allow_tf32(self, allowed: bool) -> None:  # noqa: B027 - most devices have no TF32
        """Lets float32 matrix products and convolutions use TF32, or forbids it."""

    @property
    def uses_tf32(self) -> bool:
        """Whether float32 matrix products use TF32 as torch is set now."""
        return False

    def reduce_math_attention(self, reduced: bool) -> None:  # noqa: B027 - CUDA alone can
        """Has attention without a fused kernel add up half-precision numbers in half precision, or
        in float32."""

    def describe(self, experiment_id: str) -> dict[str, Any]:
        """The device's fields of the `environment` event."""
        notes, limits = list(self.notes), {}
        try:
            driver = self.open_driver(experiment_id)
            limits = {} if driver is None else driver.limits
        except Unavailable as reason:
            notes.append(str(reason))
        described = {"device_type": self.type, "device_name": self.name, **limits}
        return {**described, "notes": notes} if notes else described
