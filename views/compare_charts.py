"""The charts of a comparison, each with its data and its way out."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from storage import queries
from storage.comparison import Comparison, Result, loss_band
from storage.metrics import METRICS
from storage.store import Store
from views import bars, break_even, charts
from views.downloads import Chart, chart_card
from views.leaderboard import throughput_metric


def show(store: Store, comparison: Comparison) -> None:
    """All charts, of the runs that the reader picks."""
    labels = [result.label for result in comparison.results]
    shown = st.pills(
        "Runs", labels, selection_mode="multi", key="runs", default=labels, bind="query-params",
        label_visibility="collapsed",
    )  # fmt: skip
    results = [result for result in comparison.results if result.label in shown]
    if not results:
        st.caption("Pick at least one run above to see its charts.")
        return
    _over_steps(store, comparison.experiment_id, shown, results)
    left, right = st.columns(2)
    with left:
        _step_times(store, comparison.experiment_id, shown)
        _metric(results, "compile_seconds")
        _evaluation(store, comparison.experiment_id, results, "accuracy")
    with right:
        _metric(results, throughput_metric(results))
        _memory(results)
        _evaluation(store, comparison.experiment_id, results, "eval_loss")


def _over_steps(store: Store, experiment_id: str, shown: list[str], results: list[Result]) -> None:
    times = _of(queries.cumulative_times(store, experiment_id), shown)
    views = {
        "Time spent": Chart(break_even.cumulative(times, results), times),
        "Time saved": Chart(break_even.saved(times, results), times),
    }
    chart_card("Break-even", views, name="break-even", help=METRICS["break_even_steps"].definition)
    losses = _of(queries.losses(store, experiment_id), shown)
    band = loss_band(store, experiment_id)
    views = {
        "Loss": Chart(charts.losses(losses, band), losses),
        "Difference": Chart(charts.loss_differences(losses, band), losses),
    }
    chart_card("Training loss", views, name="loss", help=METRICS["parity"].definition)


def _step_times(store: Store, experiment_id: str, shown: list[str]) -> None:
    steps = _of(queries.step_times(store, experiment_id), shown)
    steps = steps[steps["steady"].astype(bool)]
    help = "Median, quartiles, and whiskers from 5 % to 95 % of the steady steps."
    chart = Chart(bars.step_times(steps), steps)
    chart_card("Step time", chart, name="step-times", help=help)


def _metric(results: Sequence[Result], name: str) -> None:
    chart = Chart(bars.metric(results, name), _table(results, [name]))
    chart_card(METRICS[name].title, chart, name=name, help=METRICS[name].definition)


def _memory(results: Sequence[Result]) -> None:
    names = ["peak_memory_bytes", "compile_peak_memory_bytes"]
    chart = Chart(bars.peak_memory(results), _table(results, names))
    metric = METRICS["peak_memory_bytes"]
    help = f"{metric.definition} Diamonds: {METRICS[names[1]].definition.lower()}"
    chart_card(metric.title, chart, name="peak-memory", help=help)


def _evaluation(store: Store, experiment_id: str, results: Sequence[Result], name: str) -> None:
    """Bars for a training of one epoch, lines for a longer one."""
    scores = queries.evaluations(store, experiment_id)
    scores = _of(scores, [result.label for result in results])
    shares = queries.workloads(store, experiment_id)["majority_share"].dropna()
    guessing = float(shares.iloc[0]) if len(shares) and name == "accuracy" else None
    if scores["epoch"].nunique() > 1:
        figure = bars.over_epochs(scores, name, guessing)
    elif name == "accuracy":
        figure = bars.accuracy(results, guessing)
    else:
        figure = bars.metric(results, name)
    metric = METRICS[name]
    chart_card(metric.title, Chart(figure, scores), name=name, help=metric.definition)


def _of(frame: pd.DataFrame, labels: list[str]) -> pd.DataFrame:
    return frame[frame["label"].isin(labels)]


def _table(results: Sequence[Result], names: list[str]) -> pd.DataFrame:
    rows = [{"label": result.label, **{name: getattr(result, name) for name in names}}
            for result in results]  # fmt: skip
    return pd.DataFrame(rows)
