"""Reports as files, of experiments and of whole suite runs: HTML, or the same printed as PDF."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from storage import queries
from storage.index.store import Store
from views.parts.drawing import NotDrawn, browser, find_browser
from views.report.document import report

MAX_KEPT = 3
"""Pages; one of a usual experiment has 3 MB."""
_kept: WeakKeyDictionary[Store, dict[tuple[Any, ...], str]] = WeakKeyDictionary()
READY = "drawAllForPaper()"
"""What `report.js` does before the page may be printed."""


def report_file(store: Store, asked: Sequence[str], suffix: str) -> bytes:
    """A report of experiments and suite runs by their ids; `suffix`: `.pdf`, or else HTML.

    Raises `NotInStore`, and `NotDrawn` where no browser prints it.
    """
    page = report_of(store, asked).encode(errors="replace")
    return _printed(page) if suffix.lower() == ".pdf" else page


def report_of(store: Store, asked: Sequence[str]) -> str:
    """The page; of a suite run it has all experiments. The last few are kept, until the store takes
    in something new of them. Raises `NotInStore`, `NotExportable`."""
    known = set(queries.list_suite_runs(store)["suite_run"])
    suite_runs = [one for one in dict.fromkeys(asked) if one in known]
    ids: dict[str, None] = {}
    for one in asked:
        mine = [one]
        if one in known:
            mine = list(queries.suite_experiments(store, one)["experiment_id"])
        ids |= dict.fromkeys(mine)
    kept = _kept.setdefault(store, {})
    version = tuple(_version(store, one) for one in (*suite_runs, *ids))
    if version not in kept:
        page = report(store, list(ids), suite_runs)
        while len(kept) >= MAX_KEPT:
            kept.pop(next(iter(kept)), None)
        kept[version] = page
    return kept[version]


def _version(store: Store, experiment_id: str) -> tuple[Any, ...]:
    """Another one once anything of an experiment has changed, what people call it too."""
    labels = store.query(
        "SELECT run_id, content FROM labels WHERE starts_with(run_id, ?)", [f"{experiment_id}."]
    )
    return experiment_id, queries.revision(store, experiment_id), *labels.itertuples(index=False)


def _printed(page: bytes) -> bytes:
    if find_browser() is None:
        raise NotDrawn("a PDF needs Chromium or Chrome on this machine, and there is none")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.html")
        file.write_bytes(page)
        return browser.printed(file, READY)
