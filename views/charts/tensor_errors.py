"""Figures of the errors of tensors, against what the check of the scenario `accuracy` allows."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.correctness import Pass
from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.views.charts.layout import layout
from breakeven.views.charts.palette import BAD, run_looks
from breakeven.views.shared.definition_links import axis

TITLES: dict[Pass, str] = {
    "forward": "Outputs of layers, of the model, and the loss, in the order of computing",
    "backward": "Gradients by layer, from the first to the last; computed from right to left",
    "weights": "Weights by layer after the optimizer's steps, from the first to the last",
}
FLOOR = 1e-4
"""Lowest ratio of the chart, also for exact results: a log scale has no zero."""
CEILING = 1e4
"""Highest ratio of the chart, also for larger ones and for tensors without a comparison."""
MAX_TICKS = 14
FEW = 2
"""Up to this number of points (outputs and loss) no line joins them."""
LIMIT = "what is allowed"


def errors(data: pd.DataFrame, part: str, checked_pass: Pass) -> go.Figure:
    """A point for each tensor of each backend; those above the line of the rule fail. `data`: a
    result of `storage.comparison.correctness.placed`."""
    of_pass = data[(data["part"] == part) & (data["pass"] == checked_pass)]
    figure = go.Figure()
    looks = run_looks(data["label"])
    for label, run in of_pass.groupby("label", sort=False):
        run = run.sort_values("place")
        ratios = run["error_ratio"].astype(float)
        drawn = ratios.fillna(math.inf).clip(FLOOR, CEILING)
        look = looks[str(label)]
        figure.add_scatter(
            x=run["place"],
            y=drawn,
            name=str(label),
            mode="lines+markers" if len(run) > FEW else "markers",
            line={"color": look.color, "dash": look.dash, "width": 1},
            marker={"color": look.color, "symbol": look.symbol, "size": 7},
            text=[_point_text(row) for row in run.to_dict("records")],
            hovertemplate="%{text}<extra></extra>",
        )
    names = of_pass.drop_duplicates("place").sort_values("place")
    ticks = _ticks(list(names["tensor"]))
    figure.add_hline(y=1, line={"color": BAD, "width": 1.4}, annotation_text=LIMIT)
    figure.update_layout(**{**layout(), "height": 380}, showlegend=True)
    figure.update_xaxes(
        title_text=axis("accuracy_rule", TITLES[checked_pass]),
        tickvals=[names["place"].iloc[place] for place in ticks],
        ticktext=[_layer(str(names["tensor"].iloc[place])) for place in ticks],
        tickangle=-35,
        range=[-0.5, max(len(names) - 0.5, 0.5)],
        zeroline=False,
    )
    low = min((float(np.min(trace.y)) for trace in figure.data if len(trace.y)), default=0.1)
    high = max((float(np.max(trace.y)) for trace in figure.data if len(trace.y)), default=1.0)
    span = [math.log10(min(low, 0.1)) - 0.2, math.log10(max(high, 2.0)) + 0.3]
    return figure.update_yaxes(
        type="log", range=span, title_text=axis("error_ratio"), dtick=1, tickformat="~g"
    )


def _ticks(names: list[str]) -> list[int]:
    """Places where a layer begins, thinned so that they can be read."""
    layers = [_layer(name) for name in names]
    begins = [
        place for place, layer in enumerate(layers) if not place or layer != layers[place - 1]
    ]
    stride = math.ceil(len(begins) / MAX_TICKS) if begins else 1
    return begins[::stride]


def _layer(name: str) -> str:
    """`encoder.layer.0` of `encoder.layer.0.attention.self.query.weight`: up to the first number,
    or the name of the module."""
    parts = name.split(".")
    for place, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[max(0, place - 1) : place + 1])
    return ".".join(parts[-2:-1]) or name


def _point_text(row: dict[str, object]) -> str:
    ratio = row["error_ratio"]
    known = isinstance(ratio, float) and not math.isnan(ratio)
    written = NUMBERS["error_ratio"].format(ratio) if known else "not comparable:"
    verdict = "passes" if row["passed"] else "fails"
    return f"{row['label']}, {row['quantity']}<br>{row['tensor']}<br>{written} x allowed, {verdict}"
