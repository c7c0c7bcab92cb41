"""What runs recorded about their random numbers; the judgement of parity depends on it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from breakeven.storage import queries
from breakeven.storage.index.store import Store

Rows = Callable[[str], pd.DataFrame]


@dataclass(frozen=True)
class Randomness:
    """Recorded after training, and only of backends (docs/events.md). Without a record all is
    empty, and `draws_own_numbers` is None."""

    draws_own_numbers: bool | None
    """Whether it draws other numbers than are drawn without a compiler."""
    loss_spread: float
    """Standard deviation of the loss of one step over many draws, without a compiler; NaN if it is
    not known."""
    inference_draws: bool
    """Whether its compiled model answers the same samples otherwise each time; False if unknown."""
    distances: dict[str, list[float]]
    """By parameter, as `storage.statistics.random_numbers` takes them."""
    changes: dict[str, float]
    """By parameter, mean squared size of what steps without a compiler changed."""
    rehearsals: dict[str, pd.Series]
    """By form, losses by step of a training without dropout."""
    dropouts: pd.DataFrame
    """What each dropout drew, compiled or not."""

    def drawn(self, *, compiled: bool) -> list[dict[str, Any]]:
        table = self.dropouts[self.dropouts["compiled"].astype(bool) == compiled]
        return [
            {str(name): value for name, value in row.items()} for row in table.to_dict("records")
        ]


def load_randomness(store: Store, experiment_id: str) -> Callable[[str], Randomness]:
    """Finds a run's records by its id."""
    frames = {
        "numbers": queries.random_numbers(store, experiment_id),
        "redraws": queries.redraws(store, experiment_id),
        "rehearsals": queries.rehearsals(store, experiment_id),
        "dropouts": queries.dropouts(store, experiment_id),
    }

    def find(run_id: str) -> Randomness:
        mine = {name: frame if frame.empty else frame[frame["run_id"] == run_id]
                for name, frame in frames.items()}  # fmt: skip
        if all(frame.empty for frame in mine.values()):
            return Randomness(None, math.nan, False, {}, {}, {}, mine["dropouts"])
        same = mine["numbers"]["same"].dropna()
        redraws = mine["redraws"].dropna(subset=["distances"])
        rehearsals = mine["rehearsals"].dropna(subset=["form", "loss_by_step"])
        return Randomness(
            draws_own_numbers=None if same.empty else not same.iloc[-1],
            loss_spread=_spread(mine["numbers"]["loss_by_draw"]),
            inference_draws=bool(mine["numbers"]["inference_draws"].isin([True]).any()),
            distances={
                name: np.asarray(pairs, dtype=float).tolist()
                for name, pairs in zip(redraws["tensor"], redraws["distances"], strict=True)
            },
            changes=dict(zip(redraws["tensor"], redraws["change"].astype(float), strict=True)),
            rehearsals={
                form: pd.Series(np.asarray(losses, dtype=float))
                for form, losses in zip(rehearsals["form"], rehearsals["loss_by_step"], strict=True)
            },
            dropouts=mine["dropouts"],
        )

    return find


def _spread(losses: pd.Series) -> float:
    """Of the first half, which was drawn without a compiler."""
    if losses.dropna().empty:
        return math.nan
    drawn = np.asarray(losses.iloc[-1], dtype=float)
    return float(drawn[: len(drawn) // 2].std(ddof=1)) if len(drawn) >= 4 else math.nan
