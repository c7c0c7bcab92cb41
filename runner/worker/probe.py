"""Prints what this machine offers, as one line of JSON."""

import importlib
import inspect
import json
import shutil
import sys
from dataclasses import asdict

import torch
import torch._dynamo
from torch._inductor import config as inductor_config

from breakeven.runner.specs.workload import TASKS, Task
from breakeven.runner.worker.device.devices import devices


def main() -> None:
    every = torch._dynamo.list_backends(exclude_tags=None)
    usual = set(torch._dynamo.list_backends())
    found = {
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
    sys.stdout.write(json.dumps(found) + "\n")


def _optimizers() -> list[str]:
    """Optimizers that step from gradients alone (LBFGS wants a closure) on dense parameters."""
    base = torch.optim.Optimizer
    classes = inspect.getmembers(torch.optim, inspect.isclass)
    unusable = {"Optimizer", "LBFGS", "SparseAdam", "Muon"}
    return [name for name, kind in classes if issubclass(kind, base) and name not in unusable]


def tasks() -> dict[str, Task]:
    """What fits each task, by its own word."""
    modules = {
        name: importlib.import_module(f"breakeven.runner.worker.tasks.{name}") for name in TASKS
    }
    return {name: module.TASK for name, module in modules.items()}


def _cpp_compiler() -> str | None:
    configured = inductor_config.cpp.cxx
    candidates = configured if isinstance(configured, (list, tuple)) else [configured]
    return next((path for name in candidates if name and (path := shutil.which(name))), None)


if __name__ == "__main__":
    main()
