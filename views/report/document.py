"""One HTML file of whole experiments: it opens without a network and without us.

All is inside: sentences and tables as HTML, figures and plotly.js packed, and the run folders,
which `python -m storage import` takes out again. Its scripts carry a mark that no foreign text can
know, and the page allows no others and nothing from anywhere else.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import plotly

from storage import queries
from storage.exchange import reports
from storage.exchange.run_folders import pack
from storage.index.store import Store
from storage.numbers.metrics import DASH
from storage.numbers.recorded import NUMBERS, read_definitions
from views.parts.exports import for_export
from views.report.content import Content, Table, content
from views.report.markup import html, inert_lines, paragraphs
from views.report.replay import replay
from views.report.slides import Slide, on_a_slide, slides
from views.shared.inert import Html, Markdown, inert, inert_figure

HERE = Path(__file__).parent
STYLES = (HERE.parent / "shared" / "style.css", HERE / "report.css")
SCRIPTS = (HERE / "report.js", HERE / "replay.js", HERE / "present.js")
ICON = HERE.parent / "shared" / "icon.svg"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
MAX_ARTIFACT_BYTES = 2_000_000
"""Of a file that a run left and that travels in a report; larger ones stay behind."""
MAX_ROWS = 200
"""Of a table that is read; its data have all of them."""


def report(store: Store, experiment_ids: Sequence[str]) -> str:
    """The whole page; raises `NotInStore`."""
    contents = [content(store, experiment_id) for experiment_id in experiment_ids]
    archive = pack(_folders(store, experiment_ids), MAX_ARTIFACT_BYTES)
    mark = hashlib.sha256(b"mark" + archive).hexdigest()[:32]
    figures: list[dict[str, Any]] = []
    parts = [_article(store, one, number, figures) for number, one in enumerate(contents)]
    title = contents[0].spec.name if len(contents) == 1 else f"{len(contents)} experiments"
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
        '<body class="stApp report">', _bar(contents), "<main>", *parts,
        _definitions(anchors), _end(), "</main>", '<div id="show" hidden></div>',
        _packed("plotly-js", _plotly_js()), _packed("figures", json.dumps(figures).encode()),
        reports.element(archive),
        *(f'<script nonce="{mark}">{script.read_text()}</script>' for script in SCRIPTS),
        "</body></html>\n",
    ])  # fmt: skip


def _folders(store: Store, experiment_ids: Sequence[str]) -> Iterator[Path]:
    for experiment_id in experiment_ids:
        yield from (Path(folder) for folder in queries.list_runs(store, experiment_id)["folder"])


@cache
def _plotly_js() -> bytes:
    return PLOTLY.read_bytes()


def _packed(name: Html, data: bytes) -> Html:
    """Data that scripts of the page unpack; browsers neither show nor execute the element."""
    packed = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{inert(packed)}</script>'


def _bar(contents: Sequence[Content]) -> Html:
    """What can be done with the page, and where its experiments are."""
    links = "".join(
        f'<a href="#x{inert(number)}">{inert(one.spec.name)}</a>'
        for number, one in enumerate(contents)
    )
    others = f'<nav aria-label="Experiments">{links}</nav>' if len(contents) > 1 else ""
    return (
        f'<header class="bar"><strong>Breakeven</strong>{others}<span class="actions">'
        '<button id="present" title="One idea a screen; arrow keys (P)">Present</button>'
        '<button id="theme" title="Light or dark (T)">Light / dark</button>'
        '<button id="print" title="As paper or PDF">Print</button>'
        '<button id="data" title="The run folders, as a ZIP archive">Data</button>'
        "</span></header>"
    )


def _article(store: Store, one: Content, number: int, figures: list[dict[str, Any]]) -> Html:
    """An experiment, from its answer to its specification."""
    told, at = one.told, f"x{number}"
    for card in told.cards:
        figures.append({
            "id": _place(at, card.name),
            "figures": {title: _figure(draw()) for title, draw in card.figures.items()},
        })  # fmt: skip
    played = replay(store, one.experiment_id) if one.spec.kind.compares_runs else None
    figures.append({"id": f"{at}-replay", "replay": played})
    facts = "".join(
        f"<tr><th>{inert(name)}</th><td>{inert(value)}</td></tr>" for name, value in one.facts
    )
    return "".join([
        f'<article id="{at}"><p class="quiet">{html(one.provenance)}</p>',
        f"<h1>{inert(one.spec.name)}</h1>",
        f'<p class="answer">{html(told.headline)}</p>', _linked_here(told.leaderboard),
        *(f'<p class="quiet">{html(said)}</p>' for said in told.captions),
        _doubts(told.doubts),
        '<section class="charts">',
        *(_chart(_place(at, card.name), card.title, card.figures, html(card.explanation))
          for card in told.cards),
        "</section>",
        _replay_place(at) if played else "",
        *(_table(table) for table in told.tables),
        "<h2>The same again</h2><p>Without the browser, with every setting that differs from its "
        f"default:</p><pre>{inert_lines(one.command)}</pre>",
        "<details><summary>All settings</summary>"
        f"<pre>{inert_lines(one.spec.to_json())}</pre></details>",
        "<details><summary>Machine, software, model and data</summary>"
        f'<div class="leaderboard"><table class="facts">{facts}</table></div></details>',
        f'<template class="slides" data-name="{inert(one.spec.name)}">',
        *(_slide(one, slide, at) for slide in slides(one)),
        "</template></article>",
    ])  # fmt: skip


def _place(at: Html, name: str) -> Html:
    """Where a chart of an experiment is found."""
    return f"{at}-{inert(name)}"


def _linked_here(leaderboard: Html) -> Html:
    """Its links lead to the definitions in this file."""
    return leaderboard.replace('target="_blank" href="definitions#', 'href="#def-')


def _doubts(doubts: Sequence[Markdown]) -> Html:
    listed = "".join(f"<li>{html(doubt)}</li>" for doubt in doubts)
    return f'<aside class="doubts"><ul>{listed}</ul></aside>' if listed else ""


def _chart(place: Html, title: Markdown, figures: Iterable[str], explained: Html) -> Html:
    named = [inert(one) for one in figures if one]
    choice = "".join(f'<button data-figure="{name}">{name}</button>' for name in named)
    return (
        f'<figure class="chart" data-chart="{place}"><figcaption><strong>{html(title)}</strong>'
        f'<span class="choice">{choice}</span></figcaption><div class="plot" role="img" '
        f'aria-label="{html(title)}"></div><details><summary>What it shows</summary>'
        f"<p>{explained}</p></details></figure>"
    )


def _replay_place(at: Html) -> Html:
    return (
        '<h2>As it went</h2><p class="quiet">Who had the turn, which compilers were at work, how '
        "the losses fell, from the times in the journals.</p>"
        f'<div class="replay" data-replay="{at}-replay"></div>'
    )


def _table(table: Table) -> Html:
    """As it is read; numbers to the right, written as pages write them."""
    frame = table.shown.drop(columns=["run_id", "label", "role"], errors="ignore")
    if frame.empty:
        return ""
    names = [str(name) for name in frame.columns]
    head = "".join(f"<th>{inert(_title(name))}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(*pair)}</td>' for pair in zip(names, row, strict=True))}</tr>"
        for row in frame.head(MAX_ROWS).itertuples(index=False)
    )
    more = len(frame) - MAX_ROWS
    note = f'<p class="quiet">and {more:,} more rows</p>' if more > 0 else ""
    return (
        f'<h2>{html(table.title)}</h2><div class="leaderboard" tabindex="0" role="region" '
        f'aria-label="{html(table.title)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _title(name: str) -> str:
    return NUMBERS[name].title if name in NUMBERS else name.replace("_", " ").capitalize()


def _cell(name: str, value: Any) -> Html:
    if isinstance(value, str):
        return inert(value)
    if value is None or (not isinstance(value, list | tuple | dict) and pd.isna(value)):
        return DASH
    is_number = name in NUMBERS and isinstance(value, int | float) and not isinstance(value, bool)
    return inert(NUMBERS[name].format(value) if is_number else value)


def _slide(one: Content, slide: Slide, at: Html) -> Html:
    said = "".join(f"<p>{html(text)}</p>" for text in slide.sentences)
    shown = {
        "leaderboard": _linked_here(on_a_slide(one.comparison)),
        "replay": f'<div class="replay" data-replay="{at}-replay"></div>',
        "command": f"<pre>{inert_lines(one.command)}</pre>",
        "": "",
    }[slide.shows]
    if slide.chart:
        place, figure = _place(at, slide.chart), inert(slide.figure)
        shown = f'<div class="plot" data-chart="{place}" data-figure="{figure}"></div>'
    kind = "slide" if shown else "slide statement"
    return f'<section class="{kind}"><h2>{html(slide.title)}</h2>{said}{shown}</section>'


def _figure(figure: Any) -> dict[str, Any]:
    """As plotly.js reads it, without a theme: the page has its own."""
    plain = inert_figure(for_export(figure)).update_layout(template=None)
    found: dict[str, Any] = json.loads(plain.to_json())
    return found


def _definitions(anchors: Iterable[str]) -> Html:
    """Those to which something on the page leads."""
    known = read_definitions()
    titles = {number.anchor: number.title for number in NUMBERS.values()}
    told = "".join(
        f'<h3 id="def-{inert(anchor)}">{inert(titles.get(anchor, anchor))}</h3>'
        f'<p class="lines">{paragraphs(known[anchor])}</p>'
        for anchor in anchors
        if anchor in known
    )
    return f'<section class="definitions"><h2>Definitions</h2>{told}</section>'


def _end() -> Html:
    return (
        '<footer class="quiet"><p>Written by Breakeven. This file has all that it shows inside and '
        "asks nobody for anything. <code>python -m storage import FILE</code>, or Import on the "
        "dashboard, takes its runs in again. Charts are drawn by plotly.js, Copyright Plotly, "
        "Inc., under the MIT license.</p></footer>"
    )
