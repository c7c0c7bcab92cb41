"""A chart with its title and its way out: CSV of the data, PNG and offline HTML of the figure."""

import shutil
from collections.abc import Callable, Mapping
from functools import cache, partial

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PNG_WIDTH, PNG_MIN_HEIGHT = 1000, 460
NO_BROWSER = (
    "PNG needs Chromium or Chrome on the machine that serves this page, and there is none. "
    "Use the camera in the chart's own toolbar: it works in every browser."
)
CHART_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
}


Draw = Callable[[], go.Figure]


def chart_card(
    title: str,
    draw: Draw | Mapping[str, Draw],
    data: pd.DataFrame,
    *,
    name: str,
    help: str | None = None,
) -> None:
    """Shows a chart of `data` under its title, with the downloads on the right.

    Several figures of the same data are offered as a choice, which the address keeps; only the
    chosen one is drawn. `name` is unique on the page; downloaded files are named after it.
    """
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{title}**", help=help, width="stretch")
            figure = draw() if callable(draw) else draw[_choice(list(draw), name)]()
            with st.container(horizontal=True, width="content", gap="xsmall"):
                _chart_downloads(figure, data, title, name)
        image = {"format": "png", "filename": name, "scale": 2}
        config = {**CHART_CONFIG, "toImageButtonOptions": image}
        st.plotly_chart(figure, key=f"chart-{name}", config=config, alt=title)


def csv_button(label: str, data: pd.DataFrame, name: str) -> None:
    """Downloads a table."""
    download(label, partial(to_csv, data), f"{name}.csv", "text/csv")


def to_csv(data: pd.DataFrame) -> bytes:
    """The frame behind a chart, undefined values empty."""
    text: str = data.to_csv(index=False)
    return text.encode()


def to_html(figure: go.Figure, title: str) -> bytes:
    """A page of its own that needs no network: plotly.js is inside."""
    copy = _for_export(figure, title)
    page: str = copy.to_html(include_plotlyjs=True, config={"displaylogo": False})
    return page.encode()


def to_png(figure: go.Figure, title: str) -> bytes:
    """A picture at twice the resolution of the screen; takes seconds, a browser draws it."""
    height = max(PNG_MIN_HEIGHT, figure.layout.height or 0)
    copy = _for_export(figure, title)
    picture: bytes = copy.to_image(format="png", width=PNG_WIDTH, height=height, scale=2)
    return picture


@cache
def find_browser() -> str | None:
    """A browser that can draw a picture of a figure, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _choice(options: list[str], name: str) -> str:
    chosen = st.segmented_control(
        name, options, default=options[0], required=True, key=name, bind="query-params",
        label_visibility="collapsed",
    )  # fmt: skip
    return chosen or options[0]


def _chart_downloads(figure: go.Figure, data: pd.DataFrame, title: str, name: str) -> None:
    csv_button("CSV", data, name)
    if find_browser() is None:
        download("PNG", b"", f"{name}.png", "image/png", unavailable=NO_BROWSER)
    else:
        download("PNG", partial(to_png, figure, title), f"{name}.png", "image/png")
    download("HTML", partial(to_html, figure, title), f"{name}.html", "text/html")


def download(
    label: str,
    data: Callable[[], bytes] | bytes,
    file_name: str,
    mime: str,
    unavailable: str | None = None,
    help: str | None = None,
) -> None:
    """A button for a file that is made when somebody asks; `unavailable` says why there is none."""
    st.download_button(
        label, data, file_name, mime, key=f"download-{file_name}", on_click="ignore",
        type="tertiary", disabled=unavailable is not None, help=unavailable or help,
    )  # fmt: skip


def _for_export(figure: go.Figure, title: str) -> go.Figure:
    """A copy that carries the title and a template of its own: no theme reaches it."""
    copy = go.Figure(figure)
    margin = {"l": 70, "r": 30, "t": 90, "b": 60}
    title_at = {"text": title, "x": 0.01}
    return copy.update_layout(template="plotly_white", title=title_at, margin=margin)
