"""The scenario `speed`: steps on a few batches, timed until the speedups are precise enough."""

from collections.abc import Sequence

from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.specs.scenarios.scenario import Scenario, ScenarioFields
from breakeven.runner.specs.variants import Variant


class Speed(Scenario):
    name = "speed"
    text = "steps on a few batches, timed until the speedups are precise enough; no evaluation."
    cycles_batches = True
    ends_by_width = True
    draws_freely = True
    allows_environments = True

    def parts(self, spec: ScenarioFields) -> tuple[Part, ...]:
        return (spec.speed.part,)

    def num_steps(self, spec: ScenarioFields) -> int:
        return spec.speed.num_blocks * spec.block_steps

    def repeats(self, spec: ScenarioFields) -> int:
        return spec.speed.repeats

    def check_rules(self, spec: ScenarioFields, compiled: Sequence[Variant]) -> None:
        self.check_steps(spec, "speed.max_rounds")
        self.check_batches(spec)
