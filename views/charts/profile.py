"""Figures of the time within a step: all runs by classes of work, and baseline against backend."""

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.metrics import axis_unit
from breakeven.storage.profile.explanation import Bridge
from breakeven.storage.profile.recorded_profiles import IDLE, Profile
from breakeven.storage.words.profile import class_title
from breakeven.views.charts.layout import in_rows
from breakeven.views.charts.palette import BAD, CLASS_FILLS, FAINT, GOOD, NEUTRAL
from breakeven.views.shared.definition_links import axis

ROW_HEIGHT = 30
MARGIN = 76
WORTH_A_BAR = 0.01
"""Share of the baseline's step; smaller parts have one bar together."""
WORTH_A_COLOUR = 0.025
"""A share of the longest step: a smaller part gets no colour of its own, because readers cannot
distinguish many small parts."""
LEGEND_LINE = 18
REST = "all others"


def breakdown(profiles: Sequence[Profile]) -> go.Figure:
    """A bar for each profiled run, as long as its step, by classes of work; idle time last."""
    known = [profile for profile in profiles if profile.is_known]
    frame = (
        pd.DataFrame({profile.label: profile.by_class for profile in known})
        .fillna(0.0)
        .clip(lower=0.0)
    )
    longest = max((profile.step_seconds or profile.busy_seconds for profile in known), default=1.0)
    shown = frame[(frame >= WORTH_A_COLOUR * longest).any(axis=1)]
    rest = frame.drop(index=shown.index).sum()
    factor, title = axis_unit("step_seconds", pd.Series([longest]))
    figure = go.Figure()
    by_itself = all(profile.works_by_itself for profile in known)
    for name in shown.index.drop(IDLE, errors="ignore"):
        title_of = class_title(name, works_by_itself=by_itself)
        _add_class(figure, title_of, shown.loc[name], factor, CLASS_FILLS[name].marker)
    if rest.sum():
        _add_class(figure, REST, rest, factor, {"color": NEUTRAL})
    if IDLE in shown.index:
        idle = {"color": FAINT, "line": {"color": NEUTRAL, "width": 1}}
        name = class_title(IDLE, works_by_itself=by_itself)
        _add_class(figure, name, shown.loc[IDLE], factor, idle)
    # The legend is below, because a narrow screen needs a line for each class.
    lines = LEGEND_LINE * len(figure.data) * 3 // 4
    height = MARGIN + lines + (ROW_HEIGHT + 8) * len(known)
    in_rows(figure, axis("profile_seconds", title), height, [profile.label for profile in known])
    legend = {"y": 0, "yref": "container", "yanchor": "bottom"}
    return figure.update_layout(
        barmode="stack", margin={"t": 8, "b": MARGIN - 20 + lines}, legend=legend
    )


def _add_class(
    figure: go.Figure, title: str, seconds: pd.Series, factor: float, marker: Mapping[str, object]
) -> None:
    figure.add_bar(
        x=seconds * factor,
        y=list(seconds.index),
        name=title,
        orientation="h",
        marker=marker,
        customdata=[format_seconds(value) for value in seconds],
        hovertemplate=f"{title}: %{{customdata}}<extra></extra>",
    )


def waterfall(bridge: Bridge) -> go.Figure:
    """From the baseline's step to the run's: the time that each class of work adds or saves."""
    parts = _shown_parts(bridge)
    longest = max(bridge.baseline.step_seconds or 0.0, bridge.run.step_seconds or 0.0)
    factor, title = axis_unit("step_seconds", pd.Series([longest]))
    seconds = [bridge.baseline.step_seconds, *parts, bridge.run.step_seconds]
    names = [bridge.baseline.label, *parts.index, bridge.run.label]
    texts = [format_seconds(seconds[0]), *map(_signed, parts), format_seconds(seconds[-1])]
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            y=names,
            x=[(value or 0.0) * factor for value in seconds],
            text=texts,
            measure=["absolute", *["relative"] * len(parts), "total"],
            textposition="outside",
            hovertemplate="%{y}: %{text}<extra></extra>",
            cliponaxis=False,
            increasing={"marker": {"color": BAD}},
            decreasing={"marker": {"color": GOOD}},
            totals={"marker": {"color": NEUTRAL}},
            connector={"line": {"color": FAINT, "width": 1}},
        )
    )
    height = MARGIN + ROW_HEIGHT * len(names)
    in_rows(figure, axis("profile_seconds", title), height, showlegend=False, margin_t=8)
    # Room for the texts after the longest bars.
    highest = (bridge.baseline.step_seconds or 0.0) + parts.cumsum().max() if len(parts) else 0.0
    furthest = factor * max(longest, highest)
    return figure.update_xaxes(range=[0, 1.16 * furthest])


def _shown_parts(bridge: Bridge) -> pd.Series:
    """Differences by title: savings first, largest first, then additions."""
    titles = [
        class_title(name, works_by_itself=bridge.run.works_by_itself)
        for name in bridge.parts["work_class"]
    ]
    differences = pd.Series(bridge.parts["difference"].to_numpy(float), index=titles)
    is_small = differences.abs() < WORTH_A_BAR * (bridge.baseline.step_seconds or 0.0)
    shown = differences[~is_small].sort_values()
    rest = float(differences[is_small].sum())
    return pd.concat([shown, pd.Series({REST: rest})]) if rest else shown


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "\N{MINUS SIGN}"
    return sign + format_seconds(abs(seconds))
