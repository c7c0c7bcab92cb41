"""The ways to run a workload: baseline, control, and each backend with its settings.

A backend is written as its name, or with settings behind a colon:

    inductor
    inductor:mode=max-autotune
    inductor:scope=forward+dynamic=true
    inductor:epilogue_fusion=false          any other name is an Inductor configuration
    inductor:mode=max-autotune+triton.cudagraphs=false
                                            options override those of the mode
    inductor:fullgraph=false                a script's own fullgraph=True does not count
    inductor:optimizer=fused
    none:optimizer=fused                    settings without a compiler
    thunder.dynamo:ThunderCompiler          a function or class of a package, or path.py:name
    thunder.dynamo:ThunderCompiler:scope=forward
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.fields import Bounds, Spec, require
from breakeven.runner.specs.values import BY_PATH, Options, check_variables, parse_settings

Role = Literal["baseline", "control", "backend"]
Scope = Literal["iteration", "forward", "forward_backward", "blocks"]
MathAttention = Literal["full", "reduced"]
Settings = Literal["plain", "harness"]
Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
OptimizerForm = Literal["for_loop", "foreach", "fused"]
NO_COMPILER = "none"
"""Stands in place of a backend's name, for settings without a compiler: `none:optimizer=fused`."""
QUICK_COMPILERS = ("eager", "aot_eager", "cudagraphs")
"""Backends that capture graphs and generate no code. They compile in seconds, others in a
minute."""
DdpMode = Literal["ddp_optimizer", "python_reducer", "no_optimization"]
NO_DDP_MODE = "python_reducer_without_compiled_forward"
"""A mode of Dynamo that DistributedDataParallel does not support."""
CacheState = Literal["cold", "warm"]
CONTROL_PERTURBATION = 1e-5
"""Relative size of the change to the control's initial weights."""
ENVIRONMENT_MARK = "@"
"""Between a label and the environment of the run: `inductor@torch211`."""
ENVIRONMENT_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,39}")
RESERVED_LABELS = re.compile(r"(baseline|control(-\d+)?)(-on-\d+)?")
MAX_LABEL_BYTES = 150
LONGEST_DERIVED = 100
"""Longest derived label in characters; repeats append their number."""
DIGEST_DIGITS = 6
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
LABEL = re.compile(rf"[A-Za-z0-9][\w.{ENVIRONMENT_MARK}-]*")
WHICH_RUN = ("label", "role", "repeat", "perturbation_seed", "place", "environment")
"""Fields that distinguish runs with the same settings."""
ARM_SETTINGS = (
    "scope",
    "mode",
    "fullgraph",
    "dynamic",
    "math_attention",
    "optimize_ddp",
    "optimizer",
    "tf32",
    "batch_times",
    "loader_workers",
)
NEED_NO_COMPILER = ("math_attention", "optimizer", "tf32", "batch_times", "loader_workers")
"""Those that act without a compiler."""
CHANGES = ("arguments", "variables", "revision", "diff")
"""What an arm can change beside compiler and settings."""
CHANGE_TRAINING = ("math_attention", "tf32", "batch_times", "arguments", "revision", "diff")
"""What may change the mathematics of a training, and not only its rounding."""


@dataclass(frozen=True, kw_only=True)
class Arm(Spec):
    """One way to run the workload."""

    label: str
    role: Role
    backend: str | None = None
    """Name of a Dynamo backend, or its path; None means no `torch.compile` at all."""
    scope: Scope = "iteration"
    """What is compiled: the whole iteration; the model's forward; forward and backward, with the
    optimizer apart; or one of the model's repeated blocks, for all of them."""
    mode: Mode | None = None
    fullgraph: bool = False
    """Whether a graph break is an error."""
    allows_breaks: bool = False
    """Whether a graph break is no error even where a script calls `torch.compile` with
    `fullgraph=True`; written `fullgraph=false`."""
    dynamic: bool | None = None
    """Whether shapes are symbolic (true), fixed (false), or fixed until they change (null)."""
    options: Options = field(default_factory=dict)
    """Inductor configuration by name, nested options with dots: `triton.cudagraphs`. It overrides
    the mode."""
    math_attention: MathAttention = "full"
    """Precision in which attention without a fused kernel adds up half-precision numbers: float32
    (`full`), or half precision (`reduced`), which PyTorch's Dynamo harness allows
    (`allow_fp16_bf16_reduction_math_sdp`)."""
    optimize_ddp: DdpMode | None = None
    """How Dynamo compiles DistributedDataParallel. `ddp_optimizer`, torch's default, splits graphs
    where DDP's buckets end, so that gradients travel while others are computed. `python_reducer`
    also compiles the reduction of gradients, with compiled autograd. `no_optimization` does
    neither."""
    optimizer: OptimizerForm | None = None
    """How the optimizer updates the parameters: one after the other (`for_loop`), many in each
    kernel (`foreach`), or with all of its work in one kernel (`fused`). None: torch chooses."""
    tf32: bool = False
    """Whether float32 products use TF32, in any precision of the training."""
    batch_times: Annotated[int, Bounds(1, 1024, "the device holds the whole batch")] = 1
    """How many times as large as the experiment's its batches are. A run with larger batches makes
    as many times fewer steps, and is another training."""
    loader_workers: Annotated[int, Bounds(0, 256, "each is a process")] = 0
    """Processes with which a script's data loaders load batches, on a GPU into pinned memory. 0:
    the script chooses."""
    cache: CacheState = "cold"
    """Whether the run starts with empty compile caches, or with those of the cold run of the same
    repeat."""
    repeat: Annotated[int, Bounds(1, 100, "no scenario has so many")] = 1
    """Number of this process among those with the same settings, from 1."""
    perturbation_seed: Annotated[int, Bounds(0, 100, "no experiment has so many controls")] = 0
    """Distinguishes controls: each changes the initial weights by other random numbers."""
    environment: str | None = None
    """Name of the Python installation in which the run executes; None for Breakeven's own."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script beside those of the command, whose options of the same names they
    replace."""
    variables: tuple[str, ...] = ()
    """Environment variables of the run, `NAME=VALUE`, beside those of the command."""
    revision: str = ""
    """Commit of the script's repository; empty for the files as they are."""
    diff: str = ""
    """Full path of a diff that is applied to these files."""

    def check_rules(self) -> None:
        rule = "must be letters, digits, '.', '_', '-' or '@', starting with a letter or digit"
        self.require("label", bool(LABEL.fullmatch(self.label)), rule)
        rule = f"must be at most {MAX_LABEL_BYTES} bytes: it names the run's folder"
        self.require("label", len(self.label.encode()) <= MAX_LABEL_BYTES, rule)
        rule = "must be null unless the role is 'backend'"
        self.require("backend", self.backend is None or self.role == "backend", rule)
        rule = (
            "changes nothing: the baseline has no compiler either. Give it a setting, such as "
            f"{NO_COMPILER}:optimizer=fused, or name a backend"
        )
        usual = {field.name: field.default for field in fields(self)}
        is_changed = any(
            getattr(self, name) != usual[name] for name in (*NEED_NO_COMPILER, *CHANGES)
        )
        is_baseline = self.role == "backend" and self.backend is None and not is_changed
        require(not is_baseline, "backends", self.label, rule)
        rule = "has no compiler, and so no scope"
        require(bool(self.backend) or self.scope == "iteration", "backends", self.label, rule)
        settings = self.mode is not None or bool(self.options)
        rule = "has a mode or an option, but only inductor has modes and options"
        require(not settings or self.backend == "inductor", "backends", self.label, rule)
        rule = "cannot be one graph: loss.backward() breaks the iteration; choose scope=forward"
        possible = self.scope in ("forward", "blocks")
        require(not self.fullgraph or possible, "backends", self.label, rule)
        self._check_changes()

    def _check_changes(self) -> None:
        rule = "must be the full name of a commit, 40 digits; `breakeven run` finds that of @main"
        is_commit = not self.revision or COMMIT.fullmatch(self.revision)
        self.require("revision", bool(is_commit), rule)
        rule = "must name a diff by its full path"
        self.require("diff", not self.diff or PurePath(self.diff).is_absolute(), rule)
        check_variables("variables", self.variables)

    @property
    def text(self) -> str:
        """The backend with its settings, as on the command line; `parse_backend` reads it."""
        chosen = {name: getattr(self, name) for name in ARM_SETTINGS}
        usual = {field.name: field.default for field in fields(self)}
        changed = {name: value for name, value in chosen.items() if value != usual[name]}
        settings = {**self.options, **changed}
        if self.allows_breaks:
            settings["fullgraph"] = False
        texts = (
            f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in settings.items()
        )
        return ":".join(filter(None, [self.backend or NO_COMPILER, "+".join(texts)]))

    @cached_property
    def settings(self) -> Mapping[str, object]:
        """The compiler of the run, its settings and options, by name."""
        # Once, and not by `asdict`: a search compares hundreds of candidates after each round.
        settings = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in (*WHICH_RUN, "cache", "options")
        }
        return settings | self.options

    def changes_training(self, baseline: "Arm") -> bool:
        """Whether it declares another mathematics than the baseline's: then its training need not
        be the same, but as good."""
        return any(getattr(self, name) != getattr(baseline, name) for name in CHANGE_TRAINING)

    @property
    def perturbation(self) -> float:
        """Relative change to the initial weights."""
        return CONTROL_PERTURBATION if self.role == "control" else 0.0

    @property
    def path_of_backend(self) -> str | None:
        """`package.module:attribute` or `path.py:name`, if the backend is named so."""
        return self.backend if self.backend and BY_PATH.fullmatch(self.backend) else None

    @property
    def compile_effort(self) -> int:
        """Rank by expected compile time; 0 without a compiler."""
        if self.backend is None:
            return 0
        if self.backend.startswith(QUICK_COMPILERS):
            return 1
        return 3 if self.autotunes else 2

    @property
    def autotunes(self) -> bool:
        """Whether the compiler times kernels to choose among them."""
        by_option = self.options.get("max_autotune", self.has_autotuning_mode)
        return bool(by_option or self.options.get("coordinate_descent_tuning"))

    @property
    def has_autotuning_mode(self) -> bool:
        return self.mode is not None and self.mode.startswith("max-autotune")

    @property
    def captures_cuda_graphs(self) -> bool:
        """Whether steps are replayed from CUDA graphs, which have a random state of their own."""
        by_mode = self.mode in ("reduce-overhead", "max-autotune")
        return self.backend == "cudagraphs" or bool(self.options.get("triton.cudagraphs", by_mode))


def apply_settings(settings: Settings, arm: Arm, *, on_cuda: bool, draws_freely: bool) -> Arm:
    """The arm with the defaults of `settings`. `draws_freely`: whether a compiler may draw
    random numbers of its own."""
    if settings == "plain":
        return arm
    by_settings: Options = {}
    if arm.backend == "inductor":
        if on_cuda and arm.mode is None:
            by_settings["triton.cudagraphs"] = True
        if draws_freely:
            by_settings["fallback_random"] = False
    return replace(arm, math_attention="reduced", options={**by_settings, **arm.options})


def control(number: int) -> Arm:
    """One of an experiment's controls, counted from 1: `control`, `control-2`, `control-3`."""
    label = "control" if number == 1 else f"control-{number}"
    return Arm(label=label, role="control", perturbation_seed=number - 1)


def cold_and_warm(arm: Arm, repeats: int) -> Iterator[tuple[Arm, Arm]]:
    """For each repeat an arm with empty caches, and one with the caches of the first."""
    for repeat in range(1, repeats + 1):
        cold, warm = (
            replace(arm, label=f"{arm.label}-{state}-{repeat}", cache=state, repeat=repeat)
            for state in get_args(CacheState)
        )
        yield cold, warm


def expanded(compared: Sequence[Arm], repeats: int) -> Iterator[tuple[str, Arm]]:
    """All runs, repeat by repeat, each with the label of its backend.

    Repeats are labelled `inductor-1`, `inductor-2`; a single one has no number.
    """
    for repeat in range(1, repeats + 1):
        for arm in compared:
            label = arm.label if repeats == 1 else f"{arm.label}-{repeat}"
            yield arm.label, replace(arm, label=label, repeat=repeat)


def pythons(environments: Iterable[str]) -> dict[str, str]:
    """The path of each environment's Python, by name, from texts such as
    `torch211=/home/me/torch211/bin/python`."""
    return {name: python for name, _, python in (text.partition("=") for text in environments)}


def in_each(environments: Iterable[str], arms: Sequence[Arm]) -> list[Arm]:
    """The arms in every environment: of several, each has a baseline and controls of its own, such
    as `baseline@torch211`. Without environments, the arms as they are."""
    names = list(pythons(environments))
    if not names:
        return [*arms]
    if len(names) == 1:
        return [replace(arm, environment=names[0]) for arm in arms]
    return [
        replace(arm, label=f"{arm.label}{ENVIRONMENT_MARK}{name}", environment=name)
        for name in names
        for arm in arms
    ]


def parse_backend(text: str) -> Arm:
    """Reads a backend such as `inductor:mode=max-autotune`.

    Raises `InvalidSpec` for the field `backends`.
    """
    name, settings = parse_settings(text, "backends", dotted=True)
    rule = "must be the name of a Dynamo backend (letters, digits, '.', '_', '-'), or its path, "
    rule += "package.module:attribute"
    is_name = re.fullmatch(r"[A-Za-z0-9_][\w.-]*", name) or BY_PATH.fullmatch(name)
    require(bool(is_name), "backends", text, rule)
    known: dict[str, Any] = {
        key: settings.pop(key) for key in list(settings) if key in ARM_SETTINGS
    }
    given = {**known, **settings}
    known["allows_breaks"] = known.get("fullgraph") is False
    rule = "names a mode that DistributedDataParallel does not support; choose "
    rule += "optimize_ddp=python_reducer"
    require(known.get("optimize_ddp") != NO_DDP_MODE, "backends", text, rule)
    try:
        backend = None if name == NO_COMPILER else name
        return Arm(
            label=_label(name, given), role="backend", backend=backend, options=settings, **known
        )
    except InvalidSpec as error:
        if error.field == "backends":
            raise
        raise InvalidSpec("backends", text, f"{error.field} {error.rule}") from None


def parse_backends(texts: Sequence[str]) -> list[Arm]:
    """Reads several backends; different backends never share a label."""
    by_label: dict[str, Arm] = {}
    arms = []
    for text in texts:
        arm = parse_backend(text)
        if by_label.setdefault(arm.label, arm) != arm:
            arm = replace(arm, label=_marked(arm.label, text))
        arms.append(arm)
    return arms


def _label(name: str, settings: dict[str, Any]) -> str:
    """`inductor-max-autotune-forward`: well-known values alone, other values with their names. In
    an invalid label other characters are replaced, and a digest is appended."""
    words = [PurePath(name).name.replace(".py:", ":").replace(":", ".").lstrip("_.-")]
    for key, value in settings.items():
        speaks = value in (
            get_args(Scope) + get_args(Mode) + get_args(DdpMode) + get_args(OptimizerForm)
        )
        words.append(str(value) if speaks else f"{key}_{str(value).lower()}")
    label = "-".join(words)
    if RESERVED_LABELS.fullmatch(label):
        return f"backend-{label}"
    is_valid = len(label.encode()) <= MAX_LABEL_BYTES and LABEL.fullmatch(label)
    return label if is_valid else _marked(label, label)


def _marked(label: str, text: str) -> str:
    """A valid, unique label, with a digest of `text`."""
    clean = re.sub(r"[^A-Za-z0-9.-]+", "_", label).strip("_.-")[:LONGEST_DERIVED]
    return f"{clean or 'backend'}-{sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}"
