"""Judges whether tensors are equal up to rounding, by `same()` of PyTorch's Dynamo harness.

A tensor passes if it lies within the absolute and relative tolerance of the baseline's tensor. If
not, it still passes if it is about as close as the baseline to a reference in double precision:
its root mean square error is at most a multiple of the baseline's, plus a tenth of the tolerance.

The harness counts all elements for these errors. Where a mask is infinite or the least number of
its type, both errors are infinite or not numbers, and the harness passes any tensor.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.suites import SUITES
from breakeven.runner.worker.device.base import Device

SMALL_TENSOR = 1000
"""Number of elements below which chance dominates the error of a tensor."""
COARSE_TOLERANCE = 2e-2
"""Tolerance from which on a workload is known for its rounding."""
SMALLEST_SCALE = 1e-3
"""Smallest scale of a gradient, relative to the largest; smaller ones are rounding."""
ROUNDING_MULTIPLIER = 10.0
"""The harness's largest multiplier, for tensors that are only rounding."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The judgement of one tensor. Errors are None for tensors that cannot be subtracted."""

    max_difference: float | None
    """Largest difference to the baseline's tensor."""
    rmse: float | None
    """Root mean square error against the reference; None without a reference."""
    baseline_rmse: float | None
    """The baseline's error against the reference."""
    multiplier: float
    """Largest allowed error, in multiples of the baseline's."""
    passed: bool


def judge(
    result: Tensor,
    baseline: Tensor,
    reference: Tensor | None,
    tolerance: float,
    *,
    scale: float = 1.0,
    equal_nan: bool = False,
) -> Judgement:
    """Judges a tensor by the baseline's tensor and, if given, by the float64 reference.

    Absolute tolerances are multiplied by `scale`. A scale below 1 makes the rule stricter than the
    harness's, but rounding must still pass. An example is the gradient of the bias that attention
    adds to its keys: it is zero in exact arithmetic, so the baseline's error is larger than the
    tensor, and another order of summation gives other rounding.
    """
    multiplier = allowed_multiple(baseline, tolerance)
    if result.shape != baseline.shape or result.dtype != baseline.dtype:
        return Judgement(
            max_difference=None, rmse=None, baseline_rmse=None, multiplier=multiplier, passed=False
        )
    close = torch.allclose(
        baseline, result, atol=tolerance * scale, rtol=tolerance, equal_nan=equal_nan
    )
    error = baseline_error = None
    if reference is not None:
        alike = torch.isclose(baseline, result, rtol=0, atol=0, equal_nan=equal_nan)
        is_masked = alike & ~(baseline.double() - reference).square().isfinite()
        if is_masked.any():
            result, baseline, reference = (
                tensor[~is_masked] for tensor in (result, baseline, reference)
            )
        error, baseline_error = _rmse(result, reference), _rmse(baseline, reference)
        if scale < 1 and baseline_error >= reference.double().square().mean().sqrt().item():
            multiplier = ROUNDING_MULTIPLIER
        allowed = multiplier * baseline_error + scale * tolerance / 10
        close = close or (math.isfinite(allowed) and error <= allowed)
    return Judgement(
        max_difference=_largest(result.double() - baseline.double()),
        rmse=error,
        baseline_rmse=baseline_error,
        multiplier=multiplier,
        passed=bool(close),
    )


def allowed_multiple(tensor: Tensor, tolerance: float) -> float:
    """The largest allowed error of such a tensor, in multiples of the baseline's."""
    is_half = tensor.dtype in (torch.float16, torch.bfloat16)
    is_pointwise_kernel = tensor.ndim == 4 and tuple(tensor.shape[-2:]) == (1, 1)
    is_noisy = tensor.numel() < SMALL_TENSOR or tolerance >= COARSE_TOLERANCE
    return 3.0 if is_half or is_pointwise_kernel or is_noisy else 2.0


def tensor_tolerance(experiment: ExperimentSpec, part: Part, device: Device) -> float:
    """The harness's tolerance: one for its suites of transformers and timm, another for TorchBench
    and for users' own models."""
    training, precision = part == "training", experiment.training.precision
    model = experiment.model.from_suite
    if experiment.task != "custom" and (
        model is None or not SUITES[model.suite].has_strict_tolerances
    ):
        return 1e-2 if training else 1e-3
    is_half = precision in ("bf16", "fp16")
    if is_half:
        return 1e-3
    return device.training_tolerance if training else 1e-4


def own_scales(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """The scale of each gradient or layer output, by name: its root mean square, but at least a
    small share of the largest; 1 for a tensor that is not finite.

    With an absolute tolerance of 0.01, any smaller gradient would pass, even a missing one.
    """
    sizes = {
        name: tensor.double().square().mean().sqrt().item() for name, tensor in tensors.items()
    }
    least = SMALLEST_SCALE * max(filter(math.isfinite, sizes.values()), default=0.0)
    return {name: max(size, least) if math.isfinite(size) else 1.0 for name, size in sizes.items()}


def _rmse(tensor: Tensor, reference: Tensor) -> float:
    return (tensor.double() - reference).square().mean().sqrt().item()


def _largest(difference: Tensor) -> float:
    return difference.abs().max().item() if difference.numel() else 0.0
