"""The devices during timed runs: charts for one or several runs, other processes, and for runs on
several devices what their ranks send and how long they wait."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.storage.profile.profiles import by_run, collectives, ranks_of
from breakeven.storage.queries import RunRecord
from breakeven.storage.terminal.caution_words import doubt_words
from breakeven.views.charts.trend import device_series
from breakeven.views.parts.downloads import Card, of_run, show_card, show_table
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import sentence

CHARTED = (
    "sm_clock_mhz", "temperature_celsius", "power_watts", "memory_clock_mhz", "utilization",
    "others_cpu_share", "cpu_frequency_mhz", "load_average", "stolen_cpu_share",
)  # fmt: skip
EVENTFUL = ("others_cpu_share", "stolen_cpu_share")
"""Columns that have no chart if all values are 0."""
ROUNDED_TO_NOTHING = 0.005
QUOTA = "quota used up"


def show_run(store: Store, run: pd.Series, record: RunRecord) -> None:
    """The run page's tab: doubts about this run's times, the samples, other processes."""
    samples = of_run(queries.device_samples(store, record.experiment_id), run)
    if doubts := compare(store, record.experiment_id).result_of(run["label"]).device_doubts:
        sentences = "  \n".join(sentence(doubt_words(doubt)) for doubt in doubts)
        st.warning(sentences, icon=":material/info:")
    _show_ranks_of(store, record.experiment_id, str(run["label"]))
    for fact in [*threads(record.environment), *record.environment.get("notes", [])]:
        st.caption(inert(fact))
    if samples["round"].isna().all():
        st.caption("Nothing is recorded yet: a sample is taken after each block.")
        return
    show_chart(samples, name="run-device")
    strangers = other_processes(samples)
    if not strangers.empty:
        show_table("Other processes", strangers, "other-processes", "",
                   numbers={"memory": "others_memory_bytes"})  # fmt: skip


def threads(environment: dict[str, Any]) -> list[str]:
    """The number of CPU threads of the run and its reason, if recorded."""
    if not environment.get("cpu_threads_reason"):
        return []
    count = int(environment["cpu_threads"])
    return [f"{count} CPU thread{'s' if count > 1 else ''}: {environment['cpu_threads_reason']}."]


def show_chart(samples: pd.DataFrame, name: str) -> None:
    """Shows nothing without measurements."""
    if found := card(samples, name):
        show_card(found)


def card(samples: pd.DataFrame, name: str) -> Card | None:
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
        _reasons(names, quota_used_up)
        for names, quota_used_up in zip(
            blocks["throttled_by"], blocks["throttled_periods"].fillna(0) > 0, strict=True
        )
    ]
    processes = [_written(listed) for listed in blocks["processes"]]
    return blocks.drop(columns="throttled_by").assign(
        step=blocks["first_step"],
        held_back=pd.Series(held_back, index=blocks.index, dtype=object),
        processes=pd.Series(processes, index=blocks.index, dtype=object),
    )


def other_processes(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per observed process: pid, name, peak memory, and the number of its samples."""
    seen = [one for listed in samples["processes"] for one in listed or []]
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


def _reasons(names: Sequence[str] | None, quota_used_up: bool) -> str | None:
    reasons = [*(names or []), *([QUOTA] if quota_used_up else [])]
    return ", ".join(reasons) or None


def _written(processes: Sequence[dict[str, Any]] | None) -> str | None:
    if processes is None:
        return None
    return ", ".join(f"{one['name'] or '?'} ({one['pid']})" for one in processes)


NOT_PROFILED = "Nothing was profiled yet."


def show_ranks(store: Store, comparison: Comparison) -> None:
    """Shows a row for each run on several devices."""
    found = by_run(store, comparison.experiment_id)
    show_table("Several devices", found, "ranks", NOT_PROFILED)


def _show_ranks_of(store: Store, experiment_id: str, label: str) -> None:
    """A row for each rank of one run, and one for each kind of collective."""
    ranks, sent = (found[found["label"] == label].drop(columns="label") for found in
                   (ranks_of(store, experiment_id), collectives(store, experiment_id)))  # fmt: skip
    if len(ranks):
        named = ranks.assign(rank=[f"rank {number}" for number in ranks["rank"]])
        show_table("Ranks", named, "ranks", NOT_PROFILED)
        show_table("Collectives of rank 0", sent, "collectives", NOT_PROFILED,
                   numbers={"calls": "kernel_calls"})  # fmt: skip
