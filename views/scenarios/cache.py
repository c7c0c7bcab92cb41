"""Pages of the scenario `cache`: what filled compile caches save, by cold and warm processes."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.storage import queries
from breakeven.storage.comparison.cold_and_warm import (
    ColdWarm,
    cold_and_warm,
    latency_table,
    phase_table,
    process_table,
    why_no_latency,
    without_latency,
)
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.compiling.timeline import phases_by_run
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.words.cold_and_warm import caches_break_evens, caches_table, starts_words
from breakeven.views.charts import compiling as compiling_charts
from breakeven.views.comparison import running
from breakeven.views.comparison.first_screen import ask_steps, read_plan
from breakeven.views.parts.downloads import Card, show_card, show_table
from breakeven.views.scenarios.base import Page, Scenario, Show, Table
from breakeven.views.scenarios.shared_tabs import show_one_run, show_settings
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import linked, sentence
from breakeven.views.shared.inert import Markdown, inert

_seconds = METRICS["compile_seconds"].format


def show_caches_headline(comparison: Comparison) -> list[ColdWarm]:
    """Shows in a sentence what filled caches save, and why processes are left out; returns the
    savings."""
    pairs, silent = cold_and_warm(comparison), without_latency(comparison)
    is_over = all(RunState(result.state).is_final for result in comparison.results)
    st.markdown(f"### {caches_headline(pairs, is_over)}")
    for reason in why_no_latency(silent):
        st.info(inert(reason), icon=":material/info:")
    ended = [result for result in comparison.results if RunState(result.state).is_failed]
    if ended:
        listed = ", ".join(f"{result.label} ({result.state})" for result in ended)
        st.warning(f"Did not finish: {inert(listed)}.", icon=":material/info:")
    return pairs


def show_caches(store: Store, comparison: Comparison, pairs: Sequence[ColdWarm]) -> None:
    """Shows a table, a bar for each process, the phases, cache counts."""
    experiment_id = comparison.experiment_id
    title = (
        f"Compile latency of {inert(comparison.spec.cache.part)} with empty and with filled caches"
    )
    show_table(title, caches_table(pairs), "cold-warm", "", download=latency_table(pairs))
    show_table(
        "When compiling has paid for itself",
        caches_break_evens(pairs),
        "cold-warm-break-even",
        "",
        download=latency_table(pairs),
    )
    st.caption(certainty(pairs))
    for card in caches_cards(store, comparison, pairs):
        show_card(card)
    counts = queries.compile_caches(store, experiment_id).drop(
        columns=["run_id", "role", "starts_later"]
    )
    show_table(
        "Hits and misses by layer of the cache",
        counts.rename(columns={"label": "run"}),
        "compile-caches",
        "None recorded yet.",
    )


def caches_cards(store: Store, comparison: Comparison, pairs: Sequence[ColdWarm]) -> list[Card]:
    """The compile latency of every process and, where torch reports them, the phases."""
    data = process_table(pairs)
    draw = partial(compiling_charts.latencies, data)
    latencies = Card(
        "Compile latency of every process", draw, data, "cold-warm-processes", ["compile_seconds"]
    )
    times = phase_table(comparison.spec, phases_by_run(store, comparison.experiment_id))
    if times.empty:
        return [latencies]
    return [
        latencies,
        Card(
            "Where compiling spends its time",
            partial(compiling_charts.phases, times),
            times,
            "compile-phases",
            ["compile_phases"],
            "Median over the repeats, as torch reports it.",
        ),
    ]


def caches_headline(pairs: Sequence[ColdWarm], is_over: bool) -> Markdown:
    """How much filled caches saved, if anything, and the number of repeats."""
    if not pairs:
        return (
            "This experiment does not show what filled caches save."
            if is_over
            else "No pair of a cold and a warm process has ended yet."
        )
    known = [pair for pair in pairs if pair.time_saved is not None]
    if not known:
        return "Nothing was compiled, so caches have nothing to save."
    best = max(known, key=lambda pair: pair.time_saved or 0.0)
    warm = linked("warm_compile_seconds", _seconds(best.warm_median))
    times = f"{warm} instead of {linked('cold_compile_seconds', _seconds(best.cold_median))}"
    backend = f"**{inert(best.backend)}**"
    repeats = linked("repeats", words.plural(len(best.cold_seconds), "repeat"))
    if (best.time_saved or 0.0) <= 0:
        none = "saved nothing" if len(known) == 1 else "saved no backend anything"
        return f"Filled caches {none}: {backend} took {times} ({repeats})."
    share = METRICS["compile_time_saved"].format(best.time_saved)
    saved = linked("compile_time_saved", f"{share} of the compile time")
    return f"Filled caches saved {saved} of {backend}: {times} ({repeats})."


def certainty(pairs: Sequence[ColdWarm]) -> Markdown:
    """The certainty of the numbers: repeats that an interval needs, and how steps were timed."""
    fewest = min(len(pair.cold_seconds) for pair in pairs)
    order = (
        "Baseline and backends ran one after another, so break-even is less certain on a machine "
        "whose speed drifts; in the scenario `train` runs take turns."
    )
    if fewest >= MIN_PAIRS:
        return order
    repeats = linked("repeats", words.plural(fewest, "repeat"))
    return (
        f"No interval is claimed from {repeats}: it takes {MIN_PAIRS} "
        f"(`--set cache.repeats={MIN_PAIRS}`). {order}"
    )


def show_verdict(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The runs while they go on, what filled caches save, and a plan with them."""
    if ExperimentState(experiment["state"]).is_active:
        running.show(store, experiment)
    if pairs := show_caches_headline(comparison):
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="planned"):
            ask_steps(comparison)
            with st.container(gap=None):
                for starts in starts_words(pairs, read_plan(comparison).num_steps):
                    st.markdown(sentence(starts))
        show_caches(store, comparison, pairs)
    running.show_failures(store, comparison.experiment_id)


def report(store: Store, comparison: Comparison) -> Page:
    """What filled caches save, and when compiling pays off with and without them."""
    latencies = cold_and_warm(comparison)
    headline = caches_headline(latencies, is_over=True)
    if not latencies:
        return Page(headline=headline)
    numbers = latency_table(latencies)
    return Page(
        headline=headline,
        captions=[certainty(latencies)],
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
        cards=caches_cards(store, comparison, latencies),
    )


TABS: dict[str, Show] = {"Verdict": show_verdict, "Runs": show_one_run, "Settings": show_settings}
CACHE = Scenario(tabs=TABS, report=report)
