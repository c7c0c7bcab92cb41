"""Inputs of a script's runs: the same, computed by the model, or other data."""

from typing import Any

import pandas as pd
import pytest

from breakeven.storage.comparison.run_parity import draws_alike, draws_numbers, first_difference

STOOD = {"python": "a", "torch": "b"}


def row(step: int, sha256: str = "tokens", *floats: tuple[str, list[float]]) -> dict[str, Any]:
    told = [{"sha256": name, "rough": rough} for name, rough in floats]
    return {"step": step, "sha256": sha256, "floats": told, "random": STOOD}


STATE = ("h", [1.0, 0.2, 0.5])
ZEROS = ("zeros", [0.0, 0.0])
X = ("x", [1.0])


@pytest.mark.parametrize(
    ("one", "other", "step"),
    [
        # A state that differs by rounding at first is the model's, whatever becomes of it.
        ([row(0, "a", ZEROS), row(1, "a", ("h1", [1.0, 0.2])), row(2, "a", ("h2", [1.0, 0.2]))],
         [row(0, "a", ZEROS), row(1, "a", ("g1", [1.0, 0.2000001])),
          row(2, "a", ("g2", [7.0, -3.0]))], None),
        # Other tokens are other data, whatever state came with them.
        ([row(0, "a", STATE), row(1, "b", STATE)], [row(0, "a", STATE), row(1, "x", STATE)], 1),
        # A picture turned round has its mean and size, and other waves.
        ([row(0, "a", STATE)], [row(0, "a", ("turned", [1.0, 0.2, -0.3]))], 0),
        # The one tensor that the model computed excuses no other.
        ([row(0, "a", ("h", [1.0]), X), row(1, "a", ("h", [1.0]), X)],
         [row(0, "a", ("g", [1.0001]), X), row(1, "a", ("g", [9.0]), ("y", [2.0]))], 1),
        # Not a number is close to nothing.
        ([row(0, "a", X)], [row(0, "a", ("y", [float("nan")]))], 0),
    ],
)  # fmt: skip
def test_the_first_step_with_other_data_is_found(
    one: list[dict[str, Any]], other: list[dict[str, Any]], step: int | None
) -> None:
    found = first_difference(pd.DataFrame(one), pd.DataFrame(other))
    assert (found and found["first_step"]) == step


def test_journals_that_tell_of_no_floats_are_compared_by_their_hash() -> None:
    rows = pd.DataFrame([row(0, "a")]).assign(floats=pd.NA)
    assert first_difference(rows, rows) is None
    found = first_difference(rows, rows.assign(sha256="b"))
    assert found == {"first_step": 0, "last_alike": None, "generators": []}


def states(*torch: str, generator: str = "torch") -> pd.DataFrame:
    rows = [{"step": step, "random": {"python": "a", "torch": "t", generator: state}}
            for step, state in enumerate(torch)]  # fmt: skip
    return pd.DataFrame(rows)


def test_a_generator_that_moves_in_most_steps_says_that_steps_draw_numbers() -> None:
    assert draws_numbers(states("a", "b", "c", "d"))
    assert draws_numbers(states("a", "b", "c", "d", generator="cuda"))
    assert not draws_numbers(states("a", "a", "a", "b", "b")), "an order drawn once an epoch"
    assert not draws_numbers(states("a", "b", "c").assign(step=[0, 10, 20])), "steps apart"
    assert not draws_numbers(pd.DataFrame({"step": [], "random": []}))


def test_who_drew_the_same_numbers_stands_alike_and_of_a_device_nobody_knows() -> None:
    mine = states("a", "b", "c")
    assert draws_alike(mine, states("a", "b", "c"))
    assert not draws_alike(mine, states("a", "b", "other"))
    assert not draws_alike(mine, states("a"))  # before the first step all stand alike
    device = states("a", "b", "c", generator="cuda")
    assert not draws_alike(device, device)
