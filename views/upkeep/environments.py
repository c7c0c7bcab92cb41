"""The environments of the data folder: their requirements and disk space, and their removal."""

from functools import lru_cache
from pathlib import Path

import streamlit as st

from breakeven.runner.folders.library import size_of
from breakeven.runner.machine.environments import UvEnvironment, remove, uv_environments
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_bytes
from breakeven.views.access import permissions
from breakeven.views.parts.actions import errors_shown
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import linked
from breakeven.views.shared.resources import data_dir

HOW = (
    "`--environment NAME=REQUIREMENTS` of `breakeven compare` and `breakeven script` makes an "
    "environment. Each backend then runs in every environment of the experiment."
)


def show_environments(store: Store) -> None:
    """Lists the environments, each with a button that removes it."""
    known = uv_environments(data_dir())
    if not known:
        st.markdown("**There are no environments.**")
        st.caption(HOW)
        return
    sizes = {one.name: _size(one.folder, one.folder.stat().st_mtime_ns) for one in known}
    total = linked("disk_bytes", format_bytes(sum(sizes.values())))
    st.markdown(f"**{words.plural(len(known), 'environment')}** with {total}.")
    st.caption(HOW)
    for one in known:
        with st.container(horizontal=True, vertical_alignment="center",
                          horizontal_alignment="distribute", border=True):  # fmt: skip
            needs = inert(", ".join(one.requirements.split()))
            size = format_bytes(sizes[one.name])
            st.markdown(f"**{inert(one.name)}** · {size} · {needs}", width="content")
            if permissions.may_act():
                _ask_removal(one)


def _ask_removal(one: UvEnvironment) -> None:
    with st.popover("Remove", icon=":material/delete:", width="content"):
        st.markdown("Results of its runs stay, but these runs cannot be resumed or repeated.")
        if st.button("Remove it", type="primary", key=f"remove-environment-{one.name}"):
            permissions.require_acting()
            with errors_shown():
                remove(data_dir(), one)
                st.rerun()


@lru_cache(64)
def _size(folder: Path, changed: int) -> int:
    """Bytes on the disk. `changed`: time stamp of the folder; a made environment stays the same."""
    return size_of(folder)
