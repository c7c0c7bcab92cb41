"""Whether the runs of a script computed with the same samples, and what made them part."""

from itertools import pairwise
from typing import Any

import pandas as pd

DEVICE_GENERATORS = ("cuda", "mps")
"""Compiled code may draw from these in its own way, and is none the worse for it."""

ROUNDING = 0.01
"""As far as numbers may part that a model computed in a step or two, in bf16 as well."""


def first_difference(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any] | None:
    """Where the inputs of two runs differ first; None where they do not, as far as they tell.

    `first_step`: the first step at which they were seen to; `last_alike`: the last before it at
    which they were alike, None for none; `generators`: those of Python, numpy and torch that stood
    elsewhere by then, which says who drew differently.

    A tensor of numbers with a fraction that differs by as little as rounding does where it first
    differs was computed by the model, as is the hidden state that a recurrent network is given
    back: what becomes of it later is what parity judges, and no other data.
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
    """Whether a script's steps draw random numbers where it computes, as dropout does.

    A generator in another state after most steps shows that; an order of samples is drawn only once
    an epoch. False if no two consecutive steps were examined.
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
    """Whether two runs drew the same random numbers, as far as the generator tells by which it
    computes: it stands alike wherever both were looked at.

    Only the CPU's tells that: it gives one number after the other. A device's counts how many were
    drawn, and on an H100 it stood alike where Inductor had drawn others (docs/own-training.md).
    """
    both = one.merge(other, on="step", suffixes=("_one", "_other"))
    states = [[row.random_one, row.random_other] for row in both.itertuples() if row.step > 0]
    if any(set(DEVICE_GENERATORS) & {*(state or ())} for pair in states for state in pair):
        return False
    return bool(states) and all(_where_computed(a) == _where_computed(b) for a, b in states)


def _where_computed(random: Any) -> str | None:
    """Where the generator of the device stands."""
    if not isinstance(random, dict):
        return None
    return next((random[name] for name in (*DEVICE_GENERATORS, "torch") if name in random), None)


def _first_apart(both: pd.DataFrame) -> int | None:
    """The first step at which more differed than what models computed."""
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
    """Whether two tensors are nearly the same, by their rough numbers, the first of which is the
    root mean square."""
    if not one or len(one) != len(other):
        return False
    return all(
        abs(a - b) <= ROUNDING * max(abs(a), abs(b), one[0], other[0])
        for a, b in zip(one, other, strict=True)
    )


def _list(value: Any) -> list[Any]:
    """Empty for what a table has where there is nothing: None, NaN or NA."""
    return list(value) if hasattr(value, "__len__") else []


def _elsewhere(one: Any, other: Any) -> set[str]:
    """Generators that both runs have, and that stand elsewhere."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return set()
    names = (one.keys() & other.keys()) - set(DEVICE_GENERATORS)
    return {name for name in names if one[name] != other[name]}
