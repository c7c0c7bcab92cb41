"""The run page's tabs about training: every step, the gradients, and the profile."""

from functools import partial

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.profile.classes import CLASSES
from breakeven.storage.profile.profiles import Profile, load_profiles
from breakeven.storage.queries import RunRecord
from breakeven.storage.terminal.finding_words import profile_words
from breakeven.views.charts import layers as charts
from breakeven.views.charts import run as run_charts
from breakeven.views.charts.run import EVENT_NUMBERS, mark_compiler_events, mark_resumptions
from breakeven.views.parts.downloads import Draw, chart_card, download, of_run, show_table
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import axis, sentence

MANY_VALUES = 6
STATISTICS = {
    "Norm": "norm",
    "Mean": "mean",
    "Deviation": "deviation",
    "Largest": "largest",
    "Zeros": "zeros",
}
STATISTICS_HELP = "A row that is empty or full of zeros is a parameter that does not learn."


def show_steps(store: Store, run: pd.Series, record: RunRecord) -> None:
    steps = of_run(queries.step_times(store, record.experiment_id), run)
    losses = of_run(queries.losses(store, record.experiment_id), run)
    if steps.empty:
        st.caption("No step is recorded yet: they arrive block by block.")
        return
    resumptions = of_run(queries.resumptions(store, record.experiment_id), run)

    events = of_run(queries.compiler_events(store, record.experiment_id), run)

    def marked(draw: Draw) -> Draw:
        return lambda: mark_resumptions(draw(), resumptions, named=False)

    def with_events(draw: Draw) -> Draw:
        return marked(lambda: mark_compiler_events(draw(), events))

    marks = [] if events.empty else EVENT_NUMBERS
    times = with_events(partial(run_charts.step_series, steps))
    chart_card("Time of every step", times, steps, name="run-steps",
               numbers=["step_seconds", *marks])  # fmt: skip
    if not losses.empty:  # forward passes have none
        loss = with_events(partial(charts.losses, losses, every_step=steps))
        every_loss = steps[["run_id", "label", "role", "step", "loss"]]
        chart_card("Training loss", loss, every_loss, name="run-loss", numbers=["loss", *marks])
    terms = of_run(queries.loss_terms(store, record.experiment_id), run)
    if not terms.empty:
        title = axis("loss_terms", METRICS["loss"].axis_title)
        draw = marked(partial(run_charts.named_series, terms, title))
        chart_card("Terms of the loss", draw, terms, name="run-loss-terms",
                   numbers=["loss_terms"])  # fmt: skip
    show_step_settings(of_run(queries.step_settings(store, record.experiment_id), run))
    show_own_values(of_run(queries.own_values(store, record.experiment_id), run))


def show_step_settings(steps: pd.DataFrame) -> None:
    """Charts of the learning rate, if it changes, and of the gradient norm, if it was recorded."""
    telling = [name for name, least in (("learning_rate", 2), ("gradient_norm", 1))
               if steps[name].nunique() >= least]  # fmt: skip
    if not telling:
        return
    for column, name in zip(st.columns(len(telling)), telling, strict=True):
        metric = METRICS[name]
        data = steps[["run_id", "label", "role", "step", name]]
        with column:
            chart_card(metric.title, partial(run_charts.setting, data, name), data,
                       name=f"run-{name.replace('_', '-')}", numbers=[name])  # fmt: skip


def show_own_values(values: pd.DataFrame) -> None:
    """A small chart for each number that callbacks recorded; of many, for selected ones."""
    names = list(dict.fromkeys(values["name"]))
    if len(names) > MANY_VALUES:
        names = st.multiselect("Values that callbacks recorded", names, names[:MANY_VALUES],
                               key="values", bind="query-params")  # fmt: skip
    columns = st.columns(2) if len(names) > 1 else [st.container()]
    for number, name in enumerate(names):
        data = values[values["name"] == name]
        with columns[number % len(columns)]:
            draw = partial(run_charts.named_series, data, axis("own_values", name))
            chart_card(inert(name), draw, data, name=f"value-{name}", numbers=["own_values"])


def show_gradients(store: Store, run: pd.Series, record: RunRecord) -> None:
    statistics = of_run(queries.gradient_statistics(store, record.experiment_id), run)
    if statistics.empty:
        requested = record.spec.training.gradient_statistics_every is not None
        st.caption(
            "Nothing is recorded yet." if requested else
            "Not recorded: set “Gradient statistics every” when you launch, or "
            "`--gradient-statistics-every` on the command line."
        )  # fmt: skip
        return
    draw = {
        title: partial(run_charts.gradient_norms, statistics, column)
        for title, column in STATISTICS.items()
    }
    chart_card("Gradients by parameter", draw, statistics, name="gradients",
               numbers=["gradient_statistics"], help=STATISTICS_HELP)  # fmt: skip


NUMBERS = {"time": "profile_seconds", "calls": "kernel_calls", "share": "profile_share"}
MAX_TRACE_BYTES = 200_000_000
PERFETTO = "It opens in a trace viewer such as Perfetto (`ui.perfetto.dev`)."


def show_profile(store: Store, run: pd.Series, record: RunRecord) -> None:
    comparison = compare(store, record.experiment_id)
    label = comparison.result_of(str(run["label"])).label
    profile = next(one for one in load_profiles(store, comparison) if one.label == label)
    st.caption(sentence(profile_words(profile)))
    if len(profile.turns):
        show_trace(profile, run, RunDir(record.folder))
    if not profile.is_known:
        return
    frame = profile.kernels.assign(
        work_class=profile.kernels["work_class"].map(CLASSES),
        share=profile.kernels["seconds"] / profile.busy_seconds,
    ).rename(columns={"work_class": "class"})
    frame = frame[["name", "class", "seconds", "share", "calls", "phase", "dtype", "op"]]
    # On the page each time has its unit; in a file all are in seconds.
    shown = frame.rename(columns={"seconds": "time"})
    show_table("Kernels and operators", shown, "profile-kernels", "None.", NUMBERS, download=frame)


def show_trace(profile: Profile, run: pd.Series, folder: RunDir) -> None:
    """A download of the whole trace of this run's last profiled turn."""
    mine = profile.turns[profile.turns["label"] == run["label"]]
    names = mine["trace"].dropna()
    if names.empty:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        name = str(names.iloc[-1])
        try:
            folder.open(name).close()
        except (RunnerError, OSError):
            st.caption("The trace itself is not in the run's folder any more.")
            return
        download(
            "Trace", partial(_read, folder, name), "trace.json.gz", "application/gzip",
            help=PERFETTO,
        )  # fmt: skip
        st.caption(PERFETTO)


def _read(folder: RunDir, name: str) -> bytes:
    """Reads the trace on request, because it has megabytes."""
    with folder.open(name) as file:
        return file.read(MAX_TRACE_BYTES)
