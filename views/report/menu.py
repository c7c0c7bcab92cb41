"""What a page offers of a whole experiment: its files, made when somebody asks for them."""

from functools import partial

import streamlit as st

from storage.index.store import Store
from views.parts.downloads import NO_BROWSER, choose_style, download
from views.parts.drawing import browser, find_browser
from views.parts.exports import Origin, files_of
from views.parts.pictures import FORMATS, Style
from views.report.content import content
from views.report.everything import everything
from views.shared.inert import inert

ALL_HELP = "Every chart as a picture, every table and the data behind each chart in all formats."


@st.fragment
def show(store: Store, experiment_id: str, about: Origin) -> None:
    """A menu that is made once somebody opens it, without the rest of the page."""
    menu = st.popover("Take away", key="take-away", icon=":material/download:", on_change="rerun")
    if not menu.open:
        return
    browser.warm_up()
    with menu, files_of(about):
        st.markdown("**Everything** as files, in one archive", help=ALL_HELP)
        style = choose_style("everything")
        lacking = None if find_browser() else NO_BROWSER
        format = st.segmented_control(
            "Pictures", list(FORMATS), default="png", required=True, key="everything-format",
            format_func=lambda one: inert(one.upper()),
        )  # fmt: skip
        write = partial(_everything, store, experiment_id, str(format), style)
        download("Download the archive", write, "all.zip", "application/zip", unavailable=lacking)


def _everything(store: Store, experiment_id: str, format: str, style: Style) -> bytes:
    return everything(store, content(store, experiment_id), (format,), style)
