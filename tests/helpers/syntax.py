"""The syntax trees of this project's modules."""

import ast
from functools import cache
from pathlib import Path


@cache
def nodes(file: Path) -> list[ast.AST]:
    """All that a module consists of, itself first; many tests look through the same modules, and
    each process of tests parses them once."""
    return list(ast.walk(ast.parse(file.read_text())))
