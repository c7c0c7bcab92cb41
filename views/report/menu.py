"""Links and downloads for a whole experiment on its page; files are made on request."""

from functools import partial

import streamlit as st

from breakeven.storage.index.store import Store
from breakeven.views.parts.downloads import NO_BROWSER, choose_style, download
from breakeven.views.parts.exports import Origin, files_of
from breakeven.views.parts.pictures import FORMATS, Style, find_browser
from breakeven.views.report.content import content
from breakeven.views.report.everything import everything
from breakeven.views.report.files import MAX_EXPERIMENTS, report_of
from breakeven.views.report.serving import address
from breakeven.views.shared.inert import inert

REPORT_HELP = (
    "Answer, table, charts that move, doubts, settings and the command to run it again. The HTML "
    "opens without a network, presents itself (key P), and can be imported again: the runs are "
    "inside, with the names, paths and logs of the machine that they ran on. For a PDF, open the "
    "report and print it."
)
REPORT_LINK_HELP = "All of it on one page that can be sent as a link."
PRESENT_HELP = (
    "One idea a screen, by arrow keys, from the answer to what to do; runs are played back."
)
TOO_MANY = f"A report has at most {MAX_EXPERIMENTS:,} experiments."
ALL_HELP = (
    "Every chart as a picture, every table and the data behind each chart as CSV and Parquet."
)


def links(*ids: str) -> None:
    """Links to the report of experiments or suite runs as a page, and to its first screen for a
    projector."""
    too_many, ids = len(ids) > MAX_EXPERIMENTS, ids[:MAX_EXPERIMENTS]
    st.link_button("Present", address(*ids, presenting=True), type="tertiary", disabled=too_many,
                   icon=":material/slideshow:",
                   help=TOO_MANY if too_many else PRESENT_HELP)  # fmt: skip
    st.link_button("Report", address(*ids), type="tertiary", disabled=too_many,
                   icon=":material/article:",
                   help=TOO_MANY if too_many else REPORT_LINK_HELP)  # fmt: skip


@st.fragment
def show(store: Store, requested: str, about: Origin, *, is_suite: bool = False) -> None:
    """A menu that is made once it is open, without the rest of the page. `requested`: the id of an
    experiment or of a suite run."""
    menu = st.popover("Export", key="export", icon=":material/download:", on_change="rerun")
    if not menu.open:
        return
    with menu, files_of(about):
        st.markdown("**The report**: all of it in one file", help=REPORT_HELP)
        download("HTML", partial(_report, store, requested), "report.html", "text/html")
        if is_suite:
            return
        lacking = None if find_browser() else NO_BROWSER
        st.markdown("**Everything** as files, in one archive", help=ALL_HELP)
        style = choose_style("everything")
        format = st.segmented_control(
            "Pictures", list(FORMATS), default="png", required=True, key="everything-format",
            format_func=lambda one: inert(one.upper()),
        )  # fmt: skip
        write = partial(_everything, store, requested, str(format), style)
        download("Download the archive", write, "all.zip", "application/zip", unavailable=lacking)


def _report(store: Store, requested: str) -> bytes:
    return report_of(store, [requested], MAX_EXPERIMENTS).encode(errors="replace")


def _everything(store: Store, experiment_id: str, format: str, style: Style) -> bytes:
    return everything(store, content(store, experiment_id), (format,), style)
