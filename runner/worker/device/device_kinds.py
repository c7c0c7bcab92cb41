"""The devices of this machine, by their names in specifications: CPUs, NVIDIA devices through CUDA,
AMD devices through ROCm (torch offers both as `torch.cuda`), Apple's devices through Metal (MPS).

ROCm and MPS were never tried, for lack of such devices.
"""

import platform
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.device.base import (
    NOT_TRIED,
    Device,
    DeviceType,
    EventClock,
    MemoryUse,
    WallClock,
)
from breakeven.runner.worker.device.nvml import NOT_RECORDED, NvidiaDriver, Unavailable
from breakeven.runner.worker.device.other_processes import ExperimentProcesses

PCI = Path("/sys/bus/pci/devices")


class CudaClock(EventClock):
    """Events on the stream that is current when a block starts."""

    def __init__(self, torch_device: torch.device) -> None:
        super().__init__()
        self._device = torch_device

    def start(self) -> None:
        # Otherwise each event would look up the stream.
        self._stream = torch.cuda.current_stream(self._device)
        super().start()

    def _synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def _new_event(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def _record(self, event: torch.cuda.Event) -> None:
        event.record(self._stream)


class CudaDevice(Device):
    """One NVIDIA device, `cuda:N`."""

    type: ClassVar[DeviceType] = "cuda"
    captures_graphs = True
    collectives = "nccl"
    profiler_activities = (ProfilerActivity.CPU, ProfilerActivity.CUDA)
    training_tolerance = 1e-3

    @property
    def name(self) -> str:
        return str(self._properties.name)

    @property
    def memory_bytes(self) -> int:
        return int(self._properties.total_memory)

    @property
    def free_bytes(self) -> int:
        return int(torch.cuda.mem_get_info(self.torch_device)[0])

    @property
    def numa_node(self) -> int | None:
        parts = (f"pci_{part}_id" for part in ("domain", "bus", "device"))
        try:
            address = "{:04x}:{:02x}:{:02x}.0".format(
                *(getattr(self._properties, p) for p in parts)
            )
            node = int((PCI / address / "numa_node").read_text())
        except (AttributeError, OSError, ValueError):  # some versions of torch lack the ids
            return None
        return None if node < 0 else node

    def clock(self) -> CudaClock:
        return CudaClock(self.torch_device)

    def free_memory(self) -> None:
        torch.cuda.empty_cache()

    def reset_memory(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.torch_device)

    def memory_use(self) -> MemoryUse:
        """Memory that the caching allocator handed out, and memory that it reserved for this."""
        # The flat form of these statistics takes 0.25 ms more.
        statistics = torch.cuda.memory_stats_as_nested_dict(self.torch_device)
        return MemoryUse(
            peak_bytes=statistics["allocated_bytes"]["all"]["peak"],
            reserved_bytes=statistics["reserved_bytes"]["all"]["peak"],
        )

    def open_driver(self, experiment_id: str, sharing: Sequence[str] = ()) -> NvidiaDriver:
        experiment = ExperimentProcesses(experiment_id)
        return NvidiaDriver(self.torch_device, experiment, [torch.device(name) for name in sharing])

    def select(self) -> None:
        torch.cuda.set_device(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def is_busy(self) -> bool:
        return not torch.cuda.default_stream(self.torch_device).query()

    def seed(self, number: int) -> None:
        super().seed(number)
        torch.cuda.default_generators[self.torch_device.index].manual_seed(number)

    def random_state(self) -> dict[str, Tensor]:
        return {"cuda": torch.cuda.get_rng_state(self.torch_device)}

    def set_random_state(self, state: dict[str, Any]) -> None:
        torch.cuda.set_rng_state(state["cuda"], self.torch_device)

    def allow_tf32(self, allowed: bool) -> None:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed

    @property
    def uses_tf32(self) -> bool:
        return bool(torch.backends.cuda.matmul.allow_tf32)

    def reduce_math_attention(self, reduced: bool) -> None:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(reduced)

    def describe(self, experiment_id: str) -> dict[str, Any]:
        return {
            **super().describe(experiment_id),
            "gpu_memory_bytes": self.memory_bytes,
            "cuda": torch.version.cuda,
            "driver": _driver_version(),
        }

    @property
    def _properties(self) -> Any:
        return torch.cuda.get_device_properties(self.torch_device)


class RocmDevice(CudaDevice):
    """One AMD device, which torch names `cuda:N` as well."""

    type = "rocm"
    notes = (NOT_TRIED,)

    def open_driver(self, experiment_id: str, sharing: Sequence[str] = ()) -> NvidiaDriver:
        raise Unavailable(f"{NOT_RECORDED}: NVML, which tells them, knows NVIDIA's devices alone.")


def _driver_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and "." in word), None)


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

    def open_driver(self, experiment_id: str, sharing: Sequence[str] = ()) -> None:
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

    def open_driver(self, experiment_id: str, sharing: Sequence[str] = ()) -> NvidiaDriver:
        raise Unavailable(f"{NOT_RECORDED}: Metal does not tell them.")

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def seed(self, number: int) -> None:
        super().seed(number)
        torch.mps.manual_seed(number)

    def random_state(self) -> dict[str, Tensor]:
        return {"mps": torch.mps.get_rng_state()}

    def set_random_state(self, state: dict[str, Any]) -> None:
        torch.mps.set_rng_state(state["mps"])


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
    known = devices()
    if name not in known:
        seen = f"torch {torch.__version__} sees {', '.join(known)}"
        raise WorkloadError(f"devices = {name!r}: {seen}; choose one of these")
    known[name].select()
    return known[name]
