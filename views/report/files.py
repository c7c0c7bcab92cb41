"""Reports as files, of experiments and of whole suite runs: HTML, or the same printed as PDF."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from storage import queries
from storage.index.store import Store
from views.parts.drawing import NotDrawn, browser, find_browser
from views.report.document import report

READY = "drawAllForPaper()"
"""What `report.js` does before the page may be printed."""


def report_file(store: Store, asked: Sequence[str], suffix: str) -> bytes:
    """A report of experiments and suite runs by their ids; `suffix`: `.pdf`, or else HTML.

    Raises `NotInStore`, and `NotDrawn` where no browser prints it.
    """
    page = report_of(store, asked).encode(errors="replace")
    return _printed(page) if suffix.lower() == ".pdf" else page


def report_of(store: Store, asked: Sequence[str]) -> str:
    """The page; of a suite run it has all experiments. Raises `NotInStore`."""
    known = set(queries.list_suite_runs(store)["suite_run"])
    suite_runs = [one for one in dict.fromkeys(asked) if one in known]
    ids: dict[str, None] = {}
    for one in asked:
        mine = [one]
        if one in known:
            mine = list(queries.suite_experiments(store, one)["experiment_id"])
        ids |= dict.fromkeys(mine)
    return report(store, list(ids), suite_runs)


def _printed(page: bytes) -> bytes:
    if find_browser() is None:
        raise NotDrawn("a PDF needs Chromium or Chrome on this machine, and there is none")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.html")
        file.write_bytes(page)
        return browser.printed(file, READY)
