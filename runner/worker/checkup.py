"""Tries whether each device computes and compiles, and prints a line of JSON.

The doctor asks it; every device is tried by itself, so that one that is broken hides no other.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.machine.run_environment import keep_others_out
from breakeven.runner.worker.device.devices import devices

TOLERANCE = 1e-4


def main() -> None:
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "triton": _version("triton"),
        "devices": [],
    }
    for name, device in devices().items():
        found["devices"].append({
            "id": name, "name": device.name,
            "computes": _problem(partial(_compute, name)),
            "compiles": _problem(partial(_compile, name)),
        })  # fmt: skip
    sys.stdout.write(json.dumps(found) + "\n")


def _work(numbers: Tensor) -> Tensor:
    return (numbers.sin() @ numbers.cos()).relu().sum(1)


def _compute(device: str) -> None:
    """Raises if a device cannot multiply matrices, or comes to something else than the CPU does."""
    numbers = torch.arange(64.0, device=device).reshape(8, 8)
    _require_equal(_work(numbers).cpu(), _work(numbers.cpu()))


def _compile(device: str) -> None:
    numbers = torch.arange(64.0, device=device).reshape(8, 8)
    keep_others_out()
    with tempfile.TemporaryDirectory(prefix="breakeven-doctor-") as folder:
        torch._inductor.config.fx_graph_cache = False
        with _caches_in(folder):
            _require_equal(torch.compile(_work)(numbers).cpu(), _work(numbers.cpu()))


def _caches_in(folder: str) -> Any:
    from torch._inductor.utils import fresh_cache

    return fresh_cache(dir=folder)


def _require_equal(one: Tensor, other: Tensor) -> None:
    if not torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE):
        raise ArithmeticError(f"a product of matrices is {one.tolist()}, not {other.tolist()}")


def _problem(work: Callable[[], None]) -> str | None:
    """What went wrong in a sentence; None if nothing."""
    try:
        work()
    except Exception as error:  # whatever torch, a driver or a compiler raises
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
