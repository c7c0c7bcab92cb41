"""The formats of PyTorch's own benchmarks, on Compare: downloads, and rows that were imported."""

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
"""What a button says, and how its file ends."""
SHARED = (
    "name", "dev", "batch_size", "tag", "outcome", "speedup", "abs_latency", "compilation_latency",
    "compression_ratio",
)  # fmt: skip
"""Columns in which own rows and imported ones can be compared."""


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
    """Imported rows of the Dynamo harness, if there are any, after the rows of this experiment, or
    of the suite run that `read` reads."""
    try:
        theirs = imported(store.data_dir)
    except ImportUnusable as error:
        st.warning(inert(permissions.redacted(error)), icon=":material/upload_file:")
        return
    if not theirs.empty:
        show_table("Imported from the Dynamo harness, next to this experiment",
                   table(_own(read(store, key)), theirs), "imported", "")  # fmt: skip


def table(own: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Own rows first, written for people; each says where it is from."""
    sources = [*["measured here"] * len(own), *("imported: " + theirs["file"])]
    both = [row for frame in (own, theirs) for row in frame[list(SHARED)].to_dict("records")]
    return pd.DataFrame(
        {
            "from": sources,
            "model": [row["name"] for row in both],
            "device": [row["dev"] for row in both],
            "batch_size": [_or_dash(row["batch_size"], "{:.0f}") for row in both],
            "run": [row["tag"] or DASH for row in both],
            "outcome": [row["outcome"] or DASH for row in both],
            "speedup": [METRICS["speedup"].format(row["speedup"]) for row in both],
            "step_seconds": [_seconds(row["abs_latency"], MILLISECONDS) for row in both],
            "compile_seconds": [_seconds(row["compilation_latency"], 1.0) for row in both],
            "compression_ratio": [_or_dash(row["compression_ratio"], "{:.2f}x") for row in both],
        }
    )


def _own(found: Iterable[HarnessRow]) -> pd.DataFrame:
    measured = [
        {
            **{name: getattr(row, name) for name in SHARED if name != "outcome"},
            "outcome": row.accuracy,
        }
        for row in found
    ]
    return pd.DataFrame(measured, columns=list(SHARED))


def _written(write: Callable[[Store, str], str], store: Store, key: str) -> bytes:
    return write(store, key).encode()


def _or_dash(value: float | None, template: str) -> str:
    return DASH if value is None or pd.isna(value) else template.format(value)


def _seconds(value: float | None, per_second: float) -> str:
    seconds = None if value is None else value / per_second
    return METRICS["step_seconds"].format(seconds)
