"""Figures of training losses over steps: curves on the band of equal trainings, and their distance
from the baseline's."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.queries import MAX_POINTS, thinned
from breakeven.views.charts.layout import by_run, in_order, layers_of, over_steps
from breakeven.views.charts.palette import FAINT, Look
from breakeven.views.shared.definition_links import axis

SMOOTHED_FROM = 200
"""Number of steps from which a loss chart draws moving averages."""
MAX_SMOOTH_POINTS = 500


def losses(
    frame: pd.DataFrame,
    band: pd.DataFrame | None = None,
    every_step: pd.DataFrame | None = None,
    over: str = "step",
    looks: Mapping[str, Look] | None = None,
) -> go.Figure:
    """Training loss over steps, one line per run, on the band that the control allows.

    `frame`: run_id, label, role, step, loss. `band`: step, baseline, low, high. A long training is
    drawn faintly below its moving average, which uses `every_step` if `frame` is thinned. `over`: a
    column of both frames and a number of the registry, as x-axis instead of steps. `looks`: for
    labels that are not runs.
    """
    figure = go.Figure()
    if band is not None and len(band):
        _add_band(figure, band)
    window = smoothing_window(frame)
    # A long training splits into runs faster without its other columns.
    full = (frame if every_step is None else every_step)[
        list(dict.fromkeys(["label", "step", "loss", over]))
    ]
    layers = layers_of(frame, looks)
    for label, _role, look, run in by_run(frame, looks):
        if window > 1:
            figure.add_scatter(
                x=run[over],
                y=run["loss"],
                mode="lines",
                line={"color": look.color, "width": 1},
                opacity=0.25,
                legendgroup=label,
                showlegend=False,
                hoverinfo="skip",
            )
            run = moving_average(full[full["label"] == label], window)
        figure.add_scatter(
            x=run[over], y=run["loss"], name=label, mode="lines", legendgroup=label, **layers[label]
        )
    over_steps(figure, axis("loss"), over)
    return figure.update_yaxes(range=_loss_range(frame))


def smoothing_window(frame: pd.DataFrame) -> int:
    """Number of steps in the moving average of a loss chart; 1 if every step is visible."""
    num_steps = int(frame["step"].max()) + 1 if len(frame) else 0
    return max(1, num_steps // 50) if num_steps > SMOOTHED_FROM else 1


def moving_average(run: pd.DataFrame, window: int) -> pd.DataFrame:
    """The run with the mean loss of `window` steps around each step, thinned to the screen."""
    ordered = in_order(run)
    finite = ordered["loss"].astype(float).where(np.isfinite(ordered["loss"].astype(float)))
    mean = finite.rolling(window, center=True, min_periods=1).mean()
    smooth = ordered.assign(loss=mean)
    return smooth.iloc[:: max(1, len(smooth) // MAX_SMOOTH_POINTS)]


def loss_differences(frame: pd.DataFrame, band: pd.DataFrame | None = None) -> go.Figure:
    """Distance of each run's loss from the baseline's at the same step, on a log scale.

    Leaves out steps where the losses are equal, because a log scale has no zero, and steps where
    either loss is not finite.
    """
    figure = go.Figure()
    if band is not None and len(band):
        band = _outline(band)
        allowed = (band["high"] - band["low"]) / 2
        figure.add_scatter(
            x=band["step"],
            y=allowed,
            name="band",
            mode="lines",
            line={"color": FAINT, "width": 0},
            fill="tozeroy",
            fillcolor=FAINT,
        )
    baseline = frame[frame["role"] == "baseline"].set_index("step")["loss"]
    others = frame[frame["role"] != "baseline"]
    layers = layers_of(others)
    for label, _role, _look, run in by_run(others):
        at_step = run.set_index("step")["loss"]
        distance = (at_step - baseline).abs().replace([0.0, np.inf], np.nan).dropna()
        figure.add_scatter(x=distance.index, y=distance, name=label, mode="lines", **layers[label])
    over_steps(figure, axis("loss_difference"))
    return figure.update_yaxes(type="log", exponentformat="power")


def has_differences(frame: pd.DataFrame) -> bool:
    """Whether a run has a loss other than the baseline's at the same step."""
    baseline = frame[frame["role"] == "baseline"].set_index("step")["loss"]
    baseline = baseline[~baseline.index.duplicated()]  # Each environment has a baseline.
    others = frame[frame["role"] != "baseline"]
    apart = (others["loss"] - others["step"].map(baseline)).abs()
    return bool((apart > 0).any())


def _loss_range(frame: pd.DataFrame) -> list[float] | None:
    """The range of all losses, limited to a little more than the baseline's: a diverging run or a
    growing band leaves the chart instead of flattening it."""
    finite = frame[np.isfinite(frame["loss"].astype(float))]
    if finite.empty:
        return None
    reference = finite[finite["role"] == "baseline"]["loss"]
    reference = finite["loss"] if reference.empty else reference
    span = float(reference.max() - reference.min()) or 1.0
    low = max(float(finite["loss"].min()), float(reference.min()) - span)
    high = min(float(finite["loss"].max()), float(reference.max()) + span)
    return [low - 0.05 * span, high + 0.05 * span]


def _outline(band: pd.DataFrame) -> pd.DataFrame:
    """A band, thinned to the screen: from a long one the lowest and the highest edge of each
    stretch, at their steps."""
    if len(band) <= MAX_POINTS:
        return band
    parts = [thinned(band, edge) for edge in ("low", "high")]
    return band.loc[parts[0].index.union(parts[1].index)]


def _add_band(figure: go.Figure, band: pd.DataFrame) -> None:
    band = _outline(band)
    edge = {"color": FAINT, "width": 0}
    figure.add_scatter(
        x=band["step"], y=band["low"], mode="lines", line=edge, showlegend=False, hoverinfo="skip"
    )
    figure.add_scatter(
        x=band["step"],
        y=band["high"],
        name="band",
        mode="lines",
        line=edge,
        fill="tonexty",
        fillcolor=FAINT,
        hoverinfo="skip",
    )
