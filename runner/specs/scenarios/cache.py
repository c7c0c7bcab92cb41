"""The scenario `cache`: compiling with empty and with filled compile caches."""

from collections.abc import Iterator

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.arms import cold_and_warm
from breakeven.runner.specs.backends import parse_backends
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioFields


class Cache(Scenario):
    name = "cache"
    text = "compiling, timed with empty and with filled compile caches."
    compares = "caches"
    has_speedups = False
    takes_turns = False  # a warm run waits for the end of the cold one
    draws_freely = True
    conditions = ("compile",)
    form_fields = (("cache.part",), ("cache.repeats",), ("cache.steps",))

    def parts(self, spec: ScenarioFields) -> tuple[Part, ...]:
        return (spec.cache.part,)

    def num_steps(self, spec: ScenarioFields) -> int:
        return spec.cache.steps

    def runs(self, spec: ScenarioFields) -> Iterator[tuple[str, Arm]]:
        pairs = (run for _, *pair in self.cold_and_warm(spec) for run in pair)
        return ((run.label, run) for run in (*self.baselines(spec), *pairs))

    def cold_and_warm(self, spec: ScenarioFields) -> Iterator[tuple[str, Arm, Arm]]:
        for text, arm in zip(spec.backends, parse_backends(spec.backends), strict=True):
            for cold, warm in cold_and_warm(arm, spec.cache.repeats):
                yield text, cold, warm

    def check_result(self, spec: ScenarioFields, compiling: int) -> None:
        rule = (
            f"must be at least {compiling + 1}: the first turn has {compiling} steps and compiles; "
            "only later steps show the time of a step without compiling. Choose more steps, or for "
            "a smaller block_steps"
        )
        spec.require("cache.steps", spec.cache.steps > compiling, rule)
