"""The scenario `train`: whole trainings, to see what pays off and whether each learns the same."""

from collections.abc import Sequence

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioFields
from breakeven.runner.specs.training import NO_OPTIMIZER


class Train(Scenario):
    name = "train"
    text = "whole trainings that take turns."
    trains_fully = True
    allows_scripts = True
    max_environments = 100
    allows_arms = True
    allows_larger_batches = True

    def check_rules(self, spec: ScenarioFields, compiled: Sequence[Arm]) -> None:
        rule = (
            f"must not be {NO_OPTIMIZER!r} for a whole training, which would learn nothing; choose "
            "an optimizer, or the scenario speed or accuracy"
        )
        learns = spec.training.optimizer != NO_OPTIMIZER
        spec.require("training.optimizer", learns, rule)
        super().check_rules(spec, compiled)
