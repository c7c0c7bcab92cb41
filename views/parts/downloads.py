"""Charts and tables with their downloads: as a picture, as an HTML page and as data.

A chart has one menu of them, whose entries are made once it is open.

Streamlit redraws its own charts for each new figure, whatever the figure's `uirevision`, and does
not connect charts. Ours use the plotly.js of the package that draws the pictures: they receive new
data, preserve zoom and hidden lines, and zoom together if they have the same x-axis.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property, partial
from html import unescape
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import plotly
import plotly.graph_objects as go
import streamlit as st
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from streamlit import runtime
from streamlit.components.v1 import declare_component
from streamlit.runtime.media_file_manager import MediaFileManager

from breakeven.runner.project import PACKAGE
from breakeven.storage.exchange.csv_and_parquet import TABLE_FORMATS
from breakeven.storage.numbers.metrics import DASH, NUMBERS
from breakeven.views.access.request_checks import LASTING
from breakeven.views.parts.pictures import (
    FORMATS,
    SIZES,
    THEMES,
    USUAL_STYLE,
    Origin,
    Style,
    files_of,
    find_browser,
    origin,
    to_html,
    to_image,
)
from breakeven.views.shared.address import remembered
from breakeven.views.shared.definition_links import explained
from breakeven.views.shared.inert import Markdown, inert, inert_json

SCRIPTS = ("loading.js", "theme.js", "ranges.js", "moving.js")


def _read(*names: str) -> str:
    return "".join((PACKAGE / "views/charts" / name).read_text() for name in names)


_chart = st.components.v2.component(
    "moving_chart",
    html='<div class="moving-chart" role="figure"></div>',
    js=_read(*SCRIPTS),
    isolate_styles=False,
)
_loading = st.components.v2.component(
    "loading_charts",
    js=_read("loading.js") + "export default ({ data }) => void load(data.plotly);",
    isolate_styles=False,
)


@cache
def _plotly_address() -> str:
    """The relative address of plotly.js, with the version, so that browsers may cache it
    permanently. It needs no internet access: the files of a declared component are served, although
    this one is never shown."""
    folder = Path(plotly.__file__).parent / "package_data"
    served = declare_component("plotly_js", path=folder).name
    return f"component/{served}/plotly.min.js?{LASTING}={plotly.__version__}"


@dataclass(frozen=True)
class WrittenFigure:
    """A figure as JSON, with the place that the page keeps for it until it is drawn."""

    figure: str
    height: int
    """Pixels."""
    is_low: bool
    """Whether it is lower on a low screen (`roomFor` in moving.js)."""


def moving_chart(
    figure: WrittenFigure, key: str, config: dict[str, Any], alt: str, group: str
) -> None:
    """Shows the figure, from `Card.written`, in place of the earlier one with the same key. Charts
    of a group with the same x-axis zoom together."""
    _chart(
        key=key,
        height=figure.height,
        data={
            "figure": figure.figure,
            "config": config,
            "alt": alt,
            "group": group,
            "plotly": _plotly_address(),
        },
    )


Draw = Callable[[], go.Figure]
Data: TypeAlias = pd.DataFrame | Callable[[], pd.DataFrame]
"""A file's data, or a function that reads them on request: reading more than is drawn is slow."""
USUAL_HEIGHT = 450
"""Plotly's own, of a figure that sets none."""
TOP_MARGIN = 8
"""Pixels above a chart without a legend."""
THINNED = (
    "If a run has more than 1,000 steps, its line joins the lowest and the highest point of each "
    "group of steps; downloaded data have every step."
)


@dataclass(frozen=True)
class Card:
    """A chart of `data` under its title.

    `draw` is one figure, or several of the same data by name. `data` is everything that was
    measured, even if the chart shows less. `name` is unique on the page and begins file names.
    `numbers`: names of the charted numbers in `storage.numbers.metrics`. `help` adds to their
    definitions.
    """

    title: Markdown
    draw: Draw | Mapping[str, Draw]
    data: Data
    name: str
    numbers: Sequence[str]
    help: Markdown = ""

    @property
    def figures(self) -> dict[str, Draw]:
        """The figures by name; a single one has an empty name."""
        return {"": self.draw} if callable(self.draw) else dict(self.draw)

    def figure(self, name: str) -> go.Figure:
        """The figure of that name."""
        return self.figures[name]()

    def written(self, name: str, group: str, *, has_legend: bool = True) -> WrittenFigure:
        """The named figure for `moving_chart`, computed once. It contains no HTML but our
        own, and keeps zoom and hidden lines as long as figure and `group` stay the same."""
        key = (name, group)
        if key not in self._written:
            # Plain dictionaries: the figure would validate each change.
            figure = self.figure(name).to_dict()
            layout = figure["layout"]
            if not has_legend:
                margin, height = layout["margin"], layout["height"]
                layout["showlegend"], layout["height"] = False, height - margin["t"] + TOP_MARGIN
                margin["t"] = TOP_MARGIN
            layout["uirevision"] = f"{group} {self.name} {name}"
            self._written[key] = WrittenFigure(
                inert_json(figure),
                layout.get("height", USUAL_HEIGHT),
                is_low=layout.get("showlegend") is False and bool(layout.get("meta", {}).get("x")),
            )
        return self._written[key]

    @cached_property
    def _written(self) -> dict[tuple[str, str], WrittenFigure]:
        return {}

    @property
    def explanation(self) -> Markdown:
        """The definitions of the charted numbers, and how to read the chart."""
        return "\n\n".join(filter(None, [explained(self.numbers), self.help, self.caveat]))

    @property
    def caveat(self) -> Markdown:
        """A remark on lines that show less than was measured."""
        return THINNED if callable(self.data) else ""

    def table(self) -> pd.DataFrame:
        """All that was measured."""
        return self.data() if callable(self.data) else self.data


NO_BROWSER = (
    "Pictures need Chromium or Chrome on the machine that serves this page, and there is none. "
    "Use the camera in the toolbar of the HTML page: it works in every browser."
)
CHART_CONFIG = {"displayModeBar": False}
"""A chart is zoomed by dragging, and shown whole by a double click."""
STYLE = "picture_style"
"""Key in the session state: the size and the colours that were chosen last, for any chart."""
STYLE_HELP = (
    "A slide is 1280 x 720 with large letters. A paper column is 3.3 inches wide; its title and "
    "facts are left to the caption."
)


def show_card(card: Card, *, has_legend: bool = True) -> None:
    """Shows the chart under its title, with the menu of downloads on the right. A chart next to
    which the page names the runs needs no legend; its downloads have one.

    Several figures of the same data are a choice, which the address keeps; only the chosen figure
    is drawn.
    """
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{card.title}**", help=card.explanation, width="stretch")
            figures = card.figures
            chosen = "" if "" in figures else _ask_figure(list(figures), card.name)
            with st.container(width="content"):
                _chart_downloads(card, chosen, origin())
        name = card.name
        # New data preserve zoom and hidden lines as long as figure and group stay the same.
        group = origin().name
        figure = card.written(chosen, group, has_legend=has_legend)
        with st.container(key=f"low-{name}") if figure.is_low else nullcontext():
            moving_chart(figure, f"chart-{name}", CHART_CONFIG, unescape(card.title), group)


def table_downloads(data: Data, name: str, suffixes: Iterable[str] = TABLE_FORMATS) -> None:
    """The downloads of a table, a button for each format."""
    for suffix in suffixes:
        format = TABLE_FORMATS[suffix]
        download(
            inert(format.title), partial(_table_file, data, suffix), f"{name}.{suffix}", format.mime
        )


@contextmanager
def titled(
    title: Markdown, data: pd.DataFrame | None = None, name: str = "", help: Markdown = ""
) -> Iterator[None]:
    """A frame under its title, with a button for its data as CSV if there are any."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{title}**", help=help or None, width="stretch")
            if data is not None:
                table_downloads(data, name, ["csv"])
        yield


def with_origin(file_name: str) -> str:
    """The name of a downloaded file, which begins with its experiment."""
    return "-".join(filter(None, [origin().name, file_name]))


def choose_style(key: str) -> Style:
    """Asks for the size and the colours of pictures; offers the last choice first."""
    size, theme = st.session_state.get(STYLE, ("screen", "light"))
    size = st.segmented_control(
        "Size",
        list(SIZES),
        default=size,
        required=True,
        key=f"size-{key}",
        help=STYLE_HELP,
        format_func=lambda name: inert(SIZES[name].title),
    )
    theme = st.segmented_control(
        "Colours",
        list(THEMES),
        default=theme,
        required=True,
        key=f"theme-{key}",
        format_func=lambda name: inert(THEMES[name].title),
    )
    st.session_state[STYLE] = (size, theme)
    return Style(SIZES[size], THEMES[theme])


MOST_BUTTONS = 6
"""Most figures of a card that are buttons in a row; more are a list."""


def _ask_figure(options: list[str], name: str) -> str:
    last, remember = remembered(name, options[0])
    if st.session_state.get(name, options[0]) not in options:  # another experiment's
        del st.session_state[name]
    first = last if last in options else options[0]
    shared: dict[str, Any] = {
        "key": name,
        "bind": "query-params",
        "on_change": remember,
        "label_visibility": "collapsed",
    }
    if len(options) > MOST_BUTTONS:
        chosen = st.selectbox(
            inert(name), options, options.index(first), width=200, format_func=inert, **shared
        )
    else:
        chosen = st.segmented_control(
            inert(name), options, default=first, required=True, format_func=inert, **shared
        )
    return chosen if chosen in options else options[0]


@st.fragment
def _chart_downloads(card: Card, chosen: str, about: Origin) -> None:
    """The menu of data, a page, and pictures in a size and colours; filled once it is open, without
    the whole page."""
    name, title = card.name, unescape(card.title)
    menu = st.popover(
        "Download",
        icon=":material/download:",
        type="tertiary",
        key=f"downloads-of-{name}",
        on_change="rerun",
    )
    if not menu.open:
        return

    def page() -> bytes:
        return to_html(card.figure(chosen), title, card.numbers, about, card.caveat)

    with menu, files_of(about):
        with st.container(horizontal=True):
            table_downloads(card.data, name)
            download("HTML", page, f"{name}.html", "text/html")
        style = choose_style(name)
        look = f"-{style.size.title}-{style.theme.title}".lower().replace(" ", "-")  # `-slide-dark`
        draw = partial(_picture, card, chosen, about)
        with st.container(horizontal=True):
            _pictures(f"{name}{'' if style == USUAL_STYLE else look}", draw, style)


def _pictures(name: str, draw: Callable[[str, Style], bytes], style: Style) -> None:
    lacking = None if find_browser() else NO_BROWSER
    for format, mime in FORMATS.items():
        download(
            inert(format.upper()),
            partial(draw, format, style),
            f"{name}.{format}",
            mime,
            unavailable=lacking,
        )


def _picture(card: Card, chosen: str, about: Origin, format: str, style: Style) -> bytes:
    return to_image(card.figure(chosen), unescape(card.title), about, format, style)


def _table_file(data: Data, suffix: str) -> bytes:
    return TABLE_FORMATS[suffix].to_bytes(data() if callable(data) else data)


def download(
    label: Markdown,
    data: Callable[[], bytes] | bytes,
    file_name: str,
    mime: str,
    unavailable: Markdown | None = None,
    help: Markdown | None = None,
) -> None:
    """A button for a file that is made on request; `unavailable`: why it cannot be made."""
    name = with_origin(file_name)
    st.download_button(
        label,
        partial(_made_for_browser, data, name, mime) if callable(data) else data,
        name,
        mime,
        key=f"download-{file_name}",
        on_click="ignore",
        type="tertiary",
        disabled=unavailable is not None,
        help=unavailable or help,
    )


MOST_KEPT = 8
"""Files that wait for the requests of their browsers."""
_places = cycle(range(MOST_KEPT))


def _made_for_browser(make: Callable[[], bytes], name: str, mime: str) -> bytes:
    """Makes a file, and has Streamlit keep it until `MOST_KEPT` others were made. Streamlit itself
    deletes it after two page scripts of any reader have ended. A page that follows a run ends one
    every half second, so a browser could request a file that is gone, and would save an error
    under another name."""
    content = make()
    if runtime.exists():
        _keep(runtime.get_instance().media_file_mgr, content, name, mime)
    return content


def _keep(files: MediaFileManager, content: bytes, name: str, mime: str) -> None:
    place = f"download {next(_places)}"
    files.add(content, mime, place, name, is_for_static_download=True)


MAX_WRITTEN_CELLS = 100_000
ALWAYS_KNOWN = ["run_id", "label", "role"]
"""Columns that identify the run."""


def of_run(frame: pd.DataFrame, run: pd.Series) -> pd.DataFrame:
    """The rows of one run in a frame of `storage.queries`."""
    return frame[frame["run_id"] == run["run_id"]]


def show_table(
    title: Markdown,
    frame: pd.DataFrame,
    name: str,
    empty: Markdown,
    numbers: Mapping[str, str] | None = None,
    download: pd.DataFrame | None = None,
) -> None:
    """A table under its title, or the text `empty`; `name` is unique on the page.

    A column gets title and help of the number with its name (`storage.numbers.metrics`) or, if it
    is a key of `numbers`, of the number given there; other columns have words. Files contain
    `download` if given, else the table.
    """
    shown = frame.drop(columns=ALWAYS_KNOWN, errors="ignore")
    meant = {column: (numbers or {}).get(column, column) for column in shown.columns}
    meant = {column: number for column, number in meant.items() if number in NUMBERS}
    help = explained(meant.values()) if meant and not frame.empty else None
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{title}**", help=help, width="stretch")
            if not frame.empty:
                table_downloads(frame if download is None else download, name)
        if frame.empty:
            st.caption(empty)
            return
        # Formatted as everywhere else, and still sorted as numbers; slow for a large table.
        written = {
            column: NUMBERS[number].format
            for column, number in meant.items()
            if shown.size <= MAX_WRITTEN_CELLS and is_number(shown[column])
        }
        titles = {column: _title(column, shown[column], column in written) for column in shown}
        config = {
            titles[column]: st.column_config.Column(help=NUMBERS[number].definition)
            for column, number in meant.items()
        }
        renamed = shown.rename(columns=titles)
        formats = {titles[column]: write for column, write in written.items()}
        st.dataframe(
            renamed.style.format(formats) if formats else renamed,
            hide_index=True,
            key=f"table-{name}",
            placeholder=DASH,
            column_config=config,
        )


def is_number(values: pd.Series) -> bool:
    return is_numeric_dtype(values) and not is_bool_dtype(values)


def _title(column: str, values: pd.Series, is_written: bool) -> str:
    """The title of a column: a number's own title, with its unit unless each value has it.

    In other columns `failed_here` becomes `Failed here`; a title with a capital stays.
    """
    if column in NUMBERS:
        number = NUMBERS[column]
        has_unit = is_written and not number.format(1.5)[-1].isdigit()
        return number.axis_title if is_number(values) and not has_unit else number.title
    words = column.replace("_", " ")
    return words[:1].upper() + words[1:]


def expect_parts() -> None:
    """Has the browser load plotly.js, and hidden parts of the page, which `style.css` removes from
    layout and focus, while the server computes the figures."""
    _loading(key="loading-charts", data={"plotly": _plotly_address()})
    with st.container(key="expected"):
        st.segmented_control("Expected", ["One"], key="expected-choice", disabled=True)
        st.link_button("Expected", "definitions", disabled=True)
        download("Expected", bytes, "expected", "text/plain", unavailable="Out of sight")
