"""Outcomes of trials, and the judgement of tensors in them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from breakeven.runner.texts import first_sentence
from breakeven.runner.worker.correctness.judgement import judge, own_scales
from breakeven.runner.worker.process import is_out_of_memory

Kind = Literal["passes", "raises", "differs", "crashes", "times out"]
ROUNDING = 1e-6
"""Relative change that shows what rounding does where double precision cannot."""
PLAUSIBLE = 0.05
"""Largest relative error of a reference; one with other random numbers lies farther away."""
DEVICE_ERROR = "CUDA error"
"""Part of the message of an error after which a process cannot use its device any more."""
LEAST_MASK = 9e3
"""Masks in logits are larger: -1e4, -1e9, the least number of a type. Beside them any other number
would count as rounding."""
NOT_FINITE = "the loss is not finite"
Tensors = dict[tuple[str, str], Tensor]
"""Tensors by quantity (`loss`, `gradient`, ...) and name."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one trial."""

    kind: Kind
    step: int | None = None
    error: str | None = None
    """Class and message of the exception."""
    traceback: str | None = None
    quantity: str | None = None
    tensor: str | None = None
    """The tensor's name; where a loss is not finite without a compiler, the place where that
    begins, and `quantity` is the pass."""
    max_error: float | None = None
    """Largest difference to the tensor without a compiler."""
    allowed_error: float | None = None
    """Root mean square error of the tensor without a compiler, against double precision."""
    out_of_memory: bool = False
    is_unstable: bool = False
    """Whether the same computation without a compiler differs as much from itself."""

    @property
    def fails(self) -> bool:
        return self.kind != "passes"

    @property
    def kills(self) -> bool:
        """Whether its process is dead, or cannot use its device any more."""
        return self.kind == "crashes" or DEVICE_ERROR in (self.error or "")

    @property
    def detail(self) -> str | None:
        """One line about the failure."""
        if self.kind == "differs":
            error = "unknown" if self.max_error is None else f"{self.max_error:.3g}"
            names = " ".join(filter(None, dict.fromkeys([self.quantity, self.tensor])))
            is_finite = self.max_error is None or math.isfinite(self.max_error)
            return f"{names} differs by up to {error}" if is_finite else f"{names} is not finite"
        if self.error == NOT_FINITE and self.tensor is not None:
            return f"{self.error}, first in {self.tensor}"
        return None if self.error is None else first_sentence(self.error)


PASSES = Outcome(kind="passes")


def raised(error: BaseException, trace: str, step: int | None = None) -> Outcome:
    """The outcome of a trial that ended with an exception."""
    text = f"{type(error).__name__}: {error}"
    lacks_memory = is_out_of_memory(error)
    if lacks_memory and "memory" not in text:
        text = f"{text} (out of memory)"
    return Outcome(
        kind="raises", error=text, traceback=trace, step=step, out_of_memory=lacks_memory
    )


def is_plausible(reference: Tensors, expected: Tensors) -> bool:
    """Whether loss and outputs of a reference are about those without a compiler. Dropout draws
    other numbers in double precision, and such a reference would excuse any fault."""
    results = {name: one for name, one in expected.items() if name[0] in ("loss", "output")}
    found = {name: one.to(results[name].dtype) for name, one in reference.items()
             if name in results}  # fmt: skip
    return are_close(found, results, PLAUSIBLE)


def are_close(result: Tensors, expected: Tensors, tolerance: float) -> bool:
    """Whether all tensors agree within the tolerance, relative to the size of each; quick."""
    return all(_is_close(result.get(name), tensor, tolerance) for name, tensor in expected.items())


def _is_close(result: Tensor | None, expected: Tensor, tolerance: float) -> bool:
    if result is None or result.shape != expected.shape or result.dtype != expected.dtype:
        return False
    usual = expected[expected.abs() < LEAST_MASK]
    usual = usual if usual.numel() else expected
    size = usual.double().square().mean().sqrt().item() if usual.numel() else 0.0
    size = size if math.isfinite(size) else 1.0
    return torch.allclose(result, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)


def first_difference(
    result: Tensors, expected: Tensors, reference: Mapping[tuple[str, str], Tensor],
    tolerance: float,
) -> Outcome | None:  # fmt: skip
    """The first tensor that differs by more than rounding; None if all agree.

    `reference`: the tensors in double precision, as far as they exist.
    """
    scales: dict[tuple[str, str], float] = {}
    for quantity in {quantity for quantity, _ in expected}:
        group = {name: tensor for (of, name), tensor in expected.items() if of == quantity}
        scales |= {(quantity, name): size for name, size in own_scales(group).items()}
    for name, tensor in expected.items():
        found = result.get(name)
        if found is None:
            return Outcome(kind="differs", quantity=name[0], tensor=f"{name[1]} is missing")
        scale = min(1.0, scales[name])
        judged = judge(found, tensor, reference.get(name), tolerance, scale=scale, equal_nan=True)
        if not judged.passed:
            return Outcome(
                kind="differs", quantity=name[0], tensor=name[1],
                max_error=judged.max_difference, allowed_error=judged.baseline_rmse,
            )  # fmt: skip
    return None
