"""The scenario `accuracy`: outputs, loss and gradients on one batch, compared with a reference."""

from collections.abc import Sequence

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioFields


class Accuracy(Scenario):
    name = "accuracy"
    text = (
        "each backend's outputs, loss and gradients on one batch, compared with a reference in "
        "double precision; nothing is timed."
    )
    compares = "tensors"
    has_speedups = False
    has_checks = True
    conditions = ()
    form_fields = (
        ("accuracy.parts",),
        ("accuracy.layers",),
        ("accuracy.tolerance",),
        ("accuracy.iterations",),
    )

    def parts(self, spec: ScenarioFields) -> tuple[Part, ...]:
        return spec.accuracy.parts

    def num_steps(self, spec: ScenarioFields) -> int:
        return spec.accuracy.iterations

    def num_batches(self, block_steps: int, cycled: int) -> int:
        return 1

    def check_rules(self, spec: ScenarioFields, compiled: Sequence[Arm]) -> None:
        rule = "needs double precision, which MPS does not have; choose another device"
        spec.require("scenario", spec.device != "mps", rule)
        rule = (
            "must name one device in the scenario 'accuracy', which compares tensors of one batch"
        )
        spec.require("devices", len(spec.devices) == 1, rule)
        super().check_rules(spec, compiled)
