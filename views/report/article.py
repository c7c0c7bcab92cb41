"""An experiment as a part of a report, and a suite run, which sums up experiments."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.queries.timeline import timeline
from breakeven.storage.suite.cells import outcomes
from breakeven.storage.suite.groups import groups
from breakeven.views.charts import matrix as suite_charts
from breakeven.views.charts.palette import run_looks
from breakeven.views.parts.cards import Card
from breakeven.views.report import elements
from breakeven.views.report import suite as suite_tables
from breakeven.views.report.content import Content, Table, advice
from breakeven.views.report.markup import html, inert_lines
from breakeven.views.shared.inert import Html, inert

COMPARED = re.compile(r'href="[^"]*\bexperiment=([A-Za-z0-9-]+)[^"]*"')
"""A link to an experiment on Compare."""
PRESENTED = ("ladder", "why", "step-times", "break-even", "loss")
"""Names of the charts that are screens of a presentation, where runs are compared."""


@dataclass(frozen=True, kw_only=True)
class Article:
    """A part of a report, and the figures that it draws."""

    title: str
    at: Html
    """Where it is found."""
    html: Html
    figures: Sequence[dict[str, Any]]


def anchor(experiment_id: str) -> Html:
    """`e-20261121-093015-123456-7f3a`."""
    return f"e-{inert(experiment_id)}"


def of_suite(store: Store, suite_run: str) -> Article:
    """What all models together come to; each cell leads to its experiment further down."""
    found = outcomes(store, suite_run)
    rows, at = groups(found), f"s-{inert(suite_run)}"
    frame = suite_charts.speedup_frame(found, [])
    draw = {
        str(title): partial(suite_charts.speedups, part.reset_index(drop=True))
        for title, part in frame.groupby("conditions", sort=False)
    }
    cards = [Card("Speedup of every model", draw, frame, "speedups", ["speedup"])] if draw else []
    shown, numbers = suite_tables.summary(rows), suite_tables.numbers(rows)
    summary = Table(title="All models together", name="suite-summary", shown=shown, numbers=numbers)
    cells = COMPARED.sub(r'href="#e-\1"', elements.linked_here(suite_tables.cells_html(found)))
    rested = suite_tables.rested(rows)
    made: Html = "".join([
        f'<article id="{at}"><section class="screen"><h1>{inert(suite_run)}</h1>',
        f'<p class="answer">{html(suite_tables.headline(rows))}</p></section>',
        elements.table(summary),
        *(f'<p class="quiet">{html(text)}</p>' for text in rested),
        elements.charts(at, cards, [card.name for card in cards]), "<h2>Every cell</h2>", cells,
        "</article>",
    ])  # fmt: skip
    return Article(title=suite_run, at=at, html=made, figures=[*elements.figures(at, cards)])


def of_experiment(store: Store, one: Content, *, presents: bool = True) -> Article:
    """An experiment, from its answer to its specification; `presents`: whether parts of it are
    screens of a presentation."""
    page, at = one.page, anchor(one.experiment_id)
    played = playback(store, one.experiment_id) if one.spec.kind.compares_runs else None
    figures = [*elements.figures(at, page.cards), {"id": f"{at}-playback", "playback": played}]
    facts = "".join(
        f"<tr><th>{inert(name)}</th><td>{inert(value)}</td></tr>" for name, value in one.facts
    )
    screen = "screen" if presents else ""
    names = PRESENTED if one.spec.kind.compares_runs else [card.name for card in page.cards]
    told_html: Html = "".join([
        f'<article id="{at}"><section class="{screen}"><p class="quiet">{html(one.provenance)}</p>',
        f"<h1>{inert(one.name)}</h1>",
        f'<p class="answer">{html(page.headline)}</p>', elements.linked_here(page.leaderboard),
        "</section>",
        *(f'<p class="quiet">{html(text)}</p>' for text in page.captions),
        elements.doubts(page.doubts, screen),
        elements.reasons(page.why),
        elements.charts(at, page.cards, names if presents else ()),
        elements.playback_place(at, screen) if played else "",
        *(elements.table(table) for table in page.tables),
        f'<section class="{screen}"><h2>What to do</h2>', *(f"<p>{html(text)}</p>" for text in
        advice(one.comparison)), "<p>Run it again without the browser, with every setting that "
        f"differs from its default:</p><pre>{inert_lines(one.command)}</pre></section>",
        "<details><summary>All settings</summary>"
        f"<pre>{inert_lines(one.spec.to_json())}</pre></details>",
        "<details><summary>Machine, software, model and data</summary>"
        f'<div class="leaderboard"><table class="facts">{facts}</table></div></details>',
        "</article>",
    ])  # fmt: skip
    return Article(title=one.name, at=at, html=told_html, figures=figures)


DIGITS = 5
"""Significant digits of a loss in the playback; readers see no more of them."""


def playback(store: Store, experiment_id: str) -> dict[str, Any] | None:
    """What `playback.js` plays: seconds since the first event, and for each run its label and look,
    `spans` (kind, start, end, first step, steps), `steps` and `losses`. None without a turn."""
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
            "losses": [_rounded(loss) for loss in curve["loss"]],
        })  # fmt: skip
    return {"seconds": round(end - begin, 3), "runs": runs}


def _span(row: Any, begin: float) -> list[Any]:
    steps = [0 if pd.isna(one) else int(one) for one in (row.first_step, row.num_steps)]
    return [row.kind, round(row.start - begin, 3), round(row.end - begin, 3), *steps]


def _rounded(loss: float) -> float | None:
    return float(f"{loss:.{DIGITS}g}") if math.isfinite(loss) else None
