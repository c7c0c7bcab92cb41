"""Run: everything recorded about one run, down to the log and the command that repeats it."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from runner.run_dir import RunDir
from storage import queries
from storage.comparison import compare
from storage.metrics import DASH, METRICS
from storage.queries import RunRecord
from storage.store import Store
from views import charts, reproduce, words
from views.downloads import chart_card, csv_button
from views.progress import FAILED
from views.resources import get_store
from views.selection import choose_experiment, choose_run

LOG_LINES = 40
# What a run says for itself, without another one to compare it with.
NUMBERS = (
    "step_seconds", "compile_seconds", "peak_memory_bytes", "compile_peak_memory_bytes",
    "reserved_memory_bytes", "graph_breaks", "recompiles",
)  # fmt: skip

WHEN_EVALUATED = {
    "epochs": "None yet: they follow the ends of epochs.",
    "steps": "None yet: they follow every so many steps.",
    "end": "None yet: one follows the last step.",
    "never": "None: the specification asks for none.",
}


def main() -> None:
    store = get_store()
    experiments = queries.list_experiments(store)
    show_unreadable(store)
    if experiments.empty:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("**No runs yet.** Start an experiment; each of its runs can be inspected "
                        "here.", width="content")  # fmt: skip
            st.page_link("views/launch.py", label="Launch", icon=":material/rocket_launch:")
        return
    with st.container(horizontal=True):
        experiment = choose_experiment("run", experiments)
        assert experiment is not None
        run = choose_run("run", queries.list_runs(store, experiment["experiment_id"]))
    record = queries.run_record(store, run["run_id"])
    show_summary(run, record, measured(store, run, record))
    tabs = st.tabs(["Steps", "Compiling", "Settings", "Environment", "Log"], key="tab",
                   on_change="rerun", bind="query-params")  # fmt: skip
    parts = (show_steps, show_compiling, show_settings, show_environment, show_log)
    for tab, show in zip(tabs, parts, strict=True):
        if tab.open:
            with tab:
                show(store, run, record)


def show_unreadable(store: Store) -> None:
    broken = queries.unreadable(store)
    if not broken.empty:
        with st.expander(f"{words.plural(len(broken), 'run folder')} could not be read"):
            for folder in broken.itertuples():
                st.markdown(f"`{folder.folder}`: {folder.message}")


def measured(store: Store, run: pd.Series, record: RunRecord) -> list[str]:
    """What the run's own steps came to, as far as it is known: `Step time 12.3 ms`."""
    results = compare(store, record.experiment_id).results
    result = next(one for one in results if one.run_id == run["run_id"])
    values = {name: getattr(result, name) for name in NUMBERS}
    return [
        f"{METRICS[name].title} {METRICS[name].format(value)}"
        for name, value in values.items()
        if value is not None
    ]


def show_summary(run: pd.Series, record: RunRecord, numbers: Sequence[str]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        words.state_badge(run["state"])
        parts = [f"{run['steps_done']:,} of {run['num_steps']:,} steps",
                 f"started {words.moment(run['started'])}"]  # fmt: skip
        if pd.notna(run["ended"]) and pd.notna(run["started"]):
            parts.append(f"took {words.duration((run['ended'] - run['started']).total_seconds())}")
        st.caption(" · ".join(parts))
    if numbers:
        st.caption(" · ".join(numbers))
    if run["state"] in FAILED:
        st.error(words.why_ended(record.reason, record.error), icon=":material/error:")
    if record.error:
        # What a person can mend needs no traceback; everything else is read from it.
        with st.expander("Traceback", expanded="WorkloadError" not in record.error):
            st.code(record.error, language="pytb")


def show_steps(store: Store, run: pd.Series, record: RunRecord) -> None:
    steps = _of(queries.step_times(store, record.experiment_id), run)
    losses = _of(queries.losses(store, record.experiment_id), run)
    if steps.empty:
        st.caption("No step is recorded yet: they arrive block by block.")
        return
    chart_card("Time of every step", partial(charts.step_series, steps), steps, name="run-steps")
    draw = partial(charts.losses, losses, every_step=steps)
    chart_card("Training loss", draw, losses, name="run-loss")
    show_step_settings(_of(queries.step_settings(store, record.experiment_id), run))
    evaluations = _of(queries.evaluations(store, record.experiment_id), run)
    when = WHEN_EVALUATED[record.spec.evaluation.when]
    show_table("Evaluations", evaluations, "evaluations", when)


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
            chart_card(metric.title, partial(charts.setting, data, name), data,
                       name=f"run-{name.replace('_', '-')}", help=metric.definition)  # fmt: skip


def show_compiling(store: Store, run: pd.Series, record: RunRecord) -> None:
    experiment_id = record.experiment_id
    if record.variant.backend is None:
        st.caption("This run does not compile: it is what the backends are compared with.")
        return
    breaks = _of(queries.graph_breaks(store, experiment_id), run)
    show_table("Graph breaks", breaks, "graph-breaks", "None: Dynamo captured whole graphs.")
    compiles = _of(queries.compiles(store, experiment_id), run)
    show_table("Compilations", compiles, "compilations", "None recorded yet.")
    metrics = _of(queries.compile_metrics(store, experiment_id), run)
    show_table("What torch says of each compiled frame", metrics, "compile-metrics", "Nothing.")


def show_settings(store: Store, run: pd.Series, record: RunRecord) -> None:
    st.markdown("**The same experiment again, without the browser**")
    st.code(reproduce.command(record.spec), language="bash")
    st.markdown("**Specification of the experiment**")
    st.code(record.spec.to_json(), language="json")


def show_environment(store: Store, run: pd.Series, record: RunRecord) -> None:
    if not record.environment and not record.workload:
        st.caption("Not recorded yet: it is the first thing that a run writes.")
        return
    left, right = st.columns(2)
    for column, title, facts in (
        (left, "Machine and software", record.environment),
        (right, "Model and data", record.workload),
    ):
        column.markdown(f"**{title}**")
        column.json(facts, expanded=2)


def show_log(store: Store, run: pd.Series, record: RunRecord) -> None:
    tail = RunDir(record.folder).log_tail(LOG_LINES)
    st.caption(f"The last {LOG_LINES} lines of `{record.folder / 'output.log'}`")
    st.code(tail or "(empty)", language=None)


def show_table(title: str, frame: pd.DataFrame, name: str, empty: str) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{title}**", width="stretch")
            if not frame.empty:
                csv_button("CSV", frame, name)
        if frame.empty:
            st.caption(empty)
        else:
            shown = frame.drop(columns=["run_id", "label", "role"])
            shown.columns = [column.replace("_", " ").capitalize() for column in shown.columns]
            st.dataframe(shown, hide_index=True, key=f"table-{name}", placeholder=DASH)


def _of(frame: pd.DataFrame, run: pd.Series) -> pd.DataFrame:
    return frame[frame["run_id"] == run["run_id"]]


main()
