"""Why each backend is faster or slower: how its steps spend their time, and what is found there."""

from functools import partial

import streamlit as st

from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import (
    Explanation,
    explain,
    profiles_table,
    seconds_by_class,
)
from breakeven.storage.profile.findings import CostFinding
from breakeven.storage.words.findings import finding_words, remedy_words
from breakeven.storage.words.profile import (
    bridge_words,
    profile_words,
    unprofiled_words,
    words_of_profiles,
)
from breakeven.views.charts import profile as profile_charts
from breakeven.views.comparison.compiler_stages import show_ladder
from breakeven.views.parts.actions import again_link
from breakeven.views.parts.downloads import Card, Draw, show_card, show_table
from breakeven.views.shared.definition_links import linked, sentence
from breakeven.views.shared.inert import Markdown, inert

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
    if not explanation.is_known:
        st.caption("  \n".join(map(inert, unprofiled_words(explanation).splitlines())))
        if explanation.findings:
            show_findings(explanation)
        show_ladder(ladder)
        return
    said = sentences(explanation)
    for text in said[:1]:
        st.markdown(text)
    st.markdown("\n".join(f"- {text}" for text in [*said[1:], *missing(explanation)]))
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
    """Why each backend is faster or slower, the backend of the answer first."""
    best = own_plan(explanation.comparison).best
    bridges = sorted(
        explanation.bridges.items(), key=lambda entry: best is None or entry[0] != best.label
    )
    return [
        f"**{inert(label)}**: {sentence(bridge_words(bridge, explanation.own_speedups.get(label)))}"
        for label, bridge in bridges
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
