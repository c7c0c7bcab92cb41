"""The effect of each stage of the compiler, and the first stage that fails: the ladder."""

from functools import partial

import pandas as pd
import streamlit as st

from breakeven.storage.compiling.ladder import Ladder, RungResult
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.compiling import FAULT_WORDS, findings
from breakeven.storage.words.parity import parity_text
from breakeven.views.charts import bars as ladder_charts
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.comparison.headline import VERDICT_CLASSES
from breakeven.views.comparison.leaderboard import heading, table, verdict_word, with_interval
from breakeven.views.parts.downloads import Card, show_card, titled
from breakeven.views.shared.definition_links import explained, sentence
from breakeven.views.shared.inert import Html, inert

READING = (
    "Each run adds one stage of the compiler to the run above it. Green: the stage saves time. "
    "Red: it costs time. Grey and hatched: the difference is too uncertain for a verdict."
)
TIMES = ("step_seconds", "peak_memory_bytes", "compile_seconds")


def show_ladder(ladder: Ladder | None) -> None:
    """Shows nothing if the experiment has no ladder."""
    if ladder is None:
        return
    st.markdown("#### Cost by compiler stage")
    sentences = [sentence(text) for text in findings(ladder)]
    box = st.warning if ladder.is_alarming else st.info
    box("  \n".join(sentences), icon=":material/stairs:")
    cards = ladder_cards(ladder)
    for card in cards:
        show_card(card)
    # Without a chart the table is the answer.
    with st.expander("Stages in numbers", icon=":material/table_rows:", expanded=not cards):
        show_stages(ladder)


def ladder_cards(ladder: Ladder | None) -> list[Card]:
    """The waterfall, where steps were timed."""
    if ladder is None or not ladder.is_timed:
        return []
    draw = partial(ladder_charts.waterfall, ladder)
    return [
        Card(
            "Step time by stage",
            draw,
            ladder_frame(ladder),
            "ladder",
            ["step_seconds", "over_below"],
            READING,
        )
    ]


def show_stages(ladder: Ladder) -> None:
    """Time, memory, compile latency and parity of every rung."""
    numbers = [*TIMES, "over_below", "parity"]
    help = explained(numbers) if ladder.is_timed else ""
    with titled("Stages", ladder_frame(ladder), "stages", help):
        st.html(ladder_html(ladder))


def ladder_html(ladder: Ladder) -> Html:
    """A row for the baseline and one for each rung."""
    looks = run_looks(["baseline", *(rung.result.label for rung in ladder.rungs)])
    names = TIMES if ladder.is_timed else ()
    heads: list[Html] = ["Run", "What is added", *map(heading, names)]
    heads += [heading("over_below"), heading("parity")] if names else []
    rows = []
    if ladder.baseline is not None:
        cells = [inert(METRICS[name].format(ladder.baseline.value(name))) for name in names]
        cells += [DASH, DASH] if names else []
        backend = inert(ladder.baseline.backend or "no compiler")
        rows.append([run_mark("baseline", looks["baseline"]), backend, *cells, ""])
    for rung in ladder.rungs:
        cells = [inert(METRICS[name].format(rung.result.value(name))) for name in names]
        cells += [_over_below(rung), inert(parity_text(rung.result.parity))] if names else []
        faults = " ".join(
            verdict_word(FAULT_WORDS[fault], "bad", rung.reason or "") for fault in rung.faults
        )
        mark = run_mark(rung.result.label, looks[rung.result.label])
        stage = f'<abbr title="{inert(rung.rung.text)}">{inert(rung.rung.stage)}</abbr>'
        rows.append([mark, stage, *cells, faults])
    return table("The stages of the ladder", [*heads, ""], rows)


def ladder_frame(ladder: Ladder) -> pd.DataFrame:
    """The table as data."""
    base = ladder.baseline
    rows = (
        []
        if base is None
        else [
            {
                "label": base.label,
                "stage": "no compiler",
                "state": base.state,
                **{name: base.value(name) for name in TIMES},
            }
        ]
    )
    for rung in ladder.rungs:
        ratio = rung.over_below
        rows.append(
            {
                "label": rung.result.label,
                "stage": rung.rung.stage,
                "state": rung.result.state,
                **{name: rung.result.value(name) for name in TIMES},
                "below": rung.below,
                "over_below": ratio and ratio.median,
                "over_below_low": ratio and ratio.low,
                "over_below_high": ratio and ratio.high,
                "verdict": rung.verdict,
                "parity": rung.result.value("parity"),
                "faults": ", ".join(rung.faults),
                "reason": rung.reason,
            }
        )
    return pd.DataFrame(rows)


def _over_below(rung: RungResult) -> Html:
    if rung.over_below is None:
        return DASH
    verdict = rung.verdict or "unsure"
    return f"{with_interval(ratio_text(rung.over_below))} " + verdict_word(
        verdict, VERDICT_CLASSES[verdict]
    )
