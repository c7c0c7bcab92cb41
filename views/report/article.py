"""An experiment or a suite run as part of a report: HTML, and figures for the page's scripts."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import DASH, NUMBERS
from breakeven.storage.queries.timeline import timeline
from breakeven.storage.suite.cells import outcomes
from breakeven.storage.suite.groups import groups
from breakeven.views.charts import matrix as suite_charts
from breakeven.views.charts.palette import run_looks
from breakeven.views.parts.downloads import Card
from breakeven.views.parts.exports import for_export
from breakeven.views.report import suite as suite_tables
from breakeven.views.report.content import Content, Table, advice
from breakeven.views.report.markup import html, inert_lines
from breakeven.views.shared.inert import Html, Markdown, inert, inert_figure

COMPARED = re.compile(r'href="[^"]*\bexperiment=([A-Za-z0-9-]+)[^"]*"')
"""A link to an experiment on Compare."""
PRESENTED = ("ladder", "why", "step-times", "break-even", "loss")
"""Charts that become screens of a presentation, if the experiment compares runs."""
MAX_ROWS = 200
"""Most rows of a table on the page; its data contain all rows."""


@dataclass(frozen=True, kw_only=True)
class Article:
    """A part of a report, with its figures."""

    title: str
    at: Html
    """Its anchor on the page."""
    html: Html
    figures: Sequence[dict[str, Any]]


def anchor(experiment_id: str) -> Html:
    """`e-20261121-093015-123456-7f3a`."""
    return f"e-{inert(experiment_id)}"


def of_suite(store: Store, suite_run: str) -> Article:
    """A suite run: results of all models together; each cell links to its experiment below."""
    found = outcomes(store, suite_run)
    rows, at = groups(found), f"s-{inert(suite_run)}"
    frame = suite_charts.speedup_frame(found, [])
    draw = suite_charts.by_conditions(frame)
    cards = [Card("Speedup of every model", draw, frame, "speedups", ["speedup"])] if draw else []
    shown, numbers = suite_tables.summary(rows), suite_tables.numbers(rows)
    summary = Table(title="All models together", name="suite-summary", shown=shown, numbers=numbers)
    cells = COMPARED.sub(r'href="#e-\1"', linked_here(suite_tables.cells_html(found)))
    made: Html = "".join([
        f'<article id="{at}"><section class="screen"><h1>{inert(suite_run)}</h1>',
        f'<p class="answer">{html(suite_tables.headline(rows))}</p></section>',
        table(summary), quiet(suite_tables.rested(rows)),
        charts(at, cards, [card.name for card in cards]), "<h2>Every cell</h2>", cells,
        "</article>",
    ])  # fmt: skip
    return Article(title=suite_run, at=at, html=made, figures=[*figures(at, cards)])


def of_experiment(store: Store, one: Content, *, presents: bool = True) -> Article:
    """An experiment, from its answer to its specification; `presents`: whether some parts become
    screens of a presentation."""
    page, at = one.page, f"e-{inert(one.experiment_id)}"
    played = playback(store, one.experiment_id) if one.spec.kind.compares_runs else None
    facts = "".join(
        f"<tr><th>{inert(name)}</th><td>{inert(value)}</td></tr>" for name, value in one.facts
    )
    screen = "screen" if presents else ""
    names = PRESENTED if one.spec.kind.compares_runs else [card.name for card in page.cards]
    doubts, reasons = listed(page.doubts), listed(page.why)
    told_html: Html = "".join([
        f'<article id="{at}"><section class="{screen}"><p class="quiet">{html(one.provenance)}</p>',
        f"<h1>{inert(one.name)}</h1>",
        f'<p class="answer">{html(page.headline)}</p>', linked_here(page.leaderboard),
        "</section>", quiet(page.captions),
        f'<section class="{screen}"><h2>What to keep in mind</h2><aside class="doubts">{doubts}'
        "</aside></section>" if doubts else "",
        f"<h2>Why</h2>{reasons}" if reasons else "",
        charts(at, page.cards, names if presents else ()),
        f'<section class="as-it-went {screen}"><h2>Timeline</h2><p class="quiet">Turns, '
        "compilations and losses of all runs, at the times that they recorded.</p>"
        f'<div class="playback" data-playback="{at}-playback"></div></section>' if played else "",
        *(table(one) for one in page.tables),
        f'<section class="{screen}"><h2>What to do</h2><p>{html(advice(one.comparison))}</p>'
        "<p>Run it again without the browser, with every setting that differs from its default:"
        f"</p><pre>{inert_lines(one.command)}</pre></section>",
        "<details><summary>All settings</summary>"
        f"<pre>{inert_lines(one.spec.to_json())}</pre></details>",
        "<details><summary>Machine, software, model and data</summary>"
        f'<div class="leaderboard"><table class="facts">{facts}</table></div></details>',
        "</article>",
    ])  # fmt: skip
    drawn = [*figures(at, page.cards), {"id": f"{at}-playback", "playback": played}]
    return Article(title=one.name, at=at, html=told_html, figures=drawn)


def figures(at: Html, cards: Sequence[Card]) -> Iterator[dict[str, Any]]:
    """Every figure of every card for plotly.js, without a theme: the page has its own."""
    for card in cards:
        made = {title: for_export(draw()) for title, draw in card.figures.items()}
        plain = {title: inert_figure(one).update_layout(template=None)
                 for title, one in made.items()}  # fmt: skip
        drawn = {title: json.loads(one.to_json()) for title, one in plain.items()}
        yield {"id": f"{at}-{card.name}", "figures": drawn}


def charts(at: Html, cards: Sequence[Card], screens: Sequence[str]) -> Html:
    """The places of the charts; `screens`: names of those that become screens of a presentation."""
    made = ""
    for card in cards:
        kind = "chart screen" if card.name in screens else "chart"
        named = [inert(one) for one in card.figures if one]
        choice = "".join(f'<button data-figure="{name}">{name}</button>' for name in named)
        made += (
            f'<figure class="{kind}" data-chart="{at}-{inert(card.name)}"><figcaption><strong>'
            f'{html(card.title)}</strong><span class="choice">{choice}</span></figcaption>'
            f'<div class="plot" role="figure" aria-label="{html(card.title)}"></div><details>'
            f"<summary>What it shows</summary><p>{html(card.explanation)}</p></details></figure>"
        )
    return f'<section class="charts">{made}</section>'


def linked_here(leaderboard: Html) -> Html:
    """The table with links to the definitions in this file."""
    return leaderboard.replace('target="_blank" href="definitions#', 'href="#def-')


def listed(texts: Sequence[Markdown]) -> Html:
    items = "".join(f"<li>{html(one)}</li>" for one in texts)
    return f"<ul>{items}</ul>" if items else ""


def quiet(texts: Sequence[Markdown]) -> Html:
    return "".join(f'<p class="quiet">{html(text)}</p>' for text in texts)


def table(content: Table) -> Html:
    """The table for reading, numbers on the right, formatted as on pages."""
    frame = content.shown.drop(columns=["run_id", "label", "role"], errors="ignore")
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
        f'<h2>{html(content.title)}</h2><div class="leaderboard" tabindex="0" role="region" '
        f'aria-label="{html(content.title)}"><table><thead><tr>{head}</tr></thead>'
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


DIGITS = 5
"""Significant digits of a loss in the playback; readers see no more."""


def playback(store: Store, experiment_id: str) -> dict[str, Any] | None:
    """The data of `playback.js`: seconds since the first event, and for each run its label and
    look, `spans` (kind, start, end, first step, steps), `steps` and `losses`. None without a
    turn."""
    spans = timeline(store, experiment_id)
    if spans.empty or not (spans["kind"] == "training").any():
        return None
    begin, end = float(spans["start"].min()), float(spans["end"].max())
    losses = queries.losses(store, experiment_id)
    looks = run_looks(spans["label"])
    runs = []
    for label, mine in spans.groupby("label", sort=False):
        look = looks[str(label)]
        curve = losses[losses["label"] == label]
        runs.append({
            "label": str(label),
            "color": look.color,
            "dash": look.dash,
            "spans": [_span(row, begin) for row in mine.itertuples()],
            "steps": [int(step) for step in curve["step"]],
            "losses": [float(f"{loss:.{DIGITS}g}") if math.isfinite(loss) else None
                       for loss in curve["loss"]],
        })  # fmt: skip
    return {"seconds": round(end - begin, 3), "runs": runs}


def _span(row: Any, begin: float) -> list[Any]:
    steps = [0 if pd.isna(one) else int(one) for one in (row.first_step, row.num_steps)]
    return [row.kind, round(row.start - begin, 3), round(row.end - begin, 3), *steps]
