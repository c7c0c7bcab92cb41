"""Figures as they are written down are those that plotly makes, which checks what they are."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from breakeven.views.charts.layers import lay_out
from breakeven.views.parts.exports import for_export
from breakeven.views.shared.figure import Figure, nested, traces_of
from breakeven.views.shared.inert import inert_json

ARRAYS = {
    "bytes": np.array([1, 2, 127]),
    "short": np.array([-129, 2]),
    "int": np.array([40_000]),
    "long": np.array([2**40]),
    "unsigned": np.array([1, 2], dtype="uint64"),
    "floats": np.array([1.5, np.nan, np.inf]),
    "none": np.array([], dtype=float),
    "truths": np.array([True, False]),
    "matrix": np.arange(6.0).reshape(2, 3),
    "objects": np.array(["x", "y"], dtype=object),
    "series": pd.Series([1, 2, 3], index=[7, 8, 9]),
    "index": pd.Index([3.0, 4.0]),
    "texts": pd.Series(["a", "b"], dtype="str"),
    "times": pd.Series(pd.to_datetime(["2026-01-01 10:00", "2026-01-02 11:00"], utc=True)),
    "list": [1, 2],
    "list of floats": [np.float64(1.5)],
}


def told(figure: go.Figure) -> Any:
    """As a browser gets it."""
    return json.loads(inert_json(figure))


@pytest.mark.parametrize("values", ARRAYS.values(), ids=list(ARRAYS))
def test_an_array_is_sent_as_plotly_sends_it(values: Any) -> None:
    figures: list[go.Figure] = [Figure(), go.Figure()]
    for figure in figures:
        figure.add_scatter(x=values, y=values)
    assert figures[0].is_written
    assert told(figures[0]) == told(figures[1])


def draw_all(figure: go.Figure) -> None:
    figure.add_scatter(x=[1, 2], y=np.array([0.5, 0.25]), name="loss", mode="lines",
                       line={"color": "#123456", "width": 2}, hoverinfo=None)  # fmt: skip
    figure.add_bar(x=[1.0], y=["a<b>c</b>"], orientation="h", marker_color="red", width=0.5)
    figure.add_box(y=["run"], q1=[1], median=[2], q3=[3], lowerfence=[0], upperfence=[4])
    figure.add_shape(type="line", x0=0, x1=1, y0=0, y1=1, line={"dash": "dot"}, layer="below")
    figure.add_vline(x=3, line_width=1, line_dash="dot", line_color="black")
    figure.add_hline(y=1, line={"color": "black", "width": 1})
    figure.add_annotation(x=1, y=0, yref="paper", text="here", showarrow=False)
    figure.update_layout({"height": 300, "margin": {"l": 8}, "yaxis2": {"overlaying": "y"}})
    figure.update_layout(margin_t=26, showlegend=True)
    figure.update_xaxes(title_text="steps", range=[0.0, 10])
    figure.update_yaxes(tickformat=".0%", tickvals=[0.0, 0.5])
    figure.update_yaxes(title_text="share", zeroline=False)


def test_what_is_written_down_is_what_plotly_makes_of_it() -> None:
    figures: list[go.Figure] = [Figure(), go.Figure()]
    for figure in figures:
        draw_all(figure)
    assert figures[0].is_written
    assert told(figures[0]) == told(figures[1])
    # Of both y axes, as plotly does it.
    assert figures[0].to_dict()["layout"]["yaxis2"]["tickformat"] == ".0%"
    assert figures[0].data[1].marker.color == "red"
    assert not figures[0].is_written
    assert told(figures[0]) == told(figures[1])
    assert figures[0] == figures[1]


LEFT_TO_PLOTLY: dict[str, Callable[[go.Figure], object]] = {
    "taken back": lambda figure: figure.update_yaxes(type="log", tickvals=None),
    "a line with words": lambda figure: figure.add_vline(x=1, annotation_text="resumed"),
    "a trace of another kind": lambda figure: figure.add_heatmap(z=[[1, 2]]),
    "all traces": lambda figure: figure.update_traces(opacity=0.5, selector={"type": "bar"}),
    "a layout": lambda figure: setattr(figure.layout, "height", 70),
}


@pytest.mark.parametrize("left", LEFT_TO_PLOTLY)
def test_what_is_not_written_down_is_left_to_plotly(left: str) -> None:
    figures: list[go.Figure] = [Figure(), go.Figure()]
    for figure in figures:
        draw_all(figure)
        LEFT_TO_PLOTLY[left](figure)
        figure.add_scatter(x=[9], y=[9])
        lay_out(figure, height=123)
    assert not figures[0].is_written
    assert told(figures[0]) == told(figures[1])


def test_plotly_refuses_what_is_no_figure_once_it_is_asked() -> None:
    figure = Figure().add_scatter(x=[1], y=[1], mode="walls")
    assert "walls" in inert_json(figure)
    with pytest.raises(ValueError, match=re.escape("'mode' property of scatter")):
        _ = figure.data


def test_a_copy_leaves_the_figure_as_it_was() -> None:
    figure = Figure()
    draw_all(figure)
    copy = for_export(figure).update_layout(height=999)
    assert copy.layout.height == 999 and len(copy.data) == 3
    assert figure.is_written and told(figure)["layout"]["height"] == 300


def test_several_at_a_time_ask_for_the_same_figure() -> None:
    figure = Figure()
    draw_all(figure)
    with ThreadPoolExecutor(8) as readers:
        asked = [readers.submit(lambda: (len(figure.data), figure.layout.height, told(figure)))
                 for _ in range(24)]  # fmt: skip
        found = [one.result() for one in asked]
    assert all(one == found[0] for one in found) and found[0][:2] == (3, 300)


def test_traces_are_those_that_were_told() -> None:
    figure = Figure().add_scatter(x=[1], y=[1], name="one", line_color="red")
    assert traces_of(figure) == [
        {"x": [1], "y": [1], "name": "one", "line": {"color": "red"}, "type": "scatter"}
    ]
    figure.update_traces(showlegend=False)
    assert traces_of(figure)[0]["showlegend"] is False


def test_a_line_in_a_name_stands_between_a_property_and_one_inside() -> None:
    assert nested({"title_text": "x", "title": {"font_size": 7}, "plot_bgcolor": "red"}) == {
        "title": {"text": "x", "font": {"size": 7}},
        "plot_bgcolor": "red",
    }
    assert nested({"line": None, "marker": {"color": None}}) == {"marker": {}}
