"""The devices of this machine, by their names in specifications; the classes of CPUs and of Apple's
devices through Metal (MPS). MPS was never tried, for lack of such a device.
"""

import platform
import resource
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.device.base import (
    NOT_RECORDED,
    NOT_TRIED,
    Device,
    Driver,
    EventClock,
    MemoryUse,
    Unavailable,
    WallClock,
)
from breakeven.runner.worker.device.cuda import CudaDevice, RocmDevice

RANDOM_STATE = "mps"
"""Name of the generator's state in a checkpoint."""


class CpuDevice(Device):
    """All CPUs that the run may use."""

    type = "cpu"
    works_by_itself = False
    profiler_activities = (ProfilerActivity.CPU,)
    _can_reset = True

    @property
    def name(self) -> str:
        return cpu_name()

    def clock(self) -> WallClock:
        return WallClock()

    def reset_memory(self) -> None:
        """Resets the peak of the resident set on Linux (`/proc/self/clear_refs`, proc(5)). If this
        is not possible, a block's own peak is unknown."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self._can_reset = False

    def memory_use(self) -> MemoryUse:
        peak = _resident_high_water_bytes() if self._can_reset else None
        return MemoryUse(peak_bytes=peak, reserved_bytes=None)

    def open_driver(self, experiment_id: str) -> None:
        return None


def cpu_name() -> str:
    """Model name of the processor, as precisely as the system reports it."""
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _resident_high_water_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class MpsClock(EventClock):
    """Clock of MPS. Recording an event commits all work so far to the device, without waiting;
    otherwise Metal commits only larger amounts of work."""

    def _synchronize(self) -> None:
        torch.mps.synchronize()

    def _new_event(self) -> torch.mps.Event:
        return torch.mps.Event(enable_timing=True)

    def _record(self, event: torch.mps.Event) -> None:
        event.record()


class MpsDevice(Device):
    """The GPU of an Apple chip, `mps`."""

    type = "mps"
    notes = (
        NOT_TRIED,
        "Allocated memory was not recorded: on MPS torch keeps no count of its peak.",
    )

    @property
    def name(self) -> str:
        return torch.backends.mps.get_name()

    def clock(self) -> MpsClock:
        return MpsClock()

    def memory_use(self) -> MemoryUse:
        """The memory that Metal has given to this process; torch counts no peak on MPS."""
        return MemoryUse(peak_bytes=None, reserved_bytes=torch.mps.driver_allocated_memory())

    def open_driver(self, experiment_id: str) -> Driver:
        raise Unavailable(f"{NOT_RECORDED}: Metal does not tell them.")

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def seed(self, number: int) -> None:
        super().seed(number)
        torch.mps.manual_seed(number)

    def random_state(self) -> dict[str, Tensor]:
        return {RANDOM_STATE: torch.mps.get_rng_state()}

    def set_random_state(self, state: dict[str, Any]) -> None:
        torch.mps.set_rng_state(state[RANDOM_STATE])


def device_class(name: str) -> type[Device]:
    """The class for a device's name, even if this machine lacks the device."""
    classes = {
        "cpu": CpuDevice,
        "cuda": RocmDevice if torch.version.hip else CudaDevice,
        "mps": MpsDevice,
    }
    return classes[name.partition(":")[0]]


def devices() -> dict[str, Device]:
    """Every device by its name, the CPU first."""
    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        names.append("mps")
    return {name: device_class(name)(torch.device(name)) for name in names}


def open_device(name: str) -> Device:
    """Selects and returns a device by name; raises `WorkloadError` if this machine lacks it."""
    found = devices()
    if name not in found:
        seen = f"torch {torch.__version__} sees {', '.join(found)}"
        raise WorkloadError(f"devices = {name!r}: {seen}; choose one of these")
    found[name].select()
    return found[name]
