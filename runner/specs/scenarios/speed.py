"""The scenario `speed`: steps on a few batches, timed until the speedups are precise enough."""

from collections.abc import Sequence

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioFields


class Speed(Scenario):
    name = "speed"
    text = "steps on a few batches, timed until the speedups are precise enough; no evaluation."
    cycles_batches = True
    ends_by_width = True
    draws_freely = True
    max_environments = 100
    form_fields = (
        ("speed.part", "speed.batches", "speed.warm_up_blocks"),
        ("speed.target_width", "speed.min_rounds", "speed.repeats"),
        ("speed.max_rounds", "speed.max_seconds"),
    )
    form_hint = (
        "The runs take turns on the same few batches. Measuring ends once every speedup is precise "
        "enough. The values below are fine for a first try."
    )

    def parts(self, spec: ScenarioFields) -> tuple[Part, ...]:
        return (spec.speed.part,)

    def num_steps(self, spec: ScenarioFields) -> int:
        return spec.speed.num_blocks * spec.block_steps

    def repeats(self, spec: ScenarioFields) -> int:
        return spec.speed.repeats

    def work_words(self, spec: ScenarioFields) -> str:
        return f"speed of {spec.speed.part}"

    def check_rules(self, spec: ScenarioFields, compiled: Sequence[Arm]) -> None:
        self.check_steps(spec, "speed.max_rounds")
        self.check_batches(spec)
