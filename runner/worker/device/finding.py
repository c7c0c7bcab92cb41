"""Which devices this machine has, by the names that specifications give them."""

import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.cpu import CpuDevice
from breakeven.runner.worker.device.cuda import CudaDevice, RocmDevice
from breakeven.runner.worker.device.mps import MpsDevice


def device_class(name: str) -> type[Device]:
    """What a device of that name is, whether this machine has it or not."""
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
    """The device of that name, selected; raises `WorkloadError` if this machine lacks it."""
    found = devices()
    if name not in found:
        seen = f"torch {torch.__version__} sees {', '.join(found)}"
        raise WorkloadError(f"devices = {name!r}: {seen}; choose one of these")
    found[name].select()
    return found[name]
