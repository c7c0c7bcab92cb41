"""The candidates of a search: a table of settings, and all of their combinations.

A row names a setting, the values that may be faster than torch's default, where it applies, and
which part of a training's time it can shorten. A candidate is a compiler with one value for each
setting, written as in `backends`. A search does not try all of them: it starts from the baseline
and tries candidates that differ from the best so far in one setting, the largest possible gain less
compile time first (`runner/supervision/race.py`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from breakeven.runner.specs.arm_fields import NO_COMPILER, Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import TuneSpec
from breakeven.runner.specs.training import NO_OPTIMIZER
from breakeven.runner.specs.workload import usual_name

FORMS = {
    "Adadelta": ("foreach",),
    "Adagrad": ("foreach", "fused"),
    "Adam": ("foreach", "fused"),
    "Adamax": ("foreach",),
    "AdamW": ("foreach", "fused"),
    "ASGD": ("foreach",),
    "NAdam": ("foreach",),
    "RAdam": ("foreach",),
    "RMSprop": ("foreach",),
    "Rprop": ("foreach",),
    "SGD": ("foreach", "fused"),
}
"""Implementations of optimizers in torch 2.13 other than `for_loop`."""


Part = Literal["working", "waiting", "loading", "compiling"]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Shares of the parts in a training's time. A part of unknown length has the share 1."""

    working: float = 1.0
    """The device works."""
    waiting: float = 1.0
    """The device waits for the host, which starts kernels."""
    loading: float = 1.0
    """The step waits for a data loader."""
    compiling: float = 1.0
    """Compiling, for the planned length."""

    def largest(self, parts: Collection[Part]) -> float:
        """The largest share that a change of these parts could save."""
        step = self.working * ("working" in parts) + self.waiting * ("waiting" in parts)
        loading, compiling = "loading" in parts, "compiling" in parts
        return min(1.0, max(step, self.loading * loading, self.compiling * compiling))


@dataclass(frozen=True, kw_only=True)
class Move:
    """A setting that may make a training faster."""

    name: str
    """Name in `backends`."""
    values: tuple[str, ...]
    """Values other than torch's default."""
    compilers: tuple[str, ...]
    """Compilers with which it can be combined."""
    shortens: tuple[Part, ...] = ()
    """The parts of a training that it can shorten; for a mode, `potential` decides."""
    applies: Callable[[ExperimentSpec], bool] = lambda spec: True
    """Whether it has an effect in an experiment."""
    not_in_scripts: str = ""
    """Why it is not tried with a script; empty if it is."""
    presumed: str = ""
    """The value that cost nothing beyond the noise in measured grids, on CUDA and on the CPU
    (benchmarks/results/searches.md)."""

    def choices(self, spec: ExperimentSpec, compiler: str) -> tuple[str, ...]:
        """Values for an experiment and a compiler; the empty text is torch's default."""
        is_tried = spec.workload.is_specified or not self.not_in_scripts
        fits = compiler in self.compilers and is_tried and self.applies(spec)
        values = self.values
        if self.name == "optimizer":
            values = optimizer_forms(spec)
        elif self.name == "batch_times":
            values = tuple(times for times in values if int(times) <= spec.num_full_steps)
        return ("", *values) if fits else ("",)


def _on_cuda(spec: ExperimentSpec) -> bool:
    return spec.device.startswith("cuda")


def _keeps_graphs(spec: ExperimentSpec) -> bool:
    """Whether later steps can replay captured CUDA graphs. Under `fsdp` the gathered weights lie at
    other addresses in each step, so nearly each step captures again."""
    return _on_cuda(spec) and (spec.parallel != "fsdp" or spec.num_devices == 1)


def _allows_tf32(spec: ExperimentSpec) -> bool:
    may = "precision" in spec.tune.allow and _on_cuda(spec)
    return may and spec.precision in (None, "float32")


def _allows_reduced_attention(spec: ExperimentSpec) -> bool:
    may = "precision" in spec.tune.allow and _on_cuda(spec) and spec.settings == "plain"
    return may and spec.precision in (None, "bf16", "fp16")


def optimizer_forms(spec: ExperimentSpec) -> tuple[str, ...]:
    """Implementations of the experiment's optimizer other than torch's default on this device; for
    a script, whose optimizer is unknown, `fused`."""
    name = spec.training.optimizer
    if not spec.workload.is_specified:
        return ("fused",)
    if name == NO_OPTIMIZER or spec.training.optimizer_options.keys() & {
        "foreach",
        "fused",
        "capturable",
        "differentiable",
    }:
        return ()
    known = FORMS.get(name, ())
    return tuple(form for form in known if form != "foreach" or not _on_cuda(spec))


def _allows_larger_batches(spec: ExperimentSpec) -> bool:
    return "batch" in spec.tune.allow and spec.workload.is_specified and len(spec.devices) == 1


ALL_COMPILERS = (NO_COMPILER, "inductor", "cudagraphs")
MOVES = (
    Move(
        name="batch_times",
        values=("2", "4", "8", "16"),
        compilers=ALL_COMPILERS,
        applies=_allows_larger_batches,
        shortens=("working", "waiting"),
    ),
    Move(
        name="mode",
        values=("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        compilers=("inductor",),
        applies=_keeps_graphs,
    ),
    Move(
        name="mode",
        values=("max-autotune-no-cudagraphs",),
        compilers=("inductor",),
        applies=lambda spec: spec.device == "cpu" or (_on_cuda(spec) and not _keeps_graphs(spec)),
    ),
    Move(
        name="scope",
        values=("forward", "blocks"),
        compilers=("inductor",),
        not_in_scripts="the script decides what is compiled",
        shortens=("compiling", "working", "waiting"),
    ),
    Move(name="cpp_wrapper", values=("true",), compilers=("inductor",), shortens=("waiting",)),
    Move(
        name="coordinate_descent_tuning",
        values=("true",),
        compilers=("inductor",),
        applies=_on_cuda,
        shortens=("working",),
    ),
    Move(
        name="optimizer",
        values=("foreach", "fused"),
        compilers=ALL_COMPILERS,
        shortens=("working", "waiting"),
        presumed="fused",
    ),
    Move(
        name="tf32",
        values=("true",),
        compilers=ALL_COMPILERS,
        applies=_allows_tf32,
        shortens=("working",),
    ),
    Move(
        name="math_attention",
        values=("reduced",),
        compilers=ALL_COMPILERS,
        applies=_allows_reduced_attention,
        shortens=("working",),
    ),
    Move(
        name="loader_workers",
        values=("2", "4", "8"),
        compilers=ALL_COMPILERS,
        applies=lambda spec: spec.workload.loads_samples,
        shortens=("loading",),
    ),
)


def search_spec(
    spec: ExperimentSpec,
    *,
    steps: int,
    max_seconds: float | None = None,
    allow: Sequence[str] = (),
    named: bool = False,
) -> ExperimentSpec:
    """The search for the fastest way to train a specification's workload for `steps` steps.

    `max_seconds`: time limit of the search; None for the default. `named`: whether only the
    specification's backends are candidates, instead of all that apply. Raises `InvalidSpec`.
    """
    seconds = TuneSpec().max_seconds if max_seconds is None else max_seconds
    tune = TuneSpec.from_dict(
        {"steps": steps, "max_seconds": seconds, "allow": allow}, path="tune."
    )
    named_after = usual_name(
        spec.model.source,
        spec.data.source,
        precision=spec.training.precision,
        batch_size=spec.training.batch_size,
        backends=[f"fastest {steps:,} steps"],
        device=spec.place,
    )
    search = replace(spec, name=named_after, scenario="tune", tune=tune, compile="together")
    return search if named else replace(search, backends=candidates(search))


def untried(spec: ExperimentSpec) -> str:
    """What a search does not try, and why."""
    reasons = {}
    if not spec.workload.is_specified:
        reasons = {move.name: move.not_in_scripts for move in MOVES if move.not_in_scripts} | {
            "optimizer=foreach": "optimizer=fused does the same in fewer kernels",
            "precision and batch size": "the script decides them",
        }
    elif "batch" not in spec.tune.allow:
        reasons["larger batches"] = "they make another training (--allow batch tries them)"
    if _on_cuda(spec) and not _keeps_graphs(spec):
        reasons["CUDA graphs"] = "under fsdp nearly each step would capture them again"
    reasons["activation checkpointing"] = "it saves memory and makes each step slower"
    listed = "; ".join(f"{setting}, because {why}" for setting, why in reasons.items())
    return f"Not tried: {listed}."


def candidates(spec: ExperimentSpec) -> tuple[str, ...]:
    """Every combination for an experiment, written as in `backends`, without the baseline."""
    texts = []
    compilers = [
        compiler for compiler in ALL_COMPILERS if compiler != "cudagraphs" or _keeps_graphs(spec)
    ]
    for compiler in compilers:
        moves = [move for move in MOVES if len(move.choices(spec, compiler)) > 1]
        for values in product(*(move.choices(spec, compiler) for move in moves)):
            settings = [
                f"{move.name}={value}" for move, value in zip(moves, values, strict=True) if value
            ]
            if settings or compiler != NO_COMPILER:
                texts.append(":".join(filter(None, [compiler, "+".join(settings)])))
    return tuple(texts)


def backend_text(candidate: Arm, spec: ExperimentSpec) -> str:
    """The name of a candidate in the experiment's `backends`."""
    labels = [arm.label for arm in spec.candidates]
    return spec.backends[labels.index(candidate.label)]


def presumed(spec: ExperimentSpec) -> Arm | None:
    """The candidate that has only the presumed settings; None if the search has no such candidate,
    or others without a twin that has these settings, too."""
    settings = {move.name: move.presumed for move in MOVES if move.presumed}
    baselines = [arm for arm in spec.arms if arm.role == "baseline"]
    with_presumed = [{**arm.settings, **settings} for arm in (*spec.candidates, *baselines)]
    twins = [
        next((twin for twin in spec.candidates if twin.settings == wanted), None)
        for wanted in with_presumed
    ]
    return twins[-1] if settings and None not in twins else None


def potential(arm: Arm, origin: Arm, shares: Shares) -> float:
    """The largest share of a training's time under `origin` that `arm` could save. `shares`:
    those of a training without CUDA graphs; steps that are replayed from graphs do not wait. The
    compiler or CUDA graphs of `origin` may have made any part of a step slower, so an arm
    without them could save all."""
    if origin.captures_cuda_graphs:
        shares = replace(shares, working=1.0, waiting=0.0)
    change = difference(arm, origin)
    stops_graphs = origin.captures_cuda_graphs and not arm.captures_cuda_graphs
    if stops_graphs or ("backend" in change and origin.backend is not None):
        return 1.0
    parts = {part for move in MOVES if move.name in change for part in move.shortens}
    if "backend" in change and arm.backend != "cudagraphs":
        parts |= {"working", "waiting"}
    if arm.captures_cuda_graphs and not origin.captures_cuda_graphs:
        parts.add("waiting")
    if arm.has_autotuning_mode and not origin.has_autotuning_mode:
        parts.add("working")
    if "loader_workers" in change:
        # At best, k processes load in 1/k of the time.
        before, after = (max(1, candidate.loader_workers) for candidate in (origin, arm))
        shares = replace(shares, loading=shares.loading * max(0.0, 1 - before / after))
    return shares.largest(parts)


USUAL_COMPILE_SECONDS = {
    "blocks": 10.0,
    "forward": 25.0,
    "forward_backward": 45.0,
    "iteration": 45.0,
}
"""About how long Inductor compiles BERT-base on an H100 with 16 CPUs, by scope
(benchmarks/results/searches.md)."""
QUICK_COMPILE_SECONDS = 15.0
"""The same for `cudagraphs` and other compilers that generate no code."""
AUTOTUNING_SECONDS = 150.0
"""Additional time of autotuning, which times kernels."""


def usual_compile_seconds(arm: Arm) -> float:
    """A guess before anything is measured, which only decides the order of candidates."""
    match arm.compile_effort:
        case 0:
            return 0.0
        case 1:
            return QUICK_COMPILE_SECONDS
        case _:
            return USUAL_COMPILE_SECONDS[arm.scope] + AUTOTUNING_SECONDS * arm.autotunes


def difference(arm: Arm, other: Arm) -> dict[str, object]:
    """The settings of `arm` that differ from those of `other`; None for a setting that
    only `other` has."""
    settings, others = arm.settings, other.settings
    return {
        name: settings.get(name)
        for name in {**others, **settings}
        if settings.get(name) != others.get(name)
    }
