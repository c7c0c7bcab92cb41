"""The scenario `investigate`: trials that find the cause of another run's fault."""

from collections.abc import Iterator, Sequence

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.arms import compared_arms, expanded
from breakeven.runner.specs.scenario_fields import Part
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioFields
from breakeven.runner.texts import duration


class Investigate(Scenario):
    name = "investigate"
    text = "no race; trials find the cause of a run's fault."
    compares = "causes"
    has_speedups = False
    makes_trials = True
    has_planned_steps = False
    allows_scripts = True
    is_in_form = False
    unit = "trial"
    entry = "investigation.investigator:investigate"
    conditions = ()

    def parts(self, spec: ScenarioFields) -> tuple[Part, ...]:
        return (spec.investigation.part,)

    def budget_seconds(self, spec: ScenarioFields) -> float:
        return spec.time_limit_seconds

    def runs(self, spec: ScenarioFields) -> Iterator[tuple[str, Arm]]:
        """One run, which makes all trials."""
        return expanded(compared_arms(spec), 1)

    def check_rules(self, spec: ScenarioFields, compiled: Sequence[Arm]) -> None:
        rule = "must name the run to investigate; `breakeven investigate EXPERIMENT.LABEL` does so"
        spec.require("investigates", spec.investigates is not None, rule)
        rule = "must name one device for an investigation, whose trials are single processes"
        spec.require("devices", len(spec.devices) == spec.nodes == 1, rule)
        rule = "must be exactly one backend for an investigation, and one with a compiler"
        is_single = len(compiled) == 1 and compiled[0].backend is not None
        spec.require("backends", is_single, rule)
        super().check_rules(spec, compiled)

    def resuming_words(self, step: int | None, num_done: int) -> str:
        return f"after {num_done} trials"

    def length_words(self, spec: ScenarioFields) -> str:
        return f"trials for at most {duration(spec.time_limit_seconds)}"
