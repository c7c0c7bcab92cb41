"""Where a training went on from a checkpoint: a line across a figure over steps."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from views.palette import NEUTRAL

FEW = 2
"""Runs that a mark calls by name."""


def mark_resumptions(
    figure: go.Figure, resumptions: pd.DataFrame, *, named: bool = True
) -> go.Figure:
    """Draws a vertical line where runs were resumed, with that word.

    `resumptions`: label, step. `named`: whether to say which runs, as the figure shows several.
    """
    for step, group in resumptions.groupby("step"):
        labels = list(dict.fromkeys(group["label"]))
        figure.add_vline(
            # The step of that number is the first one after it.
            x=float(step) - 0.5,
            line_width=1,
            line_dash="dash",
            line_color=NEUTRAL,
            annotation_text=_said(labels) if named else "resumed",
            annotation_position="top left",
            annotation_textangle=-90,  # lines may lie close together
            annotation_font_size=11,
            annotation_font_color=NEUTRAL,
        )
    return figure


def _said(labels: Sequence[str]) -> str:
    return f"{', '.join(labels) if len(labels) <= FEW else f'{len(labels)} runs'} resumed"
