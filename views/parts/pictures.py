"""Exported figures, which name their experiment: as pictures, with size and colours for a slide, a
paper or a screen, drawn by a Chromium that lives as long as the request; and as HTML pages of their
own."""

import asyncio
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from threading import BoundedSemaphore
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from breakeven.runner.errors import RunnerError
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import NUMBERS, read_definitions
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import anchors_in, without_link
from breakeven.views.shared.inert import Html, inert, inert_figure

MAX_SLUG = 40


@dataclass(frozen=True)
class Origin:
    """The subject of a page's files: the beginning of their names, and lines of facts."""

    name: str = ""
    facts: tuple[str, ...] = ()


NOTHING_KNOWN = Origin()
_origin: ContextVar[Origin] = ContextVar("origin", default=NOTHING_KNOWN)


def origin() -> Origin:
    """The origin of the page, or of the part of it, that is being drawn."""
    return _origin.get()


@contextmanager
def files_of(about: Origin) -> Iterator[None]:
    """A context in which all downloads name this origin."""
    before = _origin.set(about)
    try:
        yield
    finally:
        _origin.reset(before)


def experiment_origin(store: Store, experiment: pd.Series) -> Origin:
    """Experiment, model, data, device, precision, versions and date, if known; `experiment`: a row
    of `storage.queries.list_experiments`."""
    experiment_id = str(experiment["experiment_id"])
    spec = queries.experiment_spec(store, experiment_id)
    known = queries.environments(store, experiment_id).to_dict("records")
    environment = known[0] if known else {}
    versions = {
        "Python": environment.get("python"),
        **(environment.get("versions") or {}),
        "CUDA": environment.get("cuda"),
        "driver": environment.get("driver"),
    }
    device = str(experiment["device"])
    if isinstance(experiment["device_name"], str):
        device = f"{experiment['device_name']} ({device})"
    return Origin(
        name=f"{slug(spec.name)}-{experiment_id[:8]}-{experiment_id[-4:]}",
        facts=(
            f"{spec.name} · {experiment_id}",
            " · ".join(
                filter(
                    None, [spec.subject, device, spec.precision, words.day(experiment["submitted"])]
                )
            ),
            ", ".join(
                f"{name} {version}"
                for name, version in versions.items()
                if isinstance(version, str) and version
            ),
        ),
    )


def of_one_run(about: Origin, label: str) -> Origin:
    """The origin of one run of the experiment."""
    first, *others = about.facts
    return Origin(name=f"{about.name}-{slug(label)}", facts=(f"{first} · run {label}", *others))


def suite_origin(run: pd.Series) -> Origin:
    """The origin of a suite run, a row of `storage.queries.list_suite_runs`."""
    suite_run = str(run["suite_run"])
    facts = [
        run["device_name"],
        run["torch_version"] and f"torch {run['torch_version']}",
        words.day(run["submitted"]),
    ]
    facts_text = " · ".join(str(fact) for fact in facts if isinstance(fact, str) and fact)
    return Origin(name=slug(suite_run), facts=(suite_run, facts_text))


def slug(name: str) -> str:
    """A name that can begin a file name on any system."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:MAX_SLUG].rstrip("-") or "experiment"


def to_html(
    figure: go.Figure,
    title: str,
    numbers: Sequence[str],
    about: Origin = NOTHING_KNOWN,
    note: str = "",
) -> bytes:
    """An HTML page that needs no network, with plotly.js inside.

    Above the chart are its title and facts, below it the definitions of its numbers and of those on
    its axes.
    """
    anchors = [NUMBERS[name].anchor for name in numbers]
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    anchors += [anchor for axis in axes for anchor in anchors_in(axis.title.text or "")]
    page: str = inert_figure(for_export(figure)).to_html(
        include_plotlyjs=True, config={"displaylogo": False, "showSendToCloud": False}
    )
    facts = "<br>".join(inert(fact) for fact in (*about.facts, note) if fact)
    style = "font-family: sans-serif; line-height: 1.5; max-width: 60rem; margin: 2rem 70px"
    head = f'<header style="{style}"><h1>{inert(title)}</h1><p>{facts}</p></header>'
    page = page.replace("<head>", f"<head><title>{inert(title)}</title>", 1)
    page = page.replace("<html>", '<html lang="en">', 1).replace("<body>", f"<body>{head}", 1)
    end = f'<section style="{style}">{_definitions(anchors)}</section></body>'
    before, _, after = page.rpartition("</body>")
    return f"{before}{end}{after}".encode()


def for_export(figure: go.Figure) -> go.Figure:
    """A copy with its own template, independent of the theme. Its axes have no links, because they
    lead into the dashboard."""
    copy = go.Figure(figure.to_dict())
    for axis in [*copy.select_xaxes(), *copy.select_yaxes()]:
        axis.title.text = without_link(axis.title.text or "")
    return copy.update_layout(template="plotly_white", margin={"l": 70, "r": 30, "b": 60})


def _definitions(anchors: Iterable[str]) -> Html:
    """Definitions as HTML; their Markdown stays, because it is readable as text."""
    known = read_definitions()
    titles = {name: number.axis_title for name, number in NUMBERS.items()}
    return "".join(
        f'<h3 id="{inert(anchor)}">{inert(titles.get(anchor, anchor))}</h3>'
        f'<p style="white-space: pre-line">{inert(known[anchor])}</p>'
        for anchor in dict.fromkeys(anchors)
    )


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAX_SECONDS = 60.0
"""Limit for one picture, and for starting the browser."""
BROWSERS_AT_ONCE = BoundedSemaphore(2)
"""Browsers at the same time for all readers; further requests wait."""

Drawing = tuple[dict[str, Any], dict[str, Any]]
"""A figure as plotly.js reads it, and kaleido's options: format, width, height, scale."""


class NotDrawn(RunnerError):
    """The browser returned no picture."""


@cache
def find_browser() -> str | None:
    """The path of a browser that can draw, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def draw(drawings: Sequence[Drawing]) -> list[bytes]:
    """Draws all figures in one browser. Raises `NotDrawn`."""
    # A separate thread, because the calling thread may already run an event loop.
    with BROWSERS_AT_ONCE, ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(asyncio.run, _draw(drawings)).result()
        except Exception as error:
            raise NotDrawn(
                f"the browser that draws pictures failed ({type(error).__name__}: {error}). "
                "Try again, or use the camera in the chart's own toolbar"
            ) from error


async def _draw(drawings: Sequence[Drawing]) -> list[bytes]:
    from kaleido import Kaleido  # here, because only pictures need kaleido

    # Without MathJax: kaleido would load MathJax from the internet, and no figure needs MathJax.
    browser = Kaleido(n=1, timeout=MAX_SECONDS, mathjax=False, path=find_browser())
    try:
        await asyncio.wait_for(browser.open(), MAX_SECONDS)
        return [
            await asyncio.wait_for(browser.calc_fig(figure, options), MAX_SECONDS)
            for figure, options in drawings
        ]
    finally:
        await browser.close()


FORMATS = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}
"""Suffixes of pictures with their media types."""
USUAL_FONT = 12
TITLE_LINE, FACT_LINE, LEGEND_LINE = 30, 17, 22
"""Pixels of lines at the font's usual size; characters are below."""
LEGEND_MARK, CHARACTER = 48, 7.2
"""Pixels of a legend entry without its text, and of a character of the text; rounded up."""
FACT_CHARACTER = 6.2


@dataclass(frozen=True)
class Size:
    """A picture's size; lengths in pixels, 96 to an inch."""

    title: str
    width: int
    min_height: int
    font: int
    facts_font: int
    scale: float
    """PNG pixels for each of these pixels."""
    has_facts: bool = True
    """Whether title and facts are in the picture; a paper has them in its caption."""
    is_fixed: bool = False
    """Whether the height does not grow with the legend."""


SIZES = {
    "screen": Size("Screen", 1000, 460, 12, 12, 2),
    "slide": Size("Slide", 1280, 720, 19, 13, 1.5, is_fixed=True),
    # 3.3 inches, a column of a letter page with two; 300 dots per inch.
    "column": Size("Paper column", 317, 240, 8, 8, 3.125, has_facts=False),
}


@dataclass(frozen=True)
class Theme:
    """The colours of a picture; the colours of runs are clear on both themes."""

    title: str
    template: str
    paper: str
    text: str
    quiet: str
    grid: str


THEMES = {
    "light": Theme("Light", "plotly_white", "#ffffff", "#22262c", "#5c636d", "#e3e6ea"),
    "dark": Theme("Dark", "plotly_dark", "#14171b", "#e6e8eb", "#a4abb5", "#2f353d"),
}


@dataclass(frozen=True)
class Style:
    """Size and theme of pictures."""

    size: Size = SIZES["screen"]
    theme: Theme = THEMES["light"]


USUAL_STYLE = Style()


def to_image(
    figure: go.Figure, title: str, about: Origin, format: str = "png", style: Style = USUAL_STYLE
) -> bytes:
    """A picture, drawn by a browser; raises `NotDrawn`."""
    return draw([drawing(figure, title, about, format, style)])[0]


def drawing(
    figure: go.Figure, title: str, about: Origin, format: str = "png", style: Style = USUAL_STYLE
) -> Drawing:
    """The input of `draw` for a figure."""
    copy = picture(figure, title, about, style)
    options = {
        "format": format,
        "width": style.size.width,
        "height": copy.layout.height,
        "scale": style.size.scale if format == "png" else 1,
    }
    return inert_figure(copy).to_plotly_json(), options


def picture(figure: go.Figure, title: str, about: Origin, style: Style = USUAL_STYLE) -> go.Figure:
    """The figure with title and facts on top, high enough for the legend below them."""
    size, theme = style.size, style.theme
    zoom, small = size.font / USUAL_FONT, size.facts_font / USUAL_FONT
    facts = _facts(about, size)
    above = (TITLE_LINE + 24) * zoom + FACT_LINE * small * len(facts) if size.has_facts else 0
    copy = for_export(figure)
    legend = LEGEND_LINE * zoom * _legend_rows(copy, size)
    height = size.min_height
    if not size.is_fixed:
        height = max(height, int((copy.layout.height or 0) * zoom)) + int(above + legend)
    copy.update_layout(
        template=theme.template,
        paper_bgcolor=theme.paper,
        plot_bgcolor=theme.paper,
        font={"size": size.font, "color": theme.text},
        height=height,
        margin={
            "l": 70 * zoom,
            "r": 30 * zoom,
            "t": max(above + legend, 8),
            "b": 60 * zoom,
            "autoexpand": True,
        },
    )
    _magnify(copy, zoom)
    copy.update_xaxes(gridcolor=theme.grid, zerolinecolor=theme.grid)
    copy.update_yaxes(gridcolor=theme.grid, zerolinecolor=theme.grid)
    if not size.has_facts:
        return copy
    subtitle = {"text": "<br>".join(facts), "font": {"size": 12 * small, "color": theme.quiet}}
    place = {"x": 0.01, "y": 1 - 12 * zoom / height, "yref": "container", "yanchor": "top"}
    return copy.update_layout(
        title={"text": title, "font": {"size": 17 * zoom}, "subtitle": subtitle, **place}
    )


def _facts(about: Origin, size: Size) -> list[str]:
    """The facts in lines that fit into the picture."""
    width = int((size.width - 30) / (FACT_CHARACTER * size.facts_font / USUAL_FONT))
    return [line for fact in about.facts for line in textwrap.wrap(fact, width)]


def _legend_rows(figure: go.Figure, size: Size) -> int:
    """Rows of Plotly's legend: one row, or columns as wide as the widest entry."""
    names = [trace.name or "" for trace in figure.data if trace.showlegend is not False]
    if figure.layout.showlegend is False or len(names) < 2:
        return 0
    zoom = size.font / USUAL_FONT
    widths = [zoom * (LEGEND_MARK + CHARACTER * len(name)) for name in names]
    room = size.width - 100 * zoom
    columns = len(names) if sum(widths) <= room else max(1, int(room // max(widths)))
    return -(-len(names) // columns)


def _magnify(figure: go.Figure, zoom: float) -> None:
    """Scales lines and marks, which are made for a screen, with the font."""
    if zoom == 1:
        return
    for trace in figure.data:
        for part, what in (("line", "width"), ("marker", "size")):
            now = (trace.to_plotly_json().get(part) or {}).get(what)
            if isinstance(now, int | float):
                trace.update({part: {what: now * zoom}})
    for annotation in figure.layout.annotations:
        annotation.font.size = (annotation.font.size or USUAL_FONT) * zoom
