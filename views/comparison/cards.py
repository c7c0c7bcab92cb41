"""Every chart of a comparison, each with its data and its download, for the runs that the reader
picks; the devices during timed runs, other processes, communication and waiting of ranks.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS, NUMBERS
from breakeven.storage.profile.recorded_profiles import collectives, ranks_of
from breakeven.storage.queries import RunRecord
from breakeven.views.charts import bars
from breakeven.views.charts import losses as loss_charts
from breakeven.views.charts import over_steps as step_charts
from breakeven.views.charts import scores as score_charts
from breakeven.views.charts import speed as speed_charts
from breakeven.views.charts.across_experiments import device_series
from breakeven.views.charts.over_steps import EVENT_NUMBERS, mark_compiler_events, mark_resumptions
from breakeven.views.comparison.leaderboard import task_scores, throughput_metric
from breakeven.views.parts.downloads import Card, Draw, of_run, show_card, show_table
from breakeven.views.shared.address import remembered
from breakeven.views.shared.definition_links import sentence
from breakeven.views.shared.inert import Markdown, inert

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
    speedups = _speedups(comparison, results) if comparison.spec.kind.ends_by_width else []
    return [*speedups, _break_even(store, comparison.experiment_id, results, num_steps)]


def learning_cards(store: Store, comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    """Charts of losses and scores: whether the runs learn the same thing."""
    if not _has_steps(results) or comparison.spec.is_inference:
        return []
    steps = _rows_of(queries.step_times(store, comparison.experiment_id), results)
    cards = [_losses(store, comparison, results, steps)]
    if comparison.spec.kind.trains_fully:
        scores = _evaluations(store, comparison, results, steps)
        for names in (task_scores(results), ["loss"]):
            if scores["name"].isin(names).any():
                cards.append(_scores(store, comparison.experiment_id, scores, results, names))
    return cards


def speed_cards(store: Store, comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    """Charts of step time, throughput, compile time and memory."""
    if not _has_steps(results):
        return []
    steps = _rows_of(queries.step_times(store, comparison.experiment_id), results)
    events = _rows_of(queries.compiler_events(store, comparison.experiment_id), results)
    has_compiled = any(result.measured.compile_seconds is not None for result in results)
    compiling = [_metric(results, "compile_seconds")] if has_compiled else []
    return [_step_times(steps, events), *_throughput(results), *compiling, *_memory(results)]


def device_cards(store: Store, comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    """The chart of the device during the runs."""
    samples = _rows_of(queries.device_samples(store, comparison.experiment_id), results)
    card = device_card(samples, "device") if _has_steps(results) else None
    return [card] if card else []


def all_cards(store: Store, comparison: Comparison) -> list[Card]:
    """Every chart of all runs, in the order of the page."""
    kinds = (verdict_cards, learning_cards, speed_cards, device_cards)
    return [card for kind in kinds for card in kind(store, comparison, comparison.results)]


def _has_steps(results: Sequence[Result]) -> bool:
    return any(result.measured.num_steps for result in results)


def _speedups(comparison: Comparison, results: Sequence[Result]) -> list[Card]:
    ratios = comparison.round_speedups
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
    times = _rows_of(queries.cumulative_times(store, experiment_id), results)

    def every_step() -> pd.DataFrame:
        return _rows_of(queries.cumulative_times(store, experiment_id, max_points=None), results)

    draw = {
        "Time spent": partial(speed_charts.cumulative, times, results, num_steps),
        "Time saved": partial(speed_charts.saved, times, results, num_steps),
    }
    numbers = ["break_even_steps", "cumulative_seconds", "time_saved"]
    help = "Lines show the estimate in the table; thin dotted lines show measurements."
    return Card("Break-even", draw, every_step, "break-even", numbers, help)


def _losses(
    store: Store, comparison: Comparison, results: Sequence[Result], steps: pd.DataFrame
) -> Card:
    counts = _counts_per_step(store, comparison.experiment_id)
    over = ["cumulative_seconds", *counts]
    losses = _rows_of(queries.losses(store, comparison.experiment_id), results)
    resumptions = _rows_of(queries.resumptions(store, comparison.experiment_id), results)
    events = _rows_of(queries.compiler_events(store, comparison.experiment_id), results)
    band = comparison.band

    def losses_over(name: str) -> go.Figure:
        progress = _with_progress(counts, steps)[["label", "step", "loss", *over]]
        losses_with_progress = losses.merge(
            progress.drop(columns="loss"), on=["label", "step"], how="left"
        )
        return loss_charts.losses(losses_with_progress, None, progress, name)

    difference = {"Difference": partial(loss_charts.loss_differences, losses, band)}
    draw: dict[str, Draw] = {
        **(difference if loss_charts.has_differences(losses) else {}),
        "By step": lambda: mark_compiler_events(
            mark_resumptions(loss_charts.losses(losses, band, steps), resumptions), events
        ),
        **{X_AXES[name]: partial(losses_over, name) for name in over},
        "Log": lambda: loss_charts.losses(losses, band, steps).update_yaxes(type="log", range=None),
    }

    def every_step() -> pd.DataFrame:
        return _rows_of(queries.losses(store, comparison.experiment_id, max_points=None), results)

    window = loss_charts.smoothing_window(losses)
    smoothed = f"Strong lines are means of {window} steps; faint lines are single steps."
    marks = [] if events.empty else EVENT_NUMBERS
    numbers = ["parity", "loss_difference", *over, *marks]
    help = smoothed if window > 1 else ""
    return Card("Training loss", draw, every_step, "loss", numbers, help)


def _step_times(steps: pd.DataFrame, events: pd.DataFrame) -> Card:
    help = "The boxes: median, quartiles, and whiskers from 5 % to 95 % of the steady steps."
    steady = steps[steps["steady"].astype(bool)]
    draw: dict[str, Draw] = {} if steady.empty else {"Steady": lambda: bars.step_times(steady)}
    draw["Every step"] = lambda: mark_compiler_events(step_charts.step_series(steps), events)
    marks = [] if events.empty else EVENT_NUMBERS
    return Card("Step time", draw, steps, "step-times", ["step_seconds", *marks], help)


def _throughput(results: Sequence[Result]) -> list[Card]:
    """Samples, tokens and FLOP per second of the runs."""
    usual = throughput_metric(results)
    shown = [name for name in THROUGHPUT if name != "samples_per_second" or name == usual]
    names = [name for name in shown if any(result.value(name) is not None for result in results)]
    draw = {THROUGHPUT[name]: partial(bars.metric, results, name) for name in names}
    return [Card("Throughput", draw, _table(results, names), usual, names)] if draw else []


def _metric(results: Sequence[Result], name: str) -> Card:
    metric, table = METRICS[name], _table(results, [name])
    draw = partial(bars.metric, results, name)
    return Card(metric.title, draw, table, name, [name])


def _memory(results: Sequence[Result]) -> list[Card]:
    """The chart of memory; none before a run has recorded any."""
    names = ["peak_memory_bytes", *bars.MEMORY_MARKS]
    if all(result.value(name) is None for result in results for name in names):
        return []
    draw = partial(bars.peak_memory, results)
    metric = METRICS["peak_memory_bytes"]
    marks = (f"{sign} {METRICS[name].title}" for name, (sign, _) in bars.MEMORY_MARKS.items())
    help = f"The marks: {', '.join(marks)}."
    return [Card(metric.title, draw, _table(results, names), "peak-memory", names, help)]


def _evaluations(
    store: Store, comparison: Comparison, results: Sequence[Result], steps: pd.DataFrame
) -> pd.DataFrame:
    """Results of evaluations on the primary split, with the training time before each."""
    scores = _rows_of(queries.evaluation_metrics(store, comparison.experiment_id), results)
    split = comparison.spec.evaluation.primary_split
    scores = scores[(scores["split"] == split) & ~scores["compiled"]]
    # An evaluation after n steps comes at the end of step n - 1.
    ends = pd.DataFrame(
        {
            "label": steps["label"],
            "step": steps["step"] + 1,
            "cumulative_seconds": steps.groupby("label")["seconds"].cumsum(),
        }
    )
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
        scores_by_name = scores[scores["name"] == name]
        guessing = float(shares.iloc[0]) if len(shares) and name == "accuracy" else None
        column = "eval_loss" if name == "loss" else name
        several = scores_by_name.duplicated("label").any()
        draw[METRICS[column].title] = (
            partial(score_charts.scores_of_runs, scores_by_name, name, guessing)
            if several
            else partial(score_charts.last_scores, results, column, guessing)
        )
        if several:
            by_time = X_AXES["cumulative_seconds"].lower()
            draw[f"{METRICS[column].title}, {by_time}"] = partial(
                score_charts.scores_of_runs, scores_by_name, name, guessing, "cumulative_seconds"
            )
    data = scores[scores["name"].isin(names)]
    columns = ["eval_loss" if name == "loss" else name for name in names]
    numbers = [*columns, "cumulative_seconds"] if len(draw) > len(names) else columns
    if len(names) > 1:
        return Card("Scores", draw, data, "scores", numbers)
    title = METRICS[columns[0]].title
    return Card(title, draw if len(draw) > 1 else draw[title], data, columns[0], numbers)


def _counts_per_step(store: Store, experiment_id: str) -> dict[str, float]:
    """Samples and tokens per step, each if known and the same in all runs."""
    known = queries.workloads(store, experiment_id)
    columns = {"samples_seen": "samples_per_step", "tokens_seen": "tokens_per_step"}
    counts = {name: known[column].dropna() for name, column in columns.items()}
    return {name: float(count.iloc[0]) for name, count in counts.items() if count.nunique() == 1}


def _with_progress(counts: Mapping[str, float], steps: pd.DataFrame) -> pd.DataFrame:
    """Adds the run's time, samples and tokens up to the end of each step; `counts`: the result of
    `_counts_per_step`."""
    seconds = steps.groupby("label")["seconds"].cumsum()
    progress = {name: (steps["step"] + 1) * count for name, count in counts.items()}
    return steps.assign(cumulative_seconds=seconds, **progress)


def _rows_of(frame: pd.DataFrame, results: Sequence[Result]) -> pd.DataFrame:
    """The rows of the results' processes, with the labels of the results."""
    labels = {result.run_id: result.label for result in results}
    labelled = {run_id: label for run_id, label in labels.items() if run_id.endswith(f".{label}")}
    if set(frame["run_id"].unique()) <= set(labelled):
        return frame  # Unchanged: selecting every row of a long training is slow.
    rows = frame[frame["run_id"].isin(list(labels))]
    return rows.assign(label=rows["run_id"].map(labels))


def _table(results: Sequence[Result], names: list[str]) -> pd.DataFrame:
    rows = [
        {"label": result.label, **{name: result.value(name) for name in names}}
        for result in results
    ]
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
        "Runs",
        labels,
        selection_mode="multi",
        key="runs",
        default=default,
        bind="query-params",
        format_func=inert,
        label_visibility="collapsed",
        on_change=remember,
    )
    return [result for result in comparison.results if result.label in shown]


CHARTED = (
    "sm_clock_mhz",
    "temperature_celsius",
    "power_watts",
    "memory_clock_mhz",
    "utilization",
    "others_cpu_share",
    "cpu_frequency_mhz",
    "load_average",
    "stolen_cpu_share",
)
EVENTFUL = ("others_cpu_share", "stolen_cpu_share")
"""Columns that have no chart if all values are 0."""
ROUNDED_TO_NOTHING = 0.005
QUOTA = "quota used up"


def show_device(store: Store, run: pd.Series, record: RunRecord) -> None:
    """The run page's tab: warnings about this run's times, the samples, other processes."""
    samples = of_run(queries.device_samples(store, record.experiment_id), run)
    if warnings := compare(store, record.experiment_id).result_of(run["label"]).device_warnings:
        sentences = "  \n".join(sentence(warning.sentence_without_runs()) for warning in warnings)
        st.warning(sentences, icon=":material/info:")
    _show_ranks_of(store, record.experiment_id, str(run["label"]))
    for fact in [*threads(record.environment), *record.environment.get("notes", [])]:
        st.caption(inert(fact))
    if samples["round"].isna().all():
        st.caption("Nothing is recorded yet: a sample is taken after each block.")
        return
    if card := device_card(samples, "run-device"):
        show_card(card)
    strangers = other_processes(samples)
    if not strangers.empty:
        show_table(
            "Other processes",
            strangers,
            "other-processes",
            "",
            numbers={"memory": "others_memory_bytes"},
        )


def threads(environment: dict[str, Any]) -> list[str]:
    """The number of CPU threads of the run and its reason, if recorded."""
    if not environment.get("cpu_threads_reason"):
        return []
    count = int(environment["cpu_threads"])
    return [f"{count} CPU thread{'s' if count > 1 else ''}: {environment['cpu_threads_reason']}."]


def device_card(samples: pd.DataFrame, name: str) -> Card | None:
    """One figure for each measured number; None if there is none."""
    data = charted(samples)
    telling = [column for column in CHARTED if _is_telling(data, column)]
    if not telling:
        return None
    draw = {NUMBERS[column].title: partial(device_series, data, column) for column in telling}
    return Card("Device", draw, data, name, [*telling, "held_back"])


def charted(samples: pd.DataFrame) -> pd.DataFrame:
    """Samples of blocks with lists as text, and two more columns: `step`, and `held_back` with the
    reasons."""
    blocks = samples[samples["round"].notna()]
    held_back = [
        ", ".join([*(names or []), *([QUOTA] if quota_used_up else [])]) or None
        for names, quota_used_up in zip(
            blocks["throttled_by"], blocks["throttled_periods"].fillna(0) > 0, strict=True
        )
    ]
    processes = [_processes_text(listed) for listed in blocks["processes"]]
    return blocks.drop(columns="throttled_by").assign(
        step=blocks["first_step"],
        held_back=pd.Series(held_back, index=blocks.index, dtype=object),
        processes=pd.Series(processes, index=blocks.index, dtype=object),
    )


def other_processes(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per observed process: pid, name, peak memory, and the number of its samples."""
    seen = [process for listed in samples["processes"] for process in listed or []]
    if not seen:
        return pd.DataFrame()
    grouped = pd.DataFrame(seen).groupby(["pid", "name"], dropna=False, sort=False)
    rows = grouped.agg(memory=("memory_bytes", "max"), samples=("pid", "size")).reset_index()
    # A pid is an identifier: nobody adds pids up, and they have no unit.
    return rows.assign(
        pid=rows["pid"].astype(str),
        samples=[f"{count} of {len(samples)}" for count in rows["samples"]],
    )


def _is_telling(data: pd.DataFrame, column: str) -> bool:
    values = data[column].dropna()
    return len(values) > 0 and (column not in EVENTFUL or values.max() >= ROUNDED_TO_NOTHING)


def _processes_text(processes: Sequence[dict[str, Any]] | None) -> str | None:
    if processes is None:
        return None
    return ", ".join(f"{process['name'] or '?'} ({process['pid']})" for process in processes)


NOT_PROFILED = "Nothing was profiled yet."


def _show_ranks_of(store: Store, experiment_id: str, label: str) -> None:
    """A row for each rank of one run, and one for each kind of collective."""
    ranks, sent = (
        table[table["label"] == label].drop(columns="label")
        for table in (ranks_of(store, experiment_id), collectives(store, experiment_id))
    )
    if len(ranks):
        named = ranks.assign(rank=[f"rank {number}" for number in ranks["rank"]])
        show_table("Ranks", named, "ranks", NOT_PROFILED)
        show_table(
            "Collectives of rank 0",
            sent,
            "collectives",
            NOT_PROFILED,
            numbers={"calls": "kernel_calls"},
        )
