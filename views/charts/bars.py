"""Figures with one mark per run: step times, throughput, compile latency, memory, scores.

Runs stand on the vertical axis, baseline on top, each with its value written beside its mark, so
that a figure can be read without a legend.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.results import Result
from breakeven.storage.numbers.metrics import METRICS, axis_unit
from breakeven.views.charts.layers import lay_out, layout, shortened
from breakeven.views.charts.palette import FAINT, run_looks
from breakeven.views.shared import links
from breakeven.views.shared.figure import Figure, traces_of

WHISKERS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles a box shows: whisker, box edge, median, box edge, whisker."""
ROW_HEIGHT = 34
ROOM, LEGEND_HEIGHT = 84, 28
"""What a figure takes beside its rows, without a legend, and what that takes."""
LONG_LABEL = 14
HALF_PAGE, LABEL_PIXELS, TEXT_PIXELS, TEXT_GAP, MOST_BESIDE = 490, 6.2, 4.8, 16, 0.6
"""Pixels: of a plot and its labels in half of a page 1,280 wide, of a character of a label and of
one beside a bar, and from bar to text. And the share of the plot that texts may take at most."""
MEMORY_MARKS = {
    "compile_peak_memory_bytes": ("\N{WHITE DIAMOND}", "diamond-open"),
    "allocated_memory_bytes": ("|", "line-ns"),
}
"""What the memory figure marks beside its bars: how it is written, and Plotly's symbol."""


def step_times(frame: pd.DataFrame) -> go.Figure:
    """Distribution of steady step times per run: median, quartiles, and 5 % to 95 % whiskers.

    `frame`: label, seconds; steady steps only.
    """
    figure = Figure()
    looks = run_looks(frame["label"])
    factor, title = axis_unit("step_seconds", frame["seconds"])
    title = links.axis("step_seconds", title)
    for label, run in frame.groupby("label", sort=False):
        low, first, median, third, high = np.quantile(run["seconds"] * factor, WHISKERS)
        figure.add_box(
            y=[label], q1=[first], median=[median], q3=[third], lowerfence=[low],
            upperfence=[high], orientation="h", name=str(label), showlegend=False,
            line={"color": looks[str(label)].color, "width": 1.6}, width=0.5,
        )  # fmt: skip
    return per_run(figure, list(looks), title)


def metric(results: Sequence[Result], name: str) -> go.Figure:
    """One bar per run for a metric of `Result`; runs without it show a dash."""
    values = [result.value(name) for result in results]
    figure = _bars(results, values, values, [METRICS[name].format(value) for value in values])
    return figure.update_xaxes(title_text=links.axis(name))


def peak_memory(results: Sequence[Result]) -> go.Figure:
    """Memory needed by steady steps as bars, by the compile phase as open diamonds, and what was
    allocated as upright lines.
    """
    write = METRICS["peak_memory_bytes"].format
    names = ["peak_memory_bytes", *MEMORY_MARKS]
    ends = [max((result.value(name) for name in names), key=_number) for result in results]
    texts = [_memory_text(result) for result in results]
    figure = _bars(results, [result.measured.peak_memory_bytes for result in results], ends, texts)
    looks = run_looks(result.label for result in results)
    for name, (_sign, symbol) in MEMORY_MARKS.items():
        marked = [result for result in results if result.value(name) is not None]
        color = [looks[result.label].color for result in marked]
        figure.add_scatter(
            x=[result.value(name) for result in marked],
            y=[result.label for result in marked],
            mode="markers", hoverinfo="skip", showlegend=bool(marked), name=METRICS[name].title,
            marker={"symbol": symbol, "size": 10, "line": {"width": 2, "color": color},
                    "color": color},
        )  # fmt: skip
    if any(trace.get("showlegend") for trace in traces_of(figure)):
        # What is marked is said above, not only on hover.
        height = ROOM + ROW_HEIGHT * len(results)
        figure.update_layout(showlegend=True, margin_t=36, height=height + LEGEND_HEIGHT)
    ticks = _binary_ticks(max((_number(end) for end in ends), default=0.0))
    return figure.update_xaxes(
        tickvals=ticks,
        ticktext=[write(tick).replace(".0 ", " ").replace(".00 ", " ") for tick in ticks],
        title_text=links.axis("peak_memory_bytes", METRICS["peak_memory_bytes"].title),
    )


def _memory_text(result: Result) -> str:
    """`1.01 GiB, ◇ 2.72 GiB, | 3.21 GiB`, as far as it was measured."""
    write = METRICS["peak_memory_bytes"].format
    marks = [
        f"{sign} {write(result.value(name))}"
        for name, (sign, _symbol) in MEMORY_MARKS.items()
        if result.value(name) is not None
    ]
    return ", ".join([write(result.measured.peak_memory_bytes), *marks])


def _bars(
    results: Sequence[Result],
    values: Sequence[float | None],
    ends: Sequence[float | None],
    texts: Sequence[str],
) -> go.Figure:
    """A bar per run, and beyond it, from `ends` on, its text."""
    looks = run_looks(result.label for result in results)
    labels, colors = list(looks), [look.color for look in looks.values()]
    figure = Figure()
    figure.add_bar(
        x=[_number(value) for value in values], y=labels, orientation="h", width=0.56,
        marker={"color": colors, "pattern": _patterns(results, colors)},
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    figure.add_scatter(
        x=[_number(end) for end in ends], y=labels, text=list(texts), mode="markers+text",
        marker={"size": 22, "color": "rgba(0, 0, 0, 0)"},  # unseen, it keeps the text off the bar
        textposition="middle right", cliponaxis=False, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    longest = max((len(text) for text in texts), default=0)
    beside = (TEXT_GAP + TEXT_PIXELS * longest) / _narrowest_plot(labels)
    room = max(1.25 + 0.008 * longest, 1 / (1 - min(beside, MOST_BESIDE)))
    highest = max((_number(end) for end in ends), default=0.0) or 1.0
    return per_run(figure, labels, "").update_xaxes(range=[0.0, highest * room])


def per_run(figure: go.Figure, labels: Sequence[str], x_title: str) -> go.Figure:
    shared = layout() | {"height": ROOM + ROW_HEIGHT * len(labels)}
    rows = {
        "categoryorder": "array", "categoryarray": list(labels), "autorange": "reversed",
        "title_text": "", "tickvals": list(labels),
        "ticktext": [_in_two_lines(label) for label in labels],
    }  # fmt: skip
    return lay_out(
        figure, **shared, bargap=0.4, margin_t=8, xaxis={"title_text": x_title, "zeroline": False},
        yaxis=rows,
    )  # fmt: skip


def _narrowest_plot(labels: Sequence[str]) -> float:
    """Pixels that labels leave to bars and texts."""
    lines = [line for label in labels for line in _in_two_lines(label).split("<br>")]
    return HALF_PAGE - LABEL_PIXELS * max(map(len, lines), default=0)


def _in_two_lines(label: str) -> str:
    """A long label leaves no room for its bar on a narrow screen, nor do two long lines of it."""
    if len(label) <= LONG_LABEL:
        return label
    first, dash, rest = label.partition("-")
    return "<br>".join(map(shortened, [first + dash, rest] if dash else [label]))


def _patterns(results: Sequence[Result], colors: Sequence[str]) -> dict[str, object]:
    """The control's bar is hatched: nearly the same colour as the baseline's, yet told apart."""
    shapes = ["/" if result.role == "control" else "" for result in results]
    return {"shape": shapes, "fgcolor": list(colors), "bgcolor": FAINT, "size": 6}


def _binary_ticks(highest: float) -> list[float]:
    """Three or four ticks at round numbers of MiB."""
    step = 2.0 ** np.floor(np.log2(max(highest, 2.0**20) / 2))
    return [float(tick) for tick in np.arange(0, highest, step)]


def _number(value: float | None) -> float:
    """Undefined values stand at the axis: no bar, and their dash beside it."""
    return 0.0 if value is None else float(value)
