"""NVIDIA devices through CUDA, and AMD's through ROCm, which torch answers for under `torch.cuda`.

Of ROCm nothing could be tried: no such device was at hand.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity

from breakeven.runner.worker.device.base import (
    NOT_RECORDED,
    NOT_TRIED,
    Device,
    DeviceType,
    Driver,
    Unavailable,
)
from breakeven.runner.worker.device.measuring import EventClock, MemoryUse
from breakeven.runner.worker.device.nvidia import NvidiaDriver
from breakeven.runner.worker.device.processes import Family

RANDOM_STATE = "cuda"
"""Name of the generator's state in a checkpoint."""


class CudaClock(EventClock):
    """Events on the stream that is current when a block starts."""

    def __init__(self, torch_device: torch.device) -> None:
        super().__init__()
        self._device = torch_device

    def start(self) -> None:
        # Asked for once: each event would ask again.
        self._stream = torch.cuda.current_stream(self._device)
        super().start()

    def _synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def _new_event(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def _record(self, event: torch.cuda.Event) -> None:
        event.record(self._stream)


class CudaMemory:
    """What the caching allocator handed out, and what it held for that from the driver."""

    def __init__(self, torch_device: torch.device) -> None:
        self._device = torch_device

    def reset(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def read(self) -> MemoryUse:
        # The flat form of these statistics costs a quarter of a millisecond more.
        statistics = torch.cuda.memory_stats_as_nested_dict(self._device)
        return MemoryUse(
            peak_bytes=statistics["allocated_bytes"]["all"]["peak"],
            reserved_bytes=statistics["reserved_bytes"]["all"]["peak"],
        )


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

    def clock(self) -> CudaClock:
        return CudaClock(self.torch_device)

    def memory(self) -> CudaMemory:
        return CudaMemory(self.torch_device)

    def open_driver(self, experiment_id: str) -> Driver:
        return NvidiaDriver(self.torch_device, Family(experiment_id))

    def select(self) -> None:
        torch.cuda.set_device(self.torch_device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.torch_device)

    def seed(self, number: int) -> None:
        super().seed(number)
        torch.cuda.default_generators[self.torch_device.index].manual_seed(number)

    def random_state(self) -> dict[str, Tensor]:
        return {RANDOM_STATE: torch.cuda.get_rng_state(self.torch_device)}

    def set_random_state(self, state: dict[str, Any]) -> None:
        torch.cuda.set_rng_state(state[RANDOM_STATE], self.torch_device)

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
