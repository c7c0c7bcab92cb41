"""Backends for inference alone: what they compute carries no gradients, so nothing trains."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.compiler.compiling import make_compiler

CARRIES_NONE = (
    "backend {!r} is for inference alone: what it computes carries no gradients, so nothing can be "
    "trained with it. Choose another backend, or time forward passes with it (--scenario speed "
    "--speed-part inference)"
)


@contextmanager
def explained(variant: Variant) -> Iterator[None]:
    """Says of a training that fails in autograd if that is the backend's doing.

    A loss may lack gradients by the script's own fault, so the backend is tried on a function that
    has them without it.
    """
    try:
        yield
    except RuntimeError as error:
        is_autograds = "grad" in str(error) or "backward" in str(error)
        if variant.backend is None or not is_autograds or _carries_gradients(variant):
            raise
        raise WorkloadError(CARRIES_NONE.format(variant.backend)) from error


def _carries_gradients(variant: Variant) -> bool:
    """Also where the trial fails: then nobody knows."""

    def times(factor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (factor * other).sum()

    factor = torch.ones(2, requires_grad=True)
    try:
        with torch.enable_grad():
            return bool(make_compiler(variant)(times)(factor, torch.ones(2)).requires_grad)
    except Exception:  # whatever a backend has against this function
        return True
