"""The fields of the scenarios, of a plan, and of rounds that are added later."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from breakeven.runner.specs.fields import Bounds, Prompt, Spec

Part = Literal["training", "inference"]
Layers = Literal["failed", "always", "never"]
ACTIVATION = "activation"
"""A layer's output, by its name in journals; no verdict depends on it."""


@dataclass(frozen=True, kw_only=True)
class AccuracySpec(Spec, path="accuracy."):
    """What is compared with a reference in double precision, and with which tolerance."""

    iterations: Annotated[
        int,
        Bounds(1, 1000, "after more iterations, rounding alone makes tensors differ"),
        Prompt(
            rare=True,
            help="Optimizer steps, or forward passes, on one batch before tensors are compared.",
        ),
    ] = 2
    tolerance: Annotated[
        float | None,
        Bounds(0, 1, "zeros would pass for any tensor"),
        Prompt(
            empty="as in the Dynamo harness",
            rare=True,
            help="Largest allowed difference of a tensor from the baseline's, absolute and "
            "relative. None: the Dynamo harness's tolerance for this task, precision and "
            "part.",
        ),
    ] = None
    parts: Annotated[
        tuple[Part, ...],
        Prompt(
            rare=True,
            help="What is checked: training, which also compares gradients and weights, "
            "inference, or both.",
        ),
    ] = ("training", "inference")

    layers: Annotated[
        Layers,
        Prompt(
            "Outputs of layers",
            rare=True,
            help="When the outputs of single layers are compared, too, which compiles the "
            "model once more: if the check `failed`, to find the layer where the error "
            "begins; `always`; or `never`. No verdict depends on them.",
        ),
    ] = "failed"

    def check_rules(self) -> None:
        rule = f"must name at least one of {', '.join(get_args(Part))}, and none twice"
        self.require("parts", len(set(self.parts)) == len(self.parts) > 0, rule)


MAX_CACHE_REPEATS = 9


@dataclass(frozen=True, kw_only=True)
class CacheSpec(Spec, path="cache."):
    """Cold and warm processes of each backend."""

    part: Annotated[
        Part,
        Prompt(
            "What is compiled",
            rare=True,
            help="What is compiled: `training`, full optimizer steps; `inference`, forward "
            "passes alone.",
        ),
    ] = "training"
    repeats: Annotated[
        int,
        Bounds(1, MAX_CACHE_REPEATS, "each compiles everything again"),
        Prompt(
            "Cold and warm pairs",
            rare=True,
            help="Pairs of processes per backend: one with empty compile caches, then one with "
            "the caches of the first.",
        ),
    ] = 1
    steps: Annotated[
        int,
        Bounds(2, 100_000, "compiling is over after a few"),
        Prompt(
            "Steps of each process",
            rare=True,
            help="Optimizer steps, or forward passes, of each process. The first block "
            "compiles; the other blocks show the time of a step without compiling.",
        ),
    ] = 20


MIN_ROUNDS = 6
"""Fewer rounds give no 95 % interval of a median: all n lie on one side of it with probability
2 / 2^n."""
MAX_ROUNDS = 100_000
MAX_REPEATS = 20
WIDER_TELLS_NOTHING = "an interval as wide as the speedup itself has no information"
ROUNDS = Bounds(MIN_ROUNDS, MAX_ROUNDS, "more rounds show only differences too small to matter")
WEEK = Bounds(0, 604_800, "that is a week", above=True, unit="s")


@dataclass(frozen=True, kw_only=True)
class SpeedSpec(Spec, path="speed."):
    """Steps on a few fixed batches, timed in turns until the speedups are precise enough."""

    part: Annotated[
        Part,
        Prompt(
            "What is timed",
            "--speed-part",
            help="`training`: full optimizer steps. `inference`: forward passes in evaluation "
            "mode, without gradients.",
        ),
    ] = "training"
    batches: Annotated[
        int,
        Bounds(1, 100_000, "the device holds all of them"),
        Prompt(
            rare=True,
            help="Batches that the steps cycle through, in the same order in every run.",
        ),
    ] = 8
    warm_up_blocks: Annotated[
        int,
        Bounds(1, 1000, "none of them counts"),
        Prompt(
            "Warm-up turns",
            rare=True,
            help="First turns of each run, which do not count. Backends compile in them.",
        ),
    ] = 2
    target_width: Annotated[
        float,
        Bounds(0, 1, WIDER_TELLS_NOTHING, above=True),
        Prompt(
            "Interval width",
            rare=True,
            help="Relative width of the 95 % interval of a speedup, 0.02 for 2 %. Measuring "
            "ends once every interval is narrower.",
        ),
    ] = 0.02
    min_rounds: Annotated[
        int,
        ROUNDS,
        Prompt(
            "Minimum rounds",
            rare=True,
            help="Smallest number of rounds; in a round every run has one turn.",
        ),
    ] = 20
    max_rounds: Annotated[
        int, ROUNDS, Prompt("Maximum rounds", rare=True, help="Largest number of rounds.")
    ] = 200
    max_seconds: Annotated[
        float,
        WEEK,
        Prompt(
            "Maximum time of steps",
            help="Largest total time of the steps of all runs, without warm-up and compiling.",
        ),
    ] = 600.0
    repeats: Annotated[
        int,
        Bounds(1, MAX_REPEATS, "each repeat runs everything again"),
        Prompt(
            "Processes of each run",
            rare=True,
            help="Independent processes of every run: even processes of the same program "
            "differ in speed. From 3 on, the interval of a speedup includes this "
            "difference. The limits of rounds and seconds apply to each repeat.",
        ),
    ] = 1

    def check_rules(self) -> None:
        rule = f"must not be below speed.min_rounds ({self.min_rounds})"
        self.require("max_rounds", self.max_rounds >= self.min_rounds, rule)

    @property
    def num_blocks(self) -> int:
        """Largest number of turns of a run, warm-up included."""
        return self.warm_up_blocks + self.max_rounds


MAX_PLANNED_STEPS = 1_000_000_000
MAX_STARTS = 100_000
Whole = Literal["auto", "full"]


@dataclass(frozen=True, kw_only=True)
class PlanSpec(Spec, path="plan."):
    """The training that people plan, and how long the answer may take."""

    steps: Annotated[
        int | None,
        Bounds(1, MAX_PLANNED_STEPS, "no training is longer"),
        Prompt(
            "Planned steps",
            empty="as long as it is measured",
            rare=True,
            help="Steps of the training that you plan. With them a training is measured until it "
            "is decided which run takes the least time for so many steps, compiling included: "
            "it may end before its last step, or start again. `--plan` takes other units, too.",
        ),
    ] = None
    starts: Annotated[
        int,
        Bounds(1, MAX_STARTS, "no training is interrupted so often"),
        Prompt(
            "Starts",
            rare=True,
            help="Processes in which these steps are made, because trainings are interrupted and "
            "resumed. Each compiles: the first one without compile caches, later ones with those "
            "that it left. With more than one start each compiled run starts once more at the end, "
            "to time that.",
        ),
    ] = 1
    max_seconds: Annotated[
        float | None,
        WEEK,
        Prompt(
            "Budget",
            empty="three times one training, 2 to 15 minutes",
            rare=True,
            help="Time for steps and compiling of all runs after which a planned training ends "
            "undecided. None: three times what compiling and training once take, at least 2 and "
            "at most 15 minutes.",
        ),
    ] = None
    target_width: Annotated[
        float,
        Bounds(0, 1, WIDER_TELLS_NOTHING, above=True),
        Prompt(
            "Practically equal",
            rare=True,
            help="Runs whose times for the planned steps differ by at most this share count as "
            "equal, 0.02 for 2 %.",
        ),
    ] = 0.02
    parity: Annotated[
        Whole,
        Prompt(
            "Losses until the end",
            rare=True,
            help="Whether runs that may be recommended train to the end although their speed is "
            "decided: `full` always; `auto` if what is left takes at most a minute, and where "
            "an arm is judged by what it has learned at the end.",
        ),
    ] = "auto"


Allowed = Literal["precision", "batch"]


@dataclass(frozen=True, kw_only=True)
class TuneSpec(Spec, path="tune."):
    """A search for the fastest way to train: candidates take turns with the best so far."""

    steps: Annotated[
        int, Bounds(1, 1_000_000_000, "no training is longer"), Prompt(hidden=True)
    ] = 10_000
    """Planned steps of the training, within which compiling must pay off."""
    max_seconds: Annotated[float, WEEK, Prompt(hidden=True)] = 1800.0
    """Time limit for trying candidates."""
    at_once: Annotated[int, Bounds(1, 32, "each holds a model"), Prompt(hidden=True)] = 4
    """Number of candidates that take turns with the baseline and the best so far."""
    allow: Annotated[tuple[Allowed, ...], Prompt(hidden=True)] = ()
    """What candidates may change besides speed: `precision` allows lower precision, `batch` larger
    batches, which are another training."""


Problem = Literal["raises", "memory", "differs"]


@dataclass(frozen=True, kw_only=True)
class InvestigationSpec(Spec, path="investigation."):
    """The fault whose cause an investigation searches."""

    problem: Annotated[Problem, Prompt(hidden=True)] = "raises"
    """What the investigated run does: `raises` an error, runs out of `memory`, or learns something
    that `differs`."""
    step: Annotated[int, Bounds(0, 1_000_000_000, "no training is longer"), Prompt(hidden=True)] = 0
    """Step at which the investigated run failed, or its first step outside the band; 0 where that
    is unknown."""
    part: Annotated[Part, Prompt(hidden=True)] = "training"
    """What the investigated run computes: full optimizer steps, or forward passes alone."""
    error: Annotated[str, Prompt(hidden=True)] = ""
    """Class of the error and its message, as the investigated run recorded them; empty without. An
    error of another class is not the one whose cause is searched."""
