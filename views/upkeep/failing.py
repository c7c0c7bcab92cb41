"""The message to a reader if a page fails unexpectedly."""

from traceback import format_exception

import streamlit as st

from breakeven.runner.logs import log
from breakeven.views.access import permissions
from breakeven.views.shared.inert import Markdown, inert

FOR_VIEWERS: Markdown = (
    "This page failed. The dashboard's log has the reason for the administrator."
)


def show_failure(error: Exception) -> bool:
    """Logs the error. Users who may act see all of it; others only see that the page failed: a
    traceback contains paths, sources and values, and a forged message can provoke it. Returns True,
    so that Streamlit shows nothing itself."""
    log.error("a page failed: %s", error, exc_info=error)
    if permissions.may_act():
        st.error(f"This page failed: {inert(error)}", icon=":material/error:")
        st.code("".join(format_exception(error)), language="pytb", wrap_lines=True)
    else:
        st.error(FOR_VIEWERS, icon=":material/error:")
    return True
