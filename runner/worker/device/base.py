"""The interface of all devices: clocks, peaks of memory, random numbers.

Each type has a class. No module outside this package checks the type of a device: every difference
is a method or an attribute here.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter  # the real one, whatever a script replaces in `time`
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from breakeven.runner.worker.device.nvml import NvidiaDriver, Unavailable

DeviceType = Literal["cpu", "cuda", "rocm", "mps"]
NOT_TRIED = (
    "Breakeven was never tried on a device of this type: check its step times against a clock of "
    "your own before you trust them."
)


class WallClock:
    """Clock of a synchronous device: the wall clock gives the time of steps."""

    def start(self) -> None:
        """Begins a block; waits until the device is idle, for the first step."""
        self._begins = [perf_counter()]
        self._ends: list[float] = []

    def mark(self) -> None:
        """Marks the end of a step."""
        now = perf_counter()
        self._ends.append(now)
        self._begins.append(now)

    def skip(self) -> None:
        """Excludes the time since the last mark from the next step."""
        self._begins[-1] = perf_counter()

    def pause(self) -> None:
        """Excludes the time until `resume` from the step."""
        self._paused_at = perf_counter()

    def resume(self) -> None:
        self._begins[-1] += perf_counter() - self._paused_at

    def read(self) -> list[float]:
        """Waits for the device; returns the seconds of each step since `start`."""
        return [end - begin for begin, end in zip(self._begins, self._ends, strict=False)]


class EventClock(ABC):
    """Clock of an asynchronous device: records events, and reads them at the end of a block."""

    def __init__(self) -> None:
        # Reused in every block, because making an event costs as much as recording it.
        self._events: list[Any] = []
        self._num_recorded = 0

    @abstractmethod
    def _synchronize(self) -> None:
        """Waits until the device is idle."""

    @abstractmethod
    def _new_event(self) -> Any:
        """Makes a torch event that records the time."""

    @abstractmethod
    def _record(self, event: Any) -> None:
        """Records an event after the work issued so far."""

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
            if place < len(seconds):  # otherwise no step followed the pause
                seconds[place] -= paused.elapsed_time(resumed) / 1000
        return seconds

    def _now(self) -> Any:
        """Records and returns an event after the work issued so far."""
        if self._num_recorded == len(self._events):
            self._events.append(self._new_event())
        event = self._events[self._num_recorded]
        self._record(event)
        self._num_recorded += 1
        return event


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """Memory use in bytes; None if unknown."""

    peak_bytes: int | None
    """Peak since the last `reset_memory`."""
    reserved_bytes: int | None
    """Peak reserved by torch's allocator since then, including private pools of captured graphs; on
    MPS the current memory of Metal."""


class Device(ABC):
    """A device on which a run computes."""

    type: ClassVar[DeviceType]
    """Type in the journal; torch calls ROCm `cuda`."""
    captures_graphs: ClassVar[bool] = False
    """Whether it can capture CUDA graphs: optimizers then keep their step count on it."""
    works_by_itself: ClassVar[bool] = True
    """Whether it works asynchronously to the host."""
    collectives: ClassVar[Literal["gloo", "nccl"]] = "gloo"
    """The backend of torch.distributed for several devices of this type."""
    profiler_activities: ClassVar[tuple[ProfilerActivity, ...]] = ()
    """Activities that torch's profiler records; empty if it does not support the device."""
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
        """Size of the device's own memory; None if it has none or if unknown."""
        return None

    @property
    def free_bytes(self) -> int:
        """Memory that no process uses and torch does not reserve; 0 if unknown."""
        return 0

    @property
    def numa_node(self) -> int | None:
        """The node with the nearest CPUs and memory; None if there is none or if unknown."""
        return None

    @abstractmethod
    def clock(self) -> WallClock | EventClock:
        """A clock that waits for the device only at the start and end of a block."""

    def reset_memory(self) -> None:  # noqa: B027 - not every device has a mark to set back
        """Resets the peak of memory use before a block."""

    def free_memory(self) -> None:  # noqa: B027 - not every device keeps what is free
        """Gives back memory that nothing uses."""

    @abstractmethod
    def memory_use(self) -> MemoryUse:
        """The memory use since `reset_memory`."""

    @abstractmethod
    def open_driver(self, experiment_id: str, sharing: Sequence[str] = ()) -> NvidiaDriver | None:
        """The driver; None on the CPU; raises `Unavailable` if no driver answers. `sharing`: all
        devices that share the run on this machine, by default this one."""

    def select(self) -> None:  # noqa: B027 - most types have only one
        """Makes it torch's default device of its type."""

    def synchronize(self) -> None:  # noqa: B027 - the CPU has nothing to wait for
        """Waits until the device is idle."""

    def is_busy(self) -> bool:
        """Whether the device still computes what this process has asked for."""
        return False

    def seed(self, number: int) -> None:
        """Seeds the generators that models use here: the CPU's and the device's own.

        Takes 1 to 2 us, so every step can begin with this; `torch.manual_seed` first looks for
        devices and takes 100 us."""
        torch.default_generator.manual_seed(number)

    def random_state(self) -> dict[str, Tensor]:
        """The state of the device's own generator, by its name in a checkpoint; empty if it uses
        the CPU's."""
        return {}

    def set_random_state(self, state: dict[str, Any]) -> None:  # noqa: B027 - as above
        """Sets the generator to a state from `random_state`."""

    def allow_tf32(self, allowed: bool) -> None:  # noqa: B027 - most devices have no TF32
        """Lets float32 matrix products and convolutions use TF32, or forbids it."""

    @property
    def uses_tf32(self) -> bool:
        """Whether float32 matrix products use TF32 with torch's current settings."""
        return False

    def reduce_math_attention(self, reduced: bool) -> None:  # noqa: B027 - CUDA alone can
        """Makes attention without a fused kernel add up half-precision numbers in half precision,
        else in float32."""

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
