"""Lists run folders that cannot be used, with the reason; all other runs are shown."""

from pathlib import Path

import streamlit as st

from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.views.shared import words

SHOWN = 100
"""Most folders in the list."""


def show_damaged(store: Store) -> None:
    """Shows one expandable line; nothing if every folder could be read."""
    damaged = queries.unreadable(store)
    if damaged.empty:
        return
    title = f"{words.plural(len(damaged), 'run folder')} could not be read"
    listed = [
        f"{Path(one.folder).name}: {one.message.removeprefix(one.folder).lstrip('/ ')}"
        for one in damaged.head(SHOWN).itertuples()
    ]
    if len(damaged) > SHOWN:
        listed.append(f"and {len(damaged) - SHOWN:,} more, which `list --runs --all` names")
    with st.expander(title, icon=":material/folder_off:"):
        st.code("\n".join(listed), language=None, wrap_lines=True)
