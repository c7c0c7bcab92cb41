"""What a run ran on: hardware, versions, settings. A number without them cannot be judged."""

import os
import platform
import socket
import sys
from importlib import metadata
from typing import Any

import torch

from breakeven.runner.machine.cpus import cpu_allowance, explain_threads
from breakeven.runner.machine.placement import given_devices
from breakeven.runner.machine.run_environment import WITHHELD_VARIABLE, named_variables
from breakeven.runner.masking import MASKED, is_secret_name
from breakeven.runner.specs.place import write_cpus
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.cpu import cpu_name

PACKAGES = ("transformers", "datasets", "tokenizers", "numpy", "triton", "scikit-learn")
VARIABLE_PREFIXES = ("TORCH", "CUDA", "NCCL", "OMP_", "MKL_", "TRITON", "PYTORCH")

OF_ONE_RUN = "TORCHELASTIC_"
"""What torchrun tells the ranks of a run; no setting."""


def describe_environment(
    experiment_id: str, device: Device, cpu_threads: int | None
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
        "cpus": write_cpus(allowance.cpus),
        "devices": given_devices(os.environ),
        "cpu_threads": torch.get_num_threads(),
        "cpu_threads_reason": explain_threads(cpu_threads, allowance),
        "interop_threads": torch.get_num_interop_threads(),
        **device.describe(experiment_id),
        "variables": {
            name: MASKED if is_secret_name(name) else value
            for name, value in sorted(os.environ.items())
            if (name.startswith(VARIABLE_PREFIXES) and not name.startswith(OF_ONE_RUN))
            or name in named_variables(os.environ)
        },
        "withheld_variables": [*filter(None, os.environ.get(WITHHELD_VARIABLE, "").split(","))],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
