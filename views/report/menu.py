"""Links and downloads for a whole experiment on its page; files are made on request.

One of them is an archive with every chart and table, each a file.
"""

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from html import unescape

import pandas as pd
import streamlit as st

from breakeven.storage.errors import NotExportable
from breakeven.storage.exchange.benchmark_formats import FORMATS as PYTORCH_FORMATS
from breakeven.storage.exchange.csv_and_parquet import TABLE_FORMATS
from breakeven.storage.index.store import Store
from breakeven.views.parts.downloads import NO_BROWSER, choose_style, download
from breakeven.views.parts.exchange import TITLES
from breakeven.views.parts.pictures import (
    FORMATS,
    USUAL_STYLE,
    Origin,
    Style,
    draw,
    drawing,
    files_of,
    find_browser,
    slug,
)
from breakeven.views.report.content import Content, content
from breakeven.views.report.endpoint import address
from breakeven.views.report.report_files import MAX_EXPERIMENTS, report_of
from breakeven.views.shared.inert import inert

FIXED_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that equal experiments have equal archives."""

File = tuple[str, bytes]
"""Name in the archive and content."""


def everything(
    store: Store,
    report_content: Content,
    pictures: Sequence[str] = ("png",),
    style: Style = USUAL_STYLE,
) -> bytes:
    """A ZIP archive; `pictures`: formats of the charts. Raises `NotDrawn`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zip_file:
        for name, content in [
            *_written(store, report_content),
            *_drawn(report_content, pictures, style),
        ]:
            zip_file.writestr(
                zipfile.ZipInfo(f"{report_content.about.name}/{name}", FIXED_FILE_TIME),
                content,
                zipfile.ZIP_DEFLATED,
            )
    return archive.getvalue()


def _written(store: Store, report_content: Content) -> Iterator[File]:
    yield "spec.json", report_content.spec.to_json().encode()
    yield "command.sh", f"{report_content.command}\n".encode()
    yield from _tables(report_content)
    for format, write in PYTORCH_FORMATS.items():
        # A format may be unable to express the measurements.
        with suppress(NotExportable):
            yield (
                f"pytorch/{format}.{TITLES[format][1]}",
                write(store, report_content.experiment_id).encode(),
            )


def _drawn(report_content: Content, formats: Sequence[str], style: Style) -> Iterator[File]:
    """Charts as pictures, all drawn by one browser."""
    names, drawings = [], []
    for card in report_content.page.cards:
        for title, figure in card.figures.items():
            title_text = unescape(f"{card.title}: {title}" if title else card.title)
            for format in formats:
                name = f"{card.name}-{slug(title)}" if title else card.name
                names.append(f"charts/{name}.{format}")
                drawings.append(drawing(figure(), title_text, report_content.about, format, style))
    if drawings:
        yield from zip(names, draw(drawings), strict=True)


def _tables(report_content: Content) -> Iterator[File]:
    tables: list[tuple[str, pd.DataFrame]] = []
    if report_content.spec.kind.has_speedups:
        tables.append(("tables/comparison", report_content.comparison.table()))
    tables += [(f"tables/{table.name}", table.numbers) for table in report_content.page.tables]
    tables += [(f"data/{card.name}", card.table()) for card in report_content.page.cards]
    for name, table in tables:
        for suffix, format in TABLE_FORMATS.items():
            yield f"{name}.{suffix}", format.to_bytes(table)


REPORT_HELP = (
    "Answer, table, interactive charts, warnings, settings and the command to run it again. The "
    "HTML "
    "needs no network, starts a presentation with the key P, and can be imported again: it has the "
    "runs, with the names, paths and logs of the machine that they ran on. For a PDF, open the "
    "report and print it."
)
REPORT_LINK_HELP = "The whole report on one page, whose address you can send."
PRESENT_HELP = (
    "Slides with one statement each, from the answer to the advice; arrow keys turn the slides."
)
TOO_MANY = f"A report has at most {MAX_EXPERIMENTS:,} experiments."
ALL_HELP = (
    "Every chart as a picture, every table and the data behind each chart as CSV and Parquet."
)


def links(*ids: str) -> None:
    """Links to the report of experiments or suite runs as a page, and to its first screen for a
    projector."""
    too_many, ids = len(ids) > MAX_EXPERIMENTS, ids[:MAX_EXPERIMENTS]
    st.link_button(
        "Present",
        address(*ids, presenting=True),
        type="tertiary",
        disabled=too_many,
        icon=":material/slideshow:",
        help=TOO_MANY if too_many else PRESENT_HELP,
    )
    st.link_button(
        "Report",
        address(*ids),
        type="tertiary",
        disabled=too_many,
        icon=":material/article:",
        help=TOO_MANY if too_many else REPORT_LINK_HELP,
    )


@st.fragment
def show(store: Store, requested: str, about: Origin, *, is_suite: bool = False) -> None:
    """A menu that is made once it is open, without the rest of the page. `requested`: the id of an
    experiment or of a suite run."""
    menu = st.popover("Export", key="export", icon=":material/download:", on_change="rerun")
    if not menu.open:
        return
    with menu, files_of(about):
        st.markdown("**The report**: all of it in one file", help=REPORT_HELP)
        download("HTML", partial(_report, store, requested), "report.html", "text/html")
        if is_suite:
            return
        why_unavailable = None if find_browser() else NO_BROWSER
        st.markdown("**Everything** as files, in one archive with charts as", help=ALL_HELP)
        formats = st.container(horizontal=True)
        style = choose_style("everything")
        for format in FORMATS:
            write = partial(_everything, store, requested, format, style)
            with formats:
                download(
                    inert(format.upper()),
                    write,
                    f"all-{format}.zip",
                    "application/zip",
                    unavailable=why_unavailable,
                )


def _report(store: Store, requested: str) -> bytes:
    return report_of(store, [requested], MAX_EXPERIMENTS).encode(errors="replace")


def _everything(store: Store, experiment_id: str, format: str, style: Style) -> bytes:
    return everything(store, content(store, experiment_id), (format,), style)
