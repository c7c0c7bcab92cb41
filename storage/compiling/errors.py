"""Finds where a backend's errors grow: sorts the tensors of the scenario `accuracy` in the order of
the model's computation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from breakeven.runner.specs.scenarios import ACTIVATION

Pass = Literal["forward", "backward", "weights"]
PASSES: dict[str, Pass] = {
    ACTIVATION: "forward", "output": "forward", "loss": "forward", "gradient": "backward",
    "parameter": "weights", "buffer": "weights",
}  # fmt: skip
"""Each compared quantity and the pass that computes it. Weights are those after the optimizer's
steps."""
ORDER: tuple[Pass, ...] = ("forward", "backward", "weights")


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The first tensor of a backend whose error exceeds the limit, in one part of the check."""

    label: str
    part: str
    quantity: str
    tensor: str
    ratio: float
    """The error over the limit; infinite if it cannot be compared."""
    is_beyond: bool
    """Whether the error exceeds the limit; if not, it is the largest of all."""


def placed(tensors: pd.DataFrame) -> pd.DataFrame:
    """`storage.queries.accuracy_tensors` of the backends with two additional columns.

    pass: a pass of `PASSES`; place: position of the tensor in the order of the model's layers,
    from 0 within its part and pass, equal for all backends.
    """
    mine = tensors[(tensors["role"] == "backend") & tensors["quantity"].isin(list(PASSES))]
    mine = mine.assign(**{"pass": mine["quantity"].map(PASSES)})
    names = mine[["part", "pass", "quantity", "tensor"]].drop_duplicates()
    # The check records layers last, but they precede the results that they compute.
    names = names.sort_values("quantity", key=lambda one: one != ACTIVATION, kind="stable")
    names["place"] = names.groupby(["part", "pass"], sort=False).cumcount()
    return mine.merge(names, on=["part", "pass", "quantity", "tensor"], how="left")


def growths(tensors: pd.DataFrame) -> Iterator[Growth]:
    """One growth for each backend and part in the result of `placed`.

    A model computes outputs, then gradients from the last layer to the first, then weights. The
    growth is at the first tensor in this order whose error exceeds the limit; if there is none, at
    the tensor with the largest error.
    """
    for (label, part), mine in tensors.groupby(["label", "part"], sort=False):
        backward = mine["pass"] == "backward"
        computed = mine.assign(
            ratio=[_ratio(row) for row in mine.to_dict("records")],
            turn=[ORDER.index(one) for one in mine["pass"]],
            order=mine["place"].where(~backward, -mine["place"]),
        ).sort_values(["turn", "order"], kind="stable")
        beyond = computed[~computed["passed"].astype(bool)]
        row = beyond.iloc[0] if len(beyond) else computed.loc[computed["ratio"].idxmax()]
        yield Growth(label=str(label), part=str(part), quantity=str(row["quantity"]),
                     tensor=str(row["tensor"]), ratio=float(row["ratio"]),
                     is_beyond=bool(len(beyond)))  # fmt: skip


def _ratio(row: dict[str, object]) -> float:
    value = row["error_ratio"]
    return float(value) if isinstance(value, float) and not math.isnan(value) else math.inf
