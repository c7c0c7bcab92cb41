"""Prints a line of JSON: devices, backends and so on of this machine or, with the argument `try`,
whether each device computes and compiles."""

import gc
import importlib
import inspect
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

if __name__ == "__main__":
    gc.disable()  # which would take a third of the time: what torch loads remains in use

import torch
import torch._dynamo
from torch import Tensor
from torch._inductor import config as inductor_config

from breakeven.runner.machine.capabilities import installed_version
from breakeven.runner.machine.run_variables import protect_compiler_folder
from breakeven.runner.specs.workload import TASKS, Task
from breakeven.runner.worker.device.device_kinds import devices
from breakeven.runner.worker.process_end import leave_in_time

TOLERANCE = 1e-4


def main() -> None:
    devices = try_devices() if sys.argv[1:] == ["try"] else offered()
    sys.stdout.write(json.dumps(devices) + "\n")


def offered() -> dict[str, Any]:
    """Devices, backends, optimizers, tasks and the C++ compiler."""
    every = torch._dynamo.list_backends(exclude_tags=None)
    usual = set(torch._dynamo.list_backends())
    return {
        "torch_version": torch.__version__,
        "devices": [
            {
                "id": name,
                "name": device.name,
                "memory_bytes": device.memory_bytes,
                "numa_node": device.numa_node,
            }
            for name, device in devices().items()
        ],
        "backends": [name for name in every if name in usual],
        "debug_backends": [name for name in every if name not in usual],
        "optimizers": _optimizers(),
        "tasks": {name: asdict(task) for name, task in tasks().items()},
        "cpp_compiler": _cpp_compiler(),
    }


def _optimizers() -> list[str]:
    """Optimizers that need only dense gradients; LBFGS, for example, needs a closure."""
    base = torch.optim.Optimizer
    classes = inspect.getmembers(torch.optim, inspect.isclass)
    unusable = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
    return [name for name, kind in classes if issubclass(kind, base) and name not in unusable]


def tasks() -> dict[str, Task]:
    """The declaration of each task, from its module."""
    return {
        name: importlib.import_module(f"breakeven.runner.worker.tasks.{name}").TASK
        for name in TASKS
    }


def _cpp_compiler() -> str | None:
    configured = inductor_config.cpp.cxx
    candidates = configured if isinstance(configured, (list, tuple)) else [configured]
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


def try_devices() -> dict[str, Any]:
    """Tries each device by itself; `computes` and `compiles` hold the error, else None."""
    return {
        "torch": torch.__version__,
        "triton": installed_version("triton"),
        "devices": [
            {
                "id": name,
                "name": device.name,
                "computes": _problem(_compute, name),
                "compiles": _problem(_compile, name),
            }
            for name, device in devices().items()
        ],
    }


def _problem(attempt: Callable[[str], None], device: str) -> str | None:
    try:
        attempt(device)
    except Exception as error:  # torch, drivers and compilers raise many kinds
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    return None


def _compute(device: str) -> None:
    numbers = torch.arange(64.0, device=device).reshape(8, 8)
    _require_equal(_product(numbers), _product(numbers.cpu()))


def _compile(device: str) -> None:
    from torch._inductor.utils import fresh_cache

    numbers = torch.arange(64.0, device=device).reshape(8, 8)
    protect_compiler_folder()
    with tempfile.TemporaryDirectory(prefix="breakeven-doctor-") as folder:
        inductor_config.fx_graph_cache = False
        inductor_config.cpp_cache_precompile_headers = False  # which pay from the second on
        with fresh_cache(dir=folder):
            _require_equal(torch.compile(_product)(numbers), _product(numbers.cpu()))


def _product(numbers: Tensor) -> Tensor:
    return (numbers.sin() @ numbers.cos()).relu().sum(1)


def _require_equal(product: Tensor, on_cpu: Tensor) -> None:
    if not torch.allclose(product.cpu(), on_cpu, rtol=TOLERANCE, atol=TOLERANCE):
        raise ArithmeticError(f"a product of matrices is {product.tolist()}, not {on_cpu.tolist()}")


if __name__ == "__main__":
    main()
    leave_in_time(0)
