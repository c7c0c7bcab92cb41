"""Who did what, on the page System: the latest first, searched, and taken away."""

import pandas as pd
import streamlit as st

from breakeven.runner.folders import audit
from breakeven.runner.texts import printable
from breakeven.views.parts import downloads
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown
from breakeven.views.shared.resources import data_dir

MAX_SHOWN = 500
TITLES: dict[str, Markdown] = {
    "time": "When", "who": "Who", "from": "From", "via": "By", "action": "Did",
    "about": "To what", "details": "Details",
}  # fmt: skip


def show_history() -> None:
    """For operators: it names people."""
    entries = audit.entries(data_dir())
    if not entries:
        st.caption("Nobody did anything yet.")
        return
    word = st.text_input("Of whom, what, or about what", key="history.word", width=300)
    frame = pd.DataFrame([audit.flat(entry) for entry in entries])
    if word:
        lines = frame.astype(str).agg(" ".join, axis=1).str.lower()
        frame = frame[lines.str.contains(word.lower(), regex=False)]
    shown = frame.head(MAX_SHOWN)
    many = words.plural(len(frame), "action")
    more = f", the latest {MAX_SHOWN} of them here" if len(frame) > MAX_SHOWN else ""
    st.caption(f"{many}, the latest first{more}; on a terminal: `breakeven audit`")
    with st.container(horizontal=True):
        downloads.table_downloads(frame, "audit")
    st.dataframe(
        shown.drop(columns="subject").map(lambda text: printable(text, 400)).rename(columns=TITLES),
        hide_index=True, height=min(480, 38 + 35 * len(shown)),
    )  # fmt: skip
