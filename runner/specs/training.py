"""Settings of training, evaluation, early stopping and checkpoints."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from breakeven.runner.specs.fields import (
    EVERY_STEP_IS_KEPT,
    FLOAT32_MAX,
    MAX_STEPS,
    NO_LARGER_FLOAT,
    Bounds,
    Prompt,
    Spec,
    require,
)
from breakeven.runner.specs.values import Options, parse_settings

Precision = Literal["float32", "tf32", "bf16", "fp16"]
Scheduler = Literal[
    "constant",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "inverse_sqrt",
    "step",
    "multistep",
    "plateau",
]
WITHOUT_WARM_UP: tuple[Scheduler, ...] = ("step", "multistep", "plateau")
LastBatch = Literal["drop", "pad", "dynamic"]
EvaluationPoint = Literal["epochs", "steps", "end", "never"]
SplitName = Literal["train", "validation", "test"]
Metric = Literal[
    "loss", "accuracy", "f1", "precision", "recall", "roc_auc", "mse", "mae", "perplexity"
]
LOWER_IS_BETTER = ("loss", "mse", "mae", "perplexity")
NO_OPTIMIZER = "none"
"""Stands in place of an optimizer's name."""
MODEL_LOSS = "model"
"""Name of the loss that the model itself returns."""


LEARNING_RATE = Bounds(0, 10_000, "one step would undo the whole training", above=True)
STEPS = Bounds(1, MAX_STEPS, EVERY_STEP_IS_KEPT)
SIZE = Bounds(0, FLOAT32_MAX, NO_LARGER_FLOAT, above=True)
COPIES = "each checkpoint is three times as large as the model"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One term of the loss: the model's own, or a criterion of `torch.nn` on logits and labels."""

    name: str
    weight: float
    options: Options


def parse_loss(text: str) -> Loss:
    """Reads a term such as `0.5*CrossEntropyLoss:label_smoothing=0.1`.

    Raises `InvalidSpec` for the field `training.losses`.
    """
    field_name = "training.losses"
    term, options = parse_settings(text, field_name)
    weight, times, name = term.rpartition("*")
    rule = "must read `name`, `weight*name` or `weight*name:setting=value`; the name is 'model' or "
    rule += "a criterion of torch.nn, such as CrossEntropyLoss"
    is_number = bool(re.fullmatch(r"\d+(\.\d*)?([eE]-?\d+)?", weight))
    require(name.isidentifier() and (not times or is_number), field_name, text, rule)
    rule = "must have a weight within the range of float32"
    require(not times or float(weight) <= FLOAT32_MAX, field_name, text, rule)
    rule = "has settings, but only a criterion of torch.nn takes settings"
    require(name != MODEL_LOSS or not options, field_name, text, rule)
    return Loss(name=name, weight=float(weight) if times else 1.0, options=options)


@dataclass(frozen=True, kw_only=True)
class ParameterGroup:
    """Parameters with an optimizer of their own."""

    pattern: str
    """Shell pattern of parameter names."""
    optimizer: str | None
    """Name of a class in `torch.optim`; None means the training's."""
    learning_rate: float | None
    """None means the training's."""
    options: Options


def parse_parameter_group(text: str) -> ParameterGroup:
    """Reads a group such as `classifier.*:optimizer=SGD+lr=0.01`.

    Raises `InvalidSpec` for the field `training.parameter_groups`.
    """
    field_name = "training.parameter_groups"
    pattern, options = parse_settings(text, field_name)
    optimizer, rate = options.pop("optimizer", None), options.pop("lr", None)
    rule = "must read `pattern:setting=value`; the pattern matches names of parameters"
    require(bool(pattern and (optimizer or rate or options)), field_name, text, rule)
    is_name = optimizer is None or isinstance(optimizer, str)
    require(is_name, field_name, text, "must name a class in torch.optim as its optimizer")
    most = LEARNING_RATE.most
    is_rate = rate is None or (isinstance(rate, (int, float)) and 0 < rate <= most)
    rule = f"must have an lr above 0 and at most {most:,}: {LEARNING_RATE.why}"
    require(is_rate, field_name, text, rule)
    assert optimizer is None or isinstance(optimizer, str)
    assert rate is None or isinstance(rate, (int, float))
    return ParameterGroup(
        pattern=pattern,
        optimizer=optimizer,
        learning_rate=None if rate is None else float(rate),
        options=options,
    )


@dataclass(frozen=True, kw_only=True)
class TrainingSpec(Spec, path="training."):
    """Settings of the training."""

    losses: Annotated[
        tuple[str, ...],
        Prompt(
            flag="--loss",
            several=True,
            help="Terms of the loss; the training minimizes their weighted sum, and each term "
            "has a chart. `model` is the loss that the model itself returns; any other "
            "term is a criterion of `torch.nn` on logits and labels, such as "
            "`0.5*CrossEntropyLoss:label_smoothing=0.1`.",
        ),
    ] = (MODEL_LOSS,)
    optimizer: Annotated[
        str,
        Prompt(
            help="Name of a class in `torch.optim`; with `none`, steps do not change the weights."
        ),
    ] = "Adam"
    optimizer_options: Annotated[
        Options,
        Prompt(
            rare=True,
            help="Arguments of the optimizer other than the learning rate, such as "
            "`weight_decay=0.01, betas=(0.9, 0.95)`.",
        ),
    ] = field(default_factory=dict)
    parameter_groups: Annotated[
        tuple[str, ...],
        Prompt(
            "Parameters with an optimizer of their own",
            rare=True,
            several=True,
            help="`pattern:setting=value`, where the pattern matches names of parameters: "
            "`classifier.*:optimizer=SGD+lr=0.01`. A parameter belongs to the first "
            "pattern that matches, all others to the optimizer of the training.",
        ),
    ] = ()
    learning_rate: Annotated[
        float,
        LEARNING_RATE,
        Prompt(help="Step size of the optimizer; with a schedule, the highest one."),
    ] = 5e-5
    scheduler: Annotated[
        Scheduler,
        Prompt(
            "Learning rate schedule",
            rare=True,
            help="How the learning rate changes over the steps. `constant` does not change it; "
            "`linear` and `cosine` lower it to 0; `plateau` lowers it when the held-out "
            "loss stops falling.",
        ),
    ] = "constant"
    warmup_steps: Annotated[
        int,
        Bounds(0, MAX_STEPS, EVERY_STEP_IS_KEPT),
        Prompt(
            "Warm-up steps", rare=True, help="First steps, in which the learning rate rises from 0."
        ),
    ] = 0
    scheduler_options: Annotated[
        Options,
        Prompt(
            "Schedule options",
            rare=True,
            help="Arguments of the schedule: `num_cycles=2` for `cosine_with_restarts`, "
            "`step_size=30, gamma=0.5` for `step`, `milestones=(30, 60)` for `multistep`.",
        ),
    ] = field(default_factory=dict)
    batch_size: Annotated[
        int,
        Bounds(1, 1_000_000, "the device holds the whole batch"),
        Prompt(help="Samples per micro-batch, which the device computes at once."),
    ] = 8
    last_batch: Annotated[
        LastBatch,
        Prompt(
            "Last batch of an epoch",
            rare=True,
            help="Treatment of a last batch that is not full: `drop` leaves it out, `pad` "
            "fills it with samples that do not count, `dynamic` makes it smaller, with a "
            "symbolic size for the compiler. None of them compiles again in the middle of "
            "the training.",
        ),
    ] = "drop"
    gradient_accumulation: Annotated[
        int,
        Bounds(1, 100_000, "a step shows nothing until all micro-batches are done"),
        Prompt(
            rare=True,
            help="Micro-batches whose gradients are added up for one optimizer step, for a "
            "larger batch than memory holds. An epoch's last step takes the remaining "
            "ones.",
        ),
    ] = 1
    epochs: Annotated[int, STEPS, Prompt(help="Passes over the training samples.")] = 1
    max_steps: Annotated[
        int | None,
        STEPS,
        Prompt(
            "Steps in all",
            empty="from the epochs",
            help="Number of optimizer steps, in as many epochs as needed; replaces `epochs`.",
        ),
    ] = None
    clip_norm: Annotated[
        float | None,
        SIZE,
        Prompt(
            "Clip gradients to norm",
            empty="no clipping",
            rare=True,
            help="Largest norm of all gradients of a step together; larger norms are scaled "
            "down to it.",
        ),
    ] = None
    clip_value: Annotated[
        float | None,
        SIZE,
        Prompt(
            "Clip gradients to value",
            empty="no clipping",
            rare=True,
            help="Largest size of each element of a gradient; larger elements are cut to it.",
        ),
    ] = None
    record_gradient_norm: Annotated[
        bool,
        Prompt(
            "Record the gradient norm",
            rare=True,
            help="Charts the norm of all gradients before clipping. Costs a little time in "
            "every step of every run.",
        ),
    ] = False
    gradient_statistics_every: Annotated[
        int | None,
        STEPS,
        Prompt(
            "Gradient statistics every",
            empty="never",
            rare=True,
            help="Number of steps between records of each parameter's gradient: norm, mean, "
            "deviation, largest element, share of zeros.",
        ),
    ] = None
    precision: Annotated[
        Precision,
        Prompt(
            help="`tf32` allows TF32 in float32 products; `bf16` and `fp16` use autocast. "
            "`tf32` and `fp16` need a GPU."
        ),
    ] = "float32"
    scaler_options: Annotated[
        Options,
        Prompt(
            "Loss scaler options",
            rare=True,
            help="Arguments of `torch.amp.GradScaler`, which keeps small fp16 gradients from "
            "vanishing, such as `init_scale=1024`.",
        ),
    ] = field(default_factory=dict)
    seed: Annotated[
        int,
        Bounds(0, 2**32 - 1, "random generators take 32 bits"),
        Prompt(
            help="Seed of the weights, the choice and order of samples, dropout, and the order "
            "of turns."
        ),
    ] = 0

    @property
    def has_constant_rate(self) -> bool:
        """Whether the learning rate never changes."""
        return self.scheduler == "constant" and self.warmup_steps == 0

    def check_rules(self) -> None:
        rule = "must be the name of a class in torch.optim"
        self.require("optimizer", self.optimizer.isidentifier(), rule)
        rule = f"must be 0 with the schedule {self.scheduler!r}, which has no warm-up"
        fits = self.warmup_steps == 0 or self.scheduler not in WITHOUT_WARM_UP
        self.require("warmup_steps", fits, rule)
        fits = not self.scaler_options or self.precision == "fp16"
        self.require("scaler_options", fits, "are for precision 'fp16' only")
        self.require("losses", bool(self.losses), "must name at least one loss")
        names = {loss.name for loss in self.loss_terms}
        self.require("losses", len(names) == len(self.losses), "must not name a loss twice")
        _ = self.groups

    @property
    def loss_terms(self) -> tuple[Loss, ...]:
        return tuple(map(parse_loss, self.losses))

    @property
    def groups(self) -> tuple[ParameterGroup, ...]:
        return tuple(map(parse_parameter_group, self.parameter_groups))


@dataclass(frozen=True, kw_only=True)
class EvaluationSpec(Spec, path="evaluation."):
    """When and how the model is evaluated."""

    when: Annotated[
        EvaluationPoint,
        Prompt(
            "Evaluate",
            "--evaluate",
            help="When the model is evaluated: after `epochs` or `steps`, only at the `end`, "
            "or `never`. Except with `never`, it is also evaluated at the end. Evaluation "
            "time counts in no timing.",
        ),
    ] = "epochs"
    every: Annotated[
        int,
        STEPS,
        Prompt(
            "Evaluate every",
            rare=True,
            help="Number of epochs or steps between evaluations.",
        ),
    ] = 1
    splits: Annotated[
        tuple[SplitName, ...],
        Prompt(
            "Evaluated splits",
            rare=True,
            help="Splits to evaluate. The first one ranks checkpoints, stops training early "
            "and drives the schedule `plateau`. `train` takes long with many training "
            "samples.",
        ),
    ] = ("validation",)
    compiled: Annotated[
        bool,
        Prompt(
            "Evaluate the compiled model, too",
            rare=True,
            help="Whether a backend's compiled model is evaluated in addition to the same "
            "weights without a compiler. This finds faults that occur only in inference.",
        ),
    ] = True
    metric: Annotated[
        Metric,
        Prompt(rare=True, help="The number that ranks checkpoints and stops training early."),
    ] = "loss"
    predictions: Annotated[
        tuple[SplitName, ...],
        Prompt(
            "Store predictions of",
            rare=True,
            help="Splits whose labels and logits are stored in a file at the end, for the "
            "confusion matrix and the samples on which backends disagree.",
        ),
    ] = ()

    def check_rules(self) -> None:
        for name in ("splits", "predictions"):
            value = getattr(self, name)
            self.require(name, len(set(value)) == len(value), "must not name a split twice")
        rule = f"must name at least one of {', '.join(get_args(SplitName))}"
        self.require("splits", self.when == "never" or bool(self.splits), rule)

    @property
    def primary_split(self) -> SplitName:
        """The split whose numbers represent the run; `validation` if none is evaluated."""
        return self.splits[0] if self.splits else "validation"

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value of `metric` is better."""
        return self.metric in LOWER_IS_BETTER


@dataclass(frozen=True, kw_only=True)
class StoppingSpec(Spec, path="stopping."):
    """Conditions that end training before its last step."""

    nonfinite: Annotated[
        bool,
        Prompt(
            "Stop at NaN or infinity",
            rare=True,
            help="Ends training at a loss that is not finite. Each step then waits for the device.",
        ),
    ] = False
    patience: Annotated[
        int | None,
        STEPS,
        Prompt(
            empty="go on",
            rare=True,
            help="Training ends after this many evaluations in a row without a better value of "
            "the metric.",
        ),
    ] = None
    min_delta: Annotated[
        float,
        Bounds(0, FLOAT32_MAX, NO_LARGER_FLOAT),
        Prompt("Least improvement", rare=True, help="Smallest difference that counts as better."),
    ] = 0.0
    threshold: Annotated[
        float | None,
        Bounds(-FLOAT32_MAX, FLOAT32_MAX, NO_LARGER_FLOAT),
        Prompt(
            "Good enough at",
            empty="go on",
            rare=True,
            help="Value of the metric that is good enough to end training.",
        ),
    ] = None

    @property
    def follows_evaluation(self) -> bool:
        return self.patience is not None or self.threshold is not None


@dataclass(frozen=True, kw_only=True)
class CheckpointSpec(Spec, path="checkpoints."):
    """When a run saves checkpoints, and how many it keeps."""

    every: Annotated[
        int | None,
        STEPS,
        Prompt(
            "Checkpoint every",
            "--checkpoint-every",
            empty="no checkpoints",
            help="Number of epochs or steps between checkpoints, from which a stopped or lost "
            "run resumes exactly. One checkpoint follows the last step. None: no "
            "checkpoints.",
        ),
    ] = None
    unit: Annotated[
        Literal["epochs", "steps"],
        Prompt("Counted in", rare=True, help="Unit of `every`."),
    ] = "epochs"
    keep_last: Annotated[
        int,
        Bounds(1, 1000, COPIES),
        Prompt(
            "Keep the latest",
            rare=True,
            help="Number of latest checkpoints to keep; each is about three times as large as "
            "the model.",
        ),
    ] = 1
    keep_best: Annotated[
        int,
        Bounds(0, 1000, COPIES),
        Prompt(
            "Keep the best",
            rare=True,
            help="Number of checkpoints to keep for their value of the metric, beyond the "
            "latest ones. Only checkpoints at an evaluation have a value.",
        ),
    ] = 0
