"""Disk space of all experiments, and the content of the trash."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.runner.folders import library
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_bytes
from breakeven.views.access import permissions
from breakeven.views.parts.actions import errors_shown
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert, plain
from breakeven.views.shared.links import linked
from breakeven.views.shared.resources import data_dir, take_in
from breakeven.views.shared.selection import distinct

MAX_LISTED = 20
"""Most deleted experiments in the list, the latest first."""


def show(store: Store, frame: pd.DataFrame) -> None:
    """A popover: sizes of the listed experiments, and the trash with a button to restore each."""
    with st.popover("Disk", icon=":material/storage:", width="content"):
        _show_sizes(frame)
        deleted = library.trash(data_dir())
        if not deleted:
            st.caption("The trash is empty.")
            return
        st.markdown(f"**Trash: {words.plural(len(deleted), 'experiment')}**")
        _show_deleted(store, deleted[:MAX_LISTED])
        if len(deleted) > MAX_LISTED:
            st.caption(f"The latest {MAX_LISTED} are listed.")
        if permissions.may_act() and st.button("Empty the trash", key="empty-trash",
                                               help="Deletes them permanently."):  # fmt: skip
            permissions.require_acting()
            with errors_shown():
                library.empty_trash(data_dir())
                st.rerun()


def _show_deleted(store: Store, deleted: Sequence[library.Deleted]) -> None:
    # Of several deleted experiments with one id, only the latest can be restored.
    latest = {one.experiment_id: one for one in reversed(deleted)}
    descriptions = distinct({
        key: f"{plain(one.name)} · deleted "
        + words.moment(pd.Timestamp(one.deleted, unit="s", tz="UTC"))
        for key, one in latest.items()
    })  # fmt: skip
    for key in reversed(latest):
        with st.container(horizontal=True, vertical_alignment="center",
                          horizontal_alignment="distribute"):  # fmt: skip
            st.markdown(inert(descriptions[key]), width="content")
            if permissions.may_act() and st.button("Restore", key=f"restore-{key}"):
                permissions.require_acting()
                with errors_shown():
                    library.restore(data_dir(), key)
                    take_in(store.ingest_all)
                    st.rerun()


def _show_sizes(frame: pd.DataFrame) -> None:
    names = {"total_bytes": "All files", "checkpoint_bytes": "of these checkpoints",
             "artifact_bytes": "other artifacts"}  # fmt: skip
    known = frame["total_bytes"].notna()
    sums = {title: float(frame[name].fillna(0).sum()) for name, title in names.items()}
    totals = [
        f"{title} {linked('disk_bytes', format_bytes(total))}" for title, total in sums.items()
    ]
    missing = int((~known & frame["experiment_id"].notna()).sum())
    more = f" {words.plural(missing, 'experiment')} not measured yet." if missing else ""
    st.markdown(f"{', '.join(totals)}.{more}")
    st.caption("Checkpoints take the most and results do not need them: tick experiments, then "
               "“Free space”.")  # fmt: skip
