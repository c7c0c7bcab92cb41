"""Inputs of a script's runs: the same, computed by the model, or other data."""

from typing import Any

import pandas as pd
import pytest

from breakeven.storage.statistics.inputs import first_difference, first_other_settings
from breakeven.storage.statistics.random_numbers import draws_alike, draws_numbers

STOOD = {"python": "a", "torch": "b"}


def row(step: int, sha256: str = "tokens", *floats: tuple[str, list[float]]) -> dict[str, Any]:
    tensors = [{"sha256": name, "rough": rough} for name, rough in floats]
    return {"step": step, "sha256": sha256, "floats": tensors, "random": STOOD, "state": None}


STATE = ("h", [1.0, 0.2, 0.5])
ZEROS = ("zeros", [0.0, 0.0])
X = ("x", [1.0])


@pytest.mark.parametrize(
    ("inputs", "other", "step"),
    [
        # A state that differs by rounding at first is the model's, whatever becomes of it.
        (
            [row(0, "a", ZEROS), row(1, "a", ("h1", [1.0, 0.2])), row(2, "a", ("h2", [1.0, 0.2]))],
            [
                row(0, "a", ZEROS),
                row(1, "a", ("g1", [1.0, 0.2000001])),
                row(2, "a", ("g2", [7.0, -3.0])),
            ],
            None,
        ),
        # Other tokens are other data, whatever state came with them.
        ([row(0, "a", STATE), row(1, "b", STATE)], [row(0, "a", STATE), row(1, "x", STATE)], 1),
        # A picture turned round has its mean and size, and other waves.
        ([row(0, "a", STATE)], [row(0, "a", ("turned", [1.0, 0.2, -0.3]))], 0),
        # The one tensor that the model computed excuses no other.
        (
            [row(0, "a", ("h", [1.0]), X), row(1, "a", ("h", [1.0]), X)],
            [row(0, "a", ("g", [1.0001]), X), row(1, "a", ("g", [9.0]), ("y", [2.0]))],
            1,
        ),
        # Not a number is close to nothing.
        ([row(0, "a", X)], [row(0, "a", ("y", [float("nan")]))], 0),
    ],
)
def test_the_first_step_with_other_data_is_found(
    inputs: list[dict[str, Any]], other: list[dict[str, Any]], step: int | None
) -> None:
    difference = first_difference(pd.DataFrame(inputs), pd.DataFrame(other))
    assert (difference and difference["first_step"]) == step


def test_journals_that_tell_of_no_floats_are_compared_by_their_hash() -> None:
    rows = pd.DataFrame([row(0, "a")]).assign(floats=pd.NA)
    assert first_difference(rows, rows) is None
    difference = first_difference(rows, rows.assign(sha256="b"))
    assert difference == {"first_step": 0, "ranks": [], "last_alike": None, "generators": []}


@pytest.mark.parametrize(
    ("other", "ranks"),
    [
        (row(3, "a-b", X, X), None),
        (row(3, "a-c", X, X), [1]),
        (row(3, "c-b", X, X), [0]),
        (row(3, "c-d", X, X), []),
        (row(3, "a-b", X, ("y", [2.0])), [1]),
        (row(3, "a-c", ("y", [2.0]), X), []),
    ],
    ids=["alike", "tokens of rank 1", "of rank 0", "of both", "numbers of rank 1", "of each"],
)
def test_the_rank_that_saw_other_data_is_known_unless_all_did(
    other: dict[str, Any], ranks: list[int] | None
) -> None:
    difference = first_difference(pd.DataFrame([row(3, "a-b", X, X)]), pd.DataFrame([other]))
    assert (difference and difference["ranks"]) == ranks


WEIGHTS = ("w0", [1.0, 0.2])


@pytest.mark.parametrize(
    ("state", "samples", "step"),
    [([0], "x1", None), (None, "x1", 1), ([0], "other", 1), ([1], "x1", 1)],
    ids=["weights are state", "nothing is known", "other samples", "another place is state"],
)
def test_state_that_a_step_gets_back_is_no_data_however_far_it_is(
    state: list[int] | None, samples: str, step: int | None
) -> None:
    x0, x1 = ("x0", [5.0]), ("x1", [6.0])
    baseline = [row(0, "a", WEIGHTS, x0), row(1, "a", ("w1", [0.9, 0.1]), x1)]
    baseline[1]["state"] = state
    far = [row(0, "a", WEIGHTS, x0), row(1, "a", ("v1", [7.0, -3.0]), (samples, [9.0]))]
    far[1]["floats"][1] = {"sha256": samples, "rough": [6.0 if samples == "x1" else 9.0]}
    later = [row(10, "a", ("w9", [0.5, 0.1]), x0), row(10, "a", ("v9", [9.0, 9.0]), x0)]
    difference = first_difference(
        pd.DataFrame([*baseline, later[0]]), pd.DataFrame([*far, later[1]])
    )
    assert (difference and difference["first_step"]) == step


def test_initial_weights_that_differ_before_the_first_step_are_other_data() -> None:
    """What the first step returns is state from the second step on."""
    x0 = ("x0", [5.0])
    baseline = [row(0, "a", WEIGHTS, x0), row(1, "a", WEIGHTS, x0) | {"state": [0]}]
    other = [row(0, "a", ("other", [1.0, 0.5]), x0), row(1, "a", WEIGHTS, x0)]
    difference = first_difference(pd.DataFrame(baseline), pd.DataFrame(other))
    assert difference == {"first_step": 0, "ranks": [], "last_alike": None, "generators": []}


def settings(*rates: float | None, momentum: float = 0.9) -> pd.DataFrame:
    rows = [{"0.lr": [rate], "0.momentum": [momentum]} if rate else None for rate in rates]
    return pd.DataFrame({"step": [0, 1, 10, 20][: len(rates)], "settings": rows})


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (settings(0.1, 0.05, 0.02, 0.01), None),
        (settings(0.1, 0.05 * (1 + 1e-7), 0.02, 0.01), None),
        (settings(0.1, 0.05, 0.021, 0.01), (10, 1, ["lr"])),
        (settings(0.2, 0.05, 0.02, 0.01), (0, None, ["lr"])),
        (settings(0.1, 0.05, 0.02, 0.01, momentum=0.8), (0, None, ["momentum"])),
        (settings(0.1, None, 0.02, 0.01), None),
        (settings(0.1, 0.05), None),
    ],
    ids=["same", "rounding", "later", "at first", "momentum", "not recorded", "shorter"],
)
def test_the_first_step_with_other_settings_of_an_optimizer_is_found(
    other: pd.DataFrame, expected: tuple[int, int | None, list[str]] | None
) -> None:
    difference = first_other_settings(settings(0.1, 0.05, 0.02, 0.01), other)
    assert (
        difference and (difference["first_step"], difference["last_alike"], difference["settings"])
    ) == expected


def test_of_several_optimizers_only_those_are_compared_that_both_runs_still_have() -> None:
    settings_of_run = pd.DataFrame({"step": [0], "settings": [{"0.lr": [0.1], "1.lr": [0.3, 0.4]}]})
    gone = pd.DataFrame({"step": [0], "settings": [{"1.lr": [0.3, 0.4]}]})
    assert first_other_settings(settings_of_run, gone) is None
    fewer = pd.DataFrame({"step": [0], "settings": [{"0.lr": [0.1], "1.lr": [0.3]}]})
    assert first_other_settings(settings_of_run, fewer) == {
        "first_step": 0,
        "last_alike": None,
        "settings": ["lr"],
    }


def scales(*powers: int) -> pd.DataFrame:
    rows = [{"0.lr": [0.1], "0.gradient scale": [2.0**power]} for power in powers]
    return pd.DataFrame({"step": range(len(rows)), "settings": rows})


@pytest.mark.parametrize(
    ("other", "first"),
    [
        (scales(24, 23, 22, 22, 22), None),
        (scales(24, 23, 22, 21, 21), 3),
        (scales(24, 24, 23, 22, 21), 1),
        (scales(24, 24, 24, 24, 24), 1),
        (scales(24, 23, 22, 21, 19), None),
    ],
    ids=["same", "one more", "at other steps", "fewer", "ever more"],
)
def test_other_steps_that_a_gradient_scaler_leaves_out_are_an_excuse_unless_they_are_many(
    other: pd.DataFrame, first: int | None
) -> None:
    difference = first_other_settings(scales(24, 23, 22, 22, 22), other)
    assert (difference and difference["first_step"]) == first
    assert difference is None or difference["settings"] == ["gradient scale"]


def states(*torch: str, generator: str = "torch") -> pd.DataFrame:
    rows = [
        {"step": step, "random": {"python": "a", "torch": "t", generator: state}}
        for step, state in enumerate(torch)
    ]
    return pd.DataFrame(rows)


def test_a_generator_that_moves_in_most_steps_says_that_steps_draw_numbers() -> None:
    assert draws_numbers(states("a", "b", "c", "d"))
    assert draws_numbers(states("a", "b", "c", "d", generator="cuda"))
    assert not draws_numbers(states("a", "a", "a", "b", "b")), "an order drawn once an epoch"
    assert not draws_numbers(states("a", "b", "c").assign(step=[0, 10, 20])), "steps apart"
    assert not draws_numbers(pd.DataFrame({"step": [], "random": []}))


def test_who_drew_the_same_numbers_stands_alike_and_of_a_device_nobody_knows() -> None:
    own = states("a", "b", "c")
    assert draws_alike(own, states("a", "b", "c"))
    assert not draws_alike(own, states("a", "b", "other"))
    assert not draws_alike(own, states("a"))  # before the first step all stand alike
    device = states("a", "b", "c", generator="cuda")
    assert not draws_alike(device, device)
