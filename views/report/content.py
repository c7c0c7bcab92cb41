"""The whole content of a report about an experiment: sentences, tables, charts, settings."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from breakeven.runner.commands.options import command_line
from breakeven.runner.settings import Prices
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios import Compared
from breakeven.storage import queries
from breakeven.storage.comparison import latency
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.comparison.correctness import table as checks_table
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.comparison.results import Comparison, standings
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import load_investigation
from breakeven.storage.profile.explanation import explain
from breakeven.storage.terminal import investigation_words, plan_words
from breakeven.storage.terminal.caution_words import caution_words
from breakeven.storage.terminal.compiling import findings
from breakeven.storage.terminal.environment_words import environment_lines, environment_sentences
from breakeven.storage.terminal.report import caches_break_evens, caches_table
from breakeven.views.comparison import accuracy, answers, cache, ladder, leaderboard, verdicts, why
from breakeven.views.comparison.cards import all_cards
from breakeven.views.parts.downloads import Card
from breakeven.views.parts.exports import Origin, experiment_origin
from breakeven.views.shared.inert import Html, Markdown, inert
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
        provenance=verdicts.provenance(experiment),
        page=PAGES[comparison.spec.kind.compares](store, comparison),
        facts=[*_facts(store, experiment_id)],
    )


def _of_runs(store: Store, comparison: Comparison) -> Page:
    notes = [sentence(caution_words(note)) for note in comparison.notes]
    warnings = [sentence(caution_words(warning)) for warning in comparison.warnings]
    behind = verdicts.statistics_table(comparison)
    numbers = verdicts.statistics(comparison).reset_index()
    climbed = find_ladder(store, comparison.experiment_id)
    down = [] if climbed is None else [f"By compiler stage: {sentence(one)}"
                                       for one in findings(climbed)]  # fmt: skip
    sure = Table(title="Statistics of speed and parity", name="behind-verdicts", shown=behind,
                 numbers=numbers)  # fmt: skip
    explained, planned = explain(store, comparison.experiment_id), own_plan(comparison)
    reasons = [why.card(explained)] if explained.is_known else []
    beside = environment_sentences(comparison.across, is_inference=comparison.spec.is_inference)
    return Page(
        headline=" ".join([answers.headline(comparison, planned), *map(inert, beside)]),
        why=[*why.sentences(explained), *why.withheld(explained), *why.found(explained)],
        leaderboard=leaderboard.html(comparison.results, comparison.spec.kind),
        captions=[
            *map(inert, environment_lines(comparison.across)),
            verdicts.noise_text(comparison),
            *notes,
            *down,
        ],
        doubts=[*warnings, *verdicts.doubts(comparison.results)],
        tables=[] if behind.empty else [sure],
        cards=[*ladder.cards(climbed), *reasons, *all_cards(store, comparison)],
    )


def _of_tensors(store: Store, comparison: Comparison) -> Page:
    experiment_id = comparison.experiment_id
    found = checks(store, experiment_id, comparison.spec)
    made = checks_table(found)
    compared = queries.accuracy_tensors(store, experiment_id)
    tensors = compared.drop(columns=["run_id", "role"])
    failed = tensors[~tensors["passed"]].drop(columns="passed").rename(columns={"label": "run"})
    notes = {note: None for check in found for note in check.notes}
    return Page(
        headline=accuracy.headline(found),
        captions=[accuracy.HELP, *(inert(note) for note in notes)],
        tables=[
            Table(title="Checks", name="checks", shown=made, numbers=made),
            Table(title="Tensors that failed", name="tensors", shown=failed, numbers=tensors),
        ],
        cards=accuracy.cards(compared),
    )


def _of_caches(store: Store, comparison: Comparison) -> Page:
    found = latency.cold_and_warm(store, comparison.experiment_id)
    headline = cache.headline(found, is_over=True)
    if not found:
        return Page(headline=headline)
    numbers = latency.numbers(found)
    return Page(
        headline=headline,
        captions=[cache.certainty(found)],
        tables=[
            Table(title="Compile latency with empty and with filled caches", name="cold-warm",
                  shown=caches_table(found), numbers=numbers),
            Table(title="When compiling has paid for itself", name="cold-warm-break-even",
                  shown=caches_break_evens(found), numbers=numbers),
        ],
        cards=cache.cards(store, comparison, found),
    )  # fmt: skip


def _of_causes(store: Store, comparison: Comparison) -> Page:
    found = load_investigation(store, comparison.experiment_id)
    rows = map(investigation_words.trial_cells, found.trials)
    trials = pd.DataFrame(rows, columns=list(investigation_words.HEADER))
    return Page(
        headline=inert(investigation_words.headline(found)),
        captions=[inert(fact) for fact in investigation_words.facts(found)],
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
        return ", ".join(f"{name} {_written(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_written, value))
    if value is None or value is pd.NaT or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, default=str)


def advice(comparison: Comparison) -> Markdown:
    """The recommendation for the experiment's own length; empty if runs are not compared."""
    if not comparison.spec.kind.compares_runs:
        return ""
    planned = own_plan(comparison)
    found = plan_words.advice(planned, Prices())
    if not planned.choices or not standings(comparison).counted:
        return "These runs allow no advice: no backend has a speed that counts."
    return inert(f"For {planned.num_steps:,} steps, {plan_words.advice_words(found)}" if found
                 else plan_words.other_lengths(planned))  # fmt: skip
