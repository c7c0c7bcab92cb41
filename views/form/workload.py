"""The workload on the form: task, model and data with a file's first rows, or a user's script."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import streamlit as st

from breakeven.runner.checks.allowed_code import CODE_VARIABLE, allowed_folders
from breakeven.runner.checks.data_file import Head, locate, read_head
from breakeven.runner.errors import InvalidSpec, UnusableData
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec
from breakeven.runner.specs.workload import (
    BUILTIN,
    DATA_FILE_SUFFIXES,
    SCRIPT_PREFIX,
    Task,
    workload_of,
)
from breakeven.storage.numbers.formats import format_passes
from breakeven.views.access import permissions
from breakeven.views.form import uploads
from breakeven.views.form.field_widgets import Fields, Offer
from breakeven.views.form.presets import SCRIPT_TO_BE_NAMED, TO_BE_NAMED
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, code, inert

OWN_MODEL = (
    "Your function, `path.py:function`: called without arguments, it returns an `nn.Module`."
)
OWN_DATA = "Your function, `path.py:function`: called without arguments, it returns the samples."


class ChosenData(NamedTuple):
    """The data on the form."""

    source: str
    """Empty until data are named."""
    head: Head | None
    """The first rows of a readable file."""


class ChosenTask(NamedTuple):
    """The task on the form."""

    name: str
    fits: Task
    is_presets: bool
    """Whether it is the preset's task."""


def ask_task(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> ChosenTask:
    # Programs of the user's have a preset of their own.
    offered = [name for name in machine.tasks if not workload_of(name).is_own_program]
    lines = [f"* {code(name)}: {inert(machine.tasks[name].learns)}" for name in offered]
    text = "\n".join(["What the model learns:\n", *lines])
    name: str = fields.ask("task", text, offer=Offer(offered))
    task = ChosenTask(name, machine.tasks[name], is_presets=name == start.task)
    if task.fits.samples == "functions":
        show_permission()
    return task


def ask_model(fields: Fields, task: ChosenTask) -> None:
    _ask_source(
        fields,
        "model.source",
        "Model",
        task,
        task.fits.models,
        OWN_MODEL,
        "Built in with random weights, or type a hub name or a local folder.",
    )


def ask_data(fields: Fields, task: ChosenTask) -> ChosenData:
    """Asks for the source of the samples, and for the columns of a table."""
    images = task.fits.samples == "images"
    folder = "a folder of images with one folder for each label, " if images else ""
    source = _ask_source(
        fields,
        "data.source",
        "Data",
        task,
        task.fits.data,
        OWN_DATA,
        f"Built in, or type {folder}the path of a CSV, JSONL or Parquet file, or a hub name.",
    )
    data = ChosenData(source, look_into(source, task.fits))
    is_path = source.startswith(("/", ".", "~"))
    is_folder = images and is_path and not source.endswith(DATA_FILE_SUFFIXES)
    has_columns = source and not source.startswith(BUILTIN) and not is_folder
    if has_columns and task.fits.samples != "functions":
        _ask_columns(fields, task.fits, data)
    return data


def _ask_columns(fields: Fields, task: Task, data: ChosenData) -> None:
    """Asks for columns: offers the columns of a file and preselects the likeliest, or the columns
    that the form started with. The columns of a hub data set are unknown."""
    head = data.head
    is_known = fields.start_of("data.source") == data.source
    wanted = {"text_column": "Image column" if task.samples == "images" else "Text column"}
    if task.labels == "sample":
        wanted["label_column"] = "Label column"
    likely = likely_columns(head, task) if head else {}
    for name, label in wanted.items():
        first = getattr(DataSpec, name) if not is_known else fields.start_of(f"data.{name}")
        start = first if is_known else likely.get(name, first)
        offered = head.names if head else (start,)
        fields.ask(f"data.{name}", label=label, offer=Offer(offered, typed=True), value=start)


def ask_samples(fields: Fields, start: DataSpec, data: ChosenData) -> int:
    """Asks for the number of samples, and for the splits of a hub data set.

    A file with fewer rows than the preset uses is divided. Returns the number of test samples.
    """
    num_train, num_eval = fitting_sizes(start, data.head)
    fields.ask("data.num_train_samples", value=num_train)
    fields.ask("data.num_eval_samples", value=num_eval)
    num_test: int = fields.ask("data.num_test_samples")
    if _is_hub_name(data.source):
        fields.ask_all("data.train_split", "data.eval_split", "data.test_split")
    return num_test


def _is_hub_name(source: str) -> bool:
    if not source or source.startswith(BUILTIN):
        return False
    data = DataSpec(source=source)
    return not (data.is_file or data.is_user_code)


def _ask_source(
    fields: Fields,
    path: str,
    label: Markdown,
    task: ChosenTask,
    fitting: tuple[str, ...],
    own: Markdown,
    other: Markdown,
) -> str:
    """Asks for a model or data set that fits the task; each task remembers its own."""
    name = "" if task.is_presets else f"{task.name}.{label.lower()}"
    if task.fits.samples == "functions":
        value = None if task.is_presets else "my_code.py:make_" + label.lower()
        answer = fields.ask(path, own, value=value, name=name)
    else:
        value = None if task.is_presets or not fitting else fitting[0]
        if fields.start_of(path) == TO_BE_NAMED:
            value = ""
        offer = Offer(fitting, typed=True, empty="Path of a file, or hub name")
        answer = fields.ask(path, other, value=value, name=name, offer=offer)
    return str(answer)


HELD_OUT_SHARE = 0.2
"""Share of a small file that is held out for evaluation."""


def look_into(source: str, task: Task) -> Head | None:
    """The first rows of a file; None for other data, and for an unreadable file, which the check of
    the whole form reports."""
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


def show_data(data: ChosenData) -> None:
    """Shows the first rows of a file and their number; without a source, what to do."""
    if not data.source:
        st.info(
            "**Name your data** above: the path of a CSV, JSONL or Parquet file on this machine, "
            "or a data set of the hub. The first rows and the columns of a file then appear here.",
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
    """By field of the specification: the column with the default name, else for samples the longest
    texts (or the first images), for labels the fewest labels, but more than one."""
    wanted = ("image", "text") if task.samples == "images" else ("text",)
    samples = [column for kind in wanted for column in head.columns if column.kind == kind]
    if task.samples == "texts":
        samples = sorted(samples, key=lambda column: -column.mean_length)
    text = head.column(DataSpec.text_column) or next(iter(samples or head.columns))
    labels = [column for column in head.columns if column is not text and column.num_distinct > 1]
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


def usage_text(spec: ExperimentSpec, head: Head | None) -> Markdown:
    """The used part of a file, the length of the training, and the unused rows."""
    data = spec.data
    held_out = {"to evaluate on": data.num_eval_samples, "to test on": data.num_test_samples}
    parts = [f"{data.num_train_samples:,} rows to train on"]
    parts += [f"{count:,} {what}" for what, count in held_out.items() if count]
    text = f"{', '.join(parts)}, drawn at random"
    if head is not None and head.num_rows is not None:
        left = head.num_rows - data.num_train_samples - sum(held_out.values())
        text += f"; {words.plural(left, 'row')} left out" if left > 0 else ", which are all rows"
    model = code(spec.model.source.removeprefix(BUILTIN))
    passes = format_passes(spec.num_steps / spec.steps_per_epoch)
    times = "once" if passes == "1" else f"{passes} times"
    length = f"{spec.num_steps:,} steps of {spec.training.batch_size:,}"
    seen = f"each training row is seen {times}"
    return f"**Used:** {inert(text)}. {model} makes {inert(length)}: {inert(seen)}."


MAX_DEPTH, MAX_OFFERED, MAX_LOOKED_AT = 3, 200, 5_000
"""Depth of folders below an allowed one, number of offered files, and entries that are read per
depth."""


SCRIPT_HOW = (
    ("script.steps", "training.seed", "script.module"),
    ("script.folder", "script.variables"),
    ("script.patience_seconds", "script.ranks"),
)
"""Its steps and seed, how and where it starts, and how long Breakeven waits for it."""


def ask_script(fields: Fields) -> None:
    """Asks for the script and its arguments."""
    named = str(fields.start_of("model.source")).removeprefix(SCRIPT_PREFIX)
    left, right = st.columns(2)
    with left:
        typed = fields.ask(
            "model.source",
            "A Python file that trains: choose one from the allowed folders, or type its "
            "path. It runs as `python train.py` would, in a copy of its folder.",
            label="Script",
            value="" if named == SCRIPT_TO_BE_NAMED else named,
            name="script",
            offer=Offer(
                list(map(str, python_files())), typed=True, empty="Choose a file, or type its path"
            ),
        )
        path = str(script_path(typed)) if typed else ""
        fields.put("model.source", path and f"{SCRIPT_PREFIX}{path}", "Script")
    with right:
        fields.ask("script.arguments")
    is_allowed = show_permission()
    uploads.ask_script_upload(fields.widget("script"))
    if is_allowed and not typed:
        st.info(
            "**Choose your script** above, type its path, or upload it. Or in a terminal, before "
            "the command of your training: `breakeven run -- python train.py`",
            icon=":material/code:",
        )


def script_path(typed: str) -> Path:
    """The path of a script: as typed, or the first such file in the allowed folders, or the only
    file there with that name, with or without suffix."""
    path = Path(typed).expanduser()
    allowed = next(
        (file for folder in allowed_folders() if (file := Path(folder) / path).is_file()), None
    )
    if allowed is not None or path.exists():
        return allowed or path
    files_of_this_name = [file for file in python_files() if typed in (file.name, file.stem)]
    return files_of_this_name[0] if len(files_of_this_name) == 1 else path


def python_files() -> list[Path]:
    """Files that may run, for each folder the nearest first. Skips hidden files, environments with
    their packages, and deep folders."""
    files: list[Path] = []
    for folder in allowed_folders():
        level = [Path(folder).expanduser().resolve()]
        for _ in range(MAX_DEPTH):
            entries = sorted(entry for parent in level for entry in _entries(parent))
            files += [entry for entry in entries if entry.suffix == ".py" and entry.is_file()]
            level = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
            if len(files) >= MAX_OFFERED or len(entries) > MAX_LOOKED_AT:
                break
    return list(dict.fromkeys(files))[:MAX_OFFERED]


def _entries(folder: Path) -> list[Path]:
    try:
        if (folder / "pyvenv.cfg").exists():
            return []
        return [entry for entry in folder.iterdir() if not entry.name.startswith((".", "__"))]
    except OSError:
        return []


def show_permission() -> bool:
    """Shows the folders from which runs may execute code; returns whether there are any."""
    folders = allowed_folders()
    if folders:
        st.caption(f"Files may run from {', '.join(map(code, folders))}.")
    else:
        st.info(
            "Python files of your own run only if the administrator of this dashboard names their "
            f"folder: `{CODE_VARIABLE}=/folder/of/your/files make run`.",
            icon=":material/lock:",
        )
    return bool(folders)
