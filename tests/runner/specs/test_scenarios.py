"""What the modules of all scenarios have in common."""

import ast
from typing import get_args

import pytest

from breakeven.runner.arguments.conditions import GATE
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioName
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.runner.specs.workload import BuiltInWorkload, ScriptWorkload
from breakeven.views.scenarios.by_name import SCENARIOS as SHOWN

WORKER = PROJECT_ROOT / "runner/worker"


def test_every_name_has_a_scenario_in_a_module_of_this_name_and_a_page() -> None:
    assert set(SCENARIOS) == set(SHOWN) == set(get_args(ScenarioName))
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name
        assert type(scenario).__module__.rpartition(".")[2] == name


@pytest.mark.parametrize("decides", [*SCENARIOS.values(), BuiltInWorkload(), ScriptWorkload()])
def test_the_worker_has_the_function_that_executes_a_run(
    decides: Scenario | BuiltInWorkload,
) -> None:
    if decides.entry is None:
        return  # the workload decides
    module, _, name = decides.entry.partition(":")
    tree = ast.parse((WORKER / f"{module.replace('.', '/')}.py").read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda scenario: scenario.name)
def test_a_scenario_answers_conditions_that_exist(scenario: Scenario) -> None:
    assert set(scenario.conditions) <= set(GATE)
    assert not scenario.has_speedups or set(scenario.conditions) == set(GATE)
