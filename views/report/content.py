"""An experiment or a suite run in a report: sentences, tables, charts, settings, as HTML with
figures for the page's scripts."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from breakeven.runner.arguments.options import command_line
from breakeven.runner.settings import Prices
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios.scenario import Compared
from breakeven.storage import queries
from breakeven.storage.comparison import latency
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.comparison.correctness import table as checks_table
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import load_investigation
from breakeven.storage.numbers.metrics import DASH, NUMBERS
from breakeven.storage.profile.explanation import explain
from breakeven.storage.suite.cells import outcomes
from breakeven.storage.suite.groups import groups
from breakeven.storage.words import investigation as investigation_words
from breakeven.storage.words import plan as plan_words
from breakeven.storage.words.caches import caches_break_evens, caches_table
from breakeven.storage.words.compiling import findings
from breakeven.storage.words.environments import environment_lines, environment_sentences
from breakeven.storage.words.warnings import caution_words
from breakeven.views.charts import library as suite_charts
from breakeven.views.comparison import answers, leaderboard, scenarios, why
from breakeven.views.comparison.cards import all_cards
from breakeven.views.parts.downloads import Card
from breakeven.views.parts.pictures import Origin, experiment_origin, for_export
from breakeven.views.report import suite as suite_tables
from breakeven.views.report.markup import html, inert_lines
from breakeven.views.shared.inert import Html, Markdown, inert, inert_figure
from breakeven.views.shared.links import sentence

LOST_IN_FACTS = ("run_id", "label", "role")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for reading, and its numbers."""

    title: Markdown
    name: str
    shown: pd.DataFrame
    numbers: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class Page:
    """The texts, tables and charts of a comparison's page."""

    headline: Markdown
    is_bad: bool = False
    """Whether the headline is shown in red."""
    evidence: Markdown = ""
    """What stands behind the headline."""
    leaderboard: Html = ""
    captions: Sequence[Markdown] = ()
    doubts: Sequence[Markdown] = ()
    why: Sequence[Markdown] = ()
    """Why each backend is faster or slower, and findings about lost time."""
    tables: Sequence[Table] = ()
    cards: Sequence[Card] = ()


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
        provenance=answers.provenance(experiment),
        page=PAGES[comparison.spec.kind.compares](store, comparison),
        facts=[*_facts(store, experiment_id)],
    )


def _of_runs(store: Store, comparison: Comparison) -> Page:
    notes = [sentence(caution_words(note)) for note in comparison.notes]
    warnings = [sentence(caution_words(warning)) for warning in comparison.warnings]
    behind = answers.statistics_table(comparison)
    numbers = answers.statistics(comparison).reset_index()
    climbed = find_ladder(store, comparison.experiment_id)
    down = (
        []
        if climbed is None
        else [f"By compiler stage: {sentence(finding)}" for finding in findings(climbed)]
    )
    sure = Table(
        title="Statistics of speed and parity",
        name="behind-verdicts",
        shown=behind,
        numbers=numbers,
    )
    explained, planned = explain(store, comparison.experiment_id), own_plan(comparison)
    reasons = [why.card(explained)] if explained.is_known else []
    beside = environment_sentences(comparison)
    return Page(
        headline=answers.headline(comparison, planned),
        is_bad=answers.is_bad(planned),
        evidence=" ".join([answers.evidence(comparison, planned), *map(inert, beside)]).strip(),
        why=[*why.sentences(explained), *why.missing(explained), *why.finding_texts(explained)],
        leaderboard=leaderboard.html(comparison.results, comparison.spec.kind),
        captions=[
            *map(inert, environment_lines(comparison.across)),
            answers.noise_text(comparison),
            *notes,
            *down,
        ],
        doubts=[*warnings, *answers.doubts(comparison.results)],
        tables=[] if behind.empty else [sure],
        cards=[*why.ladder_cards(climbed), *reasons, *all_cards(store, comparison)],
    )


def _of_tensors(store: Store, comparison: Comparison) -> Page:
    experiment_id = comparison.experiment_id
    check_results = checks(store, experiment_id, comparison.spec)
    made = checks_table(check_results)
    compared = queries.accuracy_tensors(store, experiment_id)
    tensors = compared.drop(columns=["run_id", "role"])
    failed = tensors[~tensors["passed"]].drop(columns="passed").rename(columns={"label": "run"})
    notes = {note: None for check in check_results for note in check.notes}
    return Page(
        headline=scenarios.tensors_headline(check_results),
        captions=[scenarios.TENSORS_HELP, *(inert(note) for note in notes)],
        tables=[
            Table(title="Checks", name="checks", shown=made, numbers=made),
            Table(title="Tensors that failed", name="tensors", shown=failed, numbers=tensors),
        ],
        cards=scenarios.tensor_cards(compared),
    )


def _of_caches(store: Store, comparison: Comparison) -> Page:
    latencies = latency.cold_and_warm(store, comparison.experiment_id)
    headline = scenarios.caches_headline(latencies, is_over=True)
    if not latencies:
        return Page(headline=headline)
    numbers = latency.numbers(latencies)
    return Page(
        headline=headline,
        captions=[scenarios.certainty(latencies)],
        tables=[
            Table(
                title="Compile latency with empty and with filled caches",
                name="cold-warm",
                shown=caches_table(latencies),
                numbers=numbers,
            ),
            Table(
                title="When compiling has paid for itself",
                name="cold-warm-break-even",
                shown=caches_break_evens(latencies),
                numbers=numbers,
            ),
        ],
        cards=scenarios.caches_cards(store, comparison, latencies),
    )


def _of_causes(store: Store, comparison: Comparison) -> Page:
    investigation = load_investigation(store, comparison.experiment_id)
    rows = map(investigation_words.trial_cells, investigation.trials)
    trials = pd.DataFrame(rows, columns=list(investigation_words.TRIAL_HEADER))
    return Page(
        headline=inert(investigation_words.headline(investigation)),
        captions=[inert(fact) for fact in investigation_words.facts(investigation)],
        tables=[Table(title="Trials", name="trials", shown=trials, numbers=trials)],
    )


PAGES: dict[Compared, Callable[[Store, Comparison], Page]] = {
    "runs": _of_runs,
    "tensors": _of_tensors,
    "caches": _of_caches,
    "causes": _of_causes,
}
"""By the kind of comparison."""


def _facts(store: Store, experiment_id: str) -> Iterator[tuple[str, str]]:
    """Facts that are equal in all runs, once; other facts, by run."""
    for read in (queries.environments, queries.workloads):
        frame = read(store, experiment_id)
        labels = list(frame["label"]) if "label" in frame else []
        for name in frame.columns.difference(LOST_IN_FACTS, sort=False):
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
    said = [sentence(plan_words.answer_words(planned))]
    said.append(inert(plan_words.plan_details(planned, Prices())))
    return " ".join(filter(None, said))


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


def of_suite(store: Store, suite_run: str) -> Article:
    """A suite run: results of all models together; each cell links to its experiment below."""
    run_outcomes = outcomes(store, suite_run)
    rows, at = groups(run_outcomes), f"s-{inert(suite_run)}"
    frame = suite_charts.speedup_frame(run_outcomes, [])
    draw = suite_charts.by_conditions(frame)
    cards = [Card("Speedup of every model", draw, frame, "speedups", ["speedup"])] if draw else []
    shown, numbers = suite_tables.summary(rows), suite_tables.numbers(rows)
    summary = Table(title="All models together", name="suite-summary", shown=shown, numbers=numbers)
    cells = COMPARED.sub(r'href="#e-\1"', linked_here(suite_tables.cells_html(run_outcomes)))
    made: Html = "".join(
        [
            f'<article id="{at}"><section class="screen"><h1>{inert(suite_run)}</h1>',
            f'<p class="answer">{html(suite_tables.headline(rows))}</p></section>',
            table(summary),
            quiet(suite_tables.rested(rows)),
            charts(at, cards, [card.name for card in cards]),
            "<h2>Every cell</h2>",
            cells,
            "</article>",
        ]
    )
    return Article(title=suite_run, at=at, html=made, figures=[*figures(at, cards)])


def of_experiment(store: Store, experiment: Content, *, presents: bool = True) -> Article:
    """An experiment, from its answer to its specification; `presents`: whether some parts become
    screens of a presentation."""
    page, at = experiment.page, f"e-{inert(experiment.experiment_id)}"
    facts = "".join(
        f"<tr><th>{inert(name)}</th><td>{inert(value)}</td></tr>"
        for name, value in experiment.facts
    )
    screen = "screen" if presents else ""
    names = PRESENTED if experiment.spec.kind.has_speedups else [card.name for card in page.cards]
    doubts, reasons = listed(page.doubts), listed(page.why)
    what_to_do = html(advice(experiment.comparison))
    body: Html = "".join(
        [
            f'<article id="{at}"><section class="{screen}">',
            f'<p class="quiet">{html(experiment.provenance)}</p>',
            f"<h1>{inert(experiment.name)}</h1>",
            f'<p class="answer{" bad" if page.is_bad else ""}">{html(page.headline)}</p>',
            f"<p>{html(page.evidence)}</p>" if page.evidence else "",
            linked_here(page.leaderboard),
            "</section>",
            quiet(page.captions),
            f'<section class="{screen}"><h2>What to keep in mind</h2><aside class="doubts">{doubts}'
            "</aside></section>"
            if doubts
            else "",
            f"<h2>Why</h2>{reasons}" if reasons else "",
            charts(at, page.cards, names if presents else ()),
            *(table(page_table) for page_table in page.tables),
            f'<section class="{screen}"><h2>What to do</h2><p>{what_to_do}</p>'
            "<p>Run it again without the browser, with every setting that differs from its default:"
            f'</p><pre tabindex="0">{inert_lines(experiment.command)}</pre></section>',
            "<details><summary>All settings</summary>"
            f'<pre tabindex="0">{inert_lines(experiment.spec.to_json())}</pre></details>',
            "<details><summary>Machine, software, model and data</summary>"
            f'<div class="leaderboard"><table class="facts">{facts}</table></div></details>',
            "</article>",
        ]
    )
    return Article(title=experiment.name, at=at, html=body, figures=[*figures(at, page.cards)])


def figures(at: Html, cards: Sequence[Card]) -> Iterator[dict[str, Any]]:
    """Every figure of every card for plotly.js, without a theme: the page has its own."""
    for card in cards:
        made = {title: for_export(draw()) for title, draw in card.figures.items()}
        plain = {
            title: inert_figure(figure).update_layout(template=None)
            for title, figure in made.items()
        }
        drawn = {title: json.loads(figure.to_json()) for title, figure in plain.items()}
        yield {"id": f"{at}-{card.name}", "figures": drawn}


def charts(at: Html, cards: Sequence[Card], screens: Sequence[str]) -> Html:
    """The places of the charts; `screens`: names of those that become screens of a presentation."""
    made = ""
    for card in cards:
        kind = "chart screen" if card.name in screens else "chart"
        named = [inert(title) for title in card.figures if title]
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
    items = "".join(f"<li>{html(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def quiet(texts: Sequence[Markdown]) -> Html:
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
