"""No number, verdict or fact of a comparison changes unnoticed: neither of the recorded examples
nor of journals of every scenario, made up so that all their numbers differ.

`golden/` has a file of facts for each example, and no sentences: what is not known is left out, and
of many rows alike the sums. Where a fact is meant to change, write the files again and read what
`git diff` shows:

    python -m tests.storage.comparison.test_golden
"""

import inspect
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.comparison.cold_and_warm import cold_and_warm
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, compute_missing
from breakeven.storage.profile.explanation import explain
from breakeven.views.shared.address import default_experiments
from tests.helpers.journals import EXPERIMENT_ID
from tests.storage.comparison.varied_journals import VARIED

EXAMPLES = Path(__file__).parents[3] / "examples"
GOLDEN = Path(__file__).with_name("golden")
NAMES = sorted([*{file.parents[1].name for file in EXAMPLES.glob("*/*/spec.json")}, *VARIED])
TOLERANCE = 1e-9
FEW = 3
"""Rows that are written one by one."""
REVIEWS = "20261123-060240-248837-bb0e"
"""BERT-base on reviews, on an H100 of a restless host, with profiles."""
QUIET = "20261125-140742-602271-10f4"
"""BERT-base on reviews in large batches, on an H200: the device, not the host, sets the pace."""
MASKED_LM = "20261122-143524-361651-0eb6"
"""BertForMaskedLM on an H100, with profiles."""
SEARCH, TUNED = "20261126-210610-571435-a44b", "20261126-210847-945908-36b8"
"""The search for the fastest way to train BERT-base in large batches on an H100, and the training
that confirms its answer."""
ONE, TWO = "20261123-024245-610163-7424", "20261123-024448-939088-2663"
"""BERT-base on one H200, and by `ddp` on two of one host."""


@contextmanager
def examples() -> Iterator[Store]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.in_memory(DataDir(Path(folder)), EXAMPLES) as store,
    ):
        yield store


@pytest.fixture(scope="module")
def shipped() -> Iterator[Store]:
    with examples() as store:
        yield store


def facts_of(name: str, shipped: Store) -> dict[str, Any]:
    """All facts of an experiment, as JSON has them."""
    if name not in VARIED:
        (experiment_id,) = {run.name.partition(".")[0] for run in (EXAMPLES / name).iterdir()}
        return facts_in(shipped, experiment_id)
    with tempfile.TemporaryDirectory() as folder:
        data_dir = DataDir(Path(folder))
        VARIED[name](data_dir)
        with Store.in_memory(data_dir) as store:
            return facts_in(store, EXPERIMENT_ID)


def facts_in(store: Store, experiment_id: str) -> dict[str, Any]:
    comparison = compare(store, experiment_id)
    pairs = cold_and_warm(comparison)
    return {
        "caches": [facts(pair) for pair in pairs],
        "results": results(comparison),
        "noise_floor": comparison.noise_floor,
        "loss_band": totals(comparison.band.astype(float).to_dict("records")),
        "warnings": facts(comparison.warnings),
    }


def results(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Of each run its row of the table, and what its result knows besides."""
    facts_by_label = {}
    for row, result in zip(comparison.table().to_dict("records"), comparison.results, strict=True):
        known = facts(replace(result, timing=None, graphs=None, reason=None))
        facts_by_label[result.label] = facts(row) | known.pop("measured") | known
    return facts_by_label


def facts(value: Any) -> Any:
    """A value with all fields and properties of every object in it that are known."""
    if is_dataclass(value):
        properties = inspect.getmembers(type(value), lambda member: isinstance(member, property))
        names = [*(field.name for field in fields(value)), *(name for name, _ in properties)]
        return facts({name: getattr(value, name) for name in names})
    if isinstance(value, Mapping):
        known = {name: facts(entry) for name, entry in value.items()}
        return {name: entry for name, entry in known.items() if is_known(entry)}
    if isinstance(value, list | tuple):
        entries = [facts(entry) for entry in value]
        return totals(entries) if len(entries) > FEW and all(map(is_flat, entries)) else entries
    return str(value) if isinstance(value, Enum) else value


def is_known(value: Any) -> bool:
    return value is not None and (not isinstance(value, list | dict) or len(value) > 0)


def is_flat(row: Any) -> bool:
    return isinstance(row, dict) and not any(
        isinstance(entry, dict | list) for entry in row.values()
    )


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Their number, the sum of each field that is a number, and what the others are."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row[name] for row in rows if name in row] for name in names}
    return {"rows": len(rows)} | {
        name: sorted(set(column)) if isinstance(column[0], str) else sum(column)
        for name, column in columns.items()
    }


def differences(expected: Any, actual: Any, where: str = "") -> list[str]:
    """Where two things of JSON differ, numbers by more than the tolerance."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        names = list(dict.fromkeys([*expected, *actual]))
        pairs = [
            (name, expected.get(name, "nothing"), actual.get(name, "nothing")) for name in names
        ]
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = [
            (str(number), *pair) for number, pair in enumerate(zip(expected, actual, strict=True))
        ]
    else:
        return [] if is_same(expected, actual) else [f"{where}: {expected!r} became {actual!r}"]
    return [text for name, *pair in pairs for text in differences(*pair, f"{where}/{name}")]


def is_same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, int | float):
        both_nan = math.isnan(expected) and math.isnan(actual)
        return both_nan or math.isclose(expected, actual, rel_tol=TOLERANCE)
    return type(expected) is type(actual) and bool(expected == actual)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_verdict_and_fact_is_unchanged(name: str, shipped: Store) -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    actual = json.loads(json.dumps(facts_of(name, shipped)))
    assert differences(expected, actual) == []


def test_a_number_that_moves_by_more_than_rounding_is_told_with_its_place() -> None:
    old = {"a": [1.0, 2, "x"], "b": math.inf, "c": None}
    assert differences(old, {"a": [1.0 + 1e-10, 2, "x"], "b": math.inf, "c": None}) == []
    assert differences(old, {"a": [1.0 + 1e-8, 3, "x"], "b": math.inf, "d": None}) == [
        "/a/0: 1.0 became 1.00000001",
        "/a/1: 2 became 3",
        "/c: None became 'nothing'",
        "/d: 'nothing' became None",
    ]


def test_every_example_is_read_completely(shipped: Store) -> None:
    frame = queries.list_experiments(shipped)
    assert set(frame["experiment_id"]) == {REVIEWS, QUIET, MASKED_LM, ONE, TWO, SEARCH, TUNED}
    assert default_experiments(frame) == [QUIET], "which opens first"
    assert set(frame["origin"]) == {"example"}
    assert set(frame["state"]) == {"finished"}
    assert queries.unreadable(shipped).empty
    for experiment_id in frame["experiment_id"]:
        runs = queries.list_runs(shipped, experiment_id)
        ended = runs["state"] != "cancelled"  # Candidates whose search ended.
        assert (runs.loc[ended, "steps_done"] > 0).all()


def test_the_page_of_bert_says_by_itself_why_inductor_gains_so_little(shipped: Store) -> None:
    """Attention left its fused kernel for products in float32; let in half precision they are
    gone, and the device's own time turns from slower to faster."""
    explanation = explain(shipped, MASKED_LM)
    lost = next(finding for finding in explanation.findings if finding.kind == "attention_unfused")
    assert lost.label == "inductor" and lost.facts["float32_seconds"] > 0.010
    plain = explanation.own_speedups["inductor"]
    reduced = explanation.own_speedups["inductor-math_attention_reduced"]
    assert plain.high is not None and plain.high < 1.0
    assert reduced.low is not None and reduced.low > 1.0
    added = explanation.bridges["inductor"].parts.set_index("work_class")["difference"]
    assert added.idxmax() == "matmul_float32"


def test_the_row_of_a_search_has_the_parity_of_its_best_candidate(shipped: Store) -> None:
    """Three of its candidates were cancelled when the budget was spent."""
    compute_missing(shipped, seconds=60.0, only=[SEARCH])
    rows = catalog(shipped).set_index("experiment_id")
    assert rows.loc[SEARCH, ["best", "parity"]].tolist() == [
        "inductor-reduce-overhead-blocks",
        "holds",
    ]


if __name__ == "__main__":
    with examples() as store:
        for name in NAMES:
            content = json.dumps(facts_of(name, store), indent=1) + "\n"
            (GOLDEN / f"{name}.json").write_text(content)
