"""One way to run a workload, an arm: its backend, settings and changes, with their rules."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import PurePath
from typing import Annotated, Literal

from breakeven.runner.specs.fields import Bounds, Spec, require
from breakeven.runner.specs.values import BY_PATH, Options, check_variables

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
RESERVED_LABELS = re.compile(r"baseline|control(-\d+)?")
MAX_LABEL_BYTES = 150
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
LABEL = re.compile(rf"[A-Za-z0-9][\w.{ENVIRONMENT_MARK}-]*")
WHICH_RUN = ("label", "role", "repeat", "perturbation_seed", "environment")
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
CHANGES = ("arguments", "variables", "revision", "diff", "python")
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
    python: str = ""
    """Full path of the Python in which the run executes; empty for that of its environment."""

    def check_rules(self) -> None:
        rule = "must be letters, digits, '.', '_', '-' or '@', starting with a letter or digit"
        self.require("label", bool(LABEL.fullmatch(self.label)), rule)
        rule = f"must be at most {MAX_LABEL_BYTES} bytes: it names the run's folder"
        self.require("label", len(self.label.encode()) <= MAX_LABEL_BYTES, rule)
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
        rule = "must name the Python by its full path, such as /home/me/torch211/bin/python"
        self.require("python", not self.python or PurePath(self.python).is_absolute(), rule)
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
