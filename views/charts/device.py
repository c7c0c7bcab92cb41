"""How a device fared, over steps: clocks, heat, power, who else took its time; and over time."""

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.library.devices import Device, Quantity
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.storage.statistics.steps import divide
from breakeven.views.charts.layers import (
    HEIGHT,
    by_run,
    layout,
    line_style,
    over_days,
    over_steps,
    thinned,
)
from breakeven.views.charts.palette import BAD, FAINT, KNOWN, NEUTRAL
from breakeven.views.shared.figure import Figure
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import axis

SHARES = ("utilization", "others_cpu_share", "stolen_cpu_share")
"""Drawn in per cent."""


def device_series(frame: pd.DataFrame, name: str) -> go.Figure:
    """One number of every block, one line per run; blocks that were held back stand out.

    `frame`: run_id, label, role, step, `held_back` (why, as text; None where nothing did) and a
    column of that name.
    """
    figure = Figure()
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
            text=held_back["label"].astype("str") + ": " + held_back["held_back"],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    over_steps(figure, axis(name))
    if name in SHARES:
        return figure.update_yaxes(tickformat=".2~%", rangemode="tozero")
    return figure.update_yaxes(tickformat=",")  # Plotly's own has a comma in 1,980.5, not in 1980.


def device_history(device: Device, quantity: Quantity) -> go.Figure:
    """One number of a device over its experiments, its levels, and the step to a worse one."""
    known = device.series(quantity)
    values = [one.value(quantity) or 0.0 for one in known]
    when = [one.submitted for one in known]
    look = KNOWN["inductor"]
    figure = Figure()
    figure.add_scatter(
        x=when, y=values, mode="markers", name="Experiment",
        marker={"color": look.color, "symbol": look.symbol, "size": 7},
        text=[f"{inert(one.name)}<br>{NUMBERS[quantity].format(value)}"
              for one, value in zip(known, values, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    worse = {one.step.index for one in device.worsenings if one.quantity == quantity}
    for level in divide(values)[0] if values else ():
        color = BAD if level.first in worse else NEUTRAL
        figure.add_scatter(
            x=[when[level.first], when[level.last]], y=[level.value] * 2, mode="lines",
            line={"color": color, "width": 3}, name="Level", showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    figure.update_layout(layout() | {"height": HEIGHT, "showlegend": False})
    over_days(figure, when)
    if quantity != "device_pace":
        figure.update_yaxes(tickformat=".1%", rangemode="tozero")
    return figure.update_yaxes(title_text=axis(quantity), gridcolor=FAINT)
