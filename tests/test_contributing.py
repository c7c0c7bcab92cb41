"""What CONTRIBUTING.md and ARCHITECTURE.md say about files is true."""

import ast
import re
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT

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
