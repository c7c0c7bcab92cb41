"""Every chart and table of an experiment, each a file, in one archive."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from html import unescape

import pandas as pd

from breakeven.storage.errors import NotExportable
from breakeven.storage.exchange import FORMATS
from breakeven.storage.exchange.table_files import TABLE_FORMATS
from breakeven.storage.index.store import Store
from breakeven.views.parts.exchange import TITLES
from breakeven.views.parts.exports import slug
from breakeven.views.parts.pictures import USUAL, Style, draw, drawing
from breakeven.views.report.content import Content

UNCHANGING = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that equal experiments have equal archives."""

File = tuple[str, bytes]
"""Name in the archive and content."""


def everything(
    store: Store, whole: Content, pictures: Sequence[str] = ("png",), style: Style = USUAL
) -> bytes:
    """A ZIP archive; `pictures`: formats of the charts. Raises `NotDrawn`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in [*_written(store, whole), *_drawn(whole, pictures, style)]:
            made.writestr(zipfile.ZipInfo(f"{whole.about.name}/{name}", UNCHANGING), content,
                          zipfile.ZIP_DEFLATED)  # fmt: skip
    return archive.getvalue()


def _written(store: Store, whole: Content) -> Iterator[File]:
    yield "spec.json", whole.spec.to_json().encode()
    yield "command.sh", f"{whole.command}\n".encode()
    yield from _tables(whole)
    for format, write in FORMATS.items():
        # A format may be unable to express the measurements.
        with suppress(NotExportable):
            yield (
                f"pytorch/{format}.{TITLES[format][1]}",
                write(store, whole.experiment_id).encode(),
            )


def _drawn(whole: Content, formats: Sequence[str], style: Style) -> Iterator[File]:
    """Charts as pictures, all drawn by one browser."""
    names, drawings = [], []
    for card in whole.page.cards:
        for title, figure in card.figures.items():
            title_text = unescape(f"{card.title}: {title}" if title else card.title)
            for format in formats:
                name = f"{card.name}-{slug(title)}" if title else card.name
                names.append(f"charts/{name}.{format}")
                drawings.append(drawing(figure(), title_text, whole.about, format, style))
    if drawings:
        yield from zip(names, draw(drawings), strict=True)


def _tables(whole: Content) -> Iterator[File]:
    tables: list[tuple[str, pd.DataFrame]] = []
    if whole.spec.kind.compares_runs:
        tables.append(("tables/comparison", whole.comparison.table()))
    tables += [(f"tables/{table.name}", table.numbers) for table in whole.page.tables]
    tables += [(f"data/{card.name}", card.table()) for card in whole.page.cards]
    for name, table in tables:
        for suffix, format in TABLE_FORMATS.items():
            yield f"{name}.{suffix}", format.to_bytes(table)
