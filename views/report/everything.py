"""Every chart and table of an experiment, each a file, in one archive."""

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from html import unescape

import pandas as pd

from storage.errors import NotExportable
from storage.exchange import FORMATS
from storage.exchange.table_files import TABLE_FORMATS
from storage.index.store import Store
from views.parts.exports import slug
from views.parts.pictures import USUAL, Style, to_image
from views.report.content import Content

ENDINGS = {"hud-json": "json", "cachebench-json": "json"}
"""Of the formats of PyTorch's benchmarks; the others are CSV."""
DATA_FORMATS = ("csv", "parquet")
"""Of the data behind charts, which may be long; tables come in all formats."""
UNCHANGING = (1980, 1, 1, 0, 0, 0)
"""The time of every file, so that the same experiment gives the same archive."""

File = tuple[str, Callable[[], bytes]]


def everything(
    store: Store, whole: Content, pictures: Sequence[str] = ("png",), style: Style = USUAL
) -> bytes:
    """A ZIP archive; `pictures`: in which formats charts are drawn. Raises `NotDrawn`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for name, write in files(store, whole, pictures, style):
            try:
                content = write()
            except NotExportable:
                continue  # The format has no words for what was measured.
            made.writestr(zipfile.ZipInfo(f"{whole.about.name}/{name}", UNCHANGING), content,
                           zipfile.ZIP_DEFLATED)  # fmt: skip
    return archive.getvalue()


def files(store: Store, whole: Content, pictures: Sequence[str], style: Style) -> Iterator[File]:
    """Name and writer of every file."""
    yield "spec.json", lambda: whole.spec.to_json().encode()
    yield "command.sh", lambda: f"{whole.command}\n".encode()
    yield from _tables(whole)
    for card in whole.told.cards:
        for suffix in DATA_FORMATS:
            yield f"data/{card.name}.{suffix}", _table_writer(card.table, suffix)
        for title, draw in card.figures.items():
            name = f"{card.name}-{slug(title)}" if title else card.name
            said = unescape(f"{card.title}: {title}" if title else card.title)
            for format in pictures:
                yield (
                    f"charts/{name}.{format}",
                    lambda draw=draw, said=said, format=format: to_image(  # type: ignore[misc]
                        draw(), said, whole.about, format, style
                    ),
                )
    for format, write in FORMATS.items():
        name = f"pytorch/{format}.{ENDINGS.get(format, 'csv')}"
        yield name, lambda write=write: write(store, whole.experiment_id).encode()  # type: ignore[misc]


def _tables(whole: Content) -> Iterator[File]:
    if whole.spec.kind.compares_runs:
        for suffix in TABLE_FORMATS:
            yield f"tables/comparison.{suffix}", _table_writer(whole.comparison.table, suffix)
    for table in whole.told.tables:
        for suffix in TABLE_FORMATS:
            numbers = table.numbers
            yield f"tables/{table.name}.{suffix}", _table_writer(lambda n=numbers: n, suffix)  # type: ignore[misc]


def _table_writer(read: Callable[[], pd.DataFrame], suffix: str) -> Callable[[], bytes]:
    return lambda: TABLE_FORMATS[suffix].to_bytes(read())
