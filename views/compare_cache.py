"""What compile caches save, on Compare: cold processes against warm ones."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from storage import queries
from storage.latency import ColdWarm, cold_and_warm
from storage.metrics import DASH, METRICS
from storage.results import Comparison
from storage.store import Store
from views import words
from views.charts import layout
from views.downloads import chart_card
from views.links import axis, linked
from views.palette import FAINT, run_colors
from views.progress import FAILED
from views.tables import show_table

ROW_HEIGHT = 56
_seconds = METRICS["compile_seconds"].format


def show(store: Store, comparison: Comparison) -> None:
    """The answer in a sentence, a table, every process as a bar, and the caches' own counts."""
    experiment_id = comparison.experiment_id
    found = cold_and_warm(store, experiment_id)
    st.markdown(f"### {headline(found)}")
    ended = [result for result in comparison.results if result.state in FAILED]
    if ended:
        listed = ", ".join(f"{result.label} ({result.state})" for result in ended)
        st.warning(f"Did not finish: {listed}.", icon=":material/info:")
    if not found:
        return
    show_table("Compile latency with empty and with filled caches", table(found), "cold-warm", "")
    data = processes(found)
    draw = partial(latencies, data)
    chart_card("Compile latency of every process", draw, data, name="cold-warm-processes",
               numbers=["compile_seconds"])  # fmt: skip
    counts = queries.compile_caches(store, experiment_id).drop(columns=["run_id", "role"])
    show_table("Hits and misses by layer of the cache", counts.rename(columns={"label": "run"}),
               "compile-caches", "None recorded yet.")  # fmt: skip


def headline(found: Sequence[ColdWarm]) -> str:
    if not found:
        return "No pair of a cold and a warm process has ended yet."
    best = max(found, key=lambda one: one.time_saved or 0.0)
    share = METRICS["compile_time_saved"].format(best.time_saved)
    saved = linked("compile_time_saved", f"{share} of the compile time")
    warm = linked("warm_compile_seconds", _seconds(best.warm_median))
    times = f"{warm} instead of {linked('cold_compile_seconds', _seconds(best.cold_median))}"
    return f"Filled caches save {saved} of **{best.backend}**: {times}."


def table(found: Sequence[ColdWarm]) -> pd.DataFrame:
    """One row per backend, written for people."""
    return pd.DataFrame([_row(one) for one in found])


def _row(one: ColdWarm) -> dict[str, str]:
    ratio = one.ratio
    written = DASH
    if ratio is not None:
        written = METRICS["cold_over_warm"].format(ratio.median)
        if ratio.low is not None and ratio.high is not None:
            written += f" ({ratio.low:.2f} to {ratio.high:.2f})"
    return {
        "backend": one.backend,
        "repeats": words.plural(len(one.cold_seconds), "pair"),
        "cold_compile_seconds": _seconds(one.cold_median),
        "warm_compile_seconds": _seconds(one.warm_median),
        "compile_time_saved": METRICS["compile_time_saved"].format(one.time_saved),
        "cold_over_warm": written,
    }


def processes(found: Sequence[ColdWarm]) -> pd.DataFrame:
    """backend, repeat, cache (cold or warm), seconds: one row per process."""
    rows = [
        {"backend": one.backend, "repeat": repeat, "cache": cache, "seconds": seconds}
        for one in found
        for cache, times in (("cold", one.cold_seconds), ("warm", one.warm_seconds))
        for repeat, seconds in enumerate(times, start=1)
    ]
    return pd.DataFrame(rows, columns=["backend", "repeat", "cache", "seconds"])


def latencies(data: pd.DataFrame) -> go.Figure:
    """A filled bar for each cold process, a hollow one for each warm process."""
    figure = go.Figure()
    colors = run_colors(data["backend"])
    for (backend, cache), mine in data.groupby(["backend", "cache"], sort=False):
        color = colors[str(backend)]
        figure.add_bar(
            x=mine["seconds"],
            y=[f"{backend}, {repeat}" for repeat in mine["repeat"]],
            orientation="h",
            name=f"{backend}, {cache}",
            text=[_seconds(value) for value in mine["seconds"]],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": color if cache == "cold" else "rgba(0,0,0,0)",
                "line": {"color": color, "width": 1.6},
            },
        )
    rows = data.groupby(["backend", "repeat"]).ngroups
    figure.update_layout(layout() | {"height": 110 + ROW_HEIGHT * rows, "barmode": "group"})
    figure.update_xaxes(title_text=axis("compile_seconds"), gridcolor=FAINT)
    return figure.update_yaxes(autorange="reversed")
