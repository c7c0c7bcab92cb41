"""Why each backend is faster or slower: how its steps spend their time, and the baseline's."""

from functools import partial

import streamlit as st

from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import (
    Explanation,
    explain,
    profiles_table,
    seconds_by_class,
)
from breakeven.storage.profile.findings import CostFinding
from breakeven.storage.terminal.finding_words import (
    bridge_words,
    finding_words,
    profile_words,
    remedy_words,
    unprofiled_words,
)
from breakeven.views.charts import profile as profile_charts
from breakeven.views.comparison import ladder
from breakeven.views.parts.actions import again_link
from breakeven.views.parts.downloads import Card, Draw, show_card, show_table
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked, sentence

MAX_FINDINGS = 3
"""Number of findings shown at once; a click shows the others."""
HOW_TO_READ = (
    "A few steps of each run are profiled after the timed ones. The length of a bar is the "
    "measured time of a step; time in which no kernel ran is idle. Between the bars of the "
    "baseline and a backend, the chart shows first the time saved, then the time added."
)
HOW_TO_READ_CPU = HOW_TO_READ.replace("kernel ran is idle", "operator ran is Python")


def show(store: Store, experiment_id: str) -> None:
    """Shows answer, chart, findings and, on request, the numbers; or that nothing was profiled.
    Next to the findings is the cost of each compiler stage, if the experiment has a ladder."""
    found, climbed = explain(store, experiment_id), find_ladder(store, experiment_id)
    st.markdown("#### Why")
    if not found.is_known:
        st.caption(inert(unprofiled_words(found)))
        ladder.show(climbed)
        return
    st.markdown("\n".join(f"- {one}" for one in sentences(found)))
    show_card(card(found))
    findings, stages = st.columns(2) if climbed else [st.container()] * 2
    with findings:
        show_findings(found)
        _show_numbers(found)
    with stages:
        ladder.show(climbed)


def _show_numbers(found: Explanation) -> None:
    with st.expander("Profiles in numbers", icon=":material/table_rows:"):
        show_table("Profiles", profiles_table(found), "profiles", "", TABLE_NUMBERS)
        st.caption("  \n".join(sentence(profile_words(one)) for one in found.profiles))


def sentences(found: Explanation) -> list[Markdown]:
    """Why each backend is faster or slower."""
    return [
        f"**{inert(label)}**: {sentence(bridge_words(one, found.own_speedups.get(label)))}"
        for label, one in found.bridges.items()
    ]


def withheld(found: Explanation) -> list[Markdown]:
    """Profiles that are not believed, and the reasons."""
    return [sentence(profile_words(one)) for one in found.profiles if one.misfit is not None]


def card(found: Explanation) -> Card:
    """A chart of all runs by class of work, and a bridge for each backend."""
    draw: dict[str, Draw] = {"All runs": partial(profile_charts.breakdown, found.profiles)}
    for label, one in found.bridges.items():
        draw[label] = partial(profile_charts.waterfall, one)
    on_cpu = not all(one.works_by_itself for one in found.profiles if one.is_known)
    return Card(
        title="Where a step's time goes",
        draw=draw,
        data=seconds_by_class(found),
        name="why",
        numbers=["profile_seconds", "idle_seconds"],
        help=HOW_TO_READ_CPU if on_cpu else HOW_TO_READ,
    )


def found(explained: Explanation) -> list[Markdown]:
    """Findings about lost time, each with a remedy."""
    return [
        f"**{inert(one.label)}**: {sentence(finding_words(one))} {inert(remedy_words(one))}"
        for one in explained.findings
    ]


def show_findings(found: Explanation) -> None:
    """Shows the most costly first, each with a remedy and a link to measure it."""
    if not found.findings:
        st.caption("No avoidable cost found.")
        return
    with st.container(border=True):
        st.markdown(f"**{linked('profile_share', 'Findings')}**")
        _list(found, found.findings[:MAX_FINDINGS])
        rest = found.findings[MAX_FINDINGS:]
        if rest:
            with st.expander(f"{len(rest)} more"):
                _list(found, rest)


def _list(found: Explanation, findings: tuple[CostFinding, ...]) -> None:
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
            again_link(found.comparison.experiment_id, "Measure it", changes)


TABLE_NUMBERS = {
    "step": "step_seconds", "kernels": "profile_seconds", "idle": "idle_seconds",
    "idle_share": "profile_share", "launches": "launches", "waited_for": "waited_seconds",
    "own_speedup": "own_speedup",
}  # fmt: skip
