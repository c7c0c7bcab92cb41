"""Compiler outputs that a run stored on request: code to read, files to download."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.storage.compiling.kept import TRACE, KeptFile, code_difference, kept_of
from breakeven.storage.index.store import Store
from breakeven.storage.queries import RunRecord
from breakeven.views.access import permissions
from breakeven.views.parts.downloads import download
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import code, inert

MAX_SHOWN = 200_000
"""Bytes; browsers colour more only slowly. Downloads contain the whole file."""
MAX_FILE = 512 * 2**20
MAX_DIFFERENCES = 12
MAX_DIFFERENCE = 60_000
NOT_KEPT = (
    "Graphs, generated code and torch's trace are not kept: choose “Keep code” or “Keep torch's "
    "trace” when you launch, or `--keep-code` and `--keep-trace` on the command line."
)


def show_kept(store: Store, record: RunRecord) -> None:
    """Shows a choice of files with their text, and the trace as a download."""
    kept = kept_of(store, record)
    with st.container(border=True):
        st.markdown("**Graphs and generated code**")
        if not kept:
            requested = record.spec.keep_code or record.spec.keep_trace
            st.caption("Requested, and nothing was written yet." if requested else NOT_KEPT)
            return
        shown = [file for file in kept if file.what != TRACE]
        if shown:
            show_code(shown)
        for trace in kept:
            if trace.what == TRACE:
                show_trace(trace)


def show_code(files: Sequence[KeptFile]) -> None:
    named = {file.file: f"{file.what}, compilation {file.compile_id or 'none'}: {file.name}"
             for file in files}  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("File", list(named), format_func=named.__getitem__,
                              **bound("kept", files[0].file, list(named)))  # fmt: skip
        file = next(one for one in files if one.file == chosen)
        download("Download", partial(whole, file), file.name, "text/x-python")
    try:
        text = file.read(MAX_SHOWN).decode(errors="replace")
    except (RunnerError, OSError) as error:
        st.error(inert(permissions.redacted(error)), icon=":material/error:")
        return
    st.code(text, language="python", line_numbers=True, height=520)
    if file.num_bytes is not None and file.num_bytes > MAX_SHOWN:
        st.caption("The rest is in the file.")


def show_trace(trace: KeptFile) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f"Torch's structured trace, for {code('tlparse')}: {code(trace.file)}",
                   width="stretch")  # fmt: skip
        download("Trace", partial(whole, trace), trace.name, "text/plain")


def whole(file: KeptFile) -> bytes:
    """The content for a download, or the error if the file cannot be read any more."""
    try:
        return file.read(MAX_FILE)
    except (RunnerError, OSError) as error:
        return permissions.redacted(error).encode()


def show_code_difference(store: Store, one: RunRecord, other: RunRecord) -> None:
    """Shows graphs and code that differ between two runs which both stored them."""
    mine, its = kept_of(store, one), kept_of(store, other)
    if not mine or not its:
        st.caption("Graphs and generated code are compared where both runs keep them.")
        return
    try:
        found = code_difference(mine, its)
    except (RunnerError, OSError) as error:
        st.error(inert(permissions.redacted(error)), icon=":material/error:")
        return
    if not found:
        st.caption("Graphs and generated code are the same.")
    for name, text in found[:MAX_DIFFERENCES]:
        with st.expander(code(name)):
            st.code(text[:MAX_DIFFERENCE], language="diff")
    if len(found) > MAX_DIFFERENCES:
        st.caption(f"{len(found) - MAX_DIFFERENCES:,} more files differ.")
