"""What CONTRIBUTING.md and ARCHITECTURE.md say of files is true."""

import ast
import re
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.workload import SCRIPT_TASK, TASKS
from breakeven.runner.suites import SUITES
from breakeven.storage.exchange.formats import FORMATS

GUIDE = (PROJECT_ROOT / "CONTRIBUTING.md").read_text()
PATH = re.compile(r"`((?:runner|storage|views|tests|docs|benchmarks)/[\w/.-]*|dashboard\.py)`")
PATH_AND_NAME = re.compile(PATH.pattern + r"\s+\(`(\w+)`\)")


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "ARCHITECTURE.md", "README.md"])
def test_every_file_that_is_named_exists(document: str) -> None:
    named = PATH.findall((PROJECT_ROOT / document).read_text())
    missing = [path for path in named if not (PROJECT_ROOT / path).exists()]
    assert not missing
    assert named or document == "README.md"


def test_every_name_that_is_given_with_a_file_is_defined_there() -> None:
    pairs = PATH_AND_NAME.findall(GUIDE)
    assert len(pairs) > 8
    for path, name in pairs:
        assert name in _defined(PROJECT_ROOT / path), f"{path} defines no {name}"


def _defined(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_a_task_is_one_module_with_what_the_guide_says() -> None:
    for task in TASKS:
        defined = _defined(PROJECT_ROOT / f"runner/worker/tasks/{task}.py")
        # A script loads by itself what it trains.
        assert ({"TASK"} if task == SCRIPT_TASK else {"TASK", "load"}) <= defined


def test_the_models_of_a_suite_have_a_module_on_either_side() -> None:
    models = [model for suite in SUITES.values() for model in suite.models]
    for origin in {model.source.partition(":")[0] for model in models}:
        for place in ("suites", "worker/model"):
            assert (PROJECT_ROOT / f"runner/{place}/{origin}.py").exists()


def test_an_export_format_has_a_function_in_a_module_of_its_room() -> None:
    assert {export.__module__.rpartition(".")[0] for export in FORMATS.values()} == {
        "breakeven.storage.exchange"
    }
