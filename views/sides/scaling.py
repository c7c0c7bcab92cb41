"""How several devices scale against one, on the page Side by side."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.storage.difference.scaling import Refusal, Scaling
from breakeven.storage.difference.sides import Side
from breakeven.storage.numbers.formats import format_ratio
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.storage.terminal.difference import efficiency_text, scaling_notes
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.comparison.leaderboard import scrolled, with_interval
from breakeven.views.parts.downloads import csv_button
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.links import anchor_html, explained

EXPLANATION = (
    "100 % means that no device does less than it would alone. Its 95 % interval comes from the "
    "rounds of both experiments; how much equal processes differ, the rows of baseline and control "
    f"show. {explained(['scaling_efficiency'])}"
)


def show_scaling(
    sides: Sequence[Side], found: Sequence[Scaling], refused: Sequence[Refusal]
) -> None:
    """Nothing, unless one side has one device and another several."""
    if not found and not refused:
        return
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("**Scaling over devices**", help=EXPLANATION, width="stretch")
            if found:
                csv_button("CSV", scaling_frame(found), "scaling")
        if found:
            st.html(scaling_html(found))
        for note in scaling_notes(sides, found, refused):
            st.caption(inert(note))


def scaling_html(found: Sequence[Scaling]) -> Html:
    """A row for each run on several devices."""
    looks = run_looks(list(dict.fromkeys(one.label for one in found)))
    about = NUMBERS["scaling_efficiency"]
    title = anchor_html("scaling_efficiency", about.title, about.definition)
    work = anchor_html("scaling_efficiency", "Times one device", about.definition)
    head = f"<tr><th>Run</th><th></th><th>Devices</th><th>{title}</th><th>{work}</th></tr>"
    body = ""
    for one in found:
        texts = (one.letter, str(one.num_devices), efficiency_text(one),
                 format_ratio(one.throughput))  # fmt: skip
        listed = "".join(f"<td>{with_interval(one)}</td>" for one in texts)
        body += f"<tr><td>{run_mark(one.label, looks[one.label])}</td>{listed}</tr>"
    return scrolled(f"<thead>{head}</thead><tbody>{body}</tbody>", "Scaling over devices")


def scaling_frame(found: Sequence[Scaling]) -> pd.DataFrame:
    """One row per run on several devices."""
    return pd.DataFrame([
        {"label": one.label, "side": one.letter, "kind": one.kind, "devices": one.num_devices,
         "scaling_efficiency": one.efficiency, "scaling_efficiency_low": one.low,
         "scaling_efficiency_high": one.high, "throughput_of_one": one.throughput}
        for one in found
    ])  # fmt: skip
