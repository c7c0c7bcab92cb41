"""Which code computed a kept result: any change of it has the result computed anew."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from breakeven.runner.project import PACKAGE

LIBRARIES = ("duckdb", "numpy", "pandas", "scipy")


@cache
def code_version() -> str:
    """Of all that can change a result: what reads specifications and folders, the database's
    views, queries, statistics, and the libraries that they compute with."""
    numbers = [f"{name} {version(name)}" for name in LIBRARIES]
    return hashlib.sha256("\n".join([hash_of(), *numbers]).encode()).hexdigest()


def hash_of(root: Path = PACKAGE, houses: Sequence[str] = ("storage", "runner")) -> str:
    """Of the sources of these folders, of `runner/` without what runs and commands do."""
    whole = hashlib.sha256()
    for house in houses:
        for file in sorted((root / house).rglob("*")):
            parts = file.relative_to(root).parts
            if file.suffix in (".py", ".sql") and parts[1] not in ("worker", "commands"):
                whole.update(f"{'/'.join(parts)}\n".encode() + file.read_bytes())
    return whole.hexdigest()
