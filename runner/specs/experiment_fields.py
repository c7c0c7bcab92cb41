"""The fields of an experiment and all that follows from them; `experiment.py` has their rules.

An experiment is one workload (model, data, training) under several `torch.compile` backends.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Annotated, Literal

from breakeven.runner.python310 import Self
from breakeven.runner.specs.arm_fields import Arm, Settings
from breakeven.runner.specs.arms import (
    apply_settings,
    baseline_of,
    control,
    in_each,
    pythons,
    split_name,
    with_arguments,
)
from breakeven.runner.specs.fields import Bounds, Prompt
from breakeven.runner.specs.place import PlaceSpec
from breakeven.runner.specs.scenario_fields import (
    AccuracySpec,
    CacheSpec,
    InvestigationSpec,
    PlanSpec,
    SpeedSpec,
    TuneSpec,
)
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioName, training_steps
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.runner.specs.training import (
    CheckpointSpec,
    EvaluationPoint,
    EvaluationSpec,
    Precision,
    StoppingSpec,
    TrainingSpec,
)
from breakeven.runner.specs.workload import (
    USER_CODE,
    BuiltInWorkload,
    DataSpec,
    ModelSpec,
    ScriptSpec,
    workload_of,
)

Schedule = Literal["turns", "sequential"]
CompileTogether = Literal["alone", "together"]
SameBy = Literal["auto", "steps", "outcome"]
YEAR = Bounds(0, 31_536_000, "that is a year", above=True, unit="s")
USUAL_BACKENDS = ("inductor",)
CONTROLS_FOR_WORSE = 6
"""Controls without which no outcome is called worse (`runner/open_outcomes.py`)."""
CONTROLS = Bounds(0, 20, "each control is one more whole training")
OTHERS_WAIT = "all other runs wait during a turn"


@dataclass(frozen=True, kw_only=True)
class ExperimentFields(PlaceSpec):
    """The fields of an experiment."""

    name: Annotated[str, Prompt(help="Name of the experiment.")]
    scenario: Annotated[
        ScenarioName,
        Prompt(
            help="What is measured: `train` a whole training; `speed`, `accuracy` or `cache` "
            "only that; `tune` searches for the fastest way to train."
        ),
    ] = "train"
    task: Annotated[
        str, Prompt(help="What the model learns; each task is a module in `runner/worker/tasks/`.")
    ] = "text_classification"
    model: ModelSpec = field(default_factory=ModelSpec)
    data: DataSpec = field(default_factory=DataSpec)
    training: TrainingSpec = field(default_factory=TrainingSpec)
    evaluation: EvaluationSpec = field(default_factory=EvaluationSpec)
    stopping: StoppingSpec = field(default_factory=StoppingSpec)
    checkpoints: CheckpointSpec = field(default_factory=CheckpointSpec)
    speed: SpeedSpec = field(default_factory=SpeedSpec)
    accuracy: AccuracySpec = field(default_factory=AccuracySpec)
    cache: CacheSpec = field(default_factory=CacheSpec)
    plan: PlanSpec = field(default_factory=PlanSpec)
    tune: TuneSpec = field(default_factory=TuneSpec)
    investigation: InvestigationSpec = field(default_factory=InvestigationSpec)
    script: ScriptSpec = field(default_factory=ScriptSpec)
    callbacks: Annotated[
        tuple[str, ...],
        Prompt(
            flag="--callback",
            several=True,
            help="`path.py:Class`, such as `/home/me/hooks.py:Sampler`. Its methods are called "
            "at the start and end of training, epochs, steps and evaluations, and may "
            "record numbers, which get a chart. See `runner/worker/callbacks.py`.",
        ),
    ] = ()
    backends: Annotated[
        tuple[str, ...],
        Prompt(
            help="Dynamo backends, by name or with settings: "
            "`inductor:mode=max-autotune+scope=forward`; one that torch does not list by "
            "its path, `package.module:attribute`."
        ),
    ] = USUAL_BACKENDS
    named_arms: Annotated[
        tuple[str, ...],
        Prompt(
            "Arms",
            "--arm",
            empty="fp8='--precision fp8'",
            rare=True,
            several=True,
            help="Other ways to run a script, `NAME=CHANGES`: arguments, which replace those of "
            "the same name (`fp8='--precision fp8'`), environment variables "
            "(`threads=OMP_NUM_THREADS=8`), a revision of its repository or a diff (`pr=@HEAD`, "
            "`fix=@fix.diff`), a Python (`new=python=../torch211`), a backend "
            "(`graphs=inductor:mode=reduce-overhead`), or several of these in this order.",
        ),
    ] = ()
    baseline: Annotated[
        str,
        Prompt(
            empty="The command as it is",
            rare=True,
            help="What the baseline changes in the command of a script, as in an arm: `@main`, "
            "`--precision bf16`, `inductor` if you compile already. Each arm has these changes, "
            "too, unless it names others.",
        ),
    ] = ""
    environments: Annotated[
        tuple[str, ...],
        Prompt(
            flag="--environment",
            several=True,
            help="Python installations in which all runs execute, side by side; the first is "
            "what the others are compared with. `NAME=path/to/python`; "
            "`NAME=torch==2.11.0` or `NAME=requirements.txt`, from which `uv` makes one "
            "in the data folder; names of those, `a,b`; `own` for Breakeven's own. Only "
            "torch and what the task needs must be installed there (docs/devices.md).",
        ),
    ] = ()
    settings: Annotated[
        Settings,
        Prompt(
            "Settings of torch",
            rare=True,
            help="Settings of torch in every run. `plain`: torch's defaults, except that "
            "compiled code draws the random numbers of eager code and float32 products do "
            "not use TF32. `harness`: those of PyTorch's Dynamo harness: TF32, "
            "half-precision sums in attention without a fused kernel, CUDA graphs for "
            "Inductor, and, if no losses are compared, the compiler's own random numbers.",
        ),
    ] = "plain"
    controls: Annotated[
        int,
        CONTROLS,
        Prompt(
            help="Number of further baselines with slightly changed weights, which measure "
            "noise and rounding. Without a control there is no parity verdict. One "
            "control is enough unless equal trainings end far apart; then each further "
            "control shows more precisely how far."
        ),
    ] = 1
    more_controls: Annotated[
        int,
        CONTROLS,
        Prompt(
            "Additional controls, at most",
            rare=True,
            help="Largest number of controls that a training adds by itself. They run one "
            "after the other, after all runs, as long as the losses of a backend are too "
            "far from those of baseline and controls to match, and too near to be broken; "
            f"up to {CONTROLS_FOR_WORSE} controls in all before an arm that changes the training "
            "is called worse.",
        ),
    ] = 3
    same: Annotated[
        SameBy,
        Prompt(
            "The same training, or one as good",
            rare=True,
            help="How backends are compared with the baseline. `steps`: step by step, as what "
            "should compute the same. `outcome`: by what they have learned at the end, after as "
            "many samples. `auto`: by the outcome if an arm declares arguments, a revision, a "
            "diff, `tf32`, `batch_times` or `math_attention`, and its losses show it; else step "
            "by step.",
        ),
    ] = "auto"
    margin: Annotated[
        str,
        Prompt(
            "Margin of an outcome",
            rare=True,
            help="By how much an outcome may be worse and still count as as good: `1%` of the "
            "loss at the end, or `0.005` of accuracy (of the loss, where no accuracy is "
            "evaluated).",
        ),
    ] = "1%"
    schedule: Annotated[
        Schedule,
        Prompt(
            help="`turns`: all runs are alive at once and alternate, so that drift affects all "
            "alike. `sequential`: one after another, for a device that cannot hold all of "
            "them, or a script that needs a port or lock of its own."
        ),
    ] = "turns"
    compile: Annotated[
        CompileTogether,
        Prompt(
            "Compiling",
            rare=True,
            help="`alone`: one run compiles at a time while all others wait, so nothing "
            "disturbs its compile latency. `together`: runs that take turns compile at "
            "the same time before the timed rounds. The answer comes sooner, but the "
            "compile latencies are those of a busy machine. Runs that autotune always "
            "compile alone, because autotuning times kernels.",
        ),
    ] = "alone"
    block_steps: Annotated[
        int,
        Bounds(1, 10_000, OTHERS_WAIT),
        Prompt("Steps per turn", help="Steps that a run makes in one turn."),
    ] = 10
    profile_steps: Annotated[
        int,
        Bounds(0, 100, OTHERS_WAIT),
        Prompt(
            "Profiled steps",
            help="Steps of each run that are profiled after the timed ones, to show where the "
            "time goes. They have turns of their own and count in no timing; 0 for none.",
        ),
    ] = 3
    time_limit_seconds: Annotated[
        float,
        YEAR,
        Prompt(
            "Time limit",
            "--time-limit",
            help="Longest time that one run may work; waiting for its turn does not count.",
        ),
    ] = 3600.0
    keep_code: Annotated[
        bool,
        Prompt(
            rare=True,
            help="Whether each run stores the compilers' graphs and generated code for its "
            "page. Writing them makes compiling slower.",
        ),
    ] = False
    keep_trace: Annotated[
        bool,
        Prompt(
            "Keep torch's trace",
            rare=True,
            help="Whether each run stores torch's structured trace of compiling "
            "(`TORCH_TRACE`, for `tlparse`). Writing it makes compiling slower.",
        ),
    ] = False
    family: Annotated[
        str | None,
        Prompt(
            rare=True,
            empty="none",
            help="Name of a family of experiments, such as all changes that a program proposes. "
            "The error over all of them is controlled: the more were tried, the smaller the "
            "p-value with which a speed counts as different (docs/ci.md).",
        ),
    ] = None
    family_place: Annotated[
        int | None,
        Bounds(1, 1_000_000_000, "the levels of later ones are 0 in practice"),
        Prompt(hidden=True),
    ] = None
    """Its number among the experiments of the family, in the order in which they were queued."""
    family_level: Annotated[
        float | None, Bounds(0, 1, "it is a probability", above=True), Prompt(hidden=True)
    ] = None
    """The p-value that it needs; set with the place, when it is queued."""
    suite_run: Annotated[str | None, Prompt(hidden=True)] = None
    """Id of the suite run to which the experiment belongs."""
    fallback_of: Annotated[str | None, Prompt(hidden=True)] = None
    """Id of the experiment that this one repeats run by run because the device lacked memory."""
    confirms: Annotated[str | None, Prompt(hidden=True)] = None
    """Id of the search whose best candidates this experiment trains from the beginning."""
    investigates: Annotated[str | None, Prompt(hidden=True)] = None
    """Id of the run whose fault this experiment investigates."""

    @property
    def kind(self) -> Scenario:
        """The scenario, which knows what the experiment does."""
        return SCENARIOS[self.scenario]

    @property
    def workload(self) -> BuiltInWorkload:
        """Who decides what in the training: the specification, or a user's script."""
        return workload_of(self.task)

    @property
    def entry(self) -> str:
        """The function of the worker that executes a run, as `module:function`."""
        return self.kind.entry or self.workload.entry

    @property
    def place(self) -> str:
        """Where it runs, for people; a script itself decides how its devices work together."""
        return self.named_devices if self.workload.is_own_program else super().place

    @property
    def subject(self) -> str:
        """The specified model and data; for a script its name and arguments."""
        if self.model.script is None:
            return f"{self.model.source} on {self.data.source}"
        module = self.script.module.partition("=")[0]
        return " ".join([module or PurePath(self.model.script).name, *self.script.arguments])

    @property
    def precision(self) -> Precision | None:
        """Precision of the training; None for a script, which chooses its own."""
        return self.training.precision if self.workload.is_specified else None

    @property
    def steps_like_harness(self) -> bool:
        """Whether a step does its work in the order of PyTorch's harness."""
        return self.kind.cycles_batches and self.settings == "harness"

    @property
    def has_dropout(self) -> bool:
        """Whether every run of the experiment trains with the model's dropout."""
        if self.kind.has_checks:
            return False
        if self.model.dropout == "auto":
            everyone = (*self.arms, *self.candidates)
            return not any(arm.captures_cuda_graphs for arm in everyone)
        return self.model.dropout == "keep"

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps per epoch; the last one may have fewer micro-batches."""
        num_batches = self.data.num_train_samples / self.training.batch_size
        to_batches = math.floor if self.training.last_batch == "drop" else math.ceil
        return math.ceil(to_batches(num_batches) / self.batches_per_step)

    @property
    def num_full_steps(self) -> int:
        """Steps with full batches in one pass over the training samples."""
        return self.data.num_train_samples // self.training.batch_size // self.batches_per_step

    @property
    def num_fixed_batches(self) -> int:
        """Batches that steps cycle through in scenarios without epochs."""
        return min(self.speed.batches, self.num_full_steps)

    @property
    def is_inference(self) -> bool:
        """Whether a step is a forward pass, which learns nothing and has no loss."""
        return not self.trains and not self.kind.has_checks

    @property
    def compares_losses(self) -> bool:
        """Whether losses of runs are compared with the baseline's."""
        return self.kind.has_speedups and not self.is_inference

    @property
    def trains(self) -> bool:
        """Whether a run makes optimizer steps."""
        return "training" in self.kind.parts(self)

    @property
    def batches_per_step(self) -> int:
        """Micro-batches of a step."""
        return 1 if self.is_inference else self.training.gradient_accumulation

    @property
    def profiles(self) -> bool:
        """Whether runs are profiled after their steps."""
        return self.kind.has_speedups and self.profile_steps > 0

    @property
    def user_code(self) -> tuple[str, ...]:
        """Every script and every `path.py:name` of the user that the experiment runs."""
        sources = [spec.source for spec in (self.model, self.data) if spec.is_user_code]
        scripts = [] if self.model.script is None else [self.model.script]
        backends = filter(USER_CODE.fullmatch, self.paths_of_backends)
        return (*scripts, *sources, *self.callbacks, *backends)

    @property
    def paths_of_backends(self) -> tuple[str, ...]:
        """Backends that are named by their path."""
        paths = (arm.path_of_backend for arm in self.possible_arms)
        return tuple(dict.fromkeys(filter(None, paths)))

    @property
    def may_fork_runs(self) -> bool:
        """Whether runs may begin as forks of one process that has imported what they import. Code
        of a person may start threads or open the device when it is imported, and torch opens its
        trace then. An arm with variables or a Python of its own must start afresh, and then all
        do: runs are compared, so none may start in another way."""
        has_own_code = self.workload.is_own_program or self.user_code or self.paths_of_backends
        starts_alone = self.environments or self.num_ranks > 1 or self.keep_trace or self.kind.entry
        starts_afresh = any(arm.variables or arm.python for arm in self.arms)
        return not (has_own_code or starts_alone or starts_afresh)

    @property
    def num_steps(self) -> int:
        """Steps of one run; the maximum if measuring ends by itself; 0 for a script without a
        limit."""
        return self.kind.num_steps(self) if self.workload.has_known_length else self.script.steps

    @property
    def training_steps(self) -> int:
        """Steps of the specified training, whatever the scenario makes of it; 0 for a script
        without a limit."""
        return training_steps(self) if self.workload.has_known_length else self.script.steps

    def with_training_steps(self, steps: int) -> Self:
        """The same experiment with a training of so many steps, or at most so many."""
        if self.workload.has_known_length:
            return replace(self, training=replace(self.training, max_steps=steps))
        return replace(self, script=replace(self.script, steps=steps))

    @property
    def num_evaluations(self) -> int:
        """How often each run is evaluated, including the evaluation at the end."""
        every = self.evaluation.every
        match self.evaluates:
            case "never":
                return 0
            case "end":
                return 1
            case "steps":
                return math.ceil(self.num_steps / every)
            case "epochs":
                return math.ceil(self.num_steps / (every * self.steps_per_epoch))

    @property
    def first_checkpoint_step(self) -> int | None:
        """Steps after which the first checkpoint is due; None if none are requested."""
        every, unit = self.checkpoints.every, self.checkpoints.unit
        if every is None:
            return None
        # One is written at the end in any case.
        return min(every * (self.steps_per_epoch if unit == "epochs" else 1), self.num_steps)

    @property
    def arm_texts(self) -> tuple[str, ...]:
        """The arms that are compared with the baseline, as they are written."""
        return (*self.backends, *self.named_arms)

    @property
    def names_of_arms(self) -> tuple[str, ...]:
        """Of the arms with names."""
        return tuple(split_name(text)[0] for text in self.named_arms)

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """Every run of the experiment, baseline first; repeat by repeat."""
        return tuple(self._under_settings(arm) for _, arm in self.kind.runs(self))

    @cached_property
    def changed_labels(self) -> frozenset[str]:
        """Labels of the runs that declare another mathematics than the baseline's."""
        baselines = [arm for arm in self.possible_arms if arm.role == "baseline"]
        return frozenset(
            arm.label
            for arm in self.possible_arms
            if any(arm.changes_training(baseline) for baseline in baselines[:1])
        )

    def may_be_judged_by_outcome(self, arm: Arm) -> bool:
        """Whether a run's training may be another one, or surely is, and has an outcome."""
        if arm.role != "backend" or not self.kind.trains_fully:
            return False
        if self.same == "auto" and arm.batch_times == 1:
            return arm.changes_training(self.arms[0])
        return self.same == "outcome" or arm.batch_times > 1

    @property
    def num_judged_by_outcome(self) -> int:
        """Arms that may be; at least 1."""
        return max(1, sum(map(self.may_be_judged_by_outcome, self.arms)))

    @cached_property
    def further_controls(self) -> tuple[Arm, ...]:
        """The controls that `more_controls` allows in each environment, in the order of their
        start."""
        if not (self.kind.trains_fully and self.controls):
            return ()
        last = self.controls + self.more_controls
        if self.more_controls and any(map(self.may_be_judged_by_outcome, self.arms)):
            last = max(last, CONTROLS_FOR_WORSE)
        numbers = range(self.controls + 1, last + 1)
        base = baseline_of(self)
        further = [self._under_settings(control(base, number)) for number in numbers]
        return tuple(in_each(self.environments, further))

    @cached_property
    def candidates(self) -> tuple[Arm, ...]:
        """The backends from which a search chooses."""
        return tuple(map(self._under_settings, self.kind.candidates(self)))

    @cached_property
    def possible_arms(self) -> tuple[Arm, ...]:
        """Every run that the experiment may start."""
        return (*self.arms, *self.further_controls, *self.candidates)

    def _under_settings(self, arm: Arm) -> Arm:
        return apply_settings(
            self.settings,
            arm,
            on_cuda=self.device.startswith("cuda"),
            draws_freely=self.kind.draws_freely,
        )

    @cached_property
    def repeats_by_label(self) -> dict[str, tuple[str, ...]]:
        """Labels of runs by the label that is compared: `inductor` with its repeats `inductor-1`
        and `inductor-2`, or each label with itself."""
        repeated: dict[str, tuple[str, ...]] = {}
        for label, arm in self.kind.runs(self):
            repeated[label] = (*repeated.get(label, ()), arm.label)
        single = (*self.further_controls, *self.candidates)
        return repeated | {arm.label: (arm.label,) for arm in single}

    def script_of(self, arm: Arm) -> ScriptSpec:
        """How the script runs under an arm: the command with the changes of the arm."""
        own = {text.partition("=")[0] for text in arm.variables}
        kept = [text for text in self.script.variables if text.partition("=")[0] not in own]
        return replace(
            self.script,
            arguments=with_arguments(self.script.arguments, arm.arguments),
            variables=(*kept, *arm.variables),
        )

    def turn_group(self, arm: Arm) -> str | int:
        """A key that runs share if they are alive at the same time and take turns."""
        return arm.repeat if self.takes_turns else arm.label

    @cached_property
    def environment_by_label(self) -> dict[str, str | None]:
        """The environment of each run, and of each entry of `repeats_by_label`."""
        by_run = {arm.label: arm.environment for arm in self.possible_arms}
        by_label = {label: by_run[runs[0]] for label, runs in self.repeats_by_label.items()}
        return by_run | by_label

    @property
    def environment_names(self) -> tuple[str | None, ...]:
        """The environments in their order; None stands for Breakeven's own."""
        return tuple(pythons(self.environments)) or (None,)

    def environment_python(self, arm: Arm) -> str | None:
        """Path of the Python that a run executes; None for Breakeven's own."""
        named = pythons(self.environments)
        return arm.python or (None if arm.environment is None else named[arm.environment])

    @property
    def other_pythons(self) -> tuple[str, ...]:
        """The Pythons that runs execute beside Breakeven's own."""
        of_arms = (arm.python for arm in self.possible_arms)
        return tuple(dict.fromkeys(filter(None, [*pythons(self.environments).values(), *of_arms])))

    @property
    def cold_and_warm(self) -> tuple[tuple[str, Arm, Arm], ...]:
        """Backend as written, cold arm and warm arm of every repeat; empty unless caches
        are compared."""
        return tuple(
            (text, self._under_settings(cold), self._under_settings(warm))
            for text, cold, warm in self.kind.cold_and_warm(self)
        )

    @property
    def is_until_decided(self) -> bool:
        """Whether measuring ends when it is decided which run is best for the planned steps."""
        is_one_race = self.schedule == "turns" and len(self.environments) <= 1
        return self.kind.trains_fully and is_one_race and self.plan.steps is not None

    @property
    def times_later_starts(self) -> bool:
        """Whether compiled runs start once more with their compile caches, because the planned
        training has several starts. Only in one process: ranks would compile and load in turns."""
        is_single = len(self.devices) == self.nodes == self.num_ranks == 1
        return self.kind.trains_fully and is_single and self.plan.starts > 1

    @property
    def is_of_search(self) -> bool:
        """Whether it is a search, or the training that confirms the best candidates of one."""
        return self.kind.has_candidates or self.confirms is not None

    @property
    def on_its_own(self) -> Self:
        """The same work as an independent experiment: outside a suite run, and not a repetition of
        another experiment. A search becomes a training under the usual backend."""
        alone = replace(
            self,
            suite_run=None,
            fallback_of=None,
            confirms=None,
            family_place=None,
            family_level=None,
        )
        if not self.kind.has_candidates:
            return alone
        return replace(alone, scenario="train", backends=USUAL_BACKENDS)

    def with_batch(self, times: int) -> Self:
        """The same work in batches that are so many times as large, for as many samples, and
        without the backends."""
        training, steps = self.training, self.training.max_steps
        batches = min(self.speed.batches, self.num_full_steps // times)
        return replace(
            self,
            backends=(),
            model=replace(self.model, dropout="keep" if self.has_dropout else "off"),
            training=replace(
                training,
                batch_size=times * training.batch_size,
                max_steps=None if steps is None else math.ceil(steps / times),
                warmup_steps=training.warmup_steps // times,
            ),
            block_steps=max(1, self.block_steps // times),
            speed=replace(self.speed, batches=batches),
        )

    @property
    def takes_turns(self) -> bool:
        """Whether all runs of a repeat are alive at once."""
        return self.schedule == "turns" and self.kind.takes_turns

    @property
    def compiling_together(self) -> frozenset[str]:
        """Labels of the runs that compile at the same time as others of the experiment."""
        if self.compile == "alone" or not self.takes_turns:
            return frozenset()
        plain = [arm for arm in self.possible_arms if arm.compile_effort and not arm.autotunes]
        sizes = Counter(map(self.turn_group, plain))
        return frozenset(arm.label for arm in plain if sizes[self.turn_group(arm)] > 1)

    @property
    def evaluates(self) -> EvaluationPoint:
        """When runs are evaluated; `never` for a script, which evaluates by itself."""
        asks = self.kind.trains_fully and self.workload.is_specified
        return self.evaluation.when if asks else "never"
