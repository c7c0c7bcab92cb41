"""What a page offers of a whole experiment: its files, made when somebody asks for them."""

from functools import partial

import streamlit as st

from storage.index.store import Store
from views.access.asking import DRAWN, LONG
from views.parts.downloads import NO_BROWSER, choose_style, download
from views.parts.drawing import browser, find_browser
from views.parts.exports import Origin, files_of
from views.parts.pictures import FORMATS, Style
from views.report.content import content
from views.report.everything import everything
from views.report.files import MAX_EXPERIMENTS, report_file
from views.report.serving import address
from views.shared.inert import inert

REPORTS = {"html": "text/html", "pdf": "application/pdf"}
REPORT_HELP = (
    "Answer, table, charts that move, doubts, settings and the command to run it again. The HTML "
    "opens without a network, presents itself (key P), and can be imported again: the runs are "
    "inside, with the names, paths and logs of the machine that they ran on."
)
REPORT_LINK_HELP = "All of it on one page that can be sent as a link."
PRESENT_HELP = (
    "One idea a screen, by arrow keys, from the question to what to do; runs are played back."
)
TOO_MANY = f"A report has at most {MAX_EXPERIMENTS:,} experiments."
ALL_HELP = "Every chart as a picture, every table and the data behind each chart in all formats."


def links(*asked: str) -> None:
    """Leads to the report of experiments or suite runs as a page, and to its first screen for a
    projector."""
    too_many = TOO_MANY if len(asked) > MAX_EXPERIMENTS else None
    st.link_button("Present", address(*asked[:MAX_EXPERIMENTS], presenting=True), type="tertiary",
                   icon=":material/slideshow:", help=too_many or PRESENT_HELP,
                   disabled=too_many is not None)  # fmt: skip
    st.link_button("Report", address(*asked[:MAX_EXPERIMENTS]), type="tertiary",
                   icon=":material/article:", disabled=too_many is not None,
                   help=too_many or REPORT_LINK_HELP)  # fmt: skip


@st.fragment
def show(store: Store, asked: str, about: Origin, *, is_suite: bool = False) -> None:
    """A menu that is made once somebody opens it, without the rest of the page; `asked`: the id of
    an experiment or of a suite run."""
    menu = st.popover("Take away", key="take-away", icon=":material/download:", on_change="rerun")
    if not menu.open:
        return
    browser.warm_up()
    with menu, files_of(about):
        st.markdown("**The report**: all of it in one file", help=REPORT_HELP)
        lacking = None if find_browser() else NO_BROWSER
        with st.container(horizontal=True):
            for suffix, mime in REPORTS.items():
                write = partial(report_file, store, [asked], f".{suffix}", MAX_EXPERIMENTS)
                none = lacking if suffix == "pdf" else None
                download(inert(suffix.upper()), write, f"report.{suffix}", mime, unavailable=none,
                         places=DRAWN if suffix == "pdf" else LONG)  # fmt: skip
        if is_suite:
            return
        st.markdown("**Everything** as files, in one archive", help=ALL_HELP)
        style = choose_style("everything")
        format = st.segmented_control(
            "Pictures", list(FORMATS), default="png", required=True, key="everything-format",
            format_func=lambda one: inert(one.upper()),
        )  # fmt: skip
        write = partial(_everything, store, asked, str(format), style)
        download("Download the archive", write, "all.zip", "application/zip", unavailable=lacking,
                 places=DRAWN)  # fmt: skip


def _everything(store: Store, experiment_id: str, format: str, style: Style) -> bytes:
    return everything(store, content(store, experiment_id), (format,), style)
