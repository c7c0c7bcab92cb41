"""Figures of a suite run: the speedup of every model with its interval."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.library.matrix import ACROSS, Matrix, matrix
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.suite.groups import Outcome
from breakeven.views.charts.layers import layout
from breakeven.views.charts.palette import FAINT, NEUTRAL, run_looks
from breakeven.views.shared import links
from breakeven.views.shared.figure import Figure

ROW_HEIGHT = 26
MARGINS = 120
COLUMNS = ("conditions", "model", "backend", "speedup", "low", "high", "earlier", "failure")


def speedup_frame(found: Sequence[Outcome], before: Sequence[Outcome] = ()) -> pd.DataFrame:
    """A row per cell with a speedup: conditions (precision and part), model, backend, speedup, low,
    high, earlier (the speedup of an earlier run), failure (why it does not count)."""
    earlier = {one.cell: one.speedup.median for one in before if one.speedup is not None}
    rows = [
        (
            f"{one.cell.precision}, {one.cell.part}", one.cell.model, one.cell.backend,
            one.speedup.median, one.speedup.low, one.speedup.high, earlier.get(one.cell),
            one.failure,
        )
        for one in found
        if one.speedup is not None
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def speedup_matrix(found: Sequence[Outcome]) -> Matrix:
    """Models against backends, those without a speedup as well; what fails the accuracy check says
    so beside its speedup. All outcomes are of the same conditions."""
    rows = [
        {
            **dict.fromkeys(ACROSS), "model": one.cell.model, "backend": one.cell.backend,
            "speedup": one.speedup and one.speedup.median,
            "speedup_low": one.speedup and one.speedup.low,
            "speedup_high": one.speedup and one.speedup.high,
            "speed_verdict": "fails accuracy" if one.status not in (None, PASS)
            else one.speed_verdict,
            "parity": None,
            "state": one.speed_failure or ("finished" if one.is_over else "still to come"),
            "experiment_id": one.experiments.get("speed"),
        }
        for one in found
    ]  # fmt: skip
    return matrix(pd.DataFrame(rows, dtype=object), "model", "speedup")


def speedups(frame: pd.DataFrame) -> go.Figure:
    """Models by their best speedup, a mark with its interval for each backend; hollow where it does
    not count, because the accuracy check did not pass. A stroke marks an earlier run's."""
    figure = Figure()
    models = frame.groupby("model")["speedup"].max().sort_values(ascending=False).index
    looks = run_looks(frame["backend"])
    write = METRICS["speedup"].format
    for backend, mine in frame.groupby("backend", sort=False):
        look = looks[str(backend)]
        color = look.color
        counts = mine["failure"].isna()
        figure.add_scatter(
            x=mine["speedup"], y=mine["model"], mode="markers", name=str(backend),
            marker={"size": 9, "color": color,
                    "symbol": [look.symbol if one else f"{look.symbol}-open" for one in counts]},
            error_x={"type": "data", "symmetric": False, "array": mine["high"] - mine["speedup"],
                     "arrayminus": mine["speedup"] - mine["low"], "color": color, "thickness": 1.4},
            customdata=[write(one) for one in mine["speedup"]],
            text=[str(backend)] * len(mine),
            hovertemplate="%{y}, %{text}: %{customdata}<extra></extra>",
        )  # fmt: skip
        known = mine.dropna(subset=["earlier"])
        if len(known):
            figure.add_scatter(
                x=known["earlier"], y=known["model"], mode="markers", name=f"{backend}, earlier",
                marker={"size": 14, "color": color, "symbol": "line-ns-open",
                        "line": {"width": 2, "color": color}},
            )  # fmt: skip
    figure.add_vline(x=1, line={"color": NEUTRAL, "width": 1, "dash": "dot"})
    figure.update_layout(layout() | {"height": MARGINS + ROW_HEIGHT * len(models)})
    figure.update_xaxes(title_text=links.axis("speedup"), gridcolor=FAINT)
    return figure.update_yaxes(categoryorder="array", categoryarray=list(models),
                               autorange="reversed", automargin=True)  # fmt: skip
