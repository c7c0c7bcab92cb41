"""How the device fared over the steps: clocks, heat, power, and who else took its time."""

import pandas as pd
import plotly.graph_objects as go

from views.charts.layers import by_run, line_style, over_steps, thinned
from views.charts.palette import BAD
from views.shared.links import axis

SHARES = ("utilization", "others_cpu_share", "stolen_cpu_share")
"""Drawn in per cent."""


def device_series(frame: pd.DataFrame, name: str) -> go.Figure:
    """One number of every block, one line per run; blocks that were held back stand out.

    `frame`: run_id, label, role, step, `held_back` (why, as text; None where nothing did) and a
    column of that name.
    """
    figure = go.Figure()
    for label, _role, look, run in by_run(frame):
        run = thinned(run, name)
        figure.add_scatter(
            x=run["step"], y=run[name].astype(float), name=label, mode="lines",
            line=line_style(look), legendgroup=label, connectgaps=True,
        )  # fmt: skip
    held_back = frame[frame["held_back"].notna()]
    if len(held_back):
        figure.add_scatter(
            x=held_back["step"], y=held_back[name].astype(float), name="held back", mode="markers",
            marker={"symbol": "x-thin", "size": 8, "line": {"color": BAD, "width": 2}},
            text=held_back["label"] + ": " + held_back["held_back"],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    over_steps(figure, axis(name))
    if name in SHARES:
        figure.update_yaxes(tickformat=".2~%", rangemode="tozero")
    return figure
