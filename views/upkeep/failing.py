"""What a reader sees where a page met what nobody expected."""

from traceback import format_exception

import streamlit as st

from breakeven.runner.logs import log
from breakeven.views.access import permissions
from breakeven.views.shared.inert import Markdown, inert

FOR_VIEWERS: Markdown = "This page failed. Whoever runs this dashboard finds the reason in its log."


def show_failure(error: Exception) -> bool:
    """Logs the error. Whoever may act here reads all of it on the page; others read that there is
    one: a traceback tells paths, sources and whatever stood in a value, and a message that no page
    sends can provoke it. True: Streamlit shows nothing itself."""
    log.error("a page failed: %s", error, exc_info=error)
    if permissions.may_act():
        st.error(f"This page failed: {inert(error)}", icon=":material/error:")
        st.code("".join(format_exception(error)), language="pytb", wrap_lines=True)
    else:
        st.error(FOR_VIEWERS, icon=":material/error:")
    return True
