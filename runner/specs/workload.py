"""Model, data and task of a training, or its script."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Literal, NamedTuple

from breakeven.runner.specs.fields import (
    EVERY_STEP_IS_KEPT,
    MAX_STEPS,
    Bounds,
    Prompt,
    Spec,
    require,
)
from breakeven.runner.specs.place import MAX_RANKS
from breakeven.runner.specs.training import Metric
from breakeven.runner.specs.values import check_variables, nearest

TASKS = tuple(
    sorted(
        file.stem
        for file in (Path(__file__).parents[1] / "worker" / "tasks").glob("*.py")
        if not file.stem.startswith("_")
    )
)
"""A task is a module in `runner/worker/tasks/`, named after its file."""


@dataclass(frozen=True, kw_only=True)
class Task(Spec):
    """What fits a task; `TASK` in the task's module, which the probe passes to the launch form."""

    learns: str
    """What the model learns, as the end of a sentence."""
    samples: Literal["texts", "images", "random", "functions", "script"]
    """Source of the samples: texts or images, random numbers, the user's functions, or a script."""
    labels: Literal["sample", "token"] | None = None
    """Unit that has a label; None if model and samples decide."""
    models: tuple[str, ...] = ()
    """Models without a download."""
    data: tuple[str, ...] = ()
    """Data sets without a download."""
    metrics: tuple[Metric, ...] = ()
    """The task's scores in addition to the loss; empty if model and samples decide."""


def check_task(task: str) -> None:
    """Raises `InvalidSpec` unless there is such a task."""
    rule = f"must be one of {', '.join(TASKS)}{nearest(task, TASKS)}"
    require(task in TASKS, "task", task, rule)


SCRIPT_TASK = "script"
"""The task of scripts, which decide themselves what they learn."""
SCRIPT_PREFIX = "script:"
"""Prefix of a model source that is the path of a script."""
SCRIPT_DATA = "script"
"""Data source of scripts, which read their samples themselves."""
DAY = Bounds(0, 86_400, "that is a day", above=True, unit="s")


@dataclass(frozen=True, kw_only=True)
class ScriptSpec(Spec, path="script."):
    """How a script runs; `model.source` has its path, after `script:`."""

    arguments: Annotated[
        tuple[str, ...],
        Prompt(
            empty="--epochs 3 --lr 1e-4",
            rare=True,
            several=True,
            words=True,
            help="Arguments of the script, as on a command line. Use full paths.",
        ),
    ] = ()
    folder: Annotated[
        str,
        Prompt(
            empty="The script's own",
            rare=True,
            help="Full path of the folder in which the script expects to start; empty for the "
            "script's own folder. Each run works in a copy, so runs do not overwrite each "
            "other's files.",
        ),
    ] = ""
    module: Annotated[
        str,
        Prompt(
            empty="The file itself",
            rare=True,
            help="How the script's file starts, unless as a file: as a module, `package.train`, "
            "which `python -m` would run; or by a function of it, `command=package.cli:main`, as "
            "the command of an installed package does.",
        ),
    ] = ""
    variables: Annotated[
        tuple[str, ...],
        Prompt(
            "Environment variables",
            empty="OMP_NUM_THREADS=4 WANDB_MODE=offline",
            rare=True,
            several=True,
            words=True,
            help="Environment variables of every run, `NAME=VALUE`, as before a command.",
        ),
    ] = ()
    ranks: Annotated[
        int,
        Bounds(1, MAX_RANKS, "each is a process"),
        Prompt(
            "Processes",
            rare=True,
            help="Processes (ranks) that start the script together, as `torchrun "
            "--nproc-per-node` does, each with a device of its own.",
        ),
    ] = 1
    steps: Annotated[
        int,
        Bounds(0, MAX_STEPS, EVERY_STEP_IS_KEPT),
        Prompt(
            "Steps at most",
            empty="all steps of the script",
            rare=True,
            help="Steps after which a run ends, even if the script would continue; 0 for no limit.",
        ),
    ] = 0
    compiles: Annotated[
        str,
        Prompt(
            "Model to compile",
            empty="found by itself",
            rare=True,
            help="Class of the model to compile, as `Model` or `train.py:Model`, in a script that "
            "does not say it; by default the outermost module that is called with gradients and "
            "has weights of an optimizer.",
        ),
    ] = ""
    patience_seconds: Annotated[
        float,
        DAY,
        Prompt(
            "Patience",
            rare=True,
            help="Longest time without a step, setting up included; compiling and waiting for "
            "turns do not count.",
        ),
    ] = 900.0

    def check_rules(self) -> None:
        is_full = not self.folder or Path(self.folder).is_absolute()
        self.require("folder", is_full, "must be the full path of a folder")
        rule = "must be the name of a module, package.train, or of a command with its function, "
        rule += "command=package.cli:main"
        self.require("module", not self.module or is_module(self.module), rule)
        check_variables(f"{self._path}variables", self.variables)

    @property
    def names_of_module(self) -> tuple[str, ...]:
        """The module that starts and the packages around it, from the outermost; empty for a
        file."""
        _, equals, function = self.module.partition("=")
        module = function.partition(":")[0] if equals else self.module
        return tuple(module.split(".")) if module else ()

    @property
    def names_of_variables(self) -> tuple[str, ...]:
        return tuple(text.partition("=")[0] for text in self.variables)

    @property
    def variables_by_name(self) -> dict[str, str]:
        parts = (text.partition("=") for text in self.variables)
        return {name: value for name, _, value in parts}


def is_module(text: str) -> bool:
    """Whether a text names a module, or a command with its function as in an entry point."""
    command, equals, function = text.partition("=")
    module, colon, name = function.partition(":") if equals else (text, "", "")
    parts = [*module.split("."), *(name.split(".") if equals else ())]
    fits = bool(command and colon and "/" not in command) if equals else True
    return fits and all(part.isidentifier() for part in parts)


BUILTIN = "builtin:"
BUILTIN_MODELS = {
    "builtin:bert-tiny": "BERT, 2 layers of 128, random weights",
    "builtin:bert-base": "BERT, 12 layers of 768, random weights",
    "builtin:gpt2": "GPT-2, 12 layers of 768, for causal_lm, random weights",
    "builtin:gpt2-tiny": "GPT-2, 2 layers of 128, for causal_lm, random weights",
    "builtin:vit-small": "ViT, 4 layers of 128, for images, random weights",
}
BUILTIN_DATA = {
    "builtin:reviews": "star reviews written by a generator, 5 labels",
    "builtin:digits": "1,797 real scans of handwritten digits, 8 x 8 pixels, 10 labels",
    "builtin:random": "random numbers in the shapes that a benchmark suite's model takes",
}
RANDOM_DATA = "builtin:random"
SUITE_TASK = "suite"
"""The task of models that come with a benchmark suite; their samples are random."""
SUITE_SOURCES = {
    "huggingface": "huggingface:BertForMaskedLM or huggingface:BertForMaskedLM/16",
    "timm": "timm:resnet18",
    "torchbench": "torchbench:resnet18",
}
"""Names of models in each suite; a number after a slash makes the model that many times smaller."""
SUITE_MODEL = re.compile(
    rf"(?P<suite>{'|'.join(SUITE_SOURCES)}):(?P<name>[\w.-]+)(/(?P<divisor>[1-9]\d{{0,3}}))?"
)
DATA_FILE_SUFFIXES = (".csv", ".jsonl", ".json", ".parquet", ".csv.gz", ".jsonl.gz", ".json.gz")
MAX_SAMPLES = 100_000_000
HELD_IN_MEMORY = "every run holds all of them in memory"
SAMPLES = Bounds(1, MAX_SAMPLES, HELD_IN_MEMORY)
USER_CODE = re.compile(r".+\.py:[A-Za-z_]\w*")
"""`path.py:name`: a function or class in a user's file."""


class SuiteModelName(NamedTuple):
    """A model of a benchmark suite."""

    suite: str
    name: str
    divisor: int
    """The model has this many times fewer layers, heads and words than the suite's."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Spec, path="model."):
    """Which model is trained."""

    source: Annotated[
        str,
        Prompt(
            "Model",
            "--model",
            help="A built-in configuration (`builtin:...`, random weights), a model of a "
            "benchmark suite (`huggingface:BertForMaskedLM`, 16 times smaller "
            "`huggingface:BertForMaskedLM/16`, `timm:...`, `torchbench:...`, random "
            "weights), a local folder, a hub name, `path.py:function` (called without "
            "arguments, returns an `nn.Module`), or your training script "
            "`script:path.py`.",
        ),
    ] = "builtin:bert-tiny"
    dropout: Annotated[
        Literal["auto", "keep", "off"],
        Prompt(
            rare=True,
            help="`off` sets every dropout probability to 0. `auto` does so if a backend draws "
            "random numbers of its own, as cudagraphs does, because its losses cannot be "
            "compared with the baseline's step by step.",
        ),
    ] = "auto"

    def check_rules(self) -> None:
        self.require("source", bool(self.source), "must name a model")
        if self.is_builtin:
            known = f"{', '.join(BUILTIN_MODELS)}{nearest(self.source, BUILTIN_MODELS)}"
            self.require("source", self.source in BUILTIN_MODELS, f"must be one of {known}")
        suite = self.source.partition(":")[0]
        if suite in SUITE_SOURCES:
            entry = self.from_suite
            fits = entry is not None and (entry.divisor == 1 or suite == "huggingface")
            self.require("source", fits, f"must be a name such as {SUITE_SOURCES[suite]}")

    @property
    def from_suite(self) -> SuiteModelName | None:
        """The model of a benchmark suite; None for any other model."""
        match = SUITE_MODEL.fullmatch(self.source)
        return match and SuiteModelName(match["suite"], match["name"], int(match["divisor"] or 1))

    @property
    def is_builtin(self) -> bool:
        """Whether the model is a built-in configuration, with random weights."""
        return self.source.startswith(BUILTIN)

    @property
    def script(self) -> str | None:
        """Path of the training script that makes the model; None for any other model."""
        is_script = self.source.startswith(SCRIPT_PREFIX)
        return self.source.removeprefix(SCRIPT_PREFIX) if is_script else None

    @property
    def is_user_code(self) -> bool:
        return bool(USER_CODE.fullmatch(self.source))


@dataclass(frozen=True, kw_only=True)
class DataSpec(Spec, path="data."):
    """Samples for training and held-out samples."""

    source: Annotated[
        str,
        Prompt(
            "Data",
            "--data",
            help="A built-in set (`builtin:...`), a path to CSV, JSONL or Parquet, a folder of "
            "images with one folder for each label, a hub name, or `path.py:function` "
            "(called without arguments, returns the samples).",
        ),
    ] = "builtin:reviews"
    text_column: Annotated[
        str, Prompt(help="Column of a file or hub data set with the text, or the image.")
    ] = "text"
    label_column: Annotated[
        str, Prompt(help="Column with the label, text or number; language models need none.")
    ] = "label"
    train_split: Annotated[
        str,
        Prompt(
            rare=True,
            help="Split of a hub data set to train on. A file has no splits: it is shuffled "
            "and divided.",
        ),
    ] = "train"
    eval_split: Annotated[
        str,
        Prompt(
            "Evaluation split",
            rare=True,
            help="Split of a hub data set for evaluations during training (validation).",
        ),
    ] = "test"
    test_split: Annotated[
        str,
        Prompt(
            rare=True,
            help="Split of a hub data set for the test; samples used for validation are not "
            "used again.",
        ),
    ] = "test"
    num_train_samples: Annotated[
        int, SAMPLES, Prompt("Training samples", "--train-samples", help="Samples to train on.")
    ] = 1000
    num_eval_samples: Annotated[
        int,
        SAMPLES,
        Prompt("Evaluation samples", "--eval-samples", help="Held-out samples for validation."),
    ] = 200
    num_test_samples: Annotated[
        int,
        Bounds(0, MAX_SAMPLES, HELD_IN_MEMORY),
        Prompt("Test samples", rare=True, help="Further held-out samples, for the test."),
    ] = 0
    sequence_length: Annotated[
        int,
        Bounds(4, 131_072, "no model here reads longer texts"),
        Prompt(help="Tokens per text; longer texts are cut, shorter ones padded."),
    ] = 128

    def check_rules(self) -> None:
        self.require("source", bool(self.source), "must name a data set")
        if self.source.startswith(BUILTIN):
            rule = f"must be one of {', '.join(BUILTIN_DATA)}{nearest(self.source, BUILTIN_DATA)}"
            self.require("source", self.source in BUILTIN_DATA, rule)

    @property
    def is_user_code(self) -> bool:
        return bool(USER_CODE.fullmatch(self.source))

    @property
    def num_samples(self) -> int:
        return self.num_train_samples + self.num_eval_samples + self.num_test_samples

    @property
    def is_file(self) -> bool:
        """Whether `source` is a path rather than a built-in set, a hub name or a function."""
        is_path = self.source.endswith(DATA_FILE_SUFFIXES) or self.source.startswith(
            ("/", ".", "~")
        )
        return is_path and not self.is_user_code


class BuiltInWorkload:
    """A training that the specification describes, so that Breakeven makes its steps.

    The attributes are the questions that the rest of Breakeven asks about who decides what in a
    training. Whoever needs to know asks `ExperimentSpec.workload`, and never which one it is.
    """

    noun = "model"
    is_specified = True
    """Whether the specification says precision, batch size, optimizer and evaluations; otherwise
    its runs find them out."""
    has_known_length = True
    """Whether a training has a specified number of steps; otherwise it ends by itself."""
    is_own_program = False
    """Whether runs execute a program of the user's."""
    has_single_steps = True
    """Whether Breakeven can make a single step of it."""
    decides_scope = False
    """Whether it decides itself what is compiled."""
    selects_device = False
    """Whether it selects its device itself, and sees no other one."""
    loads_samples = False
    """Whether it loads samples during the training; otherwise the device holds all of them."""
    writes_checkpoints = False
    """Whether runs resume from checkpoints of its own."""
    entry = "session:run_session"
    """The function of the worker that executes a run, as `module:function` in `runner/worker/`."""
    source_field = "data.source"
    """The field without which nothing can run."""

    def can_change(self, field: str) -> bool:
        """Whether another value of a field changes what runs do."""
        return True


class ScriptWorkload(BuiltInWorkload):
    """A user's training script, which itself determines model, samples, steps and evaluations."""

    noun = "script"
    is_specified = False
    has_known_length = False
    is_own_program = True
    has_single_steps = False
    decides_scope = True
    selects_device = True
    loads_samples = True
    writes_checkpoints = True
    entry = "script.run_script:run_script"
    source_field = "model.source"

    def can_change(self, field: str) -> bool:
        return field in ("backends", "schedule")


def workload_of(task: str) -> BuiltInWorkload:
    """Who decides what in a training of this task."""
    return ScriptWorkload() if task == SCRIPT_TASK else BuiltInWorkload()


UNNAMED = ("My data", "My script")
"""Former default names of the launch form."""
COMMON_SCRIPTS = ("main", "run", "script", "train", "training")
"""Script names that say less than the name of their folder."""
LONGEST_NAME = 120


def usual_name(
    model: str,
    data: str,
    *,
    precision: str = "float32",
    batch_size: int | None = None,
    backends: Iterable[str] = (),
    device: str = "cpu",
) -> str:
    """The default name of an experiment: `bert-base on reviews, bf16, batch 8, inductor`.

    A script (`nanogpt/train.py, inductor`) chooses precision and batch size itself.
    """
    if model.startswith(SCRIPT_PREFIX):
        script = PurePath(model.removeprefix(SCRIPT_PREFIX))
        is_common = script.stem in COMMON_SCRIPTS and script.parent.name
        named = f"{script.parent.name}/{script.name}" if is_common else script.name
        words = [named[-LONGEST_NAME:]]
    else:
        names = [PurePath(source.removeprefix(BUILTIN)).name for source in (model, data)]
        words = [" on ".join(names)]
        if batch_size is not None:
            words += [precision] if precision != "float32" else []
            words += [f"batch {batch_size}"]
    words += [*backends, *([device] if device != "cpu" else [])]
    return ", ".join(words)[:LONGEST_NAME]


def experiment_name(name: str, model: str, data: str) -> str:
    """The name that the user gave, or else the default name."""
    return usual_name(model, data) if name in UNNAMED else name
