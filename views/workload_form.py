"""The part of the form that says what learns what: task, model, data."""

from collections.abc import Mapping

from runner.spec import DataSpec, ExperimentSpec
from runner.suites import SUITES
from runner.workload_spec import (
    BUILTIN,
    DATA_FILE_SUFFIXES,
    RANDOM_DATA,
    SUITE_SOURCES,
    SUITE_TASK,
    TASKS,
)
from views.fields import Fields
from views.own_code import show_permission

BERTS = ("builtin:bert-tiny", "builtin:bert-base")
MODELS = {
    "text_classification": BERTS,
    "masked_lm": BERTS,
    "causal_lm": ("builtin:gpt2-tiny",),
    "image_classification": ("builtin:vit-small",),
    SUITE_TASK: tuple(model.source for name in SUITE_SOURCES for model in SUITES[name].models),
}
"""Models that fit a task and need no download; one of one's own has none, and of a task that is not
listed any can be typed."""
DATA = {
    "text_classification": ("builtin:reviews",),
    "masked_lm": ("builtin:reviews",),
    "causal_lm": ("builtin:reviews",),
    "image_classification": ("builtin:digits",),
    SUITE_TASK: (RANDOM_DATA,),
}
TASK_HELP = (
    "What the model learns: the label of a text or an image, hidden words of a text (`masked_lm`), "
    "the next word (`causal_lm`), what a model and data of your own come with (`custom`), or "
    "nothing: a model of PyTorch's benchmarks on random samples, for its speed (`suite`)."
)
OWN_MODEL = (
    "A function of your own, `path.py:function`: called without arguments, it returns an "
    "`nn.Module`."
)
OWN_DATA = (
    "A function of your own, `path.py:function`: called without arguments, it returns the samples."
)


def ask_task(fields: Fields) -> str:
    task: str = fields.ask("task", "Task", TASK_HELP, choices=TASKS)
    if task == "custom":
        show_permission()
    return task


def ask_model(fields: Fields, start: ExperimentSpec, task: str) -> None:
    _ask_source(
        fields, "model.source", "Model", start, task, MODELS, OWN_MODEL,
        "Built in with random weights, or type a hub name or a local folder.",
    )  # fmt: skip
    fields.ask(
        "model.dropout", "Dropout",
        "`auto` switches it off if a backend draws random numbers of its own, as cudagraphs "
        "does: its losses could not be compared otherwise.",
    )  # fmt: skip


def ask_data(fields: Fields, start: ExperimentSpec, task: str) -> str:
    """Where the samples come from, and of a table which columns."""
    images = task == "image_classification"
    folder = "a folder of images with one folder for each label, " if images else ""
    source = _ask_source(
        fields, "data.source", "Data", start, task, DATA, OWN_DATA,
        f"Built in, or type {folder}the path of a CSV, JSONL or Parquet file, or a hub name.",
    )  # fmt: skip
    is_path = source.startswith(("/", ".", "~"))
    is_folder = images and is_path and not source.endswith(DATA_FILE_SUFFIXES)
    if source.startswith(BUILTIN) or task == "custom" or is_folder:
        return source
    fields.ask("data.text_column", "Image column" if images else "Text column")
    if task.endswith("classification"):
        fields.ask("data.label_column", "Label column")
    return source


def ask_length(fields: Fields, task: str) -> None:
    if task not in ("image_classification", "custom"):
        fields.ask("data.sequence_length", "Sequence length", lowest=4)


def ask_samples(fields: Fields, task: str, source: str) -> int:
    """How many samples, and of a hub data set from which splits.

    Gives the number of test samples.
    """
    fields.ask("data.num_train_samples", "Train samples")
    fields.ask("data.num_eval_samples", "Evaluation samples")
    num_test: int = fields.ask("data.num_test_samples", "Test samples", lowest=0)
    if _is_hub_name(source):
        fields.ask("data.train_split", "Train split", "Split of the hub data set to train on.")
        fields.ask("data.eval_split", "Evaluation split",
                   "Split of the hub data set to evaluate on while training.")  # fmt: skip
        fields.ask("data.test_split", "Test split", "Split of the hub data set to test on at the "
                   "end; samples used for evaluation are not used again.")  # fmt: skip
    return num_test


def _is_hub_name(source: str) -> bool:
    if not source or source.startswith(BUILTIN):
        return False
    data = DataSpec(source=source)
    return not (data.is_file or data.is_user_code)


def _ask_source(
    fields: Fields, path: str, label: str, start: ExperimentSpec, task: str,
    fitting: Mapping[str, tuple[str, ...]], own: str, other: str,
) -> str:  # fmt: skip
    """A model or data set that fits the task; each task remembers its own."""
    preset = task == start.task
    name = "" if preset else f"{task}.{label.lower()}"
    if task == "custom":
        value = None if preset else "my_code.py:make_" + label.lower()
        answer = fields.ask(path, label, own, value=value, name=name)
    else:
        offered = fitting.get(task, ())
        value = None if preset or not offered else offered[0]
        answer = fields.ask(path, label, other, choices=offered, typed=True, value=value, name=name)
    return str(answer)
