"""The run page's tabs about checkpoints, settings, machine and log."""

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.queries import RunRecord
from breakeven.views.access import permissions
from breakeven.views.charts.scores import score_metric
from breakeven.views.parts.downloads import of_run, show_table
from breakeven.views.shared import words
from breakeven.views.shared.inert import code
from breakeven.views.shared.links import explained
from breakeven.views.shared.own_code import show_command

LOG_LINES = 40
MAX_SOURCE_BYTES = 200_000
NO_CHECKPOINTS = (
    "None: choose “Checkpoint every” so many epochs or steps when you launch, or "
    "`--checkpoint-every` on the command line. A run that is lost or stopped then goes on from the "
    "last one."
)

NO_CHECKPOINTS_OF_SCRIPT = (
    "None that the run could go on from: a script saves them with `breakeven.save`, or with "
    "`transformers.Trainer` or Lightning (docs/own-training.md)."
)


def show_checkpoints(store: Store, run: pd.Series, record: RunRecord) -> None:
    made = of_run(queries.checkpoints(store, record.experiment_id), run)
    requested = record.spec.checkpoints.every is not None
    if not made.empty:
        metric = score_metric(record.spec.evaluation.metric)
        made = made.iloc[::-1]  # the latest ones are kept
        made = pd.DataFrame({
            "step": made["step"],
            "kept": ["no" if removed else "yes" for removed in made["removed"]],
            "checkpoint_bytes": made["bytes"],
            "checkpoint_seconds": made["seconds"],
            metric.name if metric else "checkpoint_value": made["value"],
            "file": made["file"],
        })  # fmt: skip
    why_none = NO_CHECKPOINTS_OF_SCRIPT if record.spec.is_script else NO_CHECKPOINTS
    show_table("Checkpoints", made, "checkpoints", "None yet." if requested else why_none)
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
        with st.expander(code(source.source)):
            try:
                with folder.open(str(source.file)) as copy:
                    text = copy.read(MAX_SOURCE_BYTES).decode(errors="replace")
            except (RunnerError, OSError) as error:
                st.text(permissions.redacted(error))
            else:
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
        column.json(facts, expanded=2)


def show_log(store: Store, run: pd.Series, record: RunRecord) -> None:
    file = permissions.redacted(record.folder / "output.log")
    st.caption(f"The last {LOG_LINES} lines of {code(file)}")
    try:
        tail = RunDir(record.folder).log_tail(LOG_LINES)
    except RunnerError as error:
        st.text(permissions.redacted(error))
        return
    st.code(tail or "(empty)", language=None, wrap_lines=True)
