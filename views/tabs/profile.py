"""The run page's tab about its profile: every kernel, and the whole trace."""

from functools import partial

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.profile.classes import CLASSES
from breakeven.storage.profile.profiles import Profile, load_profiles
from breakeven.storage.queries import RunRecord
from breakeven.storage.terminal.finding_words import profile_words
from breakeven.views.parts.downloads import download, show_table
from breakeven.views.shared.links import sentence

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
