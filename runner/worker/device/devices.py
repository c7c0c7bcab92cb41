"""The devices of this machine, by their names in specifications: CPUs, NVIDIA devices through CUDA,
AMD devices through ROCm (torch offers both as `torch.cuda`), Apple's devices through Metal (MPS).

The NVIDIA driver's facts (clocks, temperature, power, other processes) come from NVML, with the
optional package nvidia-ml-py. NVML counts all devices of the machine, even those that
CUDA_VISIBLE_DEVICES hides from torch, so a device is found by its UUID. ROCm and MPS were never
tried, for lack of such devices.
"""

import os
import platform
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.device.base import (
    NOT_RECORDED,
    NOT_TRIED,
    Device,
    DeviceType,
    Driver,
    EventClock,
    MemoryUse,
    Unavailable,
    WallClock,
)
from breakeven.runner.worker.device.processes import ExperimentProcesses, OtherProcess, process_name

try:
    import pynvml
except ImportError:
    pynvml = None

THROTTLE_REASONS = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x200: "board limit",
    0x400: "reliability voltage",
}
"""Bits of NVML's clock event reasons that hold clocks below their setting; excludes idle clocks and
clocks that somebody set on purpose."""
THROTTLE_COUNTERS = {
    74: "power cap",
    269: "thermal slowdown",
    76: "sync boost",
    77: "board limit",
    79: "reliability voltage",
}
"""NVML's fields that count nanoseconds with reduced clocks. Reading all takes microseconds;
nvmlDeviceGetViolationStatus gives the same counts, but takes half a millisecond for each."""
PCI = Path("/sys/bus/pci/devices")


class NvidiaDriver:
    """NVML's reports on one device; unsupported reports are None."""

    def __init__(self, device: torch.device, experiment: ExperimentProcesses) -> None:
        """Raises `Unavailable` if NVML cannot be used."""
        if pynvml is None:
            why = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
            raise Unavailable(f"{NOT_RECORDED}: {why}.")
        try:
            pynvml.nvmlInit()
            self._handle = _find(device)
        except pynvml.NVMLError as error:
            raise Unavailable(f"{NOT_RECORDED}: NVML answers {str(error)!r}.") from error
        self._experiment = experiment
        self._counted: dict[str, float] = {}
        self._energy: int | None = None

    @property
    def limits(self) -> dict[str, Any]:
        return {
            "max_sm_clock_mhz": self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            "power_limit_watts": _thousandth(self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)),
        }

    def begin(self) -> None:
        self._counted = self._throttle_counters()
        self._energy = self._millijoules()

    def end(self) -> dict[str, Any]:
        # Clocks first, because they fall soon after the work.
        sm_clock = self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)
        reasons = self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        energy = self._millijoules()
        counted = self._throttle_counters()
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        utilization = self._ask(pynvml.nvmlDeviceGetUtilizationRates)
        return {
            "sm_clock_mhz": sm_clock,
            "memory_clock_mhz": self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            "temperature_celsius": self._ask(
                pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU
            ),
            "power_watts": _thousandth(self._ask(pynvml.nvmlDeviceGetPowerUsage)),
            "energy_joules": None
            if energy is None or self._energy is None
            else (energy - self._energy) / 1000,
            "utilization": None if utilization is None else utilization.gpu / 100,
            "throttle_reasons": None if reasons is None else named_reasons(reasons),
            "throttled_seconds": {
                name: seconds - self._counted.get(name, seconds)
                for name, seconds in counted.items()
            }
            or None,
            "device_memory_used_bytes": None if memory is None else memory.used,
        }

    def other_processes(self) -> list[OtherProcess] | None:
        # In many containers the driver lists none, or the whole machine's processes by other ids
        # than those in the container. This is the slowest query.
        listed = self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses)
        if listed is None or all(process.pid != os.getpid() for process in listed):
            return None
        return [
            OtherProcess(
                pid=process.pid,
                name=process_name(process.pid),
                # Every process on the device holds memory, but some containers report 0.
                memory_bytes=process.usedGpuMemory or None,
            )
            for process in listed
            if not self._experiment.includes(process.pid)
        ]

    def _millijoules(self) -> int | None:
        """Energy that the device has used since the driver was loaded, in millijoules."""
        answer: int | None = self._ask(pynvml.nvmlDeviceGetTotalEnergyConsumption)
        return answer

    def _throttle_counters(self) -> dict[str, float]:
        """Seconds during which each policy has reduced clocks so far."""
        answers = self._ask(pynvml.nvmlDeviceGetFieldValues, list(THROTTLE_COUNTERS)) or ()
        return {
            THROTTLE_COUNTERS[answer.fieldId]: answer.value.ullVal / 1e9
            for answer in answers
            if answer.nvmlReturn == pynvml.NVML_SUCCESS
            and answer.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        }

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(self._handle, *arguments)
        except pynvml.NVMLError:
            return None


def named_reasons(bits: int) -> list[str]:
    """Names of NVML's reasons for reduced clocks; empty if there are none."""
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


def _find(device: torch.device) -> Any:
    uuid = torch.cuda.get_device_properties(device).uuid
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        # A slice of a device (MIG) has its own UUID.
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _thousandth(value: float | None) -> float | None:
    """A thousandth: watts from NVML's milliwatts."""
    return None if value is None else value / 1000


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

    def open_driver(self, experiment_id: str) -> Driver:
        return NvidiaDriver(self.torch_device, ExperimentProcesses(experiment_id))

    def select(self) -> None:
        torch.cuda.set_device(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

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

    def open_driver(self, experiment_id: str) -> Driver:
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
    found = devices()
    if name not in found:
        seen = f"torch {torch.__version__} sees {', '.join(found)}"
        raise WorkloadError(f"devices = {name!r}: {seen}; choose one of these")
    found[name].select()
    return found[name]
