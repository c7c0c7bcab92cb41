"""What compiling is expected to cost and to save, before anything is measured.

The figures are rough estimates for Inductor. On an H200 they came to 20 to 38 s for four models, of
which compiling and the first comparison took 13 to 23 s (`benchmarks/results/auto.md`).
"""

from dataclasses import dataclass

from torch import nn

FIRST_SECONDS, SECONDS_PER_LAYER = 10.0, 0.3
"""Compiling a model takes so long, and longer for each layer."""
USUAL_SAVING = {"cpu": 0.05}
"""Share of a step that compiling saves on average, where it saves nothing in many trainings."""
SAVING_OF_ACCELERATORS = 0.15


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What is expected of compiling a model."""

    compile_seconds: float
    saved_share: float
    """Of an uncompiled step."""
    source: str
    """Where these figures come from, in words."""

    def pays_from(self) -> float:
        """Seconds of uncompiled training from which on compiling is expected to pay."""
        return self.compile_seconds / self.saved_share if self.saved_share > 0 else float("inf")


def usual_costs(model: nn.Module, device_type: str) -> Costs:
    """What such a model usually costs and saves."""
    layers = sum(1 for module in model.modules() if not any(module.children()))
    return Costs(
        compile_seconds=FIRST_SECONDS + SECONDS_PER_LAYER * layers,
        saved_share=USUAL_SAVING.get(device_type, SAVING_OF_ACCELERATORS),
        source=f"usual for {layers} layers on {device_type}",
    )
