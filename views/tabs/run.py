"""One run of an experiment: everything that it recorded, with its tabs about checkpoints, settings,
machine and log."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.queries import RunRecord
from breakeven.storage.words.known_causes import known_causes
from breakeven.views.access import permissions
from breakeven.views.charts.scores import score_metric
from breakeven.views.comparison import cards, related_experiments, running
from breakeven.views.parts.actions import errors_shown, show_command
from breakeven.views.parts.downloads import of_run, show_table
from breakeven.views.parts.pictures import experiment_origin, files_of, of_one_run
from breakeven.views.shared import words
from breakeven.views.shared.address import bound, show_tabs
from breakeven.views.shared.definition_links import explained, linked
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.tabs import compiling as run_compiling
from breakeven.views.tabs import steps as run_steps

LOG_LINES = 40
MAX_SOURCE_BYTES = 200_000
NO_CHECKPOINTS = (
    "None: set “Checkpoint every” when you launch, or `--checkpoint-every` on the command line. A "
    "run that is lost or stopped then resumes from its latest checkpoint."
)

NO_CHECKPOINTS_OF_SCRIPT = (
    "None from which the run can resume: a script saves them with `breakeven.save`, or with "
    "`transformers.Trainer` or Lightning (docs/own-training.md)."
)


def show_checkpoints(store: Store, run: pd.Series, record: RunRecord) -> None:
    checkpoints = of_run(queries.checkpoints(store, record.experiment_id), run)
    requested = record.spec.checkpoints.every is not None
    if not checkpoints.empty:
        metric = score_metric(record.spec.evaluation.metric)
        checkpoints = checkpoints.iloc[::-1]  # the latest ones are kept
        checkpoints = pd.DataFrame(
            {
                "step": checkpoints["step"],
                "kept": ["no" if removed else "yes" for removed in checkpoints["removed"]],
                "checkpoint_bytes": checkpoints["bytes"],
                "checkpoint_seconds": checkpoints["seconds"],
                metric.name if metric else "checkpoint_value": checkpoints["value"],
                "file": checkpoints["file"],
            }
        )
    writes_own = record.spec.workload.writes_checkpoints
    why_none = NO_CHECKPOINTS_OF_SCRIPT if writes_own else NO_CHECKPOINTS
    show_table("Checkpoints", checkpoints, "checkpoints", "None yet." if requested else why_none)
    resumptions = of_run(queries.resumptions(store, record.experiment_id), run)
    if not resumptions.empty:
        resumptions = resumptions.assign(time=resumptions["time"].map(words.moment))
        show_table("Resumed", resumptions, "resumptions", "")


def show_settings(store: Store, run: pd.Series, record: RunRecord) -> None:
    st.markdown("**The same experiment again, without the browser**")
    show_command(record.spec)
    show_sources(of_run(queries.sources(store, record.experiment_id), run), RunDir(record.folder))
    st.markdown("**Specification of the experiment**")
    st.code(record.spec.to_json(), language="json", wrap_lines=True)


def show_sources(sources: pd.DataFrame, folder: RunDir) -> None:
    """Shows the user's own Python files, as they were when the run executed them."""
    if sources.empty:
        return
    show_table("Own code", sources, "sources", "")
    for source in sources.itertuples():
        with st.expander(code(source.source)), errors_shown():
            with folder.open(str(source.file)) as copy:
                text = copy.read(MAX_SOURCE_BYTES).decode(errors="replace")
            st.code(text, language="python", wrap_lines=True)


def show_environment(store: Store, run: pd.Series, record: RunRecord) -> None:
    if not record.environment and not record.workload:
        st.caption("Not recorded yet: it is the first thing that a run writes.")
        return
    left, right = st.columns(2)
    for column, title, facts in (
        (left, "Machine and software", record.environment),
        (right, "Model and data", record.workload),
    ):
        column.markdown(f"**{title}**", help=explained(["facts"]))
        column.json(facts, expanded=1)


def show_log(store: Store, run: pd.Series, record: RunRecord) -> None:
    file = permissions.redacted(record.folder / "output.log")
    st.caption(f"The last {LOG_LINES} lines of {code(file)}")
    with errors_shown():
        tail = RunDir(record.folder).log_tail(LOG_LINES)
        st.code(tail or "(empty)", language=None, wrap_lines=True)


PARAMETER = "run"
ALL_RUNS = "All runs"
# Numbers of a run that need no other run.
NUMBERS = (
    "step_seconds",
    "compile_seconds",
    "flops_per_second",
    "peak_share",
    "energy_per_step",
    "peak_memory_bytes",
    "compile_peak_memory_bytes",
    "allocated_memory_bytes",
    "graph_breaks",
    "distinct_graph_breaks",
    "recompiles",
    "guards",
    "inference_gap",
)
PARTS = {
    "Steps": run_steps.show_steps,
    "Scores": run_steps.show_scores,
    "Gradients": run_steps.show_gradients,
    "Compiling": run_compiling.show_compiling,
    "Profile": run_steps.show_profile,
    "Device": cards.show_device,
    "Checkpoints": show_checkpoints,
    "Settings": show_settings,
    "Environment": show_environment,
    "Log": show_log,
}


def choose(runs: pd.DataFrame, *, all_runs: bool = True) -> pd.Series | None:
    """The run to show, a row of `storage.queries.list_runs`, and its selector; None: all runs."""
    by_id = dict(zip(runs["run_id"], runs["label"], strict=True))
    requested = st.query_params.get(PARAMETER)
    if requested in by_id:  # Links of pages name the run; the choice is by its label.
        st.query_params[PARAMETER] = by_id[requested]
    labels = [*([ALL_RUNS] if all_runs else []), *by_id.values()]
    given = bound(PARAMETER, labels[0], labels)
    default = labels[given.pop("index")]
    chosen = st.segmented_control(
        "Run",
        labels,
        default=default,
        required=True,
        format_func=inert,
        label_visibility="collapsed",
        **given,
    )
    rows = runs[runs["label"] == chosen]
    return None if rows.empty else rows.iloc[0]


def show(store: Store, experiment: pd.Series, run: pd.Series) -> None:
    """Everything that one run recorded."""
    record = queries.run_record(store, run["run_id"])
    show_summary(store, run, record)
    if ExperimentState(experiment["state"]).is_final:
        with st.container(horizontal=True):
            related_experiments.show_buttons(store, str(run["run_id"]))
    with files_of(of_one_run(experiment_origin(store, experiment), str(run["label"]))):
        show_tabs("part", PARTS, store, run, record)


def show_summary(store: Store, run: pd.Series, record: RunRecord) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        words.state_badge(run["state"])
        st.caption(" · ".join(progress_facts(store, run, record)))
    if numbers := number_facts(store, run, record):
        st.caption(" · ".join(numbers))
    stops = of_run(queries.stops(store, record.experiment_id), run)
    if not stops.empty:
        last = stops.iloc[-1]
        steps = linked("num_steps", words.plural(int(last["step"]), "step"))
        st.info(
            f"Stopped early after {steps}: {inert(last['reason'])}", icon=":material/front_hand:"
        )
    if RunState(run["state"]).is_failed:
        st.error(inert(words.why_ended(record.reason, record.error)), icon=":material/error:")
    causes = known_causes(store, record.experiment_id)
    running.show_causes(
        record.experiment_id, [cause for cause in causes if cause.label == run["label"]]
    )
    if record.error and record.error.traceback:
        # An error that the user can mend needs no traceback; all others do.
        with st.expander("Traceback", expanded=not record.error.says_what_to_do):
            st.code(record.error.traceback, language="pytb", wrap_lines=True)


def progress_facts(store: Store, run: pd.Series, record: RunRecord) -> Sequence[Markdown]:
    """The run's progress, start, duration and resumptions."""
    of_all = f" of {run['num_steps']:,}" if run["num_steps"] else ""
    parts = [
        linked("num_steps", f"{run['steps_done']:,}{of_all} steps"),
        f"started {words.moment(run['started'])}",
    ]
    if pd.notna(run["ended"]) and pd.notna(run["started"]):
        took = words.duration((run["ended"] - run["started"]).total_seconds())
        parts.append(linked("elapsed_seconds", f"took {took}"))
    resumptions = of_run(queries.resumptions(store, record.experiment_id), run)
    only_times = resumptions["only_times"]
    if not only_times.all():
        steps = ", ".join(f"{step:,}" for step in resumptions.loc[~only_times, "step"])
        parts.append(linked("step", f"resumed at step {steps}"))
    is_later = resumptions["caches"].notna()
    if (only_times & ~is_later).any():
        times = words.plural(int((only_times & ~is_later).sum()), "further training")
        parts.append(linked("round", f"rounds added by {times}"))
    if is_later.any():
        parts.append(linked("warm_compile_seconds", "started once more with its compile caches"))
    return parts


def number_facts(store: Store, run: pd.Series, record: RunRecord) -> list[Markdown]:
    """Known numbers of the run's steps: `Step time 12.3 ms`; if the run has repeats, numbers of all
    of them."""
    result = compare(store, record.experiment_id).result_of(run["label"])
    values = {name: result.value(name) for name in NUMBERS}
    members = record.spec.repeats_by_label[result.label]
    repeats = int(queries.list_runs(store, record.experiment_id)["label"].isin(members).sum())
    return [f"all {repeats} repeats together"] * (repeats > 1) + [
        linked(name, f"{METRICS[name].title} {METRICS[name].format(value)}")
        for name, value in values.items()
        if value is not None
    ]
