"""How each scenario is shown, by its name."""

from breakeven.runner.specs.scenarios.base import ScenarioName
from breakeven.views.scenarios.accuracy import ACCURACY
from breakeven.views.scenarios.base import Scenario
from breakeven.views.scenarios.cache import CACHE
from breakeven.views.scenarios.investigate import INVESTIGATE
from breakeven.views.scenarios.timed import TIMED

SCENARIOS: dict[ScenarioName, Scenario] = {
    "train": TIMED,
    "speed": TIMED,
    "tune": TIMED,
    "accuracy": ACCURACY,
    "cache": CACHE,
    "investigate": INVESTIGATE,
}
