"""How a model is trained, evaluated, stopped and saved."""

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
    "constant", "linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt",
    "step", "multistep", "plateau",
]  # fmt: skip
WITHOUT_WARM_UP: tuple[Scheduler, ...] = ("step", "multistep", "plateau")
LastBatch = Literal["drop", "pad", "dynamic"]
EvaluationPoint = Literal["epochs", "steps", "end", "never"]
SplitName = Literal["train", "validation", "test"]
Metric = Literal[
    "loss", "accuracy", "f1", "precision", "recall", "roc_auc", "mse", "mae", "perplexity"
]
LOWER_IS_BETTER = ("loss", "mse", "mae", "perplexity")
NO_OPTIMIZER = "none"
"""In the place of an optimizer's name."""
MODEL_LOSS = "model"
"""Name of the loss that the model itself returns."""


LEARNING_RATE = Bounds(0, 10_000, "one step would undo all that was learned", above=True)
STEPS = Bounds(1, MAX_STEPS, EVERY_STEP_IS_KEPT)
SIZE = Bounds(0, FLOAT32_MAX, NO_LARGER_FLOAT, above=True)
COPIES = "each is three times as large as the model"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One term of the loss: the model's own, or a criterion of `torch.nn` on logits and labels."""

    name: str
    weight: float
    options: Options


def parse_loss(text: str) -> Loss:
    """The term that a text such as `0.5*CrossEntropyLoss:label_smoothing=0.1` describes.

    Raises `InvalidSpec` for the field `training.losses`.
    """
    field_name = "training.losses"
    whole, options = parse_settings(text, field_name)
    weight, times, name = whole.rpartition("*")
    rule = "must read `name`, `weight*name` or `weight*name:setting=value`, the name 'model' or "
    rule += "that of a criterion in torch.nn, such as CrossEntropyLoss"
    is_number = bool(re.fullmatch(r"\d+(\.\d*)?([eE]-?\d+)?", weight))
    require(name.isidentifier() and (not times or is_number), field_name, text, rule)
    rule = "must weigh a loss by a number that float32 holds"
    require(not times or float(weight) <= FLOAT32_MAX, field_name, text, rule)
    rule = "has settings, which only a criterion of torch.nn takes"
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
    """The group that a text such as `classifier.*:optimizer=SGD+lr=0.01` describes.

    Raises `InvalidSpec` for the field `training.parameter_groups`.
    """
    field_name = "training.parameter_groups"
    pattern, options = parse_settings(text, field_name)
    optimizer, rate = options.pop("optimizer", None), options.pop("lr", None)
    rule = "must read `pattern:setting=value`, the pattern matching names of parameters"
    require(bool(pattern and (optimizer or rate or options)), field_name, text, rule)
    is_name = optimizer is None or isinstance(optimizer, str)
    require(is_name, field_name, text, "must name a class in torch.optim as its optimizer")
    most = LEARNING_RATE.most
    is_rate = rate is None or (isinstance(rate, (int, float)) and 0 < rate <= most)
    rule = f"must have a number above 0 as its lr, and at most {most:,}: {LEARNING_RATE.why}"
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
    """How the model is trained."""

    losses: Annotated[tuple[str, ...], Prompt(flag="--loss", several=True)] = (MODEL_LOSS,)
    """Terms whose weighted sum is minimized, each charted: `model` for the loss that the model
    itself returns, or a criterion of `torch.nn` on logits and labels, as
    `0.5*CrossEntropyLoss:label_smoothing=0.1`."""
    optimizer: str = "Adam"
    """Name of a class in `torch.optim`; `none` leaves the weights as they are, to time steps."""
    optimizer_options: Options = field(default_factory=dict)
    """Arguments of the optimizer other than the learning rate, such as `weight_decay=0.01,
    betas=(0.9, 0.95)`."""
    parameter_groups: Annotated[
        tuple[str, ...],
        Prompt(
            "Parameters with an optimizer of their own",
            "--parameter-group",
            rare=True,
            several=True,
        ),
    ] = ()
    """`pattern:setting=value`, where the pattern matches names of parameters:
    `classifier.*:optimizer=SGD+lr=0.01`. A parameter belongs to the first pattern that matches, all
    others to the optimizer of the training."""
    learning_rate: Annotated[float, LEARNING_RATE] = 5e-5
    """Step size of the optimizer, the highest of a schedule."""
    scheduler: Annotated[Scheduler, Prompt("Learning rate schedule")] = "constant"
    """How the learning rate changes with the steps. `constant` leaves it as it is; `linear` and
    `cosine` let it fall to 0; `plateau` lowers it when the held-out loss stops falling."""
    warmup_steps: Annotated[
        int, Bounds(0, MAX_STEPS, EVERY_STEP_IS_KEPT), Prompt("Warm-up steps")
    ] = 0
    """Steps over which the learning rate first rises from 0."""
    scheduler_options: Annotated[Options, Prompt("Schedule options", rare=True)] = field(
        default_factory=dict
    )
    """Arguments of the schedule: `num_cycles=2` for `cosine_with_restarts`, `step_size=30,
    gamma=0.5` for `step`, `milestones=(30, 60)` for `multistep`."""
    batch_size: Annotated[int, Bounds(1, 1_000_000, "the device holds it at once")] = 8
    """Samples per micro-batch: what the device works on at once."""
    last_batch: Annotated[LastBatch, Prompt("Last batch of an epoch", rare=True)] = "drop"
    """What becomes of samples that do not fill it: `drop` leaves them out, `pad` fills it up with
    samples that do not count, `dynamic` makes it smaller, its size a symbol to the compiler. None
    of them compiles anew in the middle of the training."""
    gradient_accumulation: Annotated[
        int, Bounds(1, 100_000, "nothing is seen of a step before all of them are done")
    ] = 1
    """Micro-batches whose gradients are added up for one optimizer step: a larger batch than the
    memory holds. An epoch's last step takes what is left."""
    epochs: Annotated[int, STEPS] = 1
    """Passes over the train samples."""
    max_steps: Annotated[int | None, STEPS, Prompt("Steps in all", empty="as the epochs say")] = (
        None
    )
    """Optimizer steps in all, over as many epochs as that takes; replaces `epochs`."""
    clip_norm: Annotated[
        float | None, SIZE, Prompt("Clip gradients to norm", empty="no clipping")
    ] = None
    """Largest norm of all gradients of a step together; larger ones are scaled down to it."""
    clip_value: Annotated[
        float | None, SIZE, Prompt("Clip gradients to value", empty="no clipping", rare=True)
    ] = None
    """Largest size of each element of a gradient; larger ones are cut to it."""
    record_gradient_norm: Annotated[bool, Prompt("Record the gradient norm", rare=True)] = False
    """Charts the norm of all gradients, before clipping, over the steps. Costs a little time in
    every step of every run."""
    gradient_statistics_every: Annotated[
        int | None, STEPS, Prompt("Gradient statistics every", empty="never", rare=True)
    ] = None
    """How many steps lie between charts of each parameter's gradient: norm, and recorded with it
    mean, deviation, largest element, share of zeros."""
    precision: Precision = "float32"
    """`tf32` lets float32 products use TF32; `bf16` and `fp16` are autocast. `tf32` and `fp16` need
    a GPU."""
    scaler_options: Annotated[Options, Prompt("Loss scaler options", rare=True)] = field(
        default_factory=dict
    )
    """Arguments of `torch.amp.GradScaler`, which keeps small fp16 gradients from vanishing, such as
    `init_scale=1024`."""
    seed: Annotated[int, Bounds(0, 2**32 - 1, "random generators take 32 bits")] = 0
    """Seeds the weights, the choice and order of samples, dropout, and the order of turns."""

    @property
    def has_constant_rate(self) -> bool:
        """Whether the learning rate never changes."""
        return self.scheduler == "constant" and self.warmup_steps == 0

    def check_rules(self) -> None:
        require(self.optimizer.isidentifier(), "training.optimizer", self.optimizer,
                 "must be the name of a class in torch.optim")  # fmt: skip
        warmup = self.warmup_steps
        rule = f"must be 0 with the schedule {self.scheduler!r}, which has no warm-up"
        without = self.scheduler in WITHOUT_WARM_UP
        require(warmup == 0 or not without, "training.warmup_steps", warmup, rule)
        scaler = self.scaler_options
        rule = "are for precision 'fp16' only"
        require(not scaler or self.precision == "fp16", "training.scaler_options", scaler, rule)
        require(bool(self.losses), "training.losses", self.losses, "must name at least one loss")
        names = [loss.name for loss in self.loss_terms]
        require(len(set(names)) == len(names), "training.losses", self.losses,
                "must not name a loss twice")  # fmt: skip
        _ = self.groups

    @property
    def loss_terms(self) -> tuple[Loss, ...]:
        return tuple(map(parse_loss, self.losses))

    @property
    def groups(self) -> tuple[ParameterGroup, ...]:
        return tuple(map(parse_parameter_group, self.parameter_groups))


@dataclass(frozen=True, kw_only=True)
class EvaluationSpec(Spec, path="evaluation."):
    """When and how the model is judged on samples."""

    when: Annotated[EvaluationPoint, Prompt("Evaluate", "--evaluate")] = "epochs"
    """When the model is judged: after `epochs` or `steps`, only at the `end`, or `never`; at the
    end in any case but `never`. The time it takes counts for no run."""
    every: Annotated[int, STEPS, Prompt("Evaluate every", "--evaluate-every")] = 1
    """How many epochs or steps lie between evaluations."""
    splits: Annotated[
        tuple[SplitName, ...], Prompt("On samples of", "--evaluate-splits", rare=True)
    ] = ("validation",)
    """The first one ranks checkpoints, stops training early and drives the schedule `plateau`.
    `train` takes long where there are many train samples."""
    compiled: Annotated[
        bool, Prompt("Evaluate the compiled model, too", "--evaluate-compiled", rare=True)
    ] = True
    """Whether a backend's model is judged as it was compiled as well as, with the same weights,
    without a compiler: a fault that shows only when the model answers is found this way."""
    metric: Annotated[Metric, Prompt(rare=True)] = "loss"
    """The number by which checkpoints are ranked and training is stopped early."""
    predictions: Annotated[tuple[SplitName, ...], Prompt("Keep predictions for", rare=True)] = ()
    """Splits whose labels and logits are written to a file at the end: for the confusion matrix,
    and for the samples on which backends disagree."""

    def check_rules(self) -> None:
        for name in ("splits", "predictions"):
            value = getattr(self, name)
            unique = len(set(value)) == len(value)
            require(unique, f"evaluation.{name}", value, "must not name a split twice")
        needed = self.when == "never" or bool(self.splits)
        rule = f"must name at least one of {', '.join(get_args(SplitName))}"
        require(needed, "evaluation.splits", self.splits, rule)

    @property
    def primary_split(self) -> SplitName:
        """The split whose numbers speak for the run; the usual one where none is evaluated."""
        return self.splits[0] if self.splits else "validation"

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value of `metric` is the better one."""
        return self.metric in LOWER_IS_BETTER


@dataclass(frozen=True, kw_only=True)
class StoppingSpec(Spec, path="stopping."):
    """When training ends before its last step."""

    nonfinite: Annotated[bool, Prompt("Stop at NaN or infinity", "--stop-nonfinite", rare=True)] = (
        False
    )
    """Ends training in the step whose loss is not finite. Each step then waits for the device."""
    patience: Annotated[int | None, STEPS, Prompt(empty="go on")] = None
    """Evaluations in a row without a better value of the metric after which training ends."""
    min_delta: Annotated[
        float, Bounds(0, FLOAT32_MAX, NO_LARGER_FLOAT), Prompt("Least improvement", rare=True)
    ] = 0.0
    """How much better a value must be to count as better."""
    threshold: Annotated[
        float | None,
        Bounds(-FLOAT32_MAX, FLOAT32_MAX, NO_LARGER_FLOAT),
        Prompt("Good enough at", "--stop-at", empty="go on", rare=True),
    ] = None
    """Value of the metric at which training ends, because it is good enough."""

    @property
    def follows_evaluation(self) -> bool:
        return self.patience is not None or self.threshold is not None


@dataclass(frozen=True, kw_only=True)
class CheckpointSpec(Spec, path="checkpoints."):
    """When everything that training needs to go on is saved."""

    every: Annotated[
        int | None, STEPS, Prompt("Checkpoint every", "--checkpoint-every", empty="no checkpoints")
    ] = None
    """How many epochs or steps lie between checkpoints, from which a run that was stopped or lost
    goes on exactly; one follows the last step. None: no checkpoints."""
    unit: Annotated[
        Literal["epochs", "steps"], Prompt("Counted in", "--checkpoint-unit", rare=True)
    ] = "epochs"
    """What `every` counts."""
    keep_last: Annotated[int, Bounds(1, 1000, COPIES), Prompt("Keep the latest", rare=True)] = 1
    """Latest checkpoints that are kept; each is about three times as large as the model."""
    keep_best: Annotated[int, Bounds(0, 1000, COPIES), Prompt("Keep the best", rare=True)] = 0
    """Checkpoints that are kept for their value of the metric, beyond the latest. Only one made
    where the model is evaluated, too, has a value."""
