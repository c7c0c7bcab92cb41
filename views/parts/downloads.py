"""A chart with its title and its way out: CSV of the data, PNG and offline HTML of the figure."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from html import unescape
from typing import TypeAlias

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from storage.exchange.csv_files import to_csv
from views.charts.moving import moving_chart
from views.parts.exports import origin, to_html, to_png
from views.shared.inert import Markdown, inert, inert_figure
from views.shared.links import explained
from views.shared.selection import remembered

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NO_BROWSER = (
    "PNG needs Chromium or Chrome on the machine that serves this page, and there is none. "
    "Use the camera in the chart's own toolbar: it works in every browser."
)
CHART_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
}

THINNED = (
    "Of a run with more than 1,000 steps a line is drawn through the lowest and the highest point "
    "of each stretch of them; the CSV has every step."
)

Draw = Callable[[], go.Figure]
Data: TypeAlias = pd.DataFrame | Callable[[], pd.DataFrame]
"""What a file holds, or what reads it when somebody asks: more than what is drawn takes a while."""


def chart_card(
    title: Markdown,
    draw: Draw | Mapping[str, Draw],
    data: Data,
    *,
    name: str,
    numbers: Sequence[str],
    help: Markdown = "",
    moves: bool = False,
) -> None:
    """Shows a chart of `data` under its title, with the downloads on the right.

    Several figures of the same data are offered as a choice, which the address keeps; only the
    chosen one is drawn. `data` is all that was measured, however little of it is drawn. `name` is
    unique on the page; downloaded files are named after it. `numbers`: what is charted, as
    `storage.numbers.recorded` names it; the help explains it, before what `help` adds. `moves`:
    data arrive while somebody looks at it.
    """
    note = THINNED if callable(data) else ""
    help = "\n\n".join(filter(None, [explained(numbers), help, note]))
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{title}**", help=help, width="stretch")
            chosen = "" if callable(draw) else _choice(list(draw), name)
            figure = draw() if callable(draw) else draw[chosen]()
            with st.container(horizontal=True, width="content", gap="xsmall"):
                _chart_downloads(figure, data, title, name, numbers, note)
        image = {"format": "png", "filename": named(name), "scale": 2}
        config = {**CHART_CONFIG, "toImageButtonOptions": image}
        if moves:
            # As long as it shows the same, new data leave zoom and hidden lines as they are.
            figure.update_layout(uirevision=f"{origin().name} {name}")
            moving_chart(figure, key=f"chart-{name}", config=config, alt=unescape(title))
        else:
            st.plotly_chart(
                inert_figure(figure), key=f"chart-{name}", config=config, alt=unescape(title)
            )


def csv_button(label: Markdown, data: Data, name: str) -> None:
    """Downloads a table, all of it."""
    download(label, lambda: to_csv(data() if callable(data) else data), f"{name}.csv", "text/csv")


@cache
def find_browser() -> str | None:
    """A browser that can draw a picture of a figure, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def named(file_name: str) -> str:
    """The name of a file that leaves: it begins with what the file is about."""
    return "-".join(filter(None, [origin().name, file_name]))


def _choice(options: list[str], name: str) -> str:
    last, remember = remembered(name, options[0])
    chosen = st.segmented_control(
        inert(name), options, default=last if last in options else options[0], required=True,
        key=name, bind="query-params", label_visibility="collapsed", format_func=inert,
        on_change=remember,
    )  # fmt: skip
    return chosen if chosen in options else options[0]


def _chart_downloads(
    figure: go.Figure,
    data: Data,
    title: Markdown,
    name: str,
    numbers: Sequence[str],
    note: str,
) -> None:
    title, about = unescape(title), origin()
    csv_button("CSV", data, name)
    if find_browser() is None:
        download("PNG", b"", f"{name}.png", "image/png", unavailable=NO_BROWSER)
    else:
        download("PNG", partial(to_png, figure, title, about), f"{name}.png", "image/png")
    page = partial(to_html, figure, title, numbers, about, note)
    download("HTML", page, f"{name}.html", "text/html")


def download(
    label: Markdown,
    data: Callable[[], bytes] | bytes,
    file_name: str,
    mime: str,
    unavailable: Markdown | None = None,
    help: Markdown | None = None,
) -> None:
    """A button for a file that is made when somebody asks; `unavailable` says why there is none."""
    st.download_button(
        label, data, named(file_name), mime, key=f"download-{file_name}", on_click="ignore",
        type="tertiary", disabled=unavailable is not None, help=unavailable or help,
    )  # fmt: skip
