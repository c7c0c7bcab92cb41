"""The part of the form that says what learns what: task, model, data."""

from typing import NamedTuple

from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec
from breakeven.runner.specs.workload import BUILTIN, DATA_FILE_SUFFIXES, SCRIPT_TASK, Task
from breakeven.views.form import data_preview
from breakeven.views.form.data_preview import ChosenData
from breakeven.views.form.fields import Fields, Offer
from breakeven.views.form.presets import TO_BE_NAMED
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.shared.own_code import show_permission

OWN_MODEL = (
    "A function of your own, `path.py:function`: called without arguments, it returns an "
    "`nn.Module`."
)
OWN_DATA = (
    "A function of your own, `path.py:function`: called without arguments, it returns the samples."
)


class ChosenTask(NamedTuple):
    """The task on the form."""

    name: str
    fits: Task
    is_presets: bool
    """Whether it is the one that the preset begins with."""


def ask_task(fields: Fields, start: ExperimentSpec, machine: Capabilities) -> ChosenTask:
    offered = [name for name in machine.tasks if name != SCRIPT_TASK]  # a preset of its own
    lines = [f"* {code(name)}: {inert(machine.tasks[name].learns)}" for name in offered]
    text = "\n".join(["What the model learns:\n", *lines])
    name: str = fields.ask("task", text, offer=Offer(offered))
    task = ChosenTask(name, machine.tasks[name], is_presets=name == start.task)
    if task.fits.samples == "functions":
        show_permission()
    return task


def ask_model(fields: Fields, task: ChosenTask) -> None:
    _ask_source(
        fields, "model.source", "Model", task, task.fits.models, OWN_MODEL,
        "Built in with random weights, or type a hub name or a local folder.",
    )  # fmt: skip


def ask_data(fields: Fields, task: ChosenTask) -> ChosenData:
    """Where the samples come from, and of a table which columns."""
    images = task.fits.samples == "images"
    folder = "a folder of images with one folder for each label, " if images else ""
    source = _ask_source(
        fields, "data.source", "Data", task, task.fits.data, OWN_DATA,
        f"Built in, or type {folder}the path of a CSV, JSONL or Parquet file, or a hub name.",
    )  # fmt: skip
    data = ChosenData(source, data_preview.look_into(source, task.fits))
    is_path = source.startswith(("/", ".", "~"))
    is_folder = images and is_path and not source.endswith(DATA_FILE_SUFFIXES)
    has_columns = source and not source.startswith(BUILTIN) and not is_folder
    if has_columns and task.fits.samples != "functions":
        _ask_columns(fields, task.fits, data)
    return data


def _ask_columns(fields: Fields, task: Task, data: ChosenData) -> None:
    """Those of the file are offered, and at first the likeliest, or those that the form started
    with; of the hub's nobody knows them."""
    head = data.head
    is_known = fields.start_of("data.source") == data.source
    asked = {"text_column": "Image column" if task.samples == "images" else "Text column"}
    if task.labels == "sample":
        asked["label_column"] = "Label column"
    likely = data_preview.likely_columns(head, task) if head else {}
    for name, label in asked.items():
        first = getattr(DataSpec, name) if not is_known else fields.start_of(f"data.{name}")
        start = first if is_known else likely.get(name, first)
        offered = head.names if head else (start,)
        fields.ask(f"data.{name}", label=label, offer=Offer(offered, typed=True), value=start)


def ask_length(fields: Fields, task: Task) -> None:
    if task.samples in ("texts", "random"):
        fields.ask("data.sequence_length")


def ask_samples(fields: Fields, start: DataSpec, data: ChosenData) -> int:
    """How many samples, and of a hub data set from which splits.

    A file with fewer rows than the preset takes is divided. Gives the number of test samples.
    """
    num_train, num_eval = data_preview.fitting_sizes(start, data.head)
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
    fields: Fields, path: str, label: Markdown, task: ChosenTask,
    fitting: tuple[str, ...], own: Markdown, other: Markdown,
) -> str:  # fmt: skip
    """A model or data set that fits the task; each task remembers its own."""
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
