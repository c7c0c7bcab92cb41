"""A file of data on the launch form: its first rows, and what follows from them."""

from typing import NamedTuple

import pandas as pd
import streamlit as st

from runner.checks.data_file import Head, locate, read_head
from runner.errors import InvalidSpec, UnusableData
from runner.specs.experiment import DataSpec
from runner.specs.tasks import Task
from views.access import permissions
from views.shared import words


class ChosenData(NamedTuple):
    """The data on the form."""

    source: str
    """Empty as long as nothing was named."""
    head: Head | None
    """The first rows of a file that can be read."""


def look_into(source: str, task: Task) -> Head | None:
    """The first rows of a file; None for other data, and for a file that cannot be read, which the
    check of the whole form says."""
    if not source or task.samples not in ("texts", "images"):
        return None
    try:
        data = DataSpec(source=source)
        permissions.check_path(data, "data.source")
        if not data.is_file or locate(source, may_be_folder=True).is_dir():
            return None
        with st.spinner("Reading the first rows …"):
            return read_head(source)
    except (UnusableData, InvalidSpec):
        return None


def show(data: ChosenData) -> None:
    """The first rows of a file, and how many there are; where nothing was named, what to do."""
    if not data.source:
        st.info(
            "**Name your data** above: a CSV, JSONL or Parquet file of this machine by its path, "
            "or a data set of the hub. Of a file, the first rows and the columns then appear.",
            icon=":material/dataset:",
        )
    head = data.head
    if head is None:
        return
    many = f"{head.num_rows:,}" if head.num_rows is not None else f"More than {head.num_read:,}"
    rows = words.plural(len(head.rows), "row")
    st.caption(f"{many} rows in this file; the first {rows}:")
    frame = pd.DataFrame(list(head.rows), columns=list(head.names), dtype=str)
    st.dataframe(frame, hide_index=True, height="content")


def likely_columns(head: Head, task: Task) -> dict[str, str]:
    """By field of the specification: columns of its default name, or else the one with the longest
    texts (the first with images) and the one with the fewest labels, but more than one."""
    wanted = ("image", "text") if task.samples == "images" else ("text",)
    samples = [column for kind in wanted for column in head.columns if column.kind == kind]
    if task.samples == "texts":
        samples = sorted(samples, key=lambda column: -column.mean_length)
    text = head.column(DataSpec.text_column) or next(iter(samples or head.columns))
    labels = [one for one in head.columns if one is not text and one.num_distinct > 1]
    fewest = sorted(labels, key=lambda column: column.num_distinct)
    label = head.column(DataSpec.label_column) or next(iter(fewest or head.columns))
    return {"text_column": text.name, "label_column": label.name}


def fitting_sizes(start: DataSpec, head: Head | None) -> tuple[int, int]:
    """Train and evaluation samples: those of the preset, or as many as a smaller file has rows."""
    train, held_out = start.num_train_samples, start.num_eval_samples
    if head is None or head.num_rows is None or head.num_rows < 2:
        return train, held_out
    share = min(1.0, head.num_rows / (train + held_out))
    fitting = max(1, int(held_out * share))
    return (train, held_out) if share == 1 else (head.num_rows - fitting, fitting)
