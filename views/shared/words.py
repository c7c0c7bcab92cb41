"""How every page of the dashboard writes states, activities, durations, times and lists."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pandas as pd
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from breakeven.runner import texts
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.specs.workload import BUILTIN, SCRIPT_PREFIX
from breakeven.storage.numbers.metrics import DASH
from breakeven.storage.queries import RunError
from breakeven.storage.queries.time_use import shown_parts
from breakeven.views.shared.definition_links import anchor_html, linked
from breakeven.views.shared.inert import Html, Markdown, inert

STATES: dict[str, tuple[str, str, str]] = {
    RunState.QUEUED: ("queued", "gray", ":material/schedule:"),
    RunState.RUNNING: ("running", "blue", ":material/play_circle:"),
    RunState.ELSEWHERE: ("on another machine", "gray", ":material/lan:"),
    RunState.FINISHED: ("finished", "green", ":material/check_circle:"),
    ExperimentState.PARTLY_FAILED: ("partly failed", "orange", ":material/warning:"),
    RunState.FAILED: ("failed", "red", ":material/error:"),
    RunState.CANCELLED: ("stopped", "gray", ":material/stop_circle:"),
    RunState.TIMEOUT: ("over its time limit", "red", ":material/timer_off:"),
    RunState.OUT_OF_MEMORY: ("out of memory", "red", ":material/memory:"),
    RunState.LOST: ("lost", "red", ":material/link_off:"),
    "stopping": ("stopping", "gray", ":material/stop_circle:"),
}
"""State of a run or an experiment: words, colour, icon."""

PHASES = {
    "preparing": "preparing model and data",
    "waiting": "waiting for its turn",
    "training": "training a block",
    "evaluating": "evaluating",
    "profiling": "profiling a few steps",
    "checking": "checking its random numbers",
    "done": "finishing",
}
"""Words for the phases of a run, in order; before the first one, the run starts."""
MAX_REASON_CHARACTERS = 600
"""Characters of an error's message; compilers write pages, and the traceback has all of it."""
PHASES_AFTER_LOADING = tuple(PHASES)[1:]
"""Phases in which a run has torch, model and data."""
PHASES_WITH_TURN = ("training", "evaluating", "profiling", "checking")
"""Phases in which a run uses the device."""
MAX_NAMED = 3
"""How many names of a list are written."""


def name_tab(*parts: str) -> None:
    """Names the browser's tab: what the page is about first, because a tab shows little."""
    st.set_page_config(page_title=" · ".join([*parts, "Breakeven"]))


def state_badge(state: str) -> None:
    """A state in its colour, with its icon."""
    text, color, icon = STATES[state]
    st.badge(inert(text), color=color, icon=icon)  # type: ignore[arg-type]


def is_stopping(run: Any) -> bool:
    """Whether a run still works after a request to stop: it ends after its block of steps, or once
    it has compiled; `run`: as in `activity`."""
    return run.state == RunState.RUNNING and RunDir(Path(run.folder)).cancel_requested


def has_turn(run: Any) -> bool:
    """Whether a run uses the device now; `run`: as in `activity`."""
    at_work = run.phase in PHASES_WITH_TURN or pd.notna(run.compiling_since)
    return bool(run.state == RunState.RUNNING and at_work)


def activity(run: Any, now: pd.Timestamp, usual_compile_seconds: float | None = None) -> Html:
    """The current activity of a run, in a few words; `run`: a row of `storage.queries.list_runs`.

    `usual_compile_seconds`: the compile time of an earlier run.
    """
    if run.state != RunState.RUNNING:
        return inert(STATES[run.state][0])
    if is_stopping(run):
        compiles = pd.notna(run.compiling_since)
        return "stopping once it has compiled" if compiles else "stopping"
    if pd.notna(run.compiling_since):
        elapsed = duration(compiled_seconds(run, now))
        last_time = ""
        if usual_compile_seconds is not None:
            took = anchor_html("compile_seconds", f"{duration(usual_compile_seconds)} last time")
            last_time = f", {took}"
        return f"compiling · {anchor_html('compilation_seconds', elapsed)}{last_time}"
    return PHASES.get(run.phase, "starting") if isinstance(run.phase, str) else "starting"


def compiled_seconds(run: Any, now: pd.Timestamp) -> float:
    """Seconds that a run has compiled so far, all graphs together."""
    current_seconds = (
        0.0 if pd.isna(run.compiling_since) else (now - run.compiling_since).total_seconds()
    )
    return float(run.compiled_seconds) + max(0.0, current_seconds)


def why_ended(reason: str | None, error: RunError | None) -> str:
    """Why a run did not finish."""
    if error is None:
        return reason or "no reason was recorded"
    text = error.sentence
    return text if len(text) <= MAX_REASON_CHARACTERS else f"{text[:MAX_REASON_CHARACTERS]} ..."


def spent(seconds: float, phases: Mapping[str, float], suffix: Markdown = "") -> Markdown:
    """`2 min 5 s so far: compiling 1 min 20 s, training steps 25 s, loading 20 s`."""
    parts = ", ".join(
        f"{inert(name)} {linked('elapsed_seconds', duration(took))}"
        for name, took in shown_parts(phases)
    )
    total = linked("elapsed_seconds", duration(seconds))
    return f"**{total}**{suffix}: {parts}" if parts else f"**{total}**{suffix}"


def elapsed_and_remaining(
    runs: pd.DataFrame, spent_text: Markdown, remaining: float | None
) -> Markdown:
    """How long an experiment took so far (`spent_text`, a result of `spent`) and how much longer it
    takes, and what delays it: stopping, compiling or loading."""
    if any(map(is_stopping, runs.itertuples())):
        return f"{spent_text}; stopping: each run ends after its block of steps or its compilation"
    if remaining is None:
        left = "time left: known after the first round"
    elif remaining < 1.0:
        left = "almost done"
    else:
        left = linked("expected_seconds", f"about {duration(remaining)} left")
    text: Markdown = f"{spent_text}; {left}"
    compiling = runs[runs["compiling_since"].notna()]
    if len(compiling):
        label = inert(compiling["label"].iloc[0])
        return f"{text}; {label} is compiling, the others wait meanwhile"
    loading = runs[(runs["state"] == RunState.RUNNING) & ~runs["phase"].isin(PHASES_AFTER_LOADING)]
    if remaining is not None or loading.empty:
        return text
    prefix = f"{inert(', '.join(loading['label']))}: " if runs["steps_done"].sum() else ""
    return f"{text}; {prefix}torch, model and data are loading"


def workload(model: str, data: str) -> Markdown:
    """Model and data: `bert-tiny on reviews`, `google/bert on ag_news.csv`."""
    if model.startswith(SCRIPT_PREFIX):
        return inert(model.rpartition("/")[2])
    names = [source.removeprefix(BUILTIN).rstrip("/") for source in (model, data)]
    if names[0].startswith(("/", "~", ".")):
        names[0] = names[0].rpartition("/")[2]
    return inert(f"{names[0]} on {names[1].rpartition('/')[2]}")


def duration(seconds: float | None) -> Markdown:
    """The text of `runner.texts.duration`; a dash for None."""
    return DASH if seconds is None or pd.isna(seconds) else inert(texts.duration(seconds))


def moment(time: pd.Timestamp | None) -> Markdown:
    """Date and time in the reader's time zone; a dash for None."""
    return DASH if pd.isna(time) else _local(time).strftime("%-d %b %Y, %H:%M")


def day(time: pd.Timestamp | None) -> Markdown:
    """The date in the reader's time zone; a dash for None."""
    return DASH if pd.isna(time) else _local(time).strftime("%-d %b %Y")


def plural(count: int, word: Markdown) -> Markdown:
    """`1 run`, `2 runs`, `1,000 steps`, `3 processes`, `8 batches`."""
    ending = "" if count == 1 else "es" if word.endswith(("s", "tch")) else "s"
    return f"{count:,} {word}{ending}"


def listed(names: Sequence[Markdown]) -> Markdown:
    """`a, b and c`; if there are more than three, `a, b, c and 4 more`."""
    if len(names) > MAX_NAMED:
        return f"{', '.join(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} more"
    return joined(names)


def joined(parts: Sequence[Markdown]) -> Markdown:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def provenance(experiment: pd.Series) -> Markdown:
    """Device, date, workload and version of torch: `recorded example, NVIDIA H100, 20 Nov 2026 ·
    bert-tiny on reviews · torch 2.6.0`."""
    parts = ["recorded example"] if experiment["origin"] == "example" else []
    # NaN until a run records them.
    device, torch = (
        value if isinstance(value, str) else None
        for value in experiment[["device_name", "torch_version"]]
    )
    parts += [inert(device or experiment["device"])]
    parts += [day(experiment["submitted"])]
    what = [workload(experiment["model"], experiment["data"])]
    if torch:
        what.append(f"torch {inert(torch)}")
    return " · ".join([", ".join(parts), *what])


def shortened(name: str, longest: int = 26) -> str:
    """A long name without its middle: names of experiments and backends differ at the end."""
    half = longest // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"


def timezone() -> str:
    """The reader's time zone, or UTC if unknown."""
    if get_script_run_ctx(suppress_warning=True) is None:  # a report, which has many readers
        return "UTC"
    try:
        return ZoneInfo(st.context.timezone or "UTC").key
    except (ZoneInfoNotFoundError, ValueError):
        return "UTC"


def _local(time: pd.Timestamp | None) -> pd.Timestamp:
    stamp = pd.Timestamp(time)
    stamp = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp
    return stamp.tz_convert(timezone())
