"""What figures share: axes, legends, rows, texts of cells, and lines that do not hide each other.

Titles and units of axes come from the registry of metrics.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.views.charts.palette import FAINT, Look, run_looks, text_on
from breakeven.views.shared.definition_links import axis, without_link
from breakeven.views.shared.words import shortened

HEIGHT = 310
BESIDE_DAYS = pd.Timedelta(hours=12)
"""Space before the first and after the last experiment; a single experiment spans a day."""
COUNTED, FEW_STEPS = ("step", "round", "epoch"), 8
"""X-axes with whole numbers, and the highest number up to which each has a tick."""
FEW_RUNS, LEGEND_LINE = 4, 16
LINE_WIDTH, BELOW_ALL = 1.6, 1.6
"""Width of a line, and the additional width of the baseline, which is drawn below all others."""
WHOLE, FOUR_DIGITS = ",.0f", ",.4~r"
"""How Plotly writes numbers under the pointer: whole ones, and others without an exponent."""
UNIT = re.compile(r" \(([^()]+)\)$")
"""The unit at the end of an axis title."""


def over_steps(figure: go.Figure, y_title: str, over: str = "step") -> go.Figure:
    """The common look of figures over steps, or over another number that grows with them.

    All such figures on a page zoom together (`ranges.js`).
    """
    num_entries = sum(trace.showlegend is not False for trace in figure.data)
    without_legend = {"showlegend": False, "margin_t": 8} if num_entries < 2 else {}
    # Otherwise the axis of a few steps would have halves.
    whole_ticks = {"dtick": 1} if over in COUNTED and _highest(figure) <= FEW_STEPS else {}
    unit = _unit_of(y_title)
    figure.update_traces(
        hovertemplate=f"%{{y}}{unit}",
        selector=lambda trace: trace.hovertemplate is None and trace.hoverinfo != "skip",
    )
    x_title, x_unit = NUMBERS[over].title, _unit_of(NUMBERS[over].axis_title)
    is_time = over.endswith("seconds")
    return figure.update_layout(
        **layout()
        # On a narrow screen each run has a line of the legend, which takes height from the plot.
        | {"height": HEIGHT + LEGEND_LINE * max(0, num_entries - FEW_RUNS)},
        hovermode="x unified",
        meta={"x": over},
        xaxis={
            "title_text": axis(over),
            "showgrid": False,
            "zeroline": False,
            **whole_ticks,
            "hoverformat": FOUR_DIGITS if is_time else WHOLE,
            "unifiedhovertitle_text": f"{x_title} %{{x}}{x_unit}",
        },
        yaxis={"title_text": y_title, "zeroline": False, "hoverformat": FOUR_DIGITS},
        **without_legend,
    )


def _unit_of(axis_title: str) -> str:
    """The unit of an axis after a blank; empty without one."""
    unit = UNIT.search(without_link(axis_title))
    return f" {unit[1]}" if unit else ""


def _highest(figure: go.Figure) -> float:
    """The largest x of all traces; 0 without any."""
    drawn = (np.asarray(trace.x, float) for trace in figure.data if trace.x is not None)
    return max((float(x[np.isfinite(x)].max(initial=0.0)) for x in drawn), default=0.0)


def layout() -> dict[str, Any]:
    """Layout that all figures share; fonts and background come from the theme."""
    return {
        "height": HEIGHT,
        "margin": {"l": 8, "r": 12, "t": 36, "b": 8},
        "hoverlabel": {"namelength": -1},
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "title_text": "",
        },
    }


def in_rows(
    figure: go.Figure, x_title: str, height: int, labels: Sequence[str] = (), **look: Any
) -> go.Figure:
    """The common look of figures with rows, the first one on top; `labels`: names of the rows, if
    they are shortened or have an order of their own."""
    rows: dict[str, Any] = {"autorange": "reversed", "automargin": True, "title_text": ""}
    if labels:
        rows |= {
            "categoryorder": "array",
            "categoryarray": list(labels),
            "tickvals": list(labels),
            "ticktext": [*map(shortened, labels)],
        }
    return figure.update_layout(
        layout() | {"height": height},
        xaxis={"title_text": x_title, "zeroline": False},
        yaxis=rows,
        **look,
    )


def write_cells(figure: go.Figure) -> go.Figure:
    """Writes the texts of the figure's heat map into its cells, each in black or white, whichever
    stands out from its cell: Plotly's own choice may have a contrast below 2."""
    cells = figure.data[0]
    span = (cells.zmax - cells.zmin) or 1.0
    written = [
        (x, y, text, min(1.0, max(0.0, (float(value) - cells.zmin) / span)))
        for y, values, texts in zip(cells.y, cells.z, cells.text, strict=True)
        for x, value, text in zip(cells.x, values, texts, strict=True)
        if value is not None and not pd.isna(value)
    ]
    if not written:
        return figure
    places, rows, texts, shares = zip(*written, strict=True)
    scale = [list(stop) for stop in cells.colorscale]
    return figure.add_scatter(
        x=places,
        y=rows,
        text=texts,
        mode="text",
        hoverinfo="skip",
        showlegend=False,
        textfont={"size": 13, "color": list(map(text_on, sample_colorscale(scale, shares)))},
    )


def over_days(figure: go.Figure, when: Iterable[Any]) -> go.Figure:
    """Sets an axis of days for these times (UTC or NaT); a single experiment would otherwise have
    an axis of microseconds."""
    known = [time for time in when if not pd.isna(time)]
    reach = [min(known) - BESIDE_DAYS, max(known) + BESIDE_DAYS] if known else None
    return figure.update_xaxes(gridcolor=FAINT, range=reach)


def by_run(
    frame: pd.DataFrame, looks: Mapping[str, Look] | None = None
) -> Iterator[tuple[str, str, Look, pd.DataFrame]]:
    """Label, role, look and steps of each run, in the order of the frame."""
    looks = looks or run_looks(frame["label"])
    for label, run in frame.groupby("label", sort=False):
        yield str(label), str(run["role"].iloc[0]), looks[str(label)], in_order(run)


def in_order(run: pd.DataFrame) -> pd.DataFrame:
    """The run sorted by step; unchanged if it is sorted already, as queries return it."""
    steps = run["step"].to_numpy()
    return run if (steps[1:] > steps[:-1]).all() else run.sort_values("step")


def line_style(look: Look, width: float = LINE_WIDTH) -> dict[str, Any]:
    return {"color": look.color, "width": width, "dash": look.dash}


def layers_of(
    frame: pd.DataFrame, looks: Mapping[str, Look] | None = None
) -> dict[str, dict[str, Any]]:
    """Line and z-order of each run's trace, so that equal runs do not hide each other.

    The baseline is lowest and widest, then lines without gaps, then lines with ever shorter dashes:
    part of each line shows below the lines above it.
    """
    looks = looks or run_looks(frame["label"])
    runs = frame[["label", "role"]].drop_duplicates()
    roles = dict(zip(runs["label"], runs["role"], strict=True))
    order = sorted(
        roles, key=lambda label: (roles[label] != "baseline", -_longest_dash(looks[label]))
    )
    step = min(1.0, 4.5 / len(order))
    widths = {label: LINE_WIDTH + step * place for place, label in enumerate(reversed(order))}
    if len(order) > 1 and roles[order[0]] == "baseline":
        widths[order[0]] += BELOW_ALL
    return {
        label: {"line": line_style(looks[label], widths[label]), "zorder": place}
        for place, label in enumerate(order)
    }


def _longest_dash(look: Look) -> float:
    return math.inf if look.dash == "solid" else max(map(int, re.findall(r"\d+", look.dash)))
