"""The run page's tab about compiling: timeline, graph breaks, differences from another run."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.storage import queries
from breakeven.storage.compiling.timeline import timeline
from breakeven.storage.compiling.two_runs import (
    TRACE,
    KeptFile,
    code_difference,
    compile_difference,
    kept_of,
    load_compiled,
    phases,
)
from breakeven.storage.index.store import Store
from breakeven.storage.queries import RunRecord
from breakeven.storage.side_by_side.sides import Differing
from breakeven.storage.words.compiling import same_text
from breakeven.views.access import permissions
from breakeven.views.charts import compiling as compiling_charts
from breakeven.views.comparison.leaderboard import table_of_differing
from breakeven.views.parts.actions import errors_shown
from breakeven.views.parts.downloads import Card, download, of_run, show_card, show_table, titled
from breakeven.views.shared import words
from breakeven.views.shared.address import bound, titles
from breakeven.views.shared.inert import Html, code, inert

MAX_SHOWN = 200_000
"""Bytes; browsers colour more only slowly. Downloads contain the whole file."""
MAX_FILE = 512 * 2**20
MAX_DIFFERENCES = 12
MAX_DIFFERENCE = 60_000
NOT_KEPT = (
    "Graphs, generated code and torch's trace are not kept: choose “Keep code” or “Keep torch's "
    "trace” when you launch, or `--set keep_code=yes` and `--set keep_trace=yes` on the command "
    "line."
)


def show_kept(store: Store, record: RunRecord) -> None:
    """Shows a choice of files with their text, and the trace as a download."""
    kept = kept_of(store, record)
    with titled("Graphs and generated code"):
        if not kept:
            requested = record.spec.keep_code or record.spec.keep_trace
            st.caption("Requested, and nothing was written yet." if requested else NOT_KEPT)
            return
        shown = [file for file in kept if file.what != TRACE]
        if shown:
            show_code(shown)
        for trace in kept:
            if trace.what == TRACE:
                show_trace(trace)


def show_code(files: Sequence[KeptFile]) -> None:
    named = {
        file.file: f"{file.what}, compilation {file.compile_id or 'none'}: {file.name}"
        for file in files
    }
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox(
            "File",
            list(named),
            format_func=named.__getitem__,
            **bound("kept", files[0].file, list(named)),
        )
        file = next(kept for kept in files if kept.file == chosen)
        download("Download", partial(content_or_error, file), file.name, "text/x-python")
    with errors_shown():
        text = file.read(MAX_SHOWN).decode(errors="replace")
        st.code(text, language="python", line_numbers=True, height=520)
        if file.num_bytes is not None and file.num_bytes > MAX_SHOWN:
            st.caption("The rest is in the file.")


def show_trace(trace: KeptFile) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f"Torch's structured trace, for {code('tlparse')}: {code(trace.file)}", width="stretch"
        )
        download("Trace", partial(content_or_error, trace), trace.name, "text/plain")


def content_or_error(file: KeptFile) -> bytes:
    """The content for a download, or the error if the file cannot be read any more."""
    try:
        return file.read(MAX_FILE)
    except (RunnerError, OSError) as error:
        return permissions.redacted(error).encode()


def show_code_difference(store: Store, record: RunRecord, other_record: RunRecord) -> None:
    """Shows graphs and code that differ between two runs which both stored them."""
    files, other_files = kept_of(store, record), kept_of(store, other_record)
    if not files or not other_files:
        st.caption("Graphs and generated code are compared where both runs keep them.")
        return
    with errors_shown():
        differences = code_difference(files, other_files)
        if not differences:
            st.caption("Graphs and generated code are the same.")
        for name, text in differences[:MAX_DIFFERENCES]:
            with st.expander(code(name)):
                st.code(text[:MAX_DIFFERENCE], language="diff")
        if len(differences) > MAX_DIFFERENCES:
            st.caption(f"{len(differences) - MAX_DIFFERENCES:,} more files differ.")


TIMELINE_HELP = (
    "A row for each piece of Python code that was compiled (a frame), with the line it begins at "
    "and the training step that waited for it. From left to right is time; a colour is the stage "
    "that was at work. Thin bars below a row are threads that compile kernels at the same time."
)
CAUSES = {"buckets": "a bucket of DDP ends", "ranks": "torch's code around the model"}
BREAKS_OF_RANKS = (
    "They do not count as graph breaks of your code. Graphs are split where DDP's buckets end, so "
    "that gradients are sent while others are computed. The backend's setting `optimize_ddp` "
    "(`ddp_optimizer`, `python_reducer`, `no_optimization`) chooses how Dynamo treats DDP."
)
NO_OTHER = "no other run"
KINDS: dict[str, str] = {
    "graph break": "Graph breaks",
    "recompilation": "Recompilations",
    "failure": "Failures",
    "graphs": "In all",
    "frame": "Compiled functions",
    "cache": "Compile caches",
    "kernel": "Kernels and operators",
    "backend": "Backend",
    "setting": "Settings",
    "environment": "Machine and software",
    "data": "Model and data",
}


def show_compiling(store: Store, run: pd.Series, record: RunRecord) -> None:
    experiment_id = record.experiment_id
    if record.arm.backend is None:
        st.caption("This run does not compile: it is what the backends are compared with.")
        return
    show_timeline(store, run, record)
    show_difference(store, run, record)
    show_breaks(of_run(queries.graph_breaks(store, experiment_id), run))
    metrics = frames(of_run(queries.compile_metrics(store, experiment_id), run))
    recompilations = metrics[metrics["recompile_reason"].notna()]
    recompilations = recompilations.rename(columns={"recompile_reason": "failed_guard"})
    show_table(
        "Recompilations",
        recompilations[["step", "phase", "function", "file", "failed_guard"]],
        "recompilations",
        "None: every guard held.",
    )
    compiles = of_run(queries.compiles(store, experiment_id), run)
    compiles = compiles.rename(columns={"seconds": "compilation_seconds"})
    show_table("Compilations", compiles, "compilations", "None recorded yet.")
    metrics = metrics.drop(columns="recompile_reason")
    show_table("Compiled frames, as torch reports them", metrics, "compile-metrics", "Nothing.")
    show_kept(store, record)


def show_timeline(store: Store, run: pd.Series, record: RunRecord) -> None:
    """Shows the activity of each stage over time; older journals lack it."""
    data = timeline(store, record.experiment_id, str(run["run_id"]))
    if data.empty:
        st.caption(
            "No times of compile stages are recorded: an older version recorded the run, or "
            "it has not compiled yet."
        )
        return
    figure = partial(compiling_charts.timeline, data)
    show_card(
        Card(
            "Stages of compiling by time",
            figure,
            data,
            name="compile-timeline",
            numbers=["compile_timeline", "compile_phases"],
            help=TIMELINE_HELP,
        )
    )
    left_out = data["frame"].nunique() - len(compiling_charts.shown_frames(data))
    st.caption(
        TIMELINE_HELP
        + (f" {words.plural(left_out, 'shorter frame')} are not drawn." if left_out else "")
    )


def show_breaks(breaks: pd.DataFrame) -> None:
    """Shows graph breaks in the trained code, and separately those that several devices cause."""
    by_ranks = breaks["cause"] != "code"
    none = "None in your code." if by_ranks.any() else "None: Dynamo captured whole graphs."
    show_table("Graph breaks", distinct(breaks[~by_ranks]), "graph-breaks", none)
    if by_ranks.any():
        by_reason = distinct(breaks[by_ranks])
        causes = breaks.drop_duplicates("reason").set_index("reason")["cause"]
        by_reason.insert(0, "cause", by_reason["reason"].map(causes).map(CAUSES))
        show_table("Breaks that several devices cause", by_reason, "graph-breaks-of-ranks", "")
        st.caption(BREAKS_OF_RANKS)


def distinct(breaks: pd.DataFrame) -> pd.DataFrame:
    """Graph breaks of one run, a row for each line and reason, with count and first step."""
    keys = ["location", "operator", "reason", "phase"]
    counted = breaks.assign(count=breaks["count"].fillna(1)).groupby(keys, sort=False, dropna=False)
    groups = counted.agg(
        count=("count", "sum"), step=("step", "min"), stopped_at=("stopped_at", "first")
    )
    columns = ["count", "step", "location", "operator", "reason", "stopped_at", "phase"]
    return groups.reset_index()[columns]


def frames(metrics: pd.DataFrame) -> pd.DataFrame:
    """Torch's metrics of one run's frames, with file and line in one column."""
    places = metrics["file"].str.cat(metrics["line"].astype("Int64").astype("string"), sep=":")
    return metrics.assign(file=places).drop(columns="line")


def show_difference(store: Store, run: pd.Series, record: RunRecord) -> None:
    """Compiler differences from a run that the reader chooses, of any experiment."""
    other = choose_other(store, run, record)
    if other is None:
        return
    compiled, other_compiled = load_compiled(store, str(run["run_id"])), load_compiled(store, other)
    differences = compile_difference(compiled, other_compiled)
    frame = pd.DataFrame(differences) if differences else None
    with titled("Compiler differences", frame, "compile-difference"):
        if text := same_text(differences):
            st.caption(inert(text))
        if differences:
            st.html(difference_html(differences, compiled.title, other_compiled.title))
    times = phases(compiled, other_compiled).rename(
        columns={"run": "this_run", "other": "other_run"}
    )
    numbers = {"this_run": "compile_phases", "other_run": "compile_phases"}
    show_code_difference(store, compiled.record, other_compiled.record)
    show_table("Time by phase, each measured once", times, "compile-difference-phases", "", numbers)


def choose_other(store: Store, run: pd.Series, record: RunRecord) -> str | None:
    """Shows the selectors of the run to compare with; returns its id, or None."""
    listed = queries.list_experiments(store).set_index("experiment_id", drop=False)
    names = {record.experiment_id: "this experiment"}
    names |= {key: name for key, name in titles(listed).items() if key != record.experiment_id}
    with st.container(horizontal=True):
        experiments = [NO_OTHER, *names]
        given = bound("with", NO_OTHER, experiments)
        chosen = st.selectbox(
            "Compare its compiling with a run of",
            experiments,
            **given,
            width=480,
            format_func=lambda key: names.get(key, NO_OTHER),
        )
        if chosen == NO_OTHER:
            return None
        runs = queries.list_runs(store, str(chosen))
        runs = runs[(runs["role"] == "backend") & (runs["run_id"] != run["run_id"])]
        if runs.empty:
            st.caption("It has no other run that compiles.")
            return None
        labels = list(runs["label"])
        alike = run["label"] if run["label"] in labels else labels[0]
        label = st.selectbox("Run", labels, **bound("with_run", alike, labels), format_func=inert)
    return str(runs.loc[runs["label"] == label, "run_id"].iloc[0])


def difference_html(differences: list[Differing], this_title: str, other_title: str) -> Html:
    """Only the differences, kind by kind."""
    runs: list[Html] = [
        f"{name}<br><small>{inert(title)}</small>"
        for name, title in (("This run", this_title), ("Other run", other_title))
    ]
    return table_of_differing("Compiler differences", differences, KINDS, runs)
