"""How outputs and gradients are compared in the scenario `accuracy`."""

from dataclasses import dataclass
from typing import Literal, get_args

from runner.validation import Spec, require

Part = Literal["training", "inference"]


@dataclass(frozen=True, kw_only=True)
class AccuracySpec(Spec):
    """What is compared with a reference in double precision, and how closely."""

    iterations: int = 2
    """Optimizer steps, or forward passes, on one batch before tensors are compared."""
    tolerance: float | None = None
    """How far a tensor may lie beside the baseline's, absolutely and relatively. None: as the
    Dynamo harness has it for such a task, precision and part."""
    parts: tuple[Part, ...] = ("training", "inference")
    """What is checked: training, in which gradients and weights are compared as well, and
    inference."""

    def check_rules(self) -> None:
        iterations, tolerance, parts = self.iterations, self.tolerance, self.parts
        require(iterations >= 1, "accuracy.iterations", iterations, "must be at least 1")
        rule = "must be at least 0"
        require(tolerance is None or tolerance >= 0, "accuracy.tolerance", tolerance, rule)
        rule = f"must name at least one of {', '.join(get_args(Part))}, and none of them twice"
        valid = bool(parts) and len(set(parts)) == len(parts)
        require(valid, "accuracy.parts", parts, rule)
