"""What a run ran on: hardware, versions, settings. A number without them cannot be judged."""

import os
import platform
import socket
import sys
from importlib import metadata
from typing import Any

import torch

from runner.errors import WorkloadError
from runner.training_spec import Precision
from runner.worker.probe import cpu_name

PACKAGES = ("transformers", "datasets", "tokenizers", "numpy", "triton", "scikit-learn")
VARIABLE_PREFIXES = ("TORCH", "CUDA", "NCCL", "OMP_", "MKL_", "TRITON", "PYTORCH")


def describe_environment(device: torch.device) -> dict[str, Any]:
    """The fields of the `environment` event."""
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
        "cpu_threads": torch.get_num_threads(),
        **_describe_device(device),
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


def _describe_device(device: torch.device) -> dict[str, Any]:
    if device.type == "cpu":
        return {"device_name": cpu_name()}
    properties = torch.cuda.get_device_properties(device)
    return {
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
