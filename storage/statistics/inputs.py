"""Finds where two runs had other data, or other settings of their optimizers, by their records."""

import math
from collections.abc import Mapping, Set
from typing import Any

import pandas as pd

from breakeven.storage.statistics.random_numbers import DEVICE_GENERATORS
from breakeven.storage.statistics.ranks import fewer_than_all, ranks_of_hashes

ROUNDING = 0.01
"""Largest relative difference of numbers that a model computed in a step or two, also in bf16."""
GRADIENT_SCALE = "0.gradient scale"
"""Setting of a script with `GradScaler`: each step that it leaves out halves the scale."""
MOST_SKIPPED = 4
"""How many times smaller than the baseline's a scale may become by rounding, which decides whether
gradients near the limit of float16 are finite. A fault that makes them infinite skips more."""
SAME_SETTING = 1e-6
"""Largest relative difference of equal settings; the rounding of float32 is about as large."""


def first_difference(inputs: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any] | None:
    """The first difference between the inputs of two runs; None if no record shows one.

    `first_step`: the first recorded step with a difference; `last_alike`: the last recorded step
    before it with equal inputs, or None; `generators`: the generators of Python, numpy and torch
    with different states by then, which show who drew differently; `ranks`: the ranks that saw the
    difference, empty if all did.

    State of the training, such as weights that a compiled step gets back, is no data. A tensor of
    floating-point numbers may also differ at first only by rounding. Then the model computed it;
    its later differences are not different data, and parity judges them.
    """
    if inputs.empty or other.empty:
        return None
    both = inputs.merge(other, on="step", suffixes=("_one", "_other")).sort_values("step")
    known = both.dropna(subset=["sha256_one", "sha256_other"])
    apart = _first_apart(known, {**state_places(inputs), **state_places(other)})
    if apart is None:
        return None
    first, ranks = apart
    alike = known.loc[known["step"] < first, "step"]
    seen = both[both["step"] <= first]
    return {
        "first_step": first,
        "ranks": ranks,
        "last_alike": int(alike.iloc[-1]) if len(alike) else None,
        "generators": sorted(
            {
                name
                for row in seen.itertuples()
                for name in _elsewhere(row.random_one, row.random_other)
            }
        ),
    }


def state_places(inputs: pd.DataFrame) -> dict[tuple[int, int], int]:
    """Where the arguments have state instead of data: how many floating-point tensors a call has
    and the place among them, to the step from which on. Only runs without a compiler record this,
    and only at first."""
    return {
        (len(_list(row.floats)), int(place)): int(row.step)
        for row in inputs.itertuples()
        for place in _list(row.state)
    }


def first_other_settings(inputs: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any] | None:
    """As `first_difference`, for settings of optimizers that the baseline and an `other` run have;
    `settings` has their names. None if no record shows a difference."""
    if inputs.empty or other.empty:
        return None
    both = inputs.merge(other, on="step", suffixes=("_one", "_other")).sort_values("step")
    skips_more = any(
        MOST_SKIPPED * theirs < own
        for row in both.itertuples()
        for own, theirs in zip(_scales(row.settings_one), _scales(row.settings_other), strict=False)
    )
    ignored = {GRADIENT_SCALE} if skips_more else set()
    last_alike = None
    for row in both.itertuples():
        names = _other_settings(row.settings_one, row.settings_other, ignored)
        if names:
            return {"first_step": int(row.step), "last_alike": last_alike, "settings": names}
        last_alike = int(row.step)
    return None


def _scales(settings: Any) -> list[float]:
    return _list(settings.get(GRADIENT_SCALE)) if isinstance(settings, dict) else []


def _other_settings(settings: Any, other: Any, ignored: Set[str]) -> list[str]:
    """Names of different settings, such as `lr`, without the number of their optimizer."""
    if not (isinstance(settings, dict) and isinstance(other, dict)):
        return []
    different = {
        name.partition(".")[2]
        for name in (settings.keys() & other.keys()) - ignored
        if not _are_same(_list(settings[name]), _list(other[name]))
    }
    return sorted(different)


def _are_same(setting: list[float], other: list[float]) -> bool:
    return len(setting) == len(other) and all(
        math.isclose(a, b, rel_tol=SAME_SETTING) for a, b in zip(setting, other, strict=True)
    )


def _first_apart(
    both: pd.DataFrame, state: Mapping[tuple[int, int], int]
) -> tuple[int, list[int]] | None:
    """The first step with a difference in data that no model computed, and the ranks that saw it if
    they are not all. `state`: the tensors that are state, as `state_places`."""
    computed: set[int] = set()
    for row in both.itertuples():
        floats, others = _list(row.floats_one), _list(row.floats_other)
        if len(floats) != len(others):
            return int(row.step), []
        # The hashes and tensors of all ranks, one rank after the other.
        num_ranks = row.sha256_one.count("-") + 1
        ranks = {*ranks_of_hashes(row.sha256_one, row.sha256_other)}
        is_apart = row.sha256_one != row.sha256_other
        for place, (tensor, other) in enumerate(zip(floats, others, strict=True)):
            since = state.get((len(floats), place), math.inf)
            if place in computed or row.step >= since or tensor["sha256"] == other["sha256"]:
                continue
            if _is_close(_list(tensor["rough"]), _list(other["rough"])):
                computed.add(place)
                continue
            is_apart = True
            ranks.add(place * num_ranks // len(floats))
        if is_apart:
            return int(row.step), fewer_than_all(ranks, num_ranks)
    return None


def _is_close(rough: list[float], other: list[float]) -> bool:
    """Whether two tensors are nearly equal, by their rough numbers; the first of these is the root
    mean square."""
    if not rough or len(rough) != len(other):
        return False
    return all(
        abs(a - b) <= ROUNDING * max(abs(a), abs(b), rough[0], other[0])
        for a, b in zip(rough, other, strict=True)
    )


def _list(value: Any) -> list[Any]:
    """The value as a list; empty for a missing value: None, NaN or NA."""
    return list(value) if hasattr(value, "__len__") else []


def _elsewhere(states: Any, other: Any) -> set[str]:
    """Generators of both runs that have different states."""
    if not (isinstance(states, dict) and isinstance(other, dict)):
        return set()
    names = (states.keys() & other.keys()) - set(DEVICE_GENERATORS)
    return {name for name in names if states[name] != other[name]}
