"""Whether the runs of a script computed with the same samples, and what made them part."""

from typing import Any

import pandas as pd

DEVICE_GENERATORS = ("cuda", "mps")
"""Compiled code may draw from these in its own way, and is none the worse for it."""


def first_difference(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any] | None:
    """Where the inputs of two runs differ first; None where they do not, as far as they tell.

    `first_step`: the first step at which they were seen to; `last_alike`: the last before it at
    which they were alike, None for none; `generators`: those of Python, numpy and torch that stood
    elsewhere by then, which says who drew differently.
    """
    both = one.merge(other, on="step", suffixes=("_one", "_other")).sort_values("step")
    known = both.dropna(subset=["sha256_one", "sha256_other"])
    apart = known[known["sha256_one"] != known["sha256_other"]]
    if apart.empty:
        return None
    first = int(apart["step"].iloc[0])
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


def _elsewhere(one: Any, other: Any) -> set[str]:
    """Generators that both runs have, and that stand elsewhere."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return set()
    names = (one.keys() & other.keys()) - set(DEVICE_GENERATORS)
    return {name for name in names if one[name] != other[name]}
