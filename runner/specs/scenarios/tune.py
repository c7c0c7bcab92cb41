"""The scenario `tune`: a search for the fastest way to train, whose best candidates are trained
from the beginning afterwards."""

from collections.abc import Iterator, Sequence

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.arms import compared_arms, expanded, in_each
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioFields

MAX_SEARCH_BLOCKS = 5_000
"""Largest number of turns of the baseline of a search."""


class Tune(Scenario):
    name = "tune"
    text = "a search for the fastest way to train; losing candidates end early."
    cycles_batches = True
    has_candidates = True
    has_planned_steps = False
    draws_freely = True
    allows_scripts = True
    allows_larger_batches = True
    max_environments = 1
    is_in_form = False
    max_backends = 1000
    why_max_backends = "a search tries a few of them"
    why_no_rounds = "a search ends its candidates by itself"
    longer = "a larger budget"

    def num_steps(self, spec: ScenarioFields) -> int:
        return MAX_SEARCH_BLOCKS * spec.block_steps

    def budget_seconds(self, spec: ScenarioFields) -> float:
        return spec.tune.max_seconds

    def runs(self, spec: ScenarioFields) -> Iterator[tuple[str, Arm]]:
        """Without backends: the supervisor starts them when it has chosen them."""
        return expanded(in_each(spec.environments, self.baselines(spec)), 1)

    def candidates(self, spec: ScenarioFields) -> Sequence[Arm]:
        return in_each(spec.environments, compared_arms(spec))

    def check_rules(self, spec: ScenarioFields, compiled: Sequence[Arm]) -> None:
        rule = "must be 'turns' for a search: candidates take turns with the best so far"
        spec.require("schedule", spec.schedule == "turns", rule)
        rule = "must be at least 1 for a search: the control shows which losses are correct"
        spec.require("controls", spec.controls > 0, rule)
        self.check_batches(spec)

    def work_words(self, spec: ScenarioFields) -> str:
        return f"search for the fastest {spec.tune.steps:,} steps"

    def length_words(self, spec: ScenarioFields) -> str:
        return "as many steps per run as the search needs"
