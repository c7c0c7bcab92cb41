"""The CPUs as the device."""

import platform
import resource
from pathlib import Path

from torch.profiler import ProfilerActivity

from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.measuring import MemoryUse, WallClock


class ResidentMemory:
    """The peak resident set of this process.

    Linux can set its mark back (`/proc/self/clear_refs`, proc(5)); where that is refused a block's
    own peak cannot be told apart, and it is None.
    """

    def __init__(self) -> None:
        self._can_reset = True

    def reset(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self._can_reset = False

    def read(self) -> MemoryUse:
        peak = _resident_high_water_bytes() if self._can_reset else None
        return MemoryUse(peak_bytes=peak, reserved_bytes=None)


class CpuDevice(Device):
    """All CPUs that the run may use."""

    type = "cpu"
    works_by_itself = False
    profiler_activities = (ProfilerActivity.CPU,)

    @property
    def name(self) -> str:
        return cpu_name()

    def clock(self) -> WallClock:
        return WallClock()

    def memory(self) -> ResidentMemory:
        return ResidentMemory()

    def open_driver(self, experiment_id: str) -> None:
        return None


def cpu_name() -> str:
    """Model name of the processor, as precise as the system tells it."""
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
