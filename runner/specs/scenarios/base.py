"""The questions that the rest of the runner asks a scenario, with the usual answers."""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.arms import (
    ArmTexts,
    baseline_of,
    compared_arms,
    control,
    expanded,
    in_each,
)
from breakeven.runner.specs.fields import EVERY_STEP_IS_KEPT, MAX_STEPS
from breakeven.runner.specs.scenario_fields import (
    AccuracySpec,
    CacheSpec,
    InvestigationSpec,
    Part,
    PlanSpec,
    SpeedSpec,
    TuneSpec,
)
from breakeven.runner.specs.training import TrainingSpec
from breakeven.runner.specs.workload import BuiltInWorkload

ScenarioName = Literal["train", "speed", "accuracy", "cache", "tune", "investigate"]
Compared = Literal["runs", "tensors", "caches", "causes"]
CONDITIONS = ("slower", "parity", "accuracy", "compile", "slower-than")


class ScenarioFields(ArmTexts, Protocol):
    """What scenarios read of an experiment (`ExperimentFields`)."""

    @property
    def workload(self) -> BuiltInWorkload: ...
    @property
    def training(self) -> TrainingSpec: ...
    @property
    def speed(self) -> SpeedSpec: ...
    @property
    def accuracy(self) -> AccuracySpec: ...
    @property
    def cache(self) -> CacheSpec: ...
    @property
    def plan(self) -> PlanSpec: ...
    @property
    def is_until_decided(self) -> bool: ...
    @property
    def tune(self) -> TuneSpec: ...
    @property
    def investigation(self) -> InvestigationSpec: ...
    @property
    def investigates(self) -> str | None: ...
    @property
    def environments(self) -> tuple[str, ...]: ...
    @property
    def controls(self) -> int: ...
    @property
    def schedule(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def nodes(self) -> int: ...
    @property
    def block_steps(self) -> int: ...
    @property
    def time_limit_seconds(self) -> float: ...
    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def num_full_steps(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    def require(self, name: str, condition: bool, rule: str) -> None: ...


def training_steps(spec: ScenarioFields) -> int:
    """Steps of a whole training."""
    return spec.training.max_steps or spec.steps_per_epoch * spec.training.epochs


class Scenario:
    """What the runs of an experiment do, and how they are compared.

    A scenario is a subclass with other answers. Whoever needs to know what an experiment does asks
    its scenario, and never which one it is.
    """

    name: ScenarioName
    text: str
    """Description in a sentence, for people."""
    compares: Compared = "runs"
    """What is compared: times and losses of each run with the baseline's (`runs`), outputs and
    gradients of each backend with a reference's (`tensors`), compiling with filled caches and
    compiling with empty ones (`caches`), or trials of one step, to find the cause of a fault
    (`causes`)."""
    has_speedups = True
    """Whether times and losses of each run are compared with the baseline's, round by round."""
    trains_fully = False
    """Whether each run is a whole training with its evaluations."""
    cycles_batches = False
    """Whether steps repeat a few batches instead of passing over the data in epochs."""
    ends_by_width = False
    """Whether measuring ends by itself once every speedup is precise enough."""
    has_candidates = False
    """Whether backends are candidates: the supervisor starts some, ends those that lose, and a
    training confirms the best."""
    has_checks = False
    """Whether tensors of one batch, without dropout, are checked against a reference in double
    precision; then no step is timed."""
    makes_trials = False
    """Whether there is one run, which makes trials of a few steps to find the cause of a fault."""
    has_planned_steps = True
    """Whether the number of steps is known before; otherwise a run ends when it knows enough."""
    takes_turns = True
    """Whether all runs may be alive at once and alternate."""
    draws_freely = False
    """Whether compiled code may draw other random numbers than eager code, because no losses are
    compared."""
    allows_scripts = False
    """Whether runs may execute a user's script."""
    max_environments = 0
    """Most Pythons that runs may execute, side by side."""
    allows_arms = False
    """Whether arms with names may be compared, and the baseline may differ from the command."""
    allows_larger_batches = False
    """Whether backends may train in larger batches than the baseline."""
    is_in_form = True
    """Whether people choose it in the form; the others have buttons of their own."""
    form_fields: tuple[tuple[str, ...], ...] = ()
    """Its own fields in the form, by path, column by column."""
    form_hint = ""
    """A text above them."""
    conditions: Sequence[str] = CONDITIONS
    """The conditions of `--fail-if` that it can answer."""
    unit = "step"
    """What a run makes one after another, for people."""
    entry: str | None = None
    """The function of the worker that executes a run, as `module:function` in `runner/worker/`;
    None for the one of the workload."""
    max_backends = 64
    why_max_backends = "each is a process, and all are alive at the same time"
    why_no_rounds: str | None = None
    """Why no rounds can be added to a finished experiment; None if they can."""
    longer = "more steps"
    """What a repetition needs to show more, as the end of a sentence."""

    def parts(self, spec: ScenarioFields) -> tuple[Part, ...]:
        """What runs compute: full optimizer steps, forward passes alone, or both."""
        return ("training",)

    def num_steps(self, spec: ScenarioFields) -> int:
        """Steps of one run, or their largest number."""
        return training_steps(spec)

    def budget_seconds(self, spec: ScenarioFields) -> float | None:
        """Seconds after which all runs end; None if their steps end them."""
        return None

    def baselines(self, spec: ScenarioFields) -> list[Arm]:
        """The baseline and its controls, which measure noise and rounding."""
        controls = spec.controls if self.has_speedups else 0
        base = baseline_of(spec)
        return [base, *(control(base, number) for number in range(1, controls + 1))]

    def repeats(self, spec: ScenarioFields) -> int:
        """Processes of each run, one after another."""
        return 1

    def runs(self, spec: ScenarioFields) -> Iterator[tuple[str, Arm]]:
        """Every run from the beginning, baseline first, repeat by repeat, with the label under
        which it is compared."""
        runs = [*self.baselines(spec), *compared_arms(spec)]
        return expanded(in_each(spec.environments, runs), self.repeats(spec))

    def candidates(self, spec: ScenarioFields) -> Sequence[Arm]:
        """The backends from which a search chooses."""
        return ()

    def cold_and_warm(self, spec: ScenarioFields) -> Iterator[tuple[str, Arm, Arm]]:
        """Pairs of runs with empty and with filled caches, with the backend as written."""
        return iter(())

    def check_rules(self, spec: ScenarioFields, compiled: Sequence[Arm]) -> None:
        """Raises `InvalidSpec` for fields that do not fit the scenario."""
        self.check_steps(spec, "training.epochs")

    def check_steps(self, spec: ScenarioFields, field: str) -> None:
        """Raises `InvalidSpec`, for the field that decides it, for more steps than are kept."""
        rule = f"makes {spec.num_steps:,} steps and must make at most {MAX_STEPS:,}: "
        spec.require(field, spec.num_steps <= MAX_STEPS, rule + EVERY_STEP_IS_KEPT)

    def check_batches(self, spec: ScenarioFields) -> None:
        """Raises `InvalidSpec` for more batches to cycle through than the samples make."""
        most = spec.num_full_steps
        rule = f"must be at most {most}: data.num_train_samples make no more full batches"
        spec.require("speed.batches", spec.speed.batches <= most, rule)

    def check_result(self, spec: ScenarioFields, compiling: int) -> None:
        """Raises `InvalidSpec` for a new experiment that cannot have a result; `compiling` are the
        steps of the first turn."""

    def num_batches(self, block_steps: int, cycled: int) -> int:
        """Different batches that steps need; `cycled`: those that they would cycle through. An
        epoch has as many batches as a turn has steps, so that no turn is cut short."""
        return cycled if self.cycles_batches else block_steps

    def work_words(self, spec: ScenarioFields) -> str:
        """What the runs do, as a part of a title; empty if it is unknown how long they are."""
        return f"{spec.num_steps} steps" if spec.num_steps else ""

    def resuming_words(self, step: int | None, num_done: int) -> str:
        """Where a run goes on that has a checkpoint of a step, and so many steps or trials."""
        return f"from step {step}"

    def length_words(self, spec: ScenarioFields) -> str:
        """How long the runs are, for people."""
        if spec.is_until_decided:
            return f"until it is decided what is best for {spec.plan.steps:,} steps"
        if not spec.num_steps:
            return "as many steps per run as the script makes"
        may_end_early = self.ends_by_width or not spec.workload.has_known_length
        most = "at most " if may_end_early else ""
        return f"{most}{spec.num_steps} steps per run"
