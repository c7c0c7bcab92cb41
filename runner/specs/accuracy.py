"""How outputs and gradients are compared in the scenario `accuracy`."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from breakeven.runner.specs.bounds import Bounds
from breakeven.runner.specs.validation import Spec, require

Part = Literal["training", "inference"]
Layers = Literal["failed", "always", "never"]
ACTIVATION = "activation"
"""What a layer puts out, as journals call it; no verdict hangs on it."""


@dataclass(frozen=True, kw_only=True)
class AccuracySpec(Spec, path="accuracy."):
    """What is compared with a reference in double precision, and how closely."""

    iterations: Annotated[int, Bounds(1, 1000, "rounding alone drives tensors apart by then")] = 2
    """Optimizer steps, or forward passes, on one batch before tensors are compared."""
    tolerance: Annotated[float | None, Bounds(0, 1, "zeros would pass for any tensor")] = None
    """How far a tensor may lie beside the baseline's, absolutely and relatively. None: as the
    Dynamo harness has it for such a task, precision and part."""
    parts: tuple[Part, ...] = ("training", "inference")
    """What is checked: training, in which gradients and weights are compared as well, and
    inference."""

    layers: Layers = "failed"
    """When the outputs of single layers are compared as well, which compiles the model once more:
    where the check failed, to tell in which layer it begins, always, or never. No verdict hangs on
    them."""

    def check_rules(self) -> None:
        parts = self.parts
        rule = f"must name at least one of {', '.join(get_args(Part))}, and none of them twice"
        valid = bool(parts) and len(set(parts)) == len(parts)
        require(valid, "accuracy.parts", parts, rule)
