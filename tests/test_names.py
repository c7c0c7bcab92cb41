"""Names say what they hold: words that have to be decoded name nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT
from tests.helpers.syntax import nodes

NOTHING_SAID = {"one", "found", "mine", "each", "it", "told", "asked", "whole", "of"}
FOLDERS = ("runner", "storage", "views", "benchmarks", "examples", "tests", "breakeven")


def bound_names(file: Path) -> Iterator[tuple[int, str]]:
    """Line and name of every variable, parameter, field, function, class and alias."""
    for node in nodes(file):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case (
                ast.arg(arg=name) | ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name))
            ):
                yield node.lineno, name
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name


def unclear(file: Path) -> list[str]:
    names = bound_names(file)
    return [f"{file}:{line}: {name}" for line, name in names if name in NOTHING_SAID]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_name_says_what_it_holds(folder: str) -> None:
    files = sorted((PROJECT_ROOT / folder).rglob("*.py"))
    assert files and [line for file in files for line in unclear(file)] == []


@pytest.mark.parametrize(
    "code",
    [
        "one = 1",
        "lengths = [len(each) for each in texts]",
        "def read(path, *, whole): pass",
        "class Run:\n    told: str",
        "with open(path) as found: pass",
        "self.asked = True",
        "def of(part): pass",
        "match part:\n    case [it]: pass",
    ],
)
def test_such_a_name_is_found_wherever_it_is_bound(code: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(code)
    assert len(unclear(file)) == 1
