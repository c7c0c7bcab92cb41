"""Reports of experiments and of whole suite runs as HTML pages, which open without network and
server.

Everything is inside: sentences and tables as HTML, figures and plotly.js packed, and the run
folders, which `breakeven data import` extracts again. Its scripts carry a nonce that foreign text
cannot know; the page allows no other scripts and loads nothing from elsewhere.
"""

import base64
import gzip
import hashlib
import json
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from pathlib import Path

import plotly

from breakeven.runner.errors import RunnerError
from breakeven.storage import queries
from breakeven.storage.errors import NotExportable
from breakeven.storage.exchange.run_folders import pack
from breakeven.storage.exchange.runs_in_report import report_element
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import NUMBERS, read_definitions
from breakeven.storage.result_caches import remembered
from breakeven.views.report.content import Article, content, of_experiment, of_suite
from breakeven.views.report.markup import paragraphs
from breakeven.views.shared.inert import Html, inert

HERE = Path(__file__).parent
STYLES = (HERE.parent / "shared" / "style.css", HERE / "report.css")
SCRIPTS = (
    HERE.parent / "charts" / "theme.js",
    HERE.parent / "charts" / "ranges.js",
    HERE / "report.js",
    HERE / "present.js",
)
ICON = HERE.parent / "shared" / "icon.svg"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
SHOW = '<div id="show" role="dialog" aria-modal="true" aria-label="Presentation" hidden></div>'
MAX_LINKS = 12
"""Most links in the bar at the top; a suite run has a table with links to its experiments."""
MAX_BYTES = 100 * 2**20
"""Most packed bytes of all run folders in a report."""
MAX_ARTIFACT_BYTES = 2_000_000
"""Most bytes of an artifact in a report; larger ones are left out."""


def report(
    store: Store,
    experiment_ids: Sequence[str],
    suite_runs: Sequence[str] = (),
    go_on: Callable[[], None] = lambda: None,
) -> str:
    """The whole page, suite runs first; raises `NotInStore`, `NotExportable`, and any exception of
    `go_on`, which is called before each experiment is read and written."""
    contents = []
    for experiment_id in experiment_ids:
        go_on()
        contents.append(content(store, experiment_id))
    folders = (
        folder
        for experiment_id in experiment_ids
        for folder in queries.list_runs(store, experiment_id)["folder"]
    )
    archive = pack(map(Path, folders), MAX_ARTIFACT_BYTES, MAX_BYTES)
    mark = hashlib.sha256(b"mark" + archive).hexdigest()[:32]
    articles = [of_suite(store, suite_run) for suite_run in suite_runs]
    for experiment in contents:
        go_on()
        articles.append(of_experiment(store, experiment, presents=not suite_runs))
    parts = [article.html for article in articles]
    figures = [figure for article in articles for figure in article.figures]
    others = f" and {len(articles) - 1} more" if len(articles) > 1 else ""
    title = f"{articles[0].title}{others}"
    policy = (
        f"default-src 'none'; script-src 'nonce-{mark}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    icon = base64.b64encode(ICON.read_bytes()).decode()
    anchors = dict.fromkeys(re.findall(r'href="#def-(\w+)"', "".join(parts)))
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{inert(title)} \N{MIDDLE DOT} Breakeven</title>",
            f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">',
            "<style>",
            *(style.read_text() for style in STYLES),
            "</style></head>",
            '<body class="stApp report">',
            _bar(articles),
            "<main>",
            *parts,
            _definitions(anchors),
            _end(),
            "</main>",
            SHOW,
            _packed("plotly-js", _plotly_js()),
            _packed("figures", json.dumps(figures).encode()),
            report_element(archive),
            *(f'<script nonce="{mark}">{script.read_text()}</script>' for script in SCRIPTS),
            "</body></html>\n",
        ]
    )


@cache
def _plotly_js() -> bytes:
    return PLOTLY.read_bytes()


def _packed(name: Html, data: bytes) -> Html:
    """Data that scripts of the page unpack; browsers neither show nor execute the element."""
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{inert(packed)}</script>'


def _bar(articles: Sequence[Article]) -> Html:
    """Buttons for actions on the page, and links to its parts."""
    links = "".join(
        f'<a href="#{article.anchor}">{inert(article.title)}</a>' for article in articles
    )
    others = (
        f'<nav aria-label="Experiments">{links}</nav>' if 1 < len(articles) <= MAX_LINKS else ""
    )
    return (
        f'<header class="bar"><strong>Breakeven</strong>{others}<span class="actions">'
        '<button id="present" title="Slides; arrow keys turn them (P)">Present</button>'
        '<button id="theme" title="Light or dark (T)">Light / dark</button>'
        '<button id="print" title="On paper or as PDF">Print</button>'
        '<button id="data" title="The run folders, as a ZIP archive">Data</button>'
        "</span></header>"
    )


def _definitions(anchors: Iterable[str]) -> Html:
    """Definitions that something on the page links to."""
    known = read_definitions()
    titles = {number.anchor: number.title for number in NUMBERS.values()}
    definitions = "".join(
        f'<h3 id="def-{inert(anchor)}">{inert(titles.get(anchor, anchor))}</h3>'
        f'<p class="lines">{paragraphs(known[anchor])}</p>'
        for anchor in anchors
        if anchor in known
    )
    return f'<section class="definitions"><h2>Definitions</h2>{definitions}</section>'


def _end() -> Html:
    return (
        '<footer class="quiet"><p>Written by Breakeven. This file contains all that it shows and '
        "loads nothing from the network. <code>breakeven data import FILE</code>, or Import on the "
        "dashboard, imports its runs again. Charts are drawn by plotly.js, Copyright Plotly, "
        "Inc., under the MIT license.</p></footer>"
    )


MAX_EXPERIMENTS = 100
"""Most experiments of a report from a page; each takes a second or more. The report of a suite run
has all of its experiments, as has a report from the command line."""
MANY = 4
"""Reports of more experiments than this are made one at a time, and do not delay smaller ones."""
_turns = {is_long: threading.Lock() for is_long in (False, True)}
"""Locks for one short and one long report at a time: more at once would all be late."""


class NotWanted(RunnerError):
    """The reader who requested a report has left."""


def report_of(
    store: Store,
    requested: Sequence[str],
    most: int | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> str:
    """The page with the given experiments and all experiments of the given suite runs, cached until
    the store ingests new rows of them.

    `most`: the largest number of experiments, unless a single suite run has more. `is_wanted` is
    called before each experiment. Raises `NotInStore`, `NotExportable`, `NotWanted`.
    """
    known = set(queries.list_suite_runs(store)["suite_run"])
    suite_runs = [name for name in dict.fromkeys(requested) if name in known]
    ids: dict[str, None] = {}
    for requested_id in requested:
        experiments = [requested_id]
        if requested_id in known:
            experiments = list(queries.suite_experiments(store, requested_id)["experiment_id"])
        ids |= dict.fromkeys(experiments)
    is_one_suite_run = len(requested) == 1 and bool(suite_runs)
    if most is not None and len(ids) > most and not is_one_suite_run:
        raise NotExportable(f"a page has at most {most:,} experiments; this asks for {len(ids):,}")
    with _turns[len(ids) > MANY]:
        return _report_page(store, list(ids), suite_runs, is_wanted)


def _report_page(
    store: Store, ids: Sequence[str], suite_runs: Sequence[str], is_wanted: Callable[[], bool]
) -> str:
    def go_on() -> None:
        if not is_wanted():
            raise NotWanted("the reader who requested the report has left")

    go_on()  # The experiments above took a while.
    return remembered(
        ("report", store.id, tuple(ids), tuple(suite_runs)),
        lambda: _version(store, ids, suite_runs),
        lambda: report(store, ids, suite_runs, go_on),
    )


def _version(store: Store, ids: Sequence[str], suite_runs: Sequence[str]) -> Hashable:
    """Changes with any change of the experiments, their labels included."""
    return tuple(_state(store, name) for name in (*suite_runs, *ids))


def _state(store: Store, experiment_id: str) -> Hashable:
    labels = store.query(
        "SELECT run_id, content FROM labels WHERE starts_with(run_id, ?)", [f"{experiment_id}."]
    )
    return experiment_id, queries.revision(store, experiment_id), *labels.itertuples(index=False)
