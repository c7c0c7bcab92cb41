"""How each scenario is shown, by its name."""

from breakeven.runner.specs.scenarios.scenario import ScenarioName
from breakeven.views.scenarios.accuracy import ACCURACY
from breakeven.views.scenarios.cache import CACHE
from breakeven.views.scenarios.investigate import INVESTIGATE
from breakeven.views.scenarios.runs import RUNS
from breakeven.views.scenarios.scenario import Scenario

SCENARIOS: dict[ScenarioName, Scenario] = {
    "train": RUNS,
    "speed": RUNS,
    "tune": RUNS,
    "accuracy": ACCURACY,
    "cache": CACHE,
    "investigate": INVESTIGATE,
}
