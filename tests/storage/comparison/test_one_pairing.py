"""Blocks are paired in one place, and records hold nothing that computes."""

import ast
import dataclasses

import pandas as pd

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.comparisons import compared
from tests.helpers.journals import record_experiment
from tests.helpers.syntax import nodes

PAIRING = {"paired_blocks", "pair", "_pair_by_samples"}


def calls_of(names: set[str]) -> list[tuple[str, str]]:
    """Each call of a function with one of these names, with the file."""
    return [
        (path.relative_to(PROJECT_ROOT).as_posix(), node.func.id)
        for part in ("storage", "views", "runner")
        for path in sorted((PROJECT_ROOT / part).rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def test_blocks_are_paired_in_one_place() -> None:
    file = "storage/comparison/pairs.py"
    assert calls_of({"paired_blocks"}) == [(file, "paired_blocks")]
    assert {path for path, _ in calls_of(PAIRING)} == {file}
    assert calls_of({"pair_all"}) == [("storage/comparison/comparison.py", "pair_all")]


def test_evidence_is_loaded_in_one_place() -> None:
    assert calls_of({"load_evidence"}) == [("storage/comparison/comparison.py", "load_evidence")]


def test_a_comparison_holds_values_alone(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    comparison = compared(data_dir)
    functions = [value for value in _values(comparison) if callable(value)]
    assert functions == []


def _values(record: object) -> list[object]:
    if isinstance(record, pd.DataFrame):
        return []
    if dataclasses.is_dataclass(record):
        parts = [getattr(record, field.name) for field in dataclasses.fields(record)]
    elif isinstance(record, dict):
        parts = [*record.values()]
    elif isinstance(record, list | tuple):
        parts = [*record]
    else:
        return [record]
    return [value for part in parts for value in _values(part)]
