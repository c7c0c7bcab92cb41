"""A file of data on the launch form: its first rows, and what follows from them."""

from typing import NamedTuple

import pandas as pd
import streamlit as st

from breakeven.runner.checks.data import Head, locate, read_head
from breakeven.runner.errors import InvalidSpec, UnusableData
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec
from breakeven.runner.specs.workload import BUILTIN, Task
from breakeven.views.access import files
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, code, inert

HELD_OUT_SHARE = 0.2
"""Of a small file, that is kept to evaluate on."""


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
        files.check_path(data, "data.source")
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
    """Train and evaluation samples: those of the preset, or all rows of a smaller file."""
    train, held_out = start.num_train_samples, start.num_eval_samples
    if head is None or head.num_rows is None or head.num_rows < 2:
        return train, held_out
    fitting = max(1, min(held_out, int(head.num_rows * HELD_OUT_SHARE)))
    return min(train, head.num_rows - fitting), fitting


def fitting_batch(start: ExperimentSpec, head: Head | None) -> int:
    """The preset's batch size, halved until a small file has four of them."""
    batch = start.training.batch_size
    train, _ = fitting_sizes(start.data, head)
    while batch > 1 and 4 * batch > train and head is not None:
        batch //= 2
    return batch


def taken(spec: ExperimentSpec, head: Head | None) -> Markdown:
    """What of a file is taken, for how long, and what is left out."""
    data = spec.data
    held_out = {"to evaluate on": data.num_eval_samples, "to test on": data.num_test_samples}
    parts = [f"{data.num_train_samples:,} rows to train on"]
    parts += [f"{count:,} {what}" for what, count in held_out.items() if count]
    said = f"{', '.join(parts)}, drawn at random"
    if head is not None and head.num_rows is not None:
        left = head.num_rows - data.num_train_samples - sum(held_out.values())
        said += f"; {words.plural(left, 'row')} left out" if left > 0 else ", all there are"
    model = code(spec.model.source.removeprefix(BUILTIN))
    passes = f"{spec.num_steps / spec.steps_per_epoch:.2g}"
    times = "once" if passes == "1" else f"{passes} times"
    length = f"{spec.num_steps:,} steps of {spec.training.batch_size:,}"
    seen = f"each row to train on is seen {times}"
    return f"**Taken:** {inert(said)}. {model} makes {inert(length)}: {inert(seen)}."
