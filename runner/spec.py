"""What to run: frozen specifications, validated when they are made, that travel as JSON.

An `ExperimentSpec` is what a person asks for: one workload (model, data, training) under several
`torch.compile` backends. It expands into one `RunSpec` per variant; each run folder holds a
complete one, so that a folder copied from elsewhere explains itself.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Literal

from runner.validation import Options, Spec, require
from runner.variants import Variant, parse_backend

BUILTIN = "builtin:"
BUILTIN_MODELS = {
    "builtin:bert-tiny": "BERT, 2 layers of 128, random weights",
    "builtin:bert-base": "BERT, 12 layers of 768, random weights",
    "builtin:vit-small": "ViT, 4 layers of 128, for images, random weights",
}
BUILTIN_DATA = {
    "builtin:reviews": "star reviews written by a generator, 5 labels",
    "builtin:digits": "1,797 real scans of handwritten digits, 8 x 8 pixels, 10 labels",
}
DATA_FILE_SUFFIXES = (".csv", ".jsonl", ".json", ".parquet")

Precision = Literal["float32", "tf32", "bf16", "fp16"]
Schedule = Literal["turns", "sequential"]
Scheduler = Literal[
    "constant", "linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt",
    "step", "multistep", "plateau",
]  # fmt: skip
EvaluationPoint = Literal["epochs", "steps", "end", "never"]


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Spec):
    """Which model is trained."""

    source: str = "builtin:bert-tiny"
    """A built-in configuration (`builtin:...`, random weights), a local folder, or a hub name."""
    dropout: Literal["auto", "keep", "off"] = "auto"
    """`off` sets every dropout probability to 0. `auto` does so if one of the backends draws random
    numbers of its own, because its losses could then not be compared with the baseline's."""

    def check_rules(self) -> None:
        require(bool(self.source), "model.source", self.source, "must name a model")
        if self.is_builtin:
            rule = f"must be one of {', '.join(BUILTIN_MODELS)}"
            require(self.source in BUILTIN_MODELS, "model.source", self.source, rule)

    @property
    def is_builtin(self) -> bool:
        """Whether the model is one of ours, with random weights."""
        return self.source.startswith(BUILTIN)


@dataclass(frozen=True, kw_only=True)
class DataSpec(Spec):
    """Which labelled samples are trained on and which are held out."""

    source: str = "builtin:reviews"
    """A built-in set (`builtin:...`), a path to CSV, JSONL or Parquet, or a hub name."""
    text_column: str = "text"
    label_column: str = "label"
    train_split: str = "train"
    """Split of a hub data set to train on. A file has no splits: it is shuffled and divided."""
    eval_split: str = "test"
    """Split of a hub data set to evaluate on."""
    num_train_samples: int = 1000
    num_eval_samples: int = 200
    sequence_length: int = 128
    """Tokens per text; longer texts are cut, shorter ones padded."""

    def check_rules(self) -> None:
        require(bool(self.source), "data.source", self.source, "must name a data set")
        if self.source.startswith(BUILTIN):
            rule = f"must be one of {', '.join(BUILTIN_DATA)}"
            require(self.source in BUILTIN_DATA, "data.source", self.source, rule)
        for name in ("num_train_samples", "num_eval_samples"):
            value = getattr(self, name)
            require(value >= 1, f"data.{name}", value, "must be at least 1")
        length = self.sequence_length
        require(4 <= length <= 131072, "data.sequence_length", length, "must be 4 to 131072")

    @property
    def is_file(self) -> bool:
        """Whether `source` is a path rather than a built-in set or a hub name."""
        return self.source.endswith(DATA_FILE_SUFFIXES) or self.source.startswith(("/", ".", "~"))


@dataclass(frozen=True, kw_only=True)
class TrainingSpec(Spec):
    """How the model is trained."""

    optimizer: str = "Adam"
    """Name of a class in `torch.optim`."""
    optimizer_options: Options = field(default_factory=dict)
    """Keyword arguments of the optimizer beside the learning rate, such as `weight_decay`."""
    learning_rate: float = 5e-5
    """The highest that the schedule reaches."""
    scheduler: Scheduler = "constant"
    """How the learning rate changes with the steps."""
    warmup_steps: int = 0
    """Steps over which the learning rate first rises from 0."""
    scheduler_options: Options = field(default_factory=dict)
    """Keyword arguments of the schedule, such as `num_cycles`, or `step_size` for `step`."""
    batch_size: int = 8
    """Samples per micro-batch: what the device works on at once."""
    gradient_accumulation: int = 1
    """Micro-batches per optimizer step. An epoch's last step takes what is left."""
    epochs: int = 1
    max_steps: int | None = None
    """Optimizer steps in all, over as many epochs as that takes; replaces `epochs`."""
    clip_norm: float | None = None
    """Largest norm of all gradients together; they are scaled down to it."""
    clip_value: float | None = None
    """Largest size of each gradient element."""
    record_gradient_norm: bool = False
    """Whether every step records the norm of its gradients, before clipping."""
    evaluation: EvaluationPoint = "epochs"
    """When held-out samples are evaluated; at the end in any case but `never`."""
    evaluate_every: int = 1
    """How many epochs or steps lie between evaluations."""
    precision: Precision = "float32"
    """`tf32` lets float32 matrix products use TF32; `bf16` and `fp16` are autocast."""
    scaler_options: Options = field(default_factory=dict)
    """Keyword arguments of `torch.amp.GradScaler`, which fp16 uses."""
    seed: int = 0
    """Seeds the weights, the choice and order of samples, dropout, and the order of turns."""

    def check_rules(self) -> None:
        require(self.optimizer.isidentifier(), "training.optimizer", self.optimizer,
                 "must be the name of a class in torch.optim")  # fmt: skip
        for name in (
            "batch_size", "gradient_accumulation", "epochs", "max_steps", "evaluate_every",
        ):  # fmt: skip
            value = getattr(self, name)
            require(value is None or value >= 1, f"training.{name}", value, "must be at least 1")
        for name in ("clip_norm", "clip_value"):
            value = getattr(self, name)
            require(value is None or value > 0, f"training.{name}", value, "must be above 0")
        warmup = self.warmup_steps
        require(warmup >= 0, "training.warmup_steps", warmup, "must be at least 0")
        rule = f"must be 0 with the schedule {self.scheduler!r}, which has no warm-up"
        without = self.scheduler in ("step", "multistep", "plateau")
        require(warmup == 0 or not without, "training.warmup_steps", warmup, rule)
        rule = "must not be 'never' with the schedule 'plateau', which follows the held-out loss"
        blind = self.scheduler == "plateau" and self.evaluation == "never"
        require(not blind, "training.evaluation", self.evaluation, rule)
        scaler = self.scaler_options
        rule = "are for precision 'fp16' only"
        require(not scaler or self.precision == "fp16", "training.scaler_options", scaler, rule)
        rate = self.learning_rate
        require(rate > 0, "training.learning_rate", rate, "must be above 0")
        require(0 <= self.seed < 2**32, "training.seed", self.seed, "must be 0 to 4294967295")


@dataclass(frozen=True, kw_only=True)
class ExperimentSpec(Spec):
    """One comparison: a workload under several backends, beside a baseline and a control."""

    name: str
    model: ModelSpec = field(default_factory=ModelSpec)
    data: DataSpec = field(default_factory=DataSpec)
    training: TrainingSpec = field(default_factory=TrainingSpec)
    backends: tuple[str, ...] = ("inductor",)
    """Dynamo backends, by name or with settings: `inductor:mode=max-autotune+scope=forward`."""
    control: bool = True
    """Whether a second, minutely perturbed baseline measures noise and rounding."""
    devices: tuple[str, ...] = ("cpu",)
    """Where each run computes; one device, `cpu` or `cuda:N`."""
    cpu_threads: int | None = None
    """Threads a run computes with on the CPU; None means half the cores."""
    schedule: Schedule = "turns"
    """`turns`: all runs live at once and alternate by blocks. `sequential`: one after another."""
    block_steps: int = 10
    """Steps per turn."""
    time_limit_seconds: float = 3600.0
    """Longest that one run may work; waiting for its turn is not counted."""
    fallback_of: str | None = None
    """Id of the experiment that this one repeats run by run because the device lacked memory."""

    def check_rules(self) -> None:
        require(bool(self.name.strip()), "name", self.name, "must not be empty")
        require(len(self.name) <= 120, "name", self.name, "must be at most 120 characters")
        compiled = [parse_backend(text) for text in self.backends]
        rule = "must not name a backend twice"
        labels = {variant.label for variant in compiled}
        require(len(labels) == len(compiled), "backends", self.backends, rule)
        rule = "must name exactly one device, 'cpu' or 'cuda:N'"
        valid = len(self.devices) == 1 and re.fullmatch(r"cpu|cuda:\d+", self.devices[0])
        require(bool(valid), "devices", self.devices, rule)
        require(self.block_steps >= 1, "block_steps", self.block_steps, "must be at least 1")
        limit = self.time_limit_seconds
        require(limit > 0, "time_limit_seconds", limit, "must be above 0")
        threads = self.cpu_threads
        require(threads is None or threads >= 1, "cpu_threads", threads, "must be at least 1")
        batch, samples = self.training.batch_size, self.data.num_train_samples
        rule = f"must not exceed data.num_train_samples ({samples}): not one batch would be full"
        require(batch <= samples, "training.batch_size", batch, rule)
        on_cpu = self.devices[0] == "cpu"
        precision = self.training.precision
        rule = "needs a CUDA device; on the CPU choose float32 or bf16"
        require(not (on_cpu and precision in ("tf32", "fp16")), "training.precision", precision,
                 rule)  # fmt: skip

    @property
    def device(self) -> str:
        """The device that the turn of this experiment stands for."""
        return self.devices[0]

    @property
    def has_dropout(self) -> bool:
        """Whether every run of the experiment trains with the model's dropout."""
        if self.model.dropout == "auto":
            return not any(variant.draws_own_random_numbers for variant in self.variants)
        return self.model.dropout == "keep"

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps per epoch; a last, smaller batch is left out (it would recompile)."""
        num_batches = self.data.num_train_samples // self.training.batch_size
        return math.ceil(num_batches / self.training.gradient_accumulation)

    @property
    def num_steps(self) -> int:
        """Optimizer steps of one run."""
        return self.training.max_steps or self.steps_per_epoch * self.training.epochs

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every run of the experiment, baseline first."""
        variants = [Variant(label="baseline", role="baseline")]
        if self.control:
            variants.append(Variant(label="control", role="control"))
        variants.extend(parse_backend(text) for text in self.backends)
        return tuple(variants)


@dataclass(frozen=True, kw_only=True)
class RunSpec(Spec):
    """One run, completely described: an experiment and which of its variants this is."""

    experiment_id: str
    experiment: ExperimentSpec
    variant: Variant

    def check_rules(self) -> None:
        rule = "must be letters, digits and '-'"
        valid = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", self.experiment_id)
        require(bool(valid), "experiment_id", self.experiment_id, rule)
        rule = "must be one of the experiment's own variants"
        require(self.variant in self.experiment.variants, "variant", self.variant.label, rule)

    @property
    def run_id(self) -> str:
        """Name of the run folder."""
        return f"{self.experiment_id}.{self.variant.label}"
