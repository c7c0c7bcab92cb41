"""A chart with its title and its way out: CSV of the data, PNG and offline HTML of the figure."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from html import unescape
from typing import TypeAlias

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from storage.export import to_csv
from storage.numbers import NUMBERS, read_definitions
from views.inert import Markdown, inert, inert_figure
from views.links import anchors_in, explained, without_link

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
) -> None:
    """Shows a chart of `data` under its title, with the downloads on the right.

    Several figures of the same data are offered as a choice, which the address keeps; only the
    chosen one is drawn. `data` is all that was measured, however little of it is drawn. `name` is
    unique on the page; downloaded files are named after it.
    `numbers`: what is charted, as `storage.numbers` names it; the help explains it, before what
    `help` adds.
    """
    help = "\n\n".join([explained(numbers), help] if help else [explained(numbers)])
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{title}**", help=help, width="stretch")
            figure = draw() if callable(draw) else draw[_choice(list(draw), name)]()
            with st.container(horizontal=True, width="content", gap="xsmall"):
                _chart_downloads(figure, data, title, name, numbers)
        image = {"format": "png", "filename": name, "scale": 2}
        config = {**CHART_CONFIG, "toImageButtonOptions": image}
        st.plotly_chart(
            inert_figure(figure), key=f"chart-{name}", config=config, alt=unescape(title)
        )


def csv_button(label: Markdown, data: Data, name: str) -> None:
    """Downloads a table, all of it."""
    download(label, lambda: to_csv(data() if callable(data) else data), f"{name}.csv", "text/csv")


def to_html(figure: go.Figure, title: str, numbers: Sequence[str]) -> bytes:
    """A page of its own that needs no network: plotly.js is inside, and below the chart stand the
    definitions of its numbers and of those on its axes.
    """
    anchors = [NUMBERS[name].anchor for name in numbers]
    anchors += [anchor for axis in _axis_titles(figure) for anchor in anchors_in(axis)]
    page: str = inert_figure(_for_export(figure, title)).to_html(
        include_plotlyjs=True, config={"displaylogo": False}
    )
    return page.replace("</body>", f"{_definitions(anchors)}</body>").encode()


def _definitions(anchors: Iterable[str]) -> str:
    """Definitions as HTML; their Markdown is easily read as it is."""
    known = read_definitions()
    titles = {name: number.axis_title for name, number in NUMBERS.items()}
    entries = "".join(
        f'<h3 id="{anchor}">{inert(titles.get(anchor, anchor))}</h3>'
        f'<p style="white-space: pre-line">{inert(known[anchor])}</p>'
        for anchor in dict.fromkeys(anchors)
    )
    style = "font-family: sans-serif; line-height: 1.5; max-width: 50rem; margin: 2rem 70px"
    return f'<section style="{style}">{entries}</section>'


def to_png(figure: go.Figure, title: str) -> bytes:
    """A picture at twice the resolution of the screen; takes seconds, a browser draws it."""
    height = max(PNG_MIN_HEIGHT, figure.layout.height or 0)
    copy = _for_export(figure, title)
    picture: bytes = inert_figure(copy).to_image(
        format="png", width=PNG_WIDTH, height=height, scale=2
    )
    return picture


@cache
def find_browser() -> str | None:
    """A browser that can draw a picture of a figure, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _choice(options: list[str], name: str) -> str:
    chosen = st.segmented_control(
        inert(name), options, default=options[0], required=True, key=name, bind="query-params",
        label_visibility="collapsed", format_func=inert,
    )  # fmt: skip
    return chosen or options[0]


def _chart_downloads(
    figure: go.Figure, data: Data, title: str, name: str, numbers: Sequence[str]
) -> None:
    csv_button("CSV", data, name)
    if find_browser() is None:
        download("PNG", b"", f"{name}.png", "image/png", unavailable=NO_BROWSER)
    else:
        download("PNG", partial(to_png, figure, title), f"{name}.png", "image/png")
    download("HTML", partial(to_html, figure, title, numbers), f"{name}.html", "text/html")


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
        label, data, file_name, mime, key=f"download-{file_name}", on_click="ignore",
        type="tertiary", disabled=unavailable is not None, help=unavailable or help,
    )  # fmt: skip


def _for_export(figure: go.Figure, title: str) -> go.Figure:
    """A copy that carries the title and a template of its own: no theme reaches it. Its axes lead
    nowhere, since the dashboard is not where it goes.
    """
    copy = go.Figure(figure)
    for axis in [*copy.select_xaxes(), *copy.select_yaxes()]:
        axis.title.text = without_link(axis.title.text or "")
    margin = {"l": 70, "r": 30, "t": 90, "b": 60}
    title_at = {"text": title, "x": 0.01}
    return copy.update_layout(template="plotly_white", title=title_at, margin=margin)


def _axis_titles(figure: go.Figure) -> list[str]:
    return [axis.title.text or "" for axis in [*figure.select_xaxes(), *figure.select_yaxes()]]
