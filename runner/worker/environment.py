"""What a run ran on: hardware, versions, settings. A number without them cannot be judged."""

import os
import platform
import socket
import sys
from importlib import metadata
from typing import Any

import torch

from runner.errors import WorkloadError
from runner.machine.cpus import cpu_allowance, explain_threads
from runner.specs.training import Precision
from runner.worker.device.nvidia import NvidiaDevice, Unavailable
from runner.worker.device.processes import Family
from runner.worker.probe import cpu_name

PACKAGES = ("transformers", "datasets", "tokenizers", "numpy", "triton", "scikit-learn")
VARIABLE_PREFIXES = ("TORCH", "CUDA", "NCCL", "OMP_", "MKL_", "TRITON", "PYTORCH")


def describe_environment(
    experiment_id: str, device: torch.device, cpu_threads: int | None
) -> dict[str, Any]:
    """The fields of the `environment` event; `cpu_threads` as the specification asks for them."""
    allowance = cpu_allowance()
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        # Torch itself says what it was built for (+cpu, +cu130); its package may not.
        "versions": {
            "torch": torch.__version__,
            **{name: version for name in PACKAGES if (version := _version(name))},
        },
        "cpu_model": cpu_name(),
        "num_cpus": os.cpu_count(),
        "usable_cpus": allowance.usable,
        "cpu_threads": torch.get_num_threads(),
        "cpu_threads_reason": explain_threads(cpu_threads, allowance),
        "interop_threads": torch.get_num_interop_threads(),
        **_describe_device(experiment_id, device),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(VARIABLE_PREFIXES)
        },
    }


def find_device(name: str) -> torch.device:
    """The device of that name; raises `WorkloadError` if this machine lacks it."""
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if device.index >= count:
            message = f"devices = {name!r}: torch {torch.__version__} sees {count} CUDA devices"
            raise WorkloadError(f"{message}; choose 'cpu' or one that is there")
        torch.cuda.set_device(device)
    return device


def set_precision(precision: Precision) -> None:
    """Lets float32 matrix products use TF32, or forbids it, on CUDA."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def _describe_device(experiment_id: str, device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"device_name": cpu_name()}
    properties = torch.cuda.get_device_properties(device)
    limits: dict[str, Any]
    try:
        limits = NvidiaDevice(device, Family(experiment_id)).limits
    except Unavailable as reason:
        limits = {"notes": [str(reason)]}
    return {
        **limits,
        "device_name": properties.name,
        "gpu_memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "driver": _driver_version(),
    }


def _driver_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word[0].isdigit() and "." in word), None)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
