"""One HTML file of whole experiments, which opens without network and server.

Everything is inside: sentences and tables as HTML, figures and plotly.js packed, and the run
folders, which `breakeven import` extracts again. Its scripts carry a nonce that foreign text cannot
know; the page allows no other scripts and loads nothing from elsewhere.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import plotly

from breakeven.storage import queries
from breakeven.storage.exchange import reports
from breakeven.storage.exchange.run_folders import pack
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.recorded import NUMBERS, read_definitions
from breakeven.views.report.article import Article, of_experiment, of_suite
from breakeven.views.report.content import content
from breakeven.views.report.markup import paragraphs
from breakeven.views.shared.inert import Html, inert

HERE = Path(__file__).parent
STYLES = (HERE.parent / "shared" / "style.css", HERE / "report.css")
SCRIPTS = (
    HERE.parent / "charts" / "theme.js",
    HERE.parent / "charts" / "ranges.js",
    HERE / "report.js",
    HERE / "playback.js",
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
        folder for one in experiment_ids for folder in queries.list_runs(store, one)["folder"]
    )
    archive = pack(map(Path, folders), MAX_ARTIFACT_BYTES, MAX_BYTES)
    mark = hashlib.sha256(b"mark" + archive).hexdigest()[:32]
    articles = [of_suite(store, suite_run) for suite_run in suite_runs]
    for one in contents:
        go_on()
        articles.append(of_experiment(store, one, presents=not suite_runs))
    parts = [one.html for one in articles]
    figures = [figure for one in articles for figure in one.figures]
    others = f" and {len(articles) - 1} more" if len(articles) > 1 else ""
    title = f"{articles[0].title}{others}"
    policy = (
        f"default-src 'none'; script-src 'nonce-{mark}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    icon = base64.b64encode(ICON.read_bytes()).decode()
    anchors = dict.fromkeys(re.findall(r'href="#def-(\w+)"', "".join(parts)))
    return "".join([
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{inert(title)} \N{MIDDLE DOT} Breakeven</title>",
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">',
        "<style>", *(style.read_text() for style in STYLES), "</style></head>",
        '<body class="stApp report">', _bar(articles), "<main>", *parts,
        _definitions(anchors), _end(), "</main>", SHOW,
        _packed("plotly-js", _plotly_js()), _packed("figures", json.dumps(figures).encode()),
        reports.element(archive),
        *(f'<script nonce="{mark}">{script.read_text()}</script>' for script in SCRIPTS),
        "</body></html>\n",
    ])  # fmt: skip


@cache
def _plotly_js() -> bytes:
    return PLOTLY.read_bytes()


def _packed(name: Html, data: bytes) -> Html:
    """Data that scripts of the page unpack; browsers neither show nor execute the element."""
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{inert(packed)}</script>'


def _bar(articles: Sequence[Article]) -> Html:
    """Buttons for actions on the page, and links to its parts."""
    links = "".join(f'<a href="#{one.at}">{inert(one.title)}</a>' for one in articles)
    others = (
        f'<nav aria-label="Experiments">{links}</nav>' if 1 < len(articles) <= MAX_LINKS else ""
    )
    return (
        f'<header class="bar"><strong>Breakeven</strong>{others}<span class="actions">'
        '<button id="present" title="One idea a screen; arrow keys (P)">Present</button>'
        '<button id="theme" title="Light or dark (T)">Light / dark</button>'
        '<button id="print" title="As paper or PDF">Print</button>'
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
        "loads nothing from the network. <code>breakeven import FILE</code>, or Import on the "
        "dashboard, takes its runs in again. Charts are drawn by plotly.js, Copyright Plotly, "
        "Inc., under the MIT license.</p></footer>"
    )
