"""Savings by compile caches, on Compare: cold processes against warm ones."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from breakeven.runner.folders.states import RunState
from breakeven.storage import queries
from breakeven.storage.comparison import latency
from breakeven.storage.comparison.latency import (
    ColdWarm,
    cold_and_warm,
    why_silent,
    without_latency,
)
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.compiling.timeline import phases_by_run
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.terminal.report import caches_break_evens, caches_table
from breakeven.views.charts import compiling as cache_charts
from breakeven.views.parts.downloads import Card, show_card, show_table
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked

_seconds = METRICS["compile_seconds"].format


def show(store: Store, comparison: Comparison) -> None:
    """Shows the answer in a sentence, a table, a bar for each process, the phases, cache counts."""
    experiment_id = comparison.experiment_id
    found, silent = cold_and_warm(store, experiment_id), without_latency(store, experiment_id)
    is_over = all(RunState(result.state).is_final for result in comparison.results)
    st.markdown(f"### {headline(found, is_over)}")
    for sentence in why_silent(silent):
        st.info(inert(sentence), icon=":material/info:")
    ended = [result for result in comparison.results if RunState(result.state).is_failed]
    if ended:
        listed = ", ".join(f"{result.label} ({result.state})" for result in ended)
        st.warning(f"Did not finish: {inert(listed)}.", icon=":material/info:")
    if not found:
        return
    title = (
        f"Compile latency of {inert(comparison.spec.cache.part)} with empty and with filled caches"
    )
    show_table(title, caches_table(found), "cold-warm", "", download=latency.numbers(found))
    show_table("When compiling has paid for itself", caches_break_evens(found),
               "cold-warm-break-even", "", download=latency.numbers(found))  # fmt: skip
    st.caption(certainty(found))
    for card in cards(store, comparison, found):
        show_card(card)
    counts = queries.compile_caches(store, experiment_id).drop(columns=["run_id", "role"])
    show_table("Hits and misses by layer of the cache", counts.rename(columns={"label": "run"}),
               "compile-caches", "None recorded yet.")  # fmt: skip


def cards(store: Store, comparison: Comparison, found: Sequence[ColdWarm]) -> list[Card]:
    """The compile latency of every process and, where torch reports them, the phases."""
    data = latency.processes(found)
    draw = partial(cache_charts.latencies, data)
    latencies = Card("Compile latency of every process", draw, data, "cold-warm-processes",
                     ["compile_seconds"])  # fmt: skip
    times = latency.phases(comparison.spec, phases_by_run(store, comparison.experiment_id))
    if times.empty:
        return [latencies]
    return [latencies, Card("Where compiling spends its time", partial(cache_charts.phases, times),
                            times, "compile-phases", ["compile_phases"],
                            "Median over the repeats, as torch reports it.")]  # fmt: skip


def headline(found: Sequence[ColdWarm], is_over: bool) -> Markdown:
    """How much filled caches saved, if anything, and the number of repeats."""
    if not found:
        return (
            "This experiment does not show what filled caches save."
            if is_over
            else "No pair of a cold and a warm process has ended yet."
        )
    known = [one for one in found if one.time_saved is not None]
    if not known:
        return "Nothing was compiled, so caches have nothing to save."
    best = max(known, key=lambda one: one.time_saved or 0.0)
    warm = linked("warm_compile_seconds", _seconds(best.warm_median))
    times = f"{warm} instead of {linked('cold_compile_seconds', _seconds(best.cold_median))}"
    of = f"**{inert(best.backend)}**"
    repeats = linked("repeats", words.plural(len(best.cold_seconds), "repeat"))
    if (best.time_saved or 0.0) <= 0:
        none = "saved nothing" if len(known) == 1 else "saved no backend anything"
        return f"Filled caches {none}: {of} took {times} ({repeats})."
    share = METRICS["compile_time_saved"].format(best.time_saved)
    saved = linked("compile_time_saved", f"{share} of the compile time")
    return f"Filled caches saved {saved} of {of}: {times} ({repeats})."


def certainty(found: Sequence[ColdWarm]) -> Markdown:
    """The certainty of the numbers: repeats that an interval needs, and how steps were timed."""
    fewest = min(len(one.cold_seconds) for one in found)
    order = (
        "Baseline and backends ran one after another, so break-even is as good as the machine was "
        "steady; the scenario `train` measures it by turns."
    )
    if fewest >= MIN_PAIRS:
        return order
    repeats = linked("repeats", words.plural(fewest, "repeat"))
    return (
        f"No interval is claimed from {repeats}: it takes {MIN_PAIRS} (`--repeats {MIN_PAIRS}`). "
        f"{order}"
    )
