"""The scenarios: what runs do, what each asks for, and what is made of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, get_args

from breakeven.runner.specs.fields import Bounds, Prompt, Spec, require
from breakeven.runner.specs.training import TrainingSpec

Part = Literal["training", "inference"]
Layers = Literal["failed", "always", "never"]
ACTIVATION = "activation"
"""What a layer puts out, as journals call it; no verdict hangs on it."""


@dataclass(frozen=True, kw_only=True)
class AccuracySpec(Spec, path="accuracy."):
    """What is compared with a reference in double precision, and how closely."""

    iterations: Annotated[
        int,
        Bounds(1, 1000, "rounding alone drives tensors apart by then"),
        Prompt(flag="--accuracy-iterations", rare=True),
    ] = 2
    """Optimizer steps, or forward passes, on one batch before tensors are compared."""
    tolerance: Annotated[
        float | None,
        Bounds(0, 1, "zeros would pass for any tensor"),
        Prompt(flag="--accuracy-tolerance", empty="as the Dynamo harness has it", rare=True),
    ] = None
    """How far a tensor may lie from the baseline's, absolutely and relatively. None: as the Dynamo
    harness has it for such a task, precision and part."""
    parts: Annotated[tuple[Part, ...], Prompt(flag="--accuracy-parts", rare=True)] = (
        "training",
        "inference",
    )
    """What is checked: training, in which gradients and weights are compared as well, and
    inference."""

    layers: Annotated[Layers, Prompt("Outputs of layers", "--accuracy-layers", rare=True)] = (
        "failed"
    )
    """When the outputs of single layers are compared as well, which compiles the model once more:
    where the check failed, to tell in which layer it begins, always, or never. No verdict hangs on
    them."""

    def check_rules(self) -> None:
        parts = self.parts
        rule = f"must name at least one of {', '.join(get_args(Part))}, and none of them twice"
        valid = bool(parts) and len(set(parts)) == len(parts)
        require(valid, "accuracy.parts", parts, rule)


MAX_CACHE_REPEATS = 9


@dataclass(frozen=True, kw_only=True)
class CacheSpec(Spec, path="cache."):
    """Cold and warm processes of each backend."""

    part: Annotated[Part, Prompt("What is compiled", "--cache-part", rare=True)] = "training"
    """What is compiled: `training`, full optimizer steps; `inference`, forward passes alone."""
    repeats: Annotated[
        int,
        Bounds(1, MAX_CACHE_REPEATS, "each compiles everything anew"),
        Prompt("Cold and warm pairs", rare=True),
    ] = 1
    """Pairs per backend: a process with empty compile caches, then one on the caches it left."""
    steps: Annotated[
        int,
        Bounds(2, 100_000, "compiling is over after a few"),
        Prompt("Steps of each process", rare=True),
    ] = 20
    """Optimizer steps, or forward passes, of each process. The first block compiles; the others
    tell what a step takes without compiling, and are as many blocks as it takes."""


MIN_ROUNDS = 6
"""Fewer rounds have no 95 % interval of a median: all of them lie above it with 2 / 2^n."""
MAX_ROUNDS = 100_000
MAX_SEARCH_BLOCKS = 5_000
"""Turns of a baseline that outlives all candidates."""
MAX_REPEATS = 20
WIDER_TELLS_NOTHING = "an interval as wide as the speedup itself tells nothing"
ROUNDS = Bounds(MIN_ROUNDS, MAX_ROUNDS, "so many rounds tell differences too small to matter")
WEEK = Bounds(0, 604_800, "that is a week", above=True, unit="s")


@dataclass(frozen=True, kw_only=True)
class SpeedSpec(Spec, path="speed."):
    """Steps on a few fixed batches, timed by turns until the speedups are known well enough."""

    part: Annotated[Part, Prompt("What is timed", "--speed-part")] = "training"
    """`training`: full optimizer steps. `inference`: forward passes in evaluation mode, without
    gradients."""
    batches: Annotated[
        int,
        Bounds(1, 100_000, "the device holds all of them"),
        Prompt(flag="--speed-batches", rare=True),
    ] = 8
    """Batches that the steps cycle through, the same in the same order for every run."""
    warm_up_blocks: Annotated[
        int, Bounds(1, 1000, "none of them counts"), Prompt("Warm-up turns", rare=True)
    ] = 2
    """First turns of each run, which do not count; compiling falls among them."""
    target_width: Annotated[
        float, Bounds(0, 1, WIDER_TELLS_NOTHING, above=True), Prompt("Exact enough at")
    ] = 0.02
    """Relative width of the 95 % interval of a speedup, 0.02 for 2 %. Measuring ends once every
    interval is narrower."""
    min_rounds: Annotated[int, ROUNDS, Prompt("Rounds at least", rare=True)] = 20
    """Rounds that are measured in any case; a round is one turn of every run."""
    max_rounds: Annotated[int, ROUNDS, Prompt("Rounds at most", rare=True)] = 200
    """Rounds after which measuring ends in any case."""
    max_seconds: Annotated[float, WEEK, Prompt("Time of steps at most")] = 600.0
    """Time of steps after which measuring ends in any case: that of all runs together, warm-up and
    compiling not counted."""
    repeats: Annotated[
        int,
        Bounds(1, MAX_REPEATS, "everything is run as often"),
        Prompt("Processes of each run", "--speed-repeats"),
    ] = 1
    """Independent processes of every run: two processes of the same program differ in speed, too.
    From 3 on, the interval of a speedup holds how much. Rounds and seconds are those of each
    repeat."""

    def check_rules(self) -> None:
        least, most = self.min_rounds, self.max_rounds
        rule = f"must not be below speed.min_rounds ({least})"
        require(most >= least, "speed.max_rounds", most, rule)

    @property
    def num_blocks(self) -> int:
        """Turns that a run takes at most, warm-up included."""
        return self.warm_up_blocks + self.max_rounds


@dataclass(frozen=True, kw_only=True)
class AddedRounds(Spec, path="rounds."):
    """For how long rounds are added to an experiment that has finished."""

    processes: Annotated[int, Bounds(1, MAX_REPEATS, "each compiles everything anew")] = 3
    """How often each run starts again, one time after the other: two processes of the same program
    differ in speed, and no round within one of them tells by how much."""
    target_width: Annotated[float, Bounds(0, 1, WIDER_TELLS_NOTHING, above=True)] = 0.02
    """A process ends once its own rounds know every speedup to within this share."""
    max_seconds: Annotated[float, WEEK] = 600.0
    """Time of steps of all runs and processes together after which rounds end in any case."""

    @property
    def max_seconds_each(self) -> float:
        """Of all runs while each has one process."""
        return self.max_seconds / self.processes


Allowed = Literal["precision"]


@dataclass(frozen=True, kw_only=True)
class TuneSpec(Spec, path="tune."):
    """A search for the fastest way to train: candidates take turns with the best so far."""

    steps: Annotated[int, Bounds(1, 1_000_000_000, "nobody trains longer"), Prompt(hidden=True)] = (
        10_000
    )
    """For how many steps the training is meant to go on: compiling has to pay off by then."""
    max_seconds: Annotated[float, WEEK, Prompt(hidden=True)] = 1800.0
    """Time after which no candidate is tried any more."""
    at_once: Annotated[int, Bounds(1, 32, "each holds a model"), Prompt(hidden=True)] = 4
    """How many candidates take turns with the baseline and the best so far."""
    allow: Annotated[tuple[Allowed, ...], Prompt(hidden=True)] = ()
    """What candidates may change beyond speed: `precision` allows TF32 and attention that adds up
    in half precision."""


Problem = Literal["raises", "differs"]


@dataclass(frozen=True, kw_only=True)
class InvestigationSpec(Spec, path="investigation."):
    """The fault whose cause an investigation searches."""

    problem: Annotated[Problem, Prompt(hidden=True)] = "raises"
    """What the investigated run does: `raises` an error, or learns something that `differs`."""
    step: Annotated[int, Bounds(0, 1_000_000_000, "nobody trains longer"), Prompt(hidden=True)] = 0
    """Step at which the investigated run failed, or its first step outside the band; 0 where that
    is unknown."""


ScenarioName = Literal["train", "speed", "accuracy", "cache", "tune", "investigate"]
Compared = Literal["runs", "tensors", "caches", "causes"]


class StepSettings(Protocol):
    """The fields of an experiment that decide how many steps its runs make."""

    @property
    def training(self) -> TrainingSpec: ...
    @property
    def speed(self) -> SpeedSpec: ...
    @property
    def accuracy(self) -> AccuracySpec: ...
    @property
    def cache(self) -> CacheSpec: ...
    @property
    def block_steps(self) -> int: ...
    @property
    def steps_per_epoch(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What each run does, and what is made of it."""

    name: ScenarioName
    text: str
    """What it does, for people."""
    compares: Compared
    """What is judged: each run's times and losses by the baseline's (`runs`), each backend's
    outputs and gradients by a reference's (`tensors`), compiling with what an earlier process
    left by compiling without (`caches`), or trials of one step, to find what is to blame for a
    fault (`causes`)."""
    parts: Callable[[StepSettings], tuple[Part, ...]]
    """What is worked on: full optimizer steps, forward passes alone, or both."""
    num_steps: Callable[[StepSettings], int]
    """Steps of one run, or the most that it makes."""
    trains_fully: bool = False
    """Whether each run is a whole training, which is evaluated as one asks."""
    cycles_batches: bool = False
    """Whether steps go over a few batches again and again, and not over epochs of the data."""
    ends_by_width: bool = False
    """Whether measuring ends by itself once every speedup is known exactly enough."""
    searches: bool = False
    """Whether backends are candidates, of which the supervisor starts some and ends those that
    lose."""

    @property
    def compares_runs(self) -> bool:
        return self.compares == "runs"

    @property
    def compares_tensors(self) -> bool:
        return self.compares == "tensors"

    @property
    def compares_caches(self) -> bool:
        return self.compares == "caches"

    @property
    def compares_causes(self) -> bool:
        return self.compares == "causes"


_ALL = (
    Scenario(
        name="train",
        text="a race of trainings.",
        compares="runs",
        parts=lambda spec: ("training",),
        num_steps=lambda spec: (
            spec.training.max_steps or spec.steps_per_epoch * spec.training.epochs
        ),
        trains_fully=True,
    ),
    Scenario(
        name="speed",
        text="a race on a few batches, timed until the answer is exact enough; nothing is "
        "evaluated.",
        compares="runs",
        parts=lambda spec: (spec.speed.part,),
        num_steps=lambda spec: spec.speed.num_blocks * spec.block_steps,
        cycles_batches=True,
        ends_by_width=True,
    ),
    Scenario(
        name="tune",
        text="a search for the fastest way to train; candidates that lose end early.",
        compares="runs",
        parts=lambda spec: ("training",),
        num_steps=lambda spec: MAX_SEARCH_BLOCKS * spec.block_steps,
        cycles_batches=True,
        searches=True,
    ),
    Scenario(
        name="accuracy",
        text="no race; each backend's outputs, loss and gradients on one batch are compared with "
        "a reference in double precision.",
        compares="tensors",
        parts=lambda spec: spec.accuracy.parts,
        num_steps=lambda spec: spec.accuracy.iterations,
    ),
    Scenario(
        name="cache",
        text="no race; compiling is timed with empty compile caches and with filled ones.",
        compares="caches",
        parts=lambda spec: (spec.cache.part,),
        num_steps=lambda spec: spec.cache.steps,
    ),
    Scenario(
        name="investigate",
        text="no race; trials find what is to blame for a run's fault.",
        compares="causes",
        parts=lambda spec: ("training",),
        num_steps=lambda spec: 0,  # as many trials as it takes
    ),
)
SCENARIOS: dict[ScenarioName, Scenario] = {one.name: one for one in _ALL}
