"""Every chart of a comparison, each with its data and its download, for the runs that the reader
picks."""

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.rounds import round_speedups
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts import bars, break_even
from breakeven.views.charts import layers as charts
from breakeven.views.charts import run as run_charts
from breakeven.views.charts import scores as score_charts
from breakeven.views.charts import speed as speed_charts
from breakeven.views.charts.run import EVENT_NUMBERS, mark_compiler_events, mark_resumptions
from breakeven.views.comparison import device_panel
from breakeven.views.comparison.leaderboard import task_scores, throughput_metric
from breakeven.views.parts.downloads import Card, Draw, show_card
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.selection import remembered

X_AXES = {"cumulative_seconds": "By time", "samples_seen": "By samples", "tokens_seen": "By tokens"}
"""Possible x-axes of losses instead of steps, with their names in the selection."""
THROUGHPUT = {
    "samples_per_second": "Samples",
    "tokens_per_second": "Tokens",
    "real_tokens_per_second": "Without padding",
    "flops_per_second": "FLOP",
    "peak_share": "Of the peak",
}
"""Quantities per second, with their names in the selection."""


def verdict_cards(
    store: Store, comparison: Comparison, results: Sequence[Result], num_steps: int = 0
) -> list[Card]:
    """Charts of speedups and break-even; lines reach at least `num_steps`."""
    if not _has_steps(results):
        return []
    found = _speedups(store, comparison, results) if comparison.spec.kind.ends_by_width else []
    return [*found, _break_even(store, comparison.experiment_id, results, num_steps)]


def learning_cards(store: Store, comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    """Charts of losses and scores: whether the runs learn the same thing."""
    if not _has_steps(results) or comparison.spec.is_inference:
        return []
    steps = _of(queries.step_times(store, comparison.experiment_id), results)
    found = [_losses(store, comparison, results, steps)]
    if comparison.spec.kind.trains_fully:
        scores = _evaluations(store, comparison, results, steps)
        for names in (task_scores(results), ["loss"]):
            found.append(_scores(store, comparison.experiment_id, scores, results, names))
    return found


def speed_cards(store: Store, comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    """Charts of step time, throughput, compile time and memory."""
    if not _has_steps(results):
        return []
    steps = _of(queries.step_times(store, comparison.experiment_id), results)
    events = _of(queries.compiler_events(store, comparison.experiment_id), results)
    return [_step_times(steps, events), *_throughput(results),
            _metric(results, "compile_seconds"), _memory(results)]  # fmt: skip


def device_cards(store: Store, comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    """The chart of the device during the runs."""
    samples = _of(queries.device_samples(store, comparison.experiment_id), results)
    found = device_panel.card(samples, "device") if _has_steps(results) else None
    return [found] if found else []


def all_cards(store: Store, comparison: Comparison) -> list[Card]:
    """Every chart of all runs, in the order of the page."""
    kinds = (verdict_cards, learning_cards, speed_cards, device_cards)
    return [card for kind in kinds for card in kind(store, comparison, comparison.results)]


def _has_steps(results: Sequence[Result]) -> bool:
    return any(result.measured.num_steps for result in results)


def _speedups(store: Store, comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    ratios = round_speedups(store, comparison.experiment_id)
    ratios = ratios[ratios["label"].isin([result.label for result in results])]
    if ratios.empty:
        return []
    draw: dict[str, Draw] = {
        "Interval": partial(speed_charts.speedups, results, ratios, comparison.noise_floor),
        "Round by round": partial(speed_charts.round_by_round, ratios),
    }
    help = "The band behind the dots is the noise floor. Lines over rounds are the medians so far."
    if comparison.spec.speed.repeats > 1:
        help += " Each ring is a process, which counts as one observation; all other charts over "
        help += "steps show one process of each run."
    return [Card("Speedup", draw, ratios, "speedup", ["speedup", "noise_floor"], help)]


def _break_even(
    store: Store, experiment_id: str, results: Sequence[Result], num_steps: int
) -> Card:
    times = _of(queries.cumulative_times(store, experiment_id), results)

    def every_step() -> pd.DataFrame:
        return _of(queries.cumulative_times(store, experiment_id, max_points=None), results)

    draw = {
        "Time spent": partial(break_even.cumulative, times, results, num_steps),
        "Time saved": partial(break_even.saved, times, results, num_steps),
    }
    numbers = ["break_even_steps", "cumulative_seconds", "time_saved"]
    help = "Lines show the estimate in the table; thin dotted lines show measurements."
    return Card("Break-even", draw, every_step, "break-even", numbers, help)


def _losses(
    store: Store, comparison: Comparison, results: Sequence[Result], steps: pd.DataFrame
) -> Card:
    counts = _counted(store, comparison.experiment_id)
    over = ["cumulative_seconds", *counts]
    losses = _of(queries.losses(store, comparison.experiment_id), results)
    resumptions = _of(queries.resumptions(store, comparison.experiment_id), results)
    events = _of(queries.compiler_events(store, comparison.experiment_id), results)
    band = comparison.loss_band

    def losses_over(name: str) -> go.Figure:
        grown = _with_progress(counts, steps)[["label", "step", "loss", *over]]
        mine = losses.merge(grown.drop(columns="loss"), on=["label", "step"], how="left")
        return charts.losses(mine, None, grown, name)

    draw: dict[str, Draw] = {
        "By step": lambda: mark_compiler_events(
            mark_resumptions(charts.losses(losses, band, steps), resumptions), events
        ),
        **{X_AXES[name]: partial(losses_over, name) for name in over},
        "Log": lambda: charts.losses(losses, band, steps).update_yaxes(type="log", range=None),
        "Difference": partial(charts.loss_differences, losses, band),
    }

    def every_step() -> pd.DataFrame:
        return _of(queries.losses(store, comparison.experiment_id, max_points=None), results)

    window = charts.smoothing_window(losses)
    smoothed = f"Strong lines are means of {window} steps; faint lines are single steps."
    marks = [] if events.empty else EVENT_NUMBERS
    numbers = ["parity", "loss_difference", *over, *marks]
    help = smoothed if window > 1 else ""
    return Card("Training loss", draw, every_step, "loss", numbers, help)


def _step_times(steps: pd.DataFrame, events: pd.DataFrame) -> Card:
    help = "The boxes: median, quartiles, and whiskers from 5 % to 95 % of the steady steps."
    draw: dict[str, Draw] = {
        "Steady": lambda: bars.step_times(steps[steps["steady"].astype(bool)]),
        "Every step": lambda: mark_compiler_events(run_charts.step_series(steps), events),
    }
    marks = [] if events.empty else EVENT_NUMBERS
    return Card("Step time", draw, steps, "step-times", ["step_seconds", *marks], help)


def _throughput(results: Sequence[Result]) -> list[Card]:
    """Samples, tokens and FLOP per second of the runs."""
    usual = throughput_metric(results)
    shown = [name for name in THROUGHPUT if name != "samples_per_second" or name == usual]
    names = [name for name in shown if any(one.value(name) is not None for one in results)]
    draw = {THROUGHPUT[name]: partial(bars.metric, results, name) for name in names}
    return [Card("Throughput", draw, _table(results, names), usual, names)] if draw else []


def _metric(results: Sequence[Result], name: str) -> Card:
    metric, table = METRICS[name], _table(results, [name])
    draw = partial(bars.metric, results, name)
    return Card(metric.title, draw, table, name, [name])


def _memory(results: Sequence[Result]) -> Card:
    names = ["peak_memory_bytes", *bars.MEMORY_MARKS]
    draw = partial(bars.peak_memory, results)
    metric = METRICS["peak_memory_bytes"]
    marks = (f"{sign} {METRICS[name].title}" for name, (sign, _) in bars.MEMORY_MARKS.items())
    help = f"The marks: {', '.join(marks)}."
    return Card(metric.title, draw, _table(results, names), "peak-memory", names, help)


def _evaluations(
    store: Store, comparison: Comparison, results: Sequence[Result], steps: pd.DataFrame
) -> pd.DataFrame:
    """Results of evaluations on the primary split, with the training time before each."""
    scores = _of(queries.evaluation_metrics(store, comparison.experiment_id), results)
    split = comparison.spec.evaluation.primary_split
    scores = scores[(scores["split"] == split) & ~scores["compiled"]]
    # An evaluation after n steps comes at the end of step n - 1.
    ends = pd.DataFrame({
        "label": steps["label"],
        "step": steps["step"] + 1,
        "cumulative_seconds": steps.groupby("label")["seconds"].cumsum(),
    })  # fmt: skip
    ends = ends[ends["step"].isin(scores["step"])]
    return scores.merge(ends, on=["label", "step"], how="left")


def _scores(
    store: Store,
    experiment_id: str,
    scores: pd.DataFrame,
    results: Sequence[Result],
    names: Sequence[str],
) -> Card:
    """Results of the evaluations: bars for a single one, lines for several."""
    shares = queries.workloads(store, experiment_id)["majority_share"].dropna()
    draw: dict[str, Draw] = {}
    for name in names:
        mine = scores[scores["name"] == name]
        guessing = float(shares.iloc[0]) if len(shares) and name == "accuracy" else None
        column = "eval_loss" if name == "loss" else name
        several = mine.duplicated("label").any()
        draw[METRICS[column].title] = (
            partial(score_charts.scores_of_runs, mine, name, guessing) if several
            else partial(score_charts.last_scores, results, column, guessing)
        )  # fmt: skip
        if several:
            draw[_by_time(METRICS[column].title)] = partial(
                score_charts.scores_of_runs, mine, name, guessing, "cumulative_seconds"
            )
    data = scores[scores["name"].isin(names)]
    columns = ["eval_loss" if name == "loss" else name for name in names]
    numbers = [*columns, "cumulative_seconds"] if len(draw) > len(names) else columns
    if len(names) > 1:
        return Card("Scores", draw, data, "scores", numbers)
    title = METRICS[columns[0]].title
    return Card(title, draw if len(draw) > 1 else draw[title], data, columns[0], numbers)


def _by_time(title: str) -> str:
    return f"{title}, {X_AXES['cumulative_seconds'].lower()}"


def _counted(store: Store, experiment_id: str) -> dict[str, float]:
    """Samples and tokens per step, each if known and the same in all runs."""
    known = queries.workloads(store, experiment_id)
    columns = {"samples_seen": "samples_per_step", "tokens_seen": "tokens_per_step"}
    counts = {name: known[column].dropna() for name, column in columns.items()}
    return {name: float(count.iloc[0]) for name, count in counts.items() if count.nunique() == 1}


def _with_progress(counts: Mapping[str, float], steps: pd.DataFrame) -> pd.DataFrame:
    """Adds to each step the time, samples and tokens that its run had trained by its end; `counts`:
    the result of `_counted`."""
    seconds = steps.groupby("label")["seconds"].cumsum()
    grown = {name: (steps["step"] + 1) * count for name, count in counts.items()}
    return steps.assign(cumulative_seconds=seconds, **grown)


def _of(frame: pd.DataFrame, results: Sequence[Result]) -> pd.DataFrame:
    """Selects the rows of the results' processes, and labels them as the results."""
    labels = {result.run_id: result.label for result in results}
    labelled = {run_id: label for run_id, label in labels.items() if run_id.endswith(f".{label}")}
    if set(frame["run_id"].unique()) <= set(labelled):
        return frame  # Unchanged: selecting every row of a long training is slow.
    mine = frame[frame["run_id"].isin(list(labels))]
    return mine.assign(label=mine["run_id"].map(labels))


def _table(results: Sequence[Result], names: list[str]) -> pd.DataFrame:
    rows = [{"label": result.label, **{name: result.value(name) for name in names}}
            for result in results]  # fmt: skip
    return pd.DataFrame(rows)


RUNS_OF = "runs of"
"""Key in the session state: the experiment whose runs were picked last."""


def show(cards: Sequence[Card], empty: Markdown = "", *, side_by_side: bool = False) -> None:
    """Shows the cards below each other or in two columns; without cards the text `empty`."""
    if not cards and empty:
        st.caption(empty)
    if not side_by_side:
        for card in cards:
            show_card(card)
        return
    for place, column in enumerate(st.columns(2)):
        with column:
            for card in cards[place::2]:
                show_card(card)


def pick(comparison: Comparison) -> list[Result]:
    """The runs that the reader picks."""
    labels = [result.label for result in comparison.results]
    default, remember = remembered("runs", labels, comparison.experiment_id)
    # A selection of runs applies to one experiment only.
    before = st.session_state.get(RUNS_OF)
    if before not in (None, comparison.experiment_id):
        st.session_state["runs"] = labels
    st.session_state[RUNS_OF] = comparison.experiment_id
    shown = st.pills(
        "Runs", labels, selection_mode="multi", key="runs", default=default, bind="query-params",
        format_func=inert, label_visibility="collapsed", on_change=remember,
    )  # fmt: skip
    return [result for result in comparison.results if result.label in shown]
