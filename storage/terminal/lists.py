"""The list of experiments, for the terminal."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from breakeven.runner.arguments.filters import Filter
from breakeven.runner.protocol.states import state_words
from breakeven.runner.texts import printable
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, compute_missing, matching_rows
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import Ratio, ratio_text
from breakeven.storage.terminal.as_json import NEVER, plain
from breakeven.storage.terminal.layout import aligned_table, cut_table

STEP_SECONDS = 5.0
"""Seconds before the command shows the progress of computing summaries."""
HEADER = (
    "experiment",
    "name",
    "state",
    "when (UTC)",
    "model",
    "device",
    "torch",
    "answer",
    "best",
    "speedup (95 %)",
    "verdict",
    "parity",
    "compile",
    "break-even",
    "tags",
)
SHORT_HEADER = ("id", "name", "answer", "when (UTC)", "speedup")
NUM_CUT_COLUMNS = 2
"""Columns after the id that are cut to fit."""
SHORT = 4
"""Characters of a short id."""
LEFT_OUT = ("text", "known")


def listed(store: Store, wanted: Filter) -> pd.DataFrame:
    """The rows that match a filter, after computing their summaries, which may take some time."""
    candidates = matching_rows(catalog(store), wanted.before_comparing)["experiment_id"].dropna()
    while left := compute_missing(store, STEP_SECONDS, only=list(candidates)):
        sys.stderr.write(f"comparing; {left} experiments to go\n")
    return matching_rows(catalog(store), wanted)


def list_json(frame: pd.DataFrame) -> str:
    """A list of objects, one per line; undefined values are null, infinite ones are "never"."""
    rows = plain(frame.drop(columns=list(LEFT_OUT)), NEVER)
    return "[" + ",\n ".join(map(json.dumps, rows)) + "]"


def list_table(frame: pd.DataFrame) -> str:
    """One line per experiment, which fits 80 columns; `show` takes its short id."""
    if frame.empty:
        return "no experiment fits"
    short = short_ids([row or "(imported)" for row in frame["experiment_id"]])
    cells = [
        (
            name,
            printable(row["name"]),
            DASH if pd.isna(row["answer"]) else printable(row["answer"]),
            DASH if pd.isna(row["submitted"]) else row["submitted"].strftime("%Y-%m-%d"),
            DASH if pd.isna(row["speedup"]) else METRICS["speedup"].format(row["speedup"]),
        )
        for name, row in zip(short, frame.to_dict("records"), strict=True)
    ]
    return "\n".join(cut_table([SHORT_HEADER, *cells], NUM_CUT_COLUMNS))


def short_ids(ids: Sequence[str]) -> list[str]:
    """The last four characters of each id, `10f4`, or more where two ids end alike."""
    shared = Counter(known[-SHORT:] for known in ids)
    return [known[-SHORT:] if shared[known[-SHORT:]] == 1 else known for known in ids]


def wide_list(frame: pd.DataFrame) -> str:
    """All columns; those that do not fit the terminal follow in further tables."""
    if frame.empty:
        return "no experiment fits"
    cells = [_cells(row) for row in frame.to_dict("records")]
    return "\n".join(aligned_table([list(HEADER), *cells], len(HEADER)))


def _cells(row: dict[str, Any]) -> list[str]:
    speedup = None
    if row["speedup"] is not None:
        low, high = row["speedup_low"], row["speedup_high"]
        speedup = Ratio(median=row["speedup"], low=low, high=high, p_value=None, n=0)
    when = row["submitted"]
    pays = row["break_even_verdict"]
    words = (
        row["experiment_id"] or "(imported)",
        row["name"],
        state_words(row["state"]),
        DASH if pd.isna(when) else when.strftime("%Y-%m-%d %H:%M"),
        row["model"],
        row["device"],
        row["torch"],
        row["answer"],
        row["best"],
        ratio_text(speedup),
        METRICS["speed_verdict"].format(row["verdict"]),
        METRICS["parity"].format(row["parity"]),
        METRICS["compile_seconds"].format(row["compile_seconds"]),
        METRICS["break_even_verdict"].format(pays)
        if pays in ("never", "unsure")
        else METRICS["break_even_steps"].format(row["break_even_steps"]),
        " ".join(f"#{tag}" for tag in row["tags"]),
    )
    return [DASH if word is None else printable(word) for word in words]
