"""Inputs of a script's runs: the same, computed by the model, or other data."""

from typing import Any

import pandas as pd

from breakeven.storage.comparison.run_parity import draws_alike, draws_numbers, first_difference

STOOD = {"python": "a", "torch": "b"}


def row(step: int, sha256: str = "tokens", *floats: tuple[str, list[float]]) -> dict[str, Any]:
    told = [{"sha256": name, "rough": rough} for name, rough in floats]
    return {"step": step, "sha256": sha256, "floats": told, "random": STOOD}


def parted(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> int | None:
    found = first_difference(pd.DataFrame(one), pd.DataFrame(other))
    return None if found is None else found["first_step"]


def test_a_state_that_differs_by_rounding_at_first_is_the_models_whatever_becomes_of_it() -> None:
    one = [("zeros", [0.0, 0.0]), ("h1", [1.0, 0.2]), ("h2", [1.0, 0.2])]
    other = [("zeros", [0.0, 0.0]), ("g1", [1.0, 0.2000001]), ("g2", [7.0, -3.0])]
    runs = [[row(step, "a", state) for step, state in enumerate(states)] for states in (one, other)]
    assert parted(*runs) is None


def test_other_tokens_are_other_data_whatever_state_came_with_them() -> None:
    state = ("h", [1.0, 0.2, 0.5])
    one = [row(0, "a", state), row(1, "b", state)]
    assert parted(one, [row(0, "a", state), row(1, "x", state)]) == 1


def test_floats_that_part_by_more_than_rounding_at_first_are_other_data() -> None:
    """A picture turned round has its mean and size, and other waves."""
    one, other = ("picture", [1.0, 0.2, 0.5]), ("turned", [1.0, 0.2, -0.3])
    assert parted([row(0, "a", one)], [row(0, "a", other)]) == 0


def test_the_one_tensor_that_the_model_computed_excuses_no_other() -> None:
    one = [row(0, "a", ("h", [1.0]), ("x", [1.0])), row(1, "a", ("h", [1.0]), ("x", [1.0]))]
    other = [row(0, "a", ("g", [1.0001]), ("x", [1.0])), row(1, "a", ("g", [9.0]), ("y", [2.0]))]
    assert parted(one, other) == 1


def test_not_a_number_is_close_to_nothing() -> None:
    assert parted([row(0, "a", ("x", [1.0]))], [row(0, "a", ("y", [float("nan")]))]) == 0


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


def test_an_order_drawn_once_an_epoch_is_no_number_of_a_step() -> None:
    assert not draws_numbers(states("a", "a", "a", "b", "b"))


def test_looks_that_lie_apart_and_no_looks_say_nothing_of_steps() -> None:
    assert not draws_numbers(states("a", "b", "c").assign(step=[0, 10, 20]))
    assert not draws_numbers(pd.DataFrame({"step": [], "random": []}))


def test_who_drew_the_same_numbers_stands_alike_and_of_a_device_nobody_knows() -> None:
    mine = states("a", "b", "c")
    assert draws_alike(mine, states("a", "b", "c"))
    assert not draws_alike(mine, states("a", "b", "other"))
    assert not draws_alike(mine, states("a"))  # before the first step all stand alike
    device = states("a", "b", "c", generator="cuda")
    assert not draws_alike(device, device)
