"""Which model is trained, on which samples, for which task."""

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Literal, NamedTuple

from breakeven.runner.specs.bounds import Bounds
from breakeven.runner.specs.script import SCRIPT_PREFIX
from breakeven.runner.specs.validation import Spec, require

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
"""How each suite names its models; behind a stroke how many times smaller one is."""
SUITE_MODEL = re.compile(
    rf"(?P<suite>{'|'.join(SUITE_SOURCES)}):(?P<name>[\w.-]+)(/(?P<divisor>[1-9]\d{{0,3}}))?"
)
DATA_FILE_SUFFIXES = (
    ".csv", ".jsonl", ".json", ".parquet", ".csv.gz", ".jsonl.gz", ".json.gz",
)  # fmt: skip
MAX_SAMPLES = 100_000_000
HELD_IN_MEMORY = "every run holds all of them in memory"
USER_CODE = re.compile(r".+\.py:[A-Za-z_]\w*")
"""`path.py:name`: a function or class in a person's own file."""


class SuiteModelName(NamedTuple):
    """A model of a benchmark suite."""

    suite: str
    name: str
    divisor: int
    """How many times fewer layers, heads and words it has than the suite's."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Spec, path="model."):
    """Which model is trained."""

    source: str = "builtin:bert-tiny"
    """A built-in configuration (`builtin:...`, random weights), a model of a benchmark suite
    (`huggingface:BertForMaskedLM`, 16 times smaller `huggingface:BertForMaskedLM/16`, `timm:...`,
    `torchbench:...`, random weights), a local folder, a hub name, `path.py:function`, which is
    called without arguments and returns an `nn.Module`, or a training script of one's own that
    makes it, `script:path.py`."""
    dropout: Literal["auto", "keep", "off"] = "auto"
    """`off` sets every dropout probability to 0. `auto` does so if one of the backends draws random
    numbers of its own, because its losses could then not be compared with the baseline's step by
    step."""

    def check_rules(self) -> None:
        require(bool(self.source), "model.source", self.source, "must name a model")
        if self.is_builtin:
            rule = f"must be one of {', '.join(BUILTIN_MODELS)}"
            require(self.source in BUILTIN_MODELS, "model.source", self.source, rule)
        suite = self.source.partition(":")[0]
        if suite in SUITE_SOURCES:
            found = self.from_suite
            fits = found is not None and (found.divisor == 1 or suite == "huggingface")
            rule = f"must read such as {SUITE_SOURCES[suite]}"
            require(fits, "model.source", self.source, rule)

    @property
    def from_suite(self) -> SuiteModelName | None:
        """Which model of a benchmark suite it is; None for any other model."""
        match = SUITE_MODEL.fullmatch(self.source)
        return match and SuiteModelName(match["suite"], match["name"], int(match["divisor"] or 1))

    @property
    def is_builtin(self) -> bool:
        """Whether the model is one of ours, with random weights."""
        return self.source.startswith(BUILTIN)

    @property
    def script(self) -> str | None:
        """Path of the training script that makes the model; None for any other model."""
        found = self.source.startswith(SCRIPT_PREFIX)
        return self.source.removeprefix(SCRIPT_PREFIX) if found else None

    @property
    def is_user_code(self) -> bool:
        return bool(USER_CODE.fullmatch(self.source))


@dataclass(frozen=True, kw_only=True)
class DataSpec(Spec, path="data."):
    """Which samples are trained on and which are held out."""

    source: str = "builtin:reviews"
    """A built-in set (`builtin:...`), a path to CSV, JSONL or Parquet, a folder of images with one
    folder for each label, a hub name, or `path.py:function`, which is called without arguments and
    returns the samples."""
    text_column: str = "text"
    """Column of a file or hub data set that holds the text, or the image."""
    label_column: str = "label"
    """Column that holds the label, text or number; language models need none."""
    train_split: str = "train"
    """Split of a hub data set to train on. A file has no splits: it is shuffled and divided."""
    eval_split: str = "test"
    """Split of a hub data set to evaluate on while training (validation)."""
    test_split: str = "test"
    """Split of a hub data set to test on; samples used for validation are not used again."""
    num_train_samples: Annotated[int, Bounds(1, MAX_SAMPLES, HELD_IN_MEMORY)] = 1000
    """Samples to train on."""
    num_eval_samples: Annotated[int, Bounds(1, MAX_SAMPLES, HELD_IN_MEMORY)] = 200
    """Held-out samples for validation."""
    num_test_samples: Annotated[int, Bounds(0, MAX_SAMPLES, HELD_IN_MEMORY)] = 0
    """Further held-out samples, for a last test."""
    sequence_length: Annotated[int, Bounds(4, 131_072, "no model here reads longer texts")] = 128
    """Tokens per text; longer texts are cut, shorter ones padded."""

    def check_rules(self) -> None:
        require(bool(self.source), "data.source", self.source, "must name a data set")
        if self.source.startswith(BUILTIN):
            rule = f"must be one of {', '.join(BUILTIN_DATA)}"
            require(self.source in BUILTIN_DATA, "data.source", self.source, rule)

    @property
    def is_user_code(self) -> bool:
        return bool(USER_CODE.fullmatch(self.source))

    @property
    def is_file(self) -> bool:
        """Whether `source` is a path rather than a built-in set, a hub name or a function."""
        is_path = self.source.endswith(DATA_FILE_SUFFIXES) or self.source.startswith(
            ("/", ".", "~")
        )
        return is_path and not self.is_user_code


UNNAMED = ("My data", "My script")
"""Names that the form had for whatever was launched from it without another."""
COMMON_SCRIPTS = ("main", "run", "script", "train", "training")
"""Names of scripts that say less than their folder's."""
LONGEST_NAME = 120


def usual_name(model: str, data: str) -> str:
    """By the sources of model and data: `bert-tiny on reviews`, `nanogpt/train.py`."""
    if model.startswith(SCRIPT_PREFIX):
        script = PurePath(model.removeprefix(SCRIPT_PREFIX))
        is_common = script.stem in COMMON_SCRIPTS and script.parent.name
        return (f"{script.parent.name}/{script.name}" if is_common else script.name)[-LONGEST_NAME:]
    names = [PurePath(source.removeprefix(BUILTIN)).name for source in (model, data)]
    return " on ".join(names)[:LONGEST_NAME]


def known_as(name: str, model: str, data: str) -> str:
    """The name that somebody gave, or else the usual one."""
    return usual_name(model, data) if name in UNNAMED else name
