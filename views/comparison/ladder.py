"""The ladder, on Compare: the effect of each compiler stage, and the first stage that fails."""

from functools import partial

import pandas as pd
import streamlit as st

from breakeven.storage.compiling.ladder import Ladder, RungResult
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.compiling import FAULT_WORDS, findings
from breakeven.storage.terminal.parity_words import parity_text
from breakeven.views.charts import bars as ladder_charts
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.comparison.leaderboard import heading, table, verdict_word, with_interval
from breakeven.views.comparison.verdicts import VERDICT_CLASSES
from breakeven.views.parts.downloads import Card, csv_button, show_card
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.links import explained, sentence

READING = (
    "Each run adds one stage of the compiler to the run above it. Green: the stage saves time. "
    "Red: it costs time. Grey and hatched: the difference is too uncertain for a verdict."
)
TIMES = ("step_seconds", "peak_memory_bytes", "compile_seconds")


def show(ladder: Ladder | None) -> None:
    """Shows nothing if the experiment has no ladder."""
    if ladder is None:
        return
    st.markdown("#### Cost by compiler stage")
    sentences = [sentence(one) for one in findings(ladder)]
    box = st.warning if ladder.is_alarming else st.info
    box("  \n".join(sentences), icon=":material/stairs:")
    drawn = cards(ladder)
    for card in drawn:
        show_card(card)
    # Without a chart the table is the answer.
    with st.expander("Stages in numbers", icon=":material/table_rows:", expanded=not drawn):
        show_table(ladder)


def cards(ladder: Ladder | None) -> list[Card]:
    """The waterfall, where steps were timed."""
    if ladder is None or not ladder.compares_runs:
        return []
    draw = partial(ladder_charts.waterfall, ladder)
    return [Card("Step time by stage", draw, frame(ladder), "ladder",
                 ["step_seconds", "over_below"], READING)]  # fmt: skip


def show_table(ladder: Ladder) -> None:
    """Time, memory, compile latency and parity of every rung."""
    numbers = [*TIMES, "over_below", "parity"]
    help = explained(numbers) if ladder.compares_runs else ""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("**Stages**", help=help or None, width="stretch")
            csv_button("CSV", frame(ladder), "stages")
        st.html(table_html(ladder))


def table_html(ladder: Ladder) -> Html:
    """A row for the baseline and one for each rung."""
    looks = run_looks(["baseline", *(one.result.label for one in ladder.rungs)])
    names = TIMES if ladder.compares_runs else ()
    heads: list[Html] = ["Run", "What is added", *map(heading, names)]
    heads += [heading("over_below"), heading("parity")] if names else []
    rows = []
    if ladder.baseline is not None:
        cells = [inert(METRICS[name].format(ladder.baseline.value(name))) for name in names]
        cells += [DASH, DASH] if names else []
        rows.append([run_mark("baseline", looks["baseline"]), "no compiler", *cells, ""])
    for one in ladder.rungs:
        cells = [inert(METRICS[name].format(one.result.value(name))) for name in names]
        cells += [_over_below(one), inert(parity_text(one.result.parity))] if names else []
        faults = " ".join(verdict_word(FAULT_WORDS[fault], "bad", one.reason or "")
                          for fault in one.faults)  # fmt: skip
        mark = run_mark(one.result.label, looks[one.result.label])
        rows.append([mark, _stage(one), *cells, faults])
    return table("The stages of the ladder", [*heads, ""], rows)


def frame(ladder: Ladder) -> pd.DataFrame:
    """The table as data."""
    base = ladder.baseline
    rows = [] if base is None else [
        {"label": base.label, "stage": "no compiler", "state": base.state,
         **{name: base.value(name) for name in TIMES}}
    ]  # fmt: skip
    for one in ladder.rungs:
        ratio = one.over_below
        rows.append({
            "label": one.result.label, "stage": one.rung.stage, "state": one.result.state,
            **{name: one.result.value(name) for name in TIMES},
            "below": one.below, "over_below": ratio and ratio.median,
            "over_below_low": ratio and ratio.low, "over_below_high": ratio and ratio.high,
            "verdict": one.verdict, "parity": one.result.value("parity"),
            "faults": ", ".join(one.faults), "reason": one.reason,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _stage(one: RungResult) -> Html:
    return f'<abbr title="{inert(one.rung.text)}">{inert(one.rung.stage)}</abbr>'


def _over_below(one: RungResult) -> Html:
    if one.over_below is None:
        return DASH
    verdict = one.verdict or "unsure"
    return f"{with_interval(ratio_text(one.over_below))} " + verdict_word(
        verdict, VERDICT_CLASSES[verdict]
    )
