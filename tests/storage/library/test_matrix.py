"""Backends by what they were compared under: what a cell tells of, and why one is empty."""

import math
from typing import Any

import pandas as pd
import pytest

from breakeven.storage.library.matrix import ACROSS, MatrixCell, matrix
from breakeven.views.charts.across_experiments import MAX_ACROSS, heat_map

USUAL: dict[str, Any] = {
    **dict.fromkeys(ACROSS, "x"),
    "batch": 8,
    "model": "bert",
    "state": "finished",
    "backend": "inductor",
    "speedup": 1.5,
    "speedup_low": 1.4,
    "speedup_high": 1.6,
    "speed_verdict": "faster",
    "parity": "holds",
    "break_even_steps": 40.0,
    "break_even_verdict": "reached",
    "compile_seconds": 3.0,
    "peak_memory_bytes": None,
    "experiment_id": "one",
    "is_wrong": False,
}


def rows(*changes: dict[str, Any]) -> pd.DataFrame:
    """Backend rows, oldest first, each like the usual one but for what is given."""
    return pd.DataFrame([{**USUAL, **change} for change in changes], dtype=object)


def cells(
    frame: pd.DataFrame, across: str = "model", quantity: str = "speedup"
) -> list[MatrixCell]:
    return list(matrix(frame, across, quantity).cells)


def test_a_cell_tells_of_the_newest_experiment_that_has_the_number() -> None:
    of_each = rows(
        {"experiment_id": "old", "speedup": 1.1},
        {"experiment_id": "new", "speedup": 1.3},
        {"experiment_id": "broken off", "speedup": None, "state": "failed"},
    )
    (cell,) = cells(of_each)
    assert (cell.experiment_id, cell.value, cell.num_experiments) == ("new", 1.3, 3)


def test_what_is_empty_says_why() -> None:
    frame = rows(
        {"model": "a"},
        {"model": "b", "speedup": None, "state": "out_of_memory"},
        {"model": "a", "backend": "eager", "speedup": None},
        {"model": "a", "backend": "skips", "speedup": None, "is_wrong": True},
    )
    why_empty = {(cell.backend, cell.column): cell.empty for cell in cells(frame)}
    assert why_empty == {
        ("inductor", "a"): None,
        ("inductor", "b"): "not finished",
        ("eager", "a"): "not measured",
        ("eager", "b"): "not run",
        ("skips", "a"): "not trusted",
        ("skips", "b"): "not run",
    }


def test_steps_that_may_be_chance_are_no_number_and_hide_no_older_one_behind_them() -> None:
    unsure = {"break_even_steps": None, "break_even_verdict": "unsure"}
    (cell,) = cells(rows({"experiment_id": "old"}, unsure), quantity="break_even_steps")
    assert (cell.empty, cell.value, cell.experiment_id) == ("unsure", None, "one")
    heat = drawn(rows(unsure), "break_even_steps")
    assert heat.z[0][0] is None
    (speedup,) = cells(rows(unsure))
    assert (speedup.empty, speedup.value) == (None, 1.5)


def test_columns_of_numbers_stand_by_their_size_and_unknown_ones_last() -> None:
    frame = rows(*({"batch": batch} for batch in (64, 8, None, 128)))
    assert matrix(frame, "batch", "speedup").columns == ("8", "64", "128", "unknown")


def test_what_the_cells_differ_in_besides_is_told() -> None:
    frame = rows({"precision": "bf16"}, {"model": "gpt2", "precision": "float32"})
    assert matrix(frame, "model", "speedup").mixed == {"precision": ("bf16", "float32")}
    assert matrix(frame, "precision", "speedup").mixed == {"model": ("bert", "gpt2")}
    assert matrix(rows({}, {"speedup": 1.2}), "model", "speedup").mixed == {}


def drawn(frame: pd.DataFrame, quantity: str = "speedup") -> Any:
    figure = heat_map(matrix(frame, "model", quantity))
    return figure.data[0]


def test_colours_lie_on_either_side_of_one_and_words_say_what_is_doubtful() -> None:
    frame = rows(
        {"model": "a", "speedup": 2.0},
        {"model": "b", "speedup": 0.5, "speed_verdict": "slower", "parity": "broken"},
        {"model": "c", "speedup": 1.0, "speed_verdict": "unsure"},
    )
    heat = drawn(frame)
    assert list(heat.z[0]) == [1.0, -1.0, 0.0], "doublings"
    assert list(heat.text[0]) == ["2.00x", "0.50x<br>parity broken", "1.00x<br>inconclusive"]
    assert "1.40 to 1.60" in heat.customdata[0][0][0]


@pytest.mark.parametrize("quantity", ["break_even_steps", "compile_seconds"])
def test_never_lies_beyond_all_that_comes_to_an_end(quantity: str) -> None:
    heat = drawn(
        rows({"model": "a", quantity: 100.0}, {"model": "b", quantity: math.inf}), quantity
    )
    assert heat.z[0][0] == pytest.approx(2.0)
    assert heat.z[0][1] == heat.zmax > 2.0
    assert heat.text[0][1] == "never"


def test_many_conditions_stand_below_each_other() -> None:
    few, many = (
        drawn(rows(*({"model": str(n)} for n in range(count))))
        for count in (MAX_ACROSS, MAX_ACROSS + 1)
    )
    assert (len(few.x), len(few.y)) == (MAX_ACROSS, 1)
    assert (len(many.x), len(many.y)) == (1, MAX_ACROSS + 1)
