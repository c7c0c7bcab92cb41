"""All scenarios by their names, in the order of the form."""

from breakeven.runner.specs.scenarios.accuracy import Accuracy
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioName
from breakeven.runner.specs.scenarios.cache import Cache
from breakeven.runner.specs.scenarios.investigate import Investigate
from breakeven.runner.specs.scenarios.speed import Speed
from breakeven.runner.specs.scenarios.train import Train
from breakeven.runner.specs.scenarios.tune import Tune

SCENARIOS: dict[ScenarioName, Scenario] = {
    scenario.name: scenario
    for scenario in (Train(), Speed(), Tune(), Accuracy(), Cache(), Investigate())
}
