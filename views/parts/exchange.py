"""The formats of PyTorch's own benchmarks, on Compare: downloads, and imported rows."""

from collections.abc import Callable, Iterable
from functools import partial

import pandas as pd
import streamlit as st

from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange import FORMATS, NOTES
from breakeven.storage.exchange.imports import imported
from breakeven.storage.exchange.rows import MILLISECONDS, HarnessRow, rows
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.views.access import permissions
from breakeven.views.parts.downloads import download, show_table
from breakeven.views.shared.inert import inert

TITLES = {
    "harness-performance-csv": ("Harness performance", "csv"),
    "harness-accuracy-csv": ("Harness accuracy", "csv"),
    "hud-json": ("HUD records", "json"),
    "cachebench-json": ("cachebench", "json"),
}
"""Label of each button, and suffix of its file."""


def buttons(store: Store, key: str) -> None:
    """A download for each format; its file is made on a click. `key` is the id of an experiment or
    of a suite run."""
    with st.popover("PyTorch formats", type="tertiary"):
        for name, (title, suffix) in TITLES.items():
            write = partial(_written, FORMATS[name], store, key)
            download(f"{title} ({suffix.upper()})", write, f"{name}.{suffix}", "text/plain",
                     help=NOTES.get(name))  # fmt: skip


def show_imported(
    store: Store, key: str, read: Callable[[Store, str], list[HarnessRow]] = rows
) -> None:
    """Imported rows of the Dynamo harness, if any, after the rows of this experiment, or of the
    suite run that `read` reads."""
    try:
        theirs = imported(store.data_dir)
    except ImportUnusable as error:
        st.warning(inert(permissions.redacted(error)), icon=":material/upload_file:")
        return
    if not theirs.empty:
        show_table("Imported from the Dynamo harness, next to this experiment",
                   table(read(store, key), theirs), "imported", "")  # fmt: skip


def table(own: Iterable[HarnessRow], theirs: pd.DataFrame) -> pd.DataFrame:
    """Own rows first, as text; each row names its source."""
    rows = [("measured here", row.accuracy, row) for row in own]
    rows += [(f"imported: {row.file}", row.outcome, row) for row in theirs.itertuples()]
    return pd.DataFrame([
        {
            "from": source, "model": row.name, "device": row.dev,
            "batch_size": _or_dash(row.batch_size, "{:.0f}"), "run": row.tag or DASH,
            "outcome": outcome or DASH, "speedup": METRICS["speedup"].format(row.speedup),
            "step_seconds": _seconds(row.abs_latency, MILLISECONDS),
            "compile_seconds": _seconds(row.compilation_latency, 1.0),
            "compression_ratio": _or_dash(row.compression_ratio, "{:.2f}x"),
        }
        for source, outcome, row in rows
    ])  # fmt: skip


def _written(write: Callable[[Store, str], str], store: Store, key: str) -> bytes:
    return write(store, key).encode()


def _or_dash(value: float | None, template: str) -> str:
    return DASH if value is None or pd.isna(value) else template.format(value)


def _seconds(value: float | None, per_second: float) -> str:
    seconds = None if value is None else value / per_second
    return METRICS["step_seconds"].format(seconds)
