"""The charts of a comparison, each with its data and its way out."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from storage import queries
from storage.metrics import METRICS
from storage.results import Comparison, Result
from storage.store import Store
from views import bars, break_even, charts
from views.downloads import chart_card
from views.leaderboard import throughput_metric


def show(store: Store, comparison: Comparison) -> None:
    """All charts, of the runs that the reader picks."""
    steps = queries.step_times(store, comparison.experiment_id)
    if steps.empty:
        st.caption("No step was recorded, so there is nothing to chart.")
        return
    labels = [result.label for result in comparison.results]
    shown = st.pills(
        "Runs", labels, selection_mode="multi", key="runs", default=labels, bind="query-params",
        label_visibility="collapsed",
    )  # fmt: skip
    results = [result for result in comparison.results if result.label in shown]
    if not results:
        st.caption("Pick at least one run above to see its charts.")
        return
    steps = _of(steps, results)
    _break_even(store, comparison.experiment_id, results)
    _losses(store, comparison, results, steps)
    left, right = st.columns(2)
    with left:
        _step_times(steps)
        _metric(results, "compile_seconds")
        _evaluation(store, comparison.experiment_id, results, "accuracy")
    with right:
        _metric(results, throughput_metric(results))
        _memory(results)
        _evaluation(store, comparison.experiment_id, results, "eval_loss")


def _break_even(store: Store, experiment_id: str, results: Sequence[Result]) -> None:
    times = _of(queries.cumulative_times(store, experiment_id), results)
    draw = {
        "Time spent": partial(break_even.cumulative, times, results),
        "Time saved": partial(break_even.saved, times, results),
    }
    help = METRICS["break_even_steps"].definition
    chart_card("Break-even", draw, times, name="break-even", help=help)


def _losses(
    store: Store, comparison: Comparison, results: Sequence[Result], steps: pd.DataFrame
) -> None:
    losses = _of(queries.losses(store, comparison.experiment_id), results)
    band = comparison.loss_band
    draw = {
        "Loss": partial(charts.losses, losses, band, steps),
        "Difference": partial(charts.loss_differences, losses, band),
    }
    help = METRICS["parity"].definition
    window = charts.smoothing_window(losses)
    if window > 1:
        help += f" Strong lines are means of {window} steps, faint ones the steps themselves."
    chart_card("Training loss", draw, losses, name="loss", help=help)


def _step_times(steps: pd.DataFrame) -> None:
    help = "Median, quartiles, and whiskers from 5 % to 95 % of the steady steps."
    steady = steps[steps["steady"].astype(bool)]
    draw = partial(bars.step_times, steady)
    chart_card("Step time", draw, steady, name="step-times", help=help)


def _metric(results: Sequence[Result], name: str) -> None:
    metric, table = METRICS[name], _table(results, [name])
    draw = partial(bars.metric, results, name)
    chart_card(metric.title, draw, table, name=name, help=metric.definition)


def _memory(results: Sequence[Result]) -> None:
    names = ["peak_memory_bytes", *bars.MEMORY_MARKS]
    draw = partial(bars.peak_memory, results)
    metric = METRICS["peak_memory_bytes"]
    help = " ".join([
        metric.definition,
        *(f"{sign} {METRICS[name].definition}" for name, (sign, _) in bars.MEMORY_MARKS.items()),
    ])  # fmt: skip
    chart_card(metric.title, draw, _table(results, names), name="peak-memory", help=help)


def _evaluation(store: Store, experiment_id: str, results: Sequence[Result], name: str) -> None:
    """Bars for a single evaluation, lines for several."""
    scores = _of(queries.evaluations(store, experiment_id), results)
    shares = queries.workloads(store, experiment_id)["majority_share"].dropna()
    guessing = float(shares.iloc[0]) if len(shares) and name == "accuracy" else None
    if scores.duplicated("label").any():
        draw = partial(bars.over_evaluations, scores, name, guessing)
    elif name == "accuracy":
        draw = partial(bars.accuracy, results, guessing)
    else:
        draw = partial(bars.metric, results, name)
    metric = METRICS[name]
    chart_card(metric.title, draw, scores, name=name, help=metric.definition)


def _of(frame: pd.DataFrame, results: Sequence[Result]) -> pd.DataFrame:
    return frame[frame["label"].isin([result.label for result in results])]


def _table(results: Sequence[Result], names: list[str]) -> pd.DataFrame:
    rows = [{"label": result.label, **{name: getattr(result, name) for name in names}}
            for result in results]  # fmt: skip
    return pd.DataFrame(rows)
