"""An experiment or a suite run in a report: sentences, tables, charts, settings, as HTML with
figures for the page's scripts."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from breakeven.runner.arguments.options import command_line
from breakeven.runner.settings import Prices
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import DASH, NUMBERS
from breakeven.storage.suite_runs.cells import outcomes
from breakeven.storage.suite_runs.groups import groups
from breakeven.storage.words.answer_sentence import answer_words, plan_details
from breakeven.storage.words.recipe import how_to_use
from breakeven.views.charts import across_experiments as suite_charts
from breakeven.views.comparison import leaderboard
from breakeven.views.parts.downloads import Card
from breakeven.views.parts.pictures import Origin, experiment_origin, for_export
from breakeven.views.report import suite_tables
from breakeven.views.report.markup import html, inert_lines
from breakeven.views.scenarios.base import Page, Table
from breakeven.views.scenarios.by_name import SCENARIOS
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import sentence
from breakeven.views.shared.inert import Html, Markdown, inert, inert_figure

NOT_FACTS = ("run_id", "label", "role")


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a report about one experiment."""

    experiment_id: str
    name: str
    """The label that people gave, or the name at launch."""
    comparison: Comparison
    about: Origin
    provenance: Markdown
    page: Page
    facts: Sequence[tuple[str, str]]
    """Facts that the runs recorded about machine, software, model and data, by name."""

    @property
    def spec(self) -> ExperimentSpec:
        return self.comparison.spec

    @property
    def command(self) -> str:
        """The command that runs it again, without the browser."""
        return command_line(self.spec)


def content(store: Store, experiment_id: str) -> Content:
    """The content for one experiment; raises `NotInStore` if it does not exist."""
    experiments = queries.list_experiments(store).set_index("experiment_id", drop=False)
    if experiment_id not in experiments.index:
        raise NotInStore(f"no experiment {experiment_id!r} in {store.data_dir.runs}")
    experiment = experiments.loc[experiment_id]
    comparison = compare(store, experiment_id)
    return Content(
        experiment_id=experiment_id,
        name=str(experiment["name"]),
        comparison=comparison,
        about=experiment_origin(store, experiment),
        provenance=words.provenance(experiment),
        page=SCENARIOS[comparison.spec.scenario].report(store, comparison),
        facts=[*_facts(store, experiment_id)],
    )


def _facts(store: Store, experiment_id: str) -> Iterator[tuple[str, str]]:
    """Facts that are equal in all runs, once; other facts, by run."""
    for read in (queries.environments, queries.workloads):
        frame = read(store, experiment_id)
        labels = list(frame["label"]) if "label" in frame else []
        for name in frame.columns.difference(NOT_FACTS, sort=False):
            values = [_written(value) for value in frame[name]]
            if len(set(values)) == 1:
                yield from [(name, values[0])] if values[0] else []
            else:
                by_run = zip(labels, values, strict=True)
                yield from [(f"{name} of {label}", value) for label, value in by_run if value]


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_written(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_written, value))
    if value is None or value is pd.NaT or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, default=str)


def advice(comparison: Comparison) -> Markdown:
    """The answer for the experiment's own length, and its details; empty if runs are not
    compared."""
    planned = own_plan(comparison)
    sentences = [sentence(answer_words(planned))]
    sentences.append(inert(plan_details(planned, Prices())))
    return " ".join(filter(None, sentences))


EXPERIMENT_LINK = re.compile(r'href="[^"]*\bexperiment=([A-Za-z0-9-]+)[^"]*"')
"""A link to the page of an experiment."""
PRESENTED = ("break-even", "why", "loss")
"""Charts that become screens of a presentation, in this order, if the experiment compares runs."""
MAX_ROWS = 200
"""Most rows of a table on the page; its data contain all rows."""


@dataclass(frozen=True, kw_only=True)
class Article:
    """A part of a report, with its figures."""

    title: str
    anchor: Html
    """Its anchor on the page."""
    html: Html
    figures: Sequence[dict[str, Any]]


def of_suite(store: Store, suite_run: str) -> Article:
    """A suite run: results of all models together; each cell links to its experiment below."""
    run_outcomes = outcomes(store, suite_run)
    rows, anchor = groups(run_outcomes), f"s-{inert(suite_run)}"
    frame = suite_charts.speedup_frame(run_outcomes, [])
    draw = suite_charts.by_conditions(frame)
    cards = [Card("Speedup of every model", draw, frame, "speedups", ["speedup"])] if draw else []
    shown, numbers = suite_tables.summary(rows), suite_tables.numbers(rows)
    summary = Table(title="All models together", name="suite-summary", shown=shown, numbers=numbers)
    cells = EXPERIMENT_LINK.sub(
        r'href="#e-\1"', with_own_definitions(suite_tables.cells_html(run_outcomes))
    )
    made: Html = "".join(
        [
            f'<article id="{anchor}"><section class="screen"><h1>{inert(suite_run)}</h1>',
            f'<p class="answer">{html(suite_tables.headline(rows))}</p></section>',
            table(summary),
            quiet_paragraphs(suite_tables.models_in_means(rows)),
            charts(anchor, cards, [card.name for card in cards]),
            "<h2>Every cell</h2>",
            cells,
            "</article>",
        ]
    )
    return Article(title=suite_run, anchor=anchor, html=made, figures=[*figures(anchor, cards)])


def of_experiment(store: Store, experiment: Content, *, presents: bool = True) -> Article:
    """An experiment, from its answer to its specification; `presents`: whether some parts become
    screens of a presentation."""
    page, anchor = experiment.page, f"e-{inert(experiment.experiment_id)}"
    facts = "".join(
        f"<tr><th>{inert(name)}</th><td>{inert(value)}</td></tr>"
        for name, value in experiment.facts
    )
    screen = "screen" if presents else ""
    by_name = {card.name: card for card in page.cards}
    is_race = experiment.spec.kind.has_speedups
    first = [by_name[name] for name in PRESENTED if name in by_name] if is_race else page.cards
    names = [card.name for card in first]
    others = [card for card in page.cards if card.name not in names]
    warnings, reasons = html_list(page.warnings), html_list(page.why)
    what_to_do = html(advice(experiment.comparison))
    way = how_to_use(store, experiment.comparison, own_plan(experiment.comparison))
    code = way and (way.command or way.lines)
    use: Html = f'<pre tabindex="0">{inert_lines(code)}</pre>' if code else ""
    body: Html = "".join(
        [
            f'<article id="{anchor}"><section class="{screen}">',
            f'<p class="quiet">{html(experiment.provenance)}</p>',
            f"<h1>{inert(experiment.name)}</h1>",
            f'<p class="answer{" bad" if page.is_bad else ""}">{html(page.headline)}</p>',
            f"<p>{html(page.evidence)}</p>" if page.evidence else "",
            with_own_definitions(page.leaderboard),
            "</section>",
            quiet_paragraphs(page.captions),
            f"<h2>Why</h2>{reasons}" if reasons else "",
            charts(anchor, first, names if presents else ()),
            f'<section class="{screen}"><h2>What to do</h2><p>{what_to_do}</p>{use}</section>',
            "<p>Run it again without the browser, with every setting that differs from its default:"
            f'</p><pre tabindex="0">{inert_lines(experiment.command)}</pre>',
            f'<section class="{screen}"><h2>What to keep in mind</h2>'
            f'<aside class="warnings">{warnings}</aside></section>'
            if warnings
            else "",
            f"<h2>Appendix</h2>{charts(anchor, others, ())}" if others else "",
            *(table(page_table) for page_table in page.tables),
            "<details><summary>All settings</summary>"
            f'<pre tabindex="0">{inert_lines(experiment.spec.to_json())}</pre></details>',
            "<details><summary>Machine, software, model and data</summary>"
            f'<div class="leaderboard"><table class="facts">{facts}</table></div></details>',
            "</article>",
        ]
    )
    return Article(
        title=experiment.name, anchor=anchor, html=body, figures=[*figures(anchor, page.cards)]
    )


def figures(anchor: Html, cards: Sequence[Card]) -> Iterator[dict[str, Any]]:
    """Every figure of every card for plotly.js, without a theme: the page has its own."""
    for card in cards:
        made = {title: for_export(draw()) for title, draw in card.figures.items()}
        plain = {
            title: inert_figure(figure).update_layout(template=None)
            for title, figure in made.items()
        }
        drawn = {title: json.loads(figure.to_json()) for title, figure in plain.items()}
        yield {"id": f"{anchor}-{card.name}", "figures": drawn}


def charts(anchor: Html, cards: Sequence[Card], screens: Sequence[str]) -> Html:
    """The places of the charts; `screens`: names of those that become screens of a presentation."""
    made = ""
    for card in cards:
        kind = "chart screen" if card.name in screens else "chart"
        named = [inert(title) for title in card.figures if title]
        choice = "".join(f'<button data-figure="{name}">{name}</button>' for name in named)
        made += (
            f'<figure class="{kind}" data-chart="{anchor}-{inert(card.name)}"><figcaption><strong>'
            f'{html(card.title)}</strong><span class="choice">{choice}</span></figcaption>'
            f'<div class="plot" role="figure" aria-label="{html(card.title)}"></div><details>'
            f"<summary>What it shows</summary><p>{html(card.explanation)}</p></details></figure>"
        )
    return f'<section class="charts">{made}</section>'


def with_own_definitions(leaderboard: Html) -> Html:
    """The table with links to the definitions in this file."""
    return leaderboard.replace('target="_blank" href="definitions#', 'href="#def-')


def html_list(texts: Sequence[Markdown]) -> Html:
    items = "".join(f"<li>{html(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def quiet_paragraphs(texts: Sequence[Markdown]) -> Html:
    return "".join(f'<p class="quiet">{html(text)}</p>' for text in texts)


def table(content: Table) -> Html:
    """The table for reading, numbers on the right, formatted as on pages."""
    frame = content.shown.drop(columns=["run_id", "label", "role"], errors="ignore")
    if frame.empty:
        return ""
    names = [str(name) for name in frame.columns]
    rows = (
        [_cell(*pair) for pair in zip(names, row, strict=True)]
        for row in frame.head(MAX_ROWS).itertuples(index=False)
    )
    more = len(frame) - MAX_ROWS
    note = f'<p class="quiet">and {more:,} more rows</p>' if more > 0 else ""
    head = [inert(_title(name)) for name in names]
    return f"<h2>{html(content.title)}</h2>{leaderboard.table(content.title, head, rows)}{note}"


def _title(name: str) -> str:
    return NUMBERS[name].title if name in NUMBERS else name.replace("_", " ").capitalize()


def _cell(name: str, value: Any) -> Html:
    if isinstance(value, str):
        return inert(value)
    if value is None or (not isinstance(value, list | tuple | dict) and pd.isna(value)):
        return DASH
    is_number = name in NUMBERS and isinstance(value, int | float) and not isinstance(value, bool)
    return inert(NUMBERS[name].format(value) if is_number else value)
