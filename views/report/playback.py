"""A recorded experiment as it went: who had the turn, who compiled, how the losses fell."""

import math
from typing import Any

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.queries.timeline import timeline
from breakeven.views.charts.palette import run_looks

DIGITS = 5
"""Significant digits of a loss, which nobody sees more of."""


def playback(store: Store, experiment_id: str) -> dict[str, Any] | None:
    """What `playback.js` plays: seconds since the first event, and for each run its label and look,
    `spans` (kind, start, end, first step, steps), `steps` and `losses`. None without a turn."""
    spans = timeline(store, experiment_id)
    if spans.empty or not (spans["kind"] == "training").any():
        return None
    begin, end = float(spans["start"].min()), float(spans["end"].max())
    losses = queries.losses(store, experiment_id)
    looks = run_looks(spans["label"])
    runs = []
    for label, mine in spans.groupby("label", sort=False):
        look = looks[str(label)]
        curve = losses[losses["label"] == label]
        runs.append({
            "label": str(label),
            "color": look.color,
            "dash": look.dash,
            "spans": [_span(row, begin) for row in mine.itertuples()],
            "steps": [int(step) for step in curve["step"]],
            "losses": [_rounded(loss) for loss in curve["loss"]],
        })  # fmt: skip
    return {"seconds": round(end - begin, 3), "runs": runs}


def _span(row: Any, begin: float) -> list[Any]:
    steps = [0 if pd.isna(one) else int(one) for one in (row.first_step, row.num_steps)]
    return [row.kind, round(row.start - begin, 3), round(row.end - begin, 3), *steps]


def _rounded(loss: float) -> float | None:
    return float(f"{loss:.{DIGITS}g}") if math.isfinite(loss) else None
