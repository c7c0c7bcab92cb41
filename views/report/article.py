"""An experiment as a part of a report, and a suite run, which sums up experiments."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from breakeven.storage.index.store import Store
from breakeven.storage.suite.cells import outcomes
from breakeven.storage.suite.groups import Group, groups
from breakeven.views.charts import matrix as suite_charts
from breakeven.views.parts.cards import Card
from breakeven.views.report import elements
from breakeven.views.report.content import Content, Table
from breakeven.views.report.markup import html, inert_lines
from breakeven.views.report.playback import playback
from breakeven.views.report.slides import Slide, on_a_slide, slides
from breakeven.views.shared.inert import Html, inert
from breakeven.views.suite_parts import table as suite_table
from breakeven.views.suite_parts import words as suite_words

COMPARED = re.compile(r'href="[^"]*\bexperiment=([A-Za-z0-9-]+)[^"]*"')
"""A link to an experiment on Compare."""


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
    summary = Table(title="All models together", name="suite-summary",
                    shown=suite_words.summary(rows), numbers=suite_words.numbers(rows))  # fmt: skip
    cells = COMPARED.sub(r'href="#e-\1"', elements.linked_here(suite_table.html(found)))
    rested = suite_words.rested(rows)
    made: Html = "".join([
        f'<article id="{at}"><h1>{inert(suite_run)}</h1>',
        f'<p class="answer">{html(suite_words.headline(rows))}</p>', elements.table(summary),
        *(f'<p class="quiet">{html(said)}</p>' for said in rested),
        elements.charts(at, cards), "<h2>Every cell</h2>", cells,
        '<template class="slides">', _screens(suite_run, rows, at, list(draw)), "</template>",
        "</article>",
    ])  # fmt: skip
    return Article(title=suite_run, at=at, html=made, figures=[*elements.figures(at, cards)])


def _screens(suite_run: str, rows: Sequence[Group], at: Html, conditions: Sequence[str]) -> Html:
    """What a suite run comes to, and its models under all conditions."""
    answer = html(suite_words.headline(rows))
    screens = [f"<h2>{inert(suite_run)}</h2><p>{answer}</p>"]
    screens += [
        f'<h2>{inert(one)}</h2><div class="plot" data-chart="{elements.place(at, "speedups")}" '
        f'data-figure="{inert(one)}"></div>'
        for one in conditions
    ]
    kinds = ["slide statement", *["slide"] * len(conditions)]
    return "".join(f'<section class="{kind}">{screen}</section>'
                   for kind, screen in zip(kinds, screens, strict=True))  # fmt: skip


def of_experiment(store: Store, one: Content, *, presents: bool = True) -> Article:
    """An experiment, from its answer to its specification; `presents`: with its screens."""
    told, at = one.told, anchor(one.experiment_id)
    played = playback(store, one.experiment_id) if one.spec.kind.compares_runs else None
    figures = [*elements.figures(at, told.cards), {"id": f"{at}-playback", "playback": played}]
    facts = "".join(
        f"<tr><th>{inert(name)}</th><td>{inert(value)}</td></tr>" for name, value in one.facts
    )
    told_html: Html = "".join([
        f'<article id="{at}"><p class="quiet">{html(one.provenance)}</p>',
        f"<h1>{inert(one.name)}</h1>",
        f'<p class="answer">{html(told.headline)}</p>', elements.linked_here(told.leaderboard),
        *(f'<p class="quiet">{html(said)}</p>' for said in told.captions),
        elements.doubts(told.doubts),
        elements.reasons(told.why),
        elements.charts(at, told.cards),
        elements.playback_place(at) if played else "",
        *(elements.table(table) for table in told.tables),
        "<h2>The same again</h2><p>Without the browser, with every setting that differs from its "
        f"default:</p><pre>{inert_lines(one.command)}</pre>",
        "<details><summary>All settings</summary>"
        f"<pre>{inert_lines(one.spec.to_json())}</pre></details>",
        "<details><summary>Machine, software, model and data</summary>"
        f'<div class="leaderboard"><table class="facts">{facts}</table></div></details>',
        f'<template class="slides" data-name="{inert(one.name)}">',
        *(_slide(one, slide, at) for slide in slides(one) if presents),
        "</template></article>",
    ])  # fmt: skip
    return Article(title=one.name, at=at, html=told_html, figures=figures)


def _slide(one: Content, slide: Slide, at: Html) -> Html:
    said = "".join(f"<p>{html(text)}</p>" for text in slide.sentences)
    shown = {
        "leaderboard": elements.linked_here(on_a_slide(one.comparison)),
        "playback": f'<div class="playback" data-playback="{at}-playback"></div>',
        "command": f"<pre>{inert_lines(one.command)}</pre>",
        "": "",
    }[slide.shows]
    if slide.chart:
        place = elements.place(at, slide.chart)
        shown = f'<div class="plot" data-chart="{place}" data-figure="{inert(slide.figure)}"></div>'
    kind = "slide" if shown else "slide statement"
    return f'<section class="{kind}"><h2>{html(slide.title)}</h2>{said}{shown}</section>'
