"""What the worker asks of a device, whichever it is: clocks, peaks of memory, random numbers.

There is a class for each type. Nothing outside this room asks which type a device has: what differs
is a method or a fact here.
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
        """Begins a block; the device is idle afterwards and the first step may start."""
        self._begins = [time.perf_counter()]
        self._ends: list[float] = []

    def mark(self) -> None:
        """A step was issued."""
        now = time.perf_counter()
        self._ends.append(now)
        self._begins.append(now)

    def skip(self) -> None:
        """What was done since the last mark is part of no step."""
        self._begins[-1] = time.perf_counter()

    def pause(self) -> None:
        """What is done until `resume` is part of no step."""
        self._paused_at = time.perf_counter()

    def resume(self) -> None:
        self._begins[-1] += time.perf_counter() - self._paused_at

    def read(self) -> list[float]:
        """Waits for the device; seconds of each step since `start`."""
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
    """In bytes; None where it is not known."""

    peak_bytes: int | None
    """Highest since the last `reset_memory`."""
    reserved_bytes: int | None
    """The most that torch's allocator held from the driver since then, private pools of
    captured graphs included; on MPS what Metal gives right now."""


class Unavailable(Exception):
    """Why no driver answers for the device, as a sentence for the record."""


class Driver(Protocol):
    """What a driver knows of a device and torch does not."""

    @property
    def limits(self) -> dict[str, Any]:
        """What the device is set to: fields of the `environment` event."""

    def begin(self) -> None:
        """A block is about to start."""

    def end(self) -> dict[str, Any]:
        """The fields of a `device` event: how the device is now, and was since `begin`."""

    def other_processes(self) -> list[OtherProcess] | None:
        """Processes on the device that are none of the experiment's; None where they cannot be
        told."""


class Device(ABC):
    """Where a run computes."""

    type: ClassVar[DeviceType]
    """As the journal names it; torch calls ROCm `cuda`."""
    captures_graphs: ClassVar[bool] = False
    """Whether CUDA graphs can be captured on it: optimizers then keep their step count there."""
    works_by_itself: ClassVar[bool] = True
    """Whether it is given work and goes on with it while the host does something else."""
    collectives: ClassVar[Literal["gloo", "nccl"]] = "gloo"
    """What several devices of this type send each other things through, in torch.distributed."""
    profiler_activities: ClassVar[tuple[ProfilerActivity, ...]] = ()
    """What torch's profiler records here; nothing where it knows no such device."""
    training_tolerance: ClassVar[float] = 1e-4
    """What PyTorch's Dynamo harness allows a training in float32 on a device of this type."""
    notes: ClassVar[tuple[str, ...]] = ()
    """What readers would not guess of measurements on a device of this type, in sentences."""

    def __init__(self, torch_device: torch.device) -> None:
        self.torch_device = torch_device

    @property
    @abstractmethod
    def name(self) -> str:
        """The model, as precise as the system tells it."""

    @property
    def memory_bytes(self) -> int | None:
        """Of the device's own memory; None where it has none or it is not known."""
        return None

    @property
    def free_bytes(self) -> int:
        """Of that memory what no process has taken, and torch has not set aside; 0 where it is not
        known."""
        return 0

    @property
    def numa_node(self) -> int | None:
        """The node whose CPUs and memory are near; None where it sits at none, or the system does
        not tell."""
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

    def select(self) -> None:  # noqa: B027 - of most types there is but one
        """Makes it the one that torch means without a number."""

    def synchronize(self) -> None:  # noqa: B027 - the CPU has nothing to wait for
        """Waits until the device has nothing left to do."""

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
        """Takes back what `random_state` gave, among other things."""

    def allow_tf32(self, allowed: bool) -> None:  # noqa: B027 - most devices have no TF32
        """Lets float32 matrix products and convolutions use TF32, or forbids it."""

    @property
    def uses_tf32(self) -> bool:
        """Whether float32 matrix products use TF32 as torch is set now."""
        return False

    def reduce_math_attention(self, reduced: bool) -> None:  # noqa: B027 - CUDA alone can
        """Lets attention without a fused kernel add up half-precision numbers in half precision, or
        has it add them up in float32."""

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
