"""The formats of PyTorch's own benchmarks, on Compare: downloads, and imported rows."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.formats import FORMATS, NOTES
from breakeven.storage.exchange.imports import imported
from breakeven.storage.exchange.rows import HarnessRow, next_to_imported, rows
from breakeven.storage.index.store import Store
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
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("PyTorch formats:", width="content")
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
                   next_to_imported(read(store, key), theirs), "imported", "")  # fmt: skip


def _written(write: Callable[[Store, str], str], store: Store, key: str) -> bytes:
    return write(store, key).encode()
