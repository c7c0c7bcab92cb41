"""Finds whether the runs of a script computed with the same samples, and why they diverged."""

from itertools import pairwise
from typing import Any

import pandas as pd

DEVICE_GENERATORS = ("cuda", "mps")
"""Generators from which compiled code may draw in its own way without being wrong."""

ROUNDING = 0.01
"""Largest relative difference of numbers that a model computed in a step or two, also in bf16."""


def first_difference(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any] | None:
    """The first difference between the inputs of two runs; None if no record shows one.

    `first_step`: the first recorded step with a difference; `last_alike`: the last recorded step
    before it with equal inputs, or None; `generators`: the generators of Python, numpy and torch
    with different states by then, which show who drew differently.

    A tensor of floating-point numbers may differ at first only by rounding. Then the model computed
    it, like the hidden state of a recurrent network; its later differences are not different data,
    and parity judges them.
    """
    if one.empty or other.empty:
        return None
    both = one.merge(other, on="step", suffixes=("_one", "_other")).sort_values("step")
    known = both.dropna(subset=["sha256_one", "sha256_other"])
    first = _first_apart(known)
    if first is None:
        return None
    alike = known.loc[known["step"] < first, "step"]
    seen = both[both["step"] <= first]
    return {
        "first_step": first,
        "last_alike": int(alike.iloc[-1]) if len(alike) else None,
        "generators": sorted(
            {
                name
                for row in seen.itertuples()
                for name in _elsewhere(row.random_one, row.random_other)
            }
        ),
    }


def draws_numbers(inputs: pd.DataFrame) -> bool:
    """Whether a script's steps draw random numbers on its device, as dropout does.

    This is so if most steps change the state of the generator; an order of samples is only drawn
    once per epoch. False if no two consecutive steps were examined.
    """
    known = inputs.sort_values("step")
    states = [(int(row.step), _where_computed(row.random)) for row in known.itertuples()]
    moves = [
        state != before
        for (step, before), (after, state) in pairwise(states)
        if after == step + 1 and before is not None
    ]
    return sum(moves) > len(moves) / 2


def draws_alike(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two runs drew the same random numbers: their generators have equal states at all
    steps that both recorded.

    Only the CPU's generator shows this, because it draws in sequence. A device's generator counts
    draws; on an H100, Inductor drew other numbers with equal counts (docs/own-training.md).
    """
    both = one.merge(other, on="step", suffixes=("_one", "_other"))
    states = [[row.random_one, row.random_other] for row in both.itertuples() if row.step > 0]
    if any(set(DEVICE_GENERATORS) & {*(state or ())} for pair in states for state in pair):
        return False
    return bool(states) and all(_where_computed(a) == _where_computed(b) for a, b in states)


def _where_computed(random: Any) -> str | None:
    """The state of the device's generator."""
    if not isinstance(random, dict):
        return None
    return next((random[name] for name in (*DEVICE_GENERATORS, "torch") if name in random), None)


def _first_apart(both: pd.DataFrame) -> int | None:
    """The first step with a difference in data that no model computed."""
    computed: set[int] = set()
    for row in both.itertuples():
        floats, others = _list(row.floats_one), _list(row.floats_other)
        if row.sha256_one != row.sha256_other or len(floats) != len(others):
            return int(row.step)
        for place, (one, other) in enumerate(zip(floats, others, strict=True)):
            if place in computed or one["sha256"] == other["sha256"]:
                continue
            if not _is_close(_list(one["rough"]), _list(other["rough"])):
                return int(row.step)
            computed.add(place)
    return None


def _is_close(one: list[float], other: list[float]) -> bool:
    """Whether two tensors are nearly equal, by their rough numbers; the first of these is the root
    mean square."""
    if not one or len(one) != len(other):
        return False
    return all(
        abs(a - b) <= ROUNDING * max(abs(a), abs(b), one[0], other[0])
        for a, b in zip(one, other, strict=True)
    )


def _list(value: Any) -> list[Any]:
    """The value as a list; empty for a missing value: None, NaN or NA."""
    return list(value) if hasattr(value, "__len__") else []


def _elsewhere(one: Any, other: Any) -> set[str]:
    """Generators of both runs that have different states."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return set()
    names = (one.keys() & other.keys()) - set(DEVICE_GENERATORS)
    return {name for name in names if one[name] != other[name]}
