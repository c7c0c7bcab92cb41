"""How much disk all experiments take, and what lies in the trash."""

import pandas as pd
import streamlit as st

from runner.folders import library
from storage.index.store import Store
from storage.numbers.formats import format_bytes
from views.access import permissions
from views.parts.actions import errors_said
from views.shared import words
from views.shared.inert import inert
from views.shared.links import linked
from views.shared.resources import data_dir, take_in


def show(store: Store, frame: pd.DataFrame) -> None:
    """A popover: sizes of what is listed, and the trash with a way back for each."""
    with st.popover("Disk", icon=":material/storage:", width="content"):
        _show_sizes(frame)
        deleted = library.trash(data_dir())
        if not deleted:
            st.caption("The trash is empty.")
            return
        st.markdown(f"**Trash: {words.plural(len(deleted), 'experiment')}**")
        for one in deleted[:20]:
            with st.container(horizontal=True, vertical_alignment="center"):
                when = words.moment(pd.Timestamp(one.deleted, unit="s", tz="UTC"))
                st.markdown(f"{inert(one.name)} · deleted {when}")
                if permissions.may_act() and st.button("Restore", key=f"restore-{one.folder.name}"):
                    permissions.require_acting()
                    with errors_said():
                        library.restore(data_dir(), one.experiment_id)
                        take_in(store.ingest_all)
                        st.rerun()
        if permissions.may_act() and st.button("Empty the trash", key="empty-trash",
                                               help="Removes them for good."):  # fmt: skip
            permissions.require_acting()
            with errors_said():
                library.empty_trash(data_dir())
                st.rerun()


def _show_sizes(frame: pd.DataFrame) -> None:
    names = {"total_bytes": "All files", "checkpoint_bytes": "of these checkpoints",
             "artifact_bytes": "other artifacts"}  # fmt: skip
    known = frame["total_bytes"].notna()
    sums = {title: float(frame[name].fillna(0).sum()) for name, title in names.items()}
    told = [f"{title} {linked('disk_bytes', format_bytes(total))}" for title, total in sums.items()]
    missing = int((~known & frame["experiment_id"].notna()).sum())
    more = f" {words.plural(missing, 'experiment')} not measured yet." if missing else ""
    st.markdown(f"{', '.join(told)}.{more}")
    st.caption("Checkpoints take the most and results do not need them: tick experiments, then "
               "“Free space”.")  # fmt: skip
