"""Why each backend is faster or slower: how its steps spend their time; and the ladder: the effect
of each compiler stage, and the first stage that fails."""

from functools import partial

import pandas as pd
import streamlit as st

from breakeven.storage.compiling.ladder import Ladder, RungResult, find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.profile.explanation import (
    Explanation,
    explain,
    profiles_table,
    seconds_by_class,
)
from breakeven.storage.profile.findings import CostFinding
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.compiling import FAULT_WORDS, findings
from breakeven.storage.words.findings import (
    bridge_words,
    finding_words,
    profile_words,
    remedy_words,
    unprofiled_words,
    words_of_profiles,
)
from breakeven.storage.words.parity import parity_text
from breakeven.views.charts import bars as ladder_charts
from breakeven.views.charts import profile as profile_charts
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.comparison.headline import VERDICT_CLASSES
from breakeven.views.comparison.leaderboard import heading, table, verdict_word, with_interval
from breakeven.views.parts.actions import again_link
from breakeven.views.parts.downloads import Card, Draw, show_card, show_table, titled
from breakeven.views.shared.definition_links import explained, linked, sentence
from breakeven.views.shared.inert import Html, Markdown, inert

MAX_FINDINGS = 3
"""Number of findings shown at once; a click shows the others."""
HOW_TO_READ = (
    "A few steps of each run are profiled after the timed ones. The length of a bar is the "
    "measured time of a step; time in which no kernel ran is idle. Between the bars of the "
    "baseline and a backend, the chart shows first the time saved, then the time added."
)
UNCOMPARED = (
    "No backend was both timed and profiled like the baseline, so none is compared with it."
)
HOW_TO_READ_CPU = HOW_TO_READ.replace("kernel ran is idle", "operator ran is Python")


def show(store: Store, experiment_id: str) -> None:
    """Shows answer, chart, findings and, on request, the numbers; or that nothing was profiled.
    Next to the findings is the cost of each compiler stage, if the experiment has a ladder."""
    explanation, ladder = explain(store, experiment_id), find_ladder(store, experiment_id)
    st.markdown("#### Why")
    if not explanation.is_known:
        st.caption("  \n".join(map(inert, unprofiled_words(explanation).splitlines())))
        if explanation.findings:
            show_findings(explanation)
        show_ladder(ladder)
        return
    st.markdown("\n".join(f"- {text}" for text in [*sentences(explanation), *missing(explanation)]))
    show_card(card(explanation))
    findings, stages = st.columns(2) if ladder else [st.container()] * 2
    with findings:
        show_findings(explanation)
        with st.expander("Profiles in numbers", icon=":material/table_rows:"):
            show_table("Profiles", profiles_table(explanation), "profiles", "", TABLE_NUMBERS)
            known = (profile for profile in explanation.profiles if profile.is_known)
            st.caption("  \n".join(sentence(profile_words(profile)) for profile in known))
    with stages:
        show_ladder(ladder)


def sentences(explanation: Explanation) -> list[Markdown]:
    """Why each backend is faster or slower."""
    return [
        f"**{inert(label)}**: {sentence(bridge_words(bridge, explanation.own_speedups.get(label)))}"
        for label, bridge in explanation.bridges.items()
    ]


def missing(explanation: Explanation) -> list[Markdown]:
    """Why runs are missing in the chart: profiles that are not believed, and, if there is a chart,
    those that are not there. If nothing says anything about a backend, that there is none."""
    absent = [
        profile
        for profile in explanation.profiles
        if profile.misfit is not None or (explanation.is_known and not profile.is_known)
    ]
    reasons = [sentence(text) for text in words_of_profiles(absent)]
    return reasons if reasons or explanation.bridges or not explanation.is_known else [UNCOMPARED]


def card(explanation: Explanation) -> Card:
    """A chart of all runs by class of work, and a bridge for each backend."""
    draw: dict[str, Draw] = {"All runs": partial(profile_charts.breakdown, explanation.profiles)}
    for label, bridge in explanation.bridges.items():
        draw[label] = partial(profile_charts.waterfall, bridge)
    on_cpu = not all(
        profile.works_by_itself for profile in explanation.profiles if profile.is_known
    )
    return Card(
        title="Where a step's time goes",
        draw=draw,
        data=seconds_by_class(explanation),
        name="why",
        numbers=["profile_seconds", "idle_seconds"],
        help=HOW_TO_READ_CPU if on_cpu else HOW_TO_READ,
    )


def finding_texts(explanation: Explanation) -> list[Markdown]:
    """Findings about lost time, each with a remedy."""
    return [
        f"**{inert(finding.label)}**: {sentence(finding_words(finding))} "
        f"{inert(remedy_words(finding))}"
        for finding in explanation.findings
    ]


def show_findings(explanation: Explanation) -> None:
    """Shows the most costly first, each with a remedy and a link to measure it."""
    if not explanation.findings:
        st.caption("No avoidable cost found.")
        return
    with st.container(border=True):
        st.markdown(f"**{linked('profile_share', 'Findings')}**")
        _list(explanation, explanation.findings[:MAX_FINDINGS])
        rest = explanation.findings[MAX_FINDINGS:]
        if rest:
            with st.expander(f"{len(rest)} more"):
                _list(explanation, rest)


def _list(explanation: Explanation, findings: tuple[CostFinding, ...]) -> None:
    for finding in findings:
        words = f"{sentence(finding_words(finding))}  \n{inert(remedy_words(finding))}"
        text: Markdown = f"- **{inert(finding.label)}**: {words}"
        if finding.remedy is None:
            st.markdown(text)
            continue
        words_column, action = st.columns([4, 1], vertical_alignment="center")
        words_column.markdown(text)
        with action:
            changes = dict(finding.remedy.fields)
            again_link(explanation.comparison.experiment_id, "Measure it", changes)


TABLE_NUMBERS = {
    "step": "step_seconds",
    "kernels": "profile_seconds",
    "idle": "idle_seconds",
    "idle_share": "profile_share",
    "launches": "launches",
    "waited_for": "waited_seconds",
    "own_speedup": "own_speedup",
}


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
        rows.append([run_mark("baseline", looks["baseline"]), "no compiler", *cells, ""])
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
