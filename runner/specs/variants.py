"""The ways to run a workload: baseline, control, and each backend with its settings.

A backend is written as its name, or with settings behind a colon:

    inductor
    inductor:mode=max-autotune
    inductor:scope=forward+dynamic=true
    inductor:epilogue_fusion=false          any other name is an Inductor configuration
    inductor:mode=max-autotune+triton.cudagraphs=false
                                            takes precedence over a mode, which is a set of them
    inductor:optimizer=fused
    none:optimizer=fused                    settings without a compiler
    thunder.dynamo:ThunderCompiler          a function or class of a package, or path.py:name
    thunder.dynamo:ThunderCompiler:scope=forward
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.fields import Bounds, Spec, require
from breakeven.runner.specs.values import BY_PATH, Options, parse_settings

Role = Literal["baseline", "control", "backend"]
Scope = Literal["iteration", "forward", "forward_backward", "blocks"]
MathAttention = Literal["full", "reduced"]
Settings = Literal["plain", "harness"]
Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
OptimizerForm = Literal["for_loop", "foreach", "fused"]
NO_COMPILER = "none"
"""In the place of a backend's name, for settings without a compiler: `none:optimizer=fused`."""
QUICK_COMPILERS = ("eager", "aot_eager", "cudagraphs")
"""Backends that capture graphs and generate no code: seconds, where others take a minute."""
DdpMode = Literal["ddp_optimizer", "python_reducer", "no_optimization"]
NO_DDP_MODE = "python_reducer_without_compiled_forward"
"""Dynamo takes it, too, but DistributedDataParallel asks for `python_reducer` alone."""
CacheState = Literal["cold", "warm"]
CONTROL_PERTURBATION = 1e-5
"""Relative size of the change to the control's initial weights."""
RESERVED_LABELS = re.compile(r"(baseline|control(-\d+)?)(-on-\d+)?")
MAX_LABEL_BYTES = 150
LONGEST_DERIVED = 100
"""Characters of a label that is derived; runs append to it which of several they are."""
DIGEST_DIGITS = 6
LABEL = re.compile(r"[A-Za-z0-9][\w.-]*")
WHICH_RUN = ("label", "role", "repeat", "perturbation_seed", "place")
"""Fields that tell runs of the same settings apart."""
VARIANT_SETTINGS = ("scope", "mode", "fullgraph", "dynamic", "math_attention", "optimize_ddp",
                    "optimizer", "tf32")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Variant(Spec):
    """One way to run the workload."""

    label: str
    role: Role
    backend: str | None = None
    """Name of a Dynamo backend, or its path; None means no `torch.compile` at all."""
    scope: Scope = "iteration"
    """What is compiled: the whole iteration; the model's forward; forward and backward with the
    optimizer apart; or the model's repeated blocks, each once for all of them."""
    mode: Mode | None = None
    fullgraph: bool = False
    """Whether a graph break is an error."""
    dynamic: bool | None = None
    """Whether shapes are symbols (true), fixed (false), or fixed until they change (null)."""
    options: Options = field(default_factory=dict)
    """Inductor configuration by name, nested ones with dots: `triton.cudagraphs`. What the mode
    says otherwise does not count."""
    math_attention: MathAttention = "full"
    """How attention that no fused kernel computes adds up half-precision numbers: in float32, or as
    PyTorch's Dynamo harness allows it (`allow_fp16_bf16_reduction_math_sdp`), in half precision."""
    optimize_ddp: DdpMode | None = None
    """What Dynamo does with DistributedDataParallel. `ddp_optimizer`, as torch does by itself:
    splits graphs where DDP's buckets end, so that gradients travel while others are computed.
    `python_reducer`: compiles the reducing of gradients, too, with compiled autograd.
    `no_optimization`: neither."""
    optimizer: OptimizerForm | None = None
    """How the optimizer goes over the parameters: one after the other (`for_loop`), many in each
    kernel (`foreach`), or with all of its work in one kernel (`fused`). None as torch chooses."""
    tf32: bool = False
    """Whether float32 products use TF32, whatever the precision of the training."""
    cache: CacheState = "cold"
    """Whether compile caches are empty at first, or those that the cold run of the same repeat
    left."""
    repeat: Annotated[int, Bounds(1, 100, "no scenario has so many")] = 1
    """Which of several processes under the same settings this is, counted from 1."""
    perturbation_seed: Annotated[int, Bounds(0, 100, "no experiment has so many controls")] = 0
    """Tells several controls apart: each changes the initial weights by other random numbers."""
    place: Annotated[int, Bounds(1, 64, "no experiment has so many devices")] = 1
    """On which of the devices that the experiment is spread over this runs, counted from 1."""

    def check_rules(self) -> None:
        rule = "must be letters, digits, '.', '_' or '-', starting with a letter or digit"
        require(bool(LABEL.fullmatch(self.label)), "label", self.label, rule)
        rule = f"must be at most {MAX_LABEL_BYTES} bytes: it names the run's folder"
        require(len(self.label.encode()) <= MAX_LABEL_BYTES, "label", self.label, rule)
        rule = "must be named for a backend, and only for a backend"
        require(self.backend is None or self.role == "backend", "backend", self.backend, rule)
        rule = (
            "changes nothing: the baseline has no compiler either. Give it a setting, such as "
            f"{NO_COMPILER}:optimizer=fused, or name a backend"
        )
        is_changed = self.optimizer is not None or self.tf32 or self.math_attention == "reduced"
        is_baseline = self.role == "backend" and self.backend is None and not is_changed
        require(not is_baseline, "backends", self.label, rule)
        rule = "has no compiler, and so no scope"
        require(bool(self.backend) or self.scope == "iteration", "backends", self.label, rule)
        settings = self.mode is not None or bool(self.options)
        rule = "is for inductor only, which alone has modes and options"
        require(not settings or self.backend == "inductor", "backends", self.label, rule)
        rule = "cannot be one graph: loss.backward() breaks the iteration; choose scope=forward"
        possible = self.scope in ("forward", "blocks")
        require(not self.fullgraph or possible, "backends", self.label, rule)

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
        """Rank among the variants by how long it is likely to compile, 0 for not at all."""
        if self.backend is None:
            return 0
        if self.backend.startswith(QUICK_COMPILERS):
            return 1
        return 3 if self.autotunes else 2

    @property
    def autotunes(self) -> bool:
        """Whether its compiler times kernels to choose among them."""
        by_mode = self.mode is not None and self.mode.startswith("max-autotune")
        return bool(self.options.get("max_autotune", by_mode))

    @property
    def captures_cuda_graphs(self) -> bool:
        """Whether steps are replayed from CUDA graphs."""
        by_mode = self.mode in ("reduce-overhead", "max-autotune")
        return self.backend == "cudagraphs" or bool(self.options.get("triton.cudagraphs", by_mode))

    @property
    def draws_own_random_numbers(self) -> bool:
        """Whether its dropout differs from eager's: a captured graph keeps its own random state."""
        return self.captures_cuda_graphs


def under(settings: Settings, variant: Variant, *, on_cuda: bool, draws_freely: bool) -> Variant:
    """The variant with what the settings say where it says nothing itself. `draws_freely`: whether
    a compiler may draw random numbers in its own way."""
    if settings == "plain":
        return variant
    by_settings: Options = {}
    if variant.backend == "inductor":
        if on_cuda and variant.mode is None:
            by_settings["triton.cudagraphs"] = True
        if draws_freely:
            by_settings["fallback_random"] = False
    return replace(variant, math_attention="reduced", options={**by_settings, **variant.options})


def control(number: int) -> Variant:
    """One of an experiment's controls, counted from 1: `control`, `control-2`, `control-3`."""
    label = "control" if number == 1 else f"control-{number}"
    return Variant(label=label, role="control", perturbation_seed=number - 1)


def cold_and_warm(variant: Variant, repeats: int) -> Iterator[tuple[Variant, Variant]]:
    """For each repeat a variant with empty caches, and one with those that it leaves."""
    for repeat in range(1, repeats + 1):
        cold, warm = (
            replace(variant, label=f"{variant.label}-{state}-{repeat}", cache=state, repeat=repeat)
            for state in get_args(CacheState)
        )
        yield cold, warm


def expanded(
    compared: Sequence[Variant], repeats: int, places: int
) -> Iterator[tuple[str, Variant]]:
    """All runs, each with the label of what it is a process of; repeat by repeat.

    Repeats are numbered `inductor-1`, `inductor-2`; a single one leaves labels as they are. Over
    several places baseline and controls run on each of them, `baseline` and `baseline-on-2`; the
    backends are dealt out in turn, in the next repeat from the next place on, so that none is
    measured on one device alone where there are repeats.
    """
    for repeat in range(1, repeats + 1):
        number = 0
        for variant in compared:
            if variant.role == "backend":
                where: Iterable[int] = [(number + repeat - 1) % places + 1]
                number += 1
            else:
                where = range(1, places + 1)
            for place in where:
                is_other = variant.role != "backend" and place > 1
                label = f"{variant.label}-on-{place}" if is_other else variant.label
                label = label if repeats == 1 else f"{label}-{repeat}"
                yield variant.label, replace(variant, label=label, repeat=repeat, place=place)


def parse_backend(text: str) -> Variant:
    """The variant that a text such as `inductor:mode=max-autotune` describes.

    Raises `InvalidSpec` for the field `backends`.
    """
    name, settings = parse_settings(text, "backends", dotted=True)
    rule = "must be the name of a Dynamo backend (letters, digits, '.', '_', '-'), or its path, "
    rule += "package.module:attribute"
    is_name = re.fullmatch(r"[A-Za-z0-9_][\w.-]*", name) or BY_PATH.fullmatch(name)
    require(bool(is_name), "backends", text, rule)
    known: dict[str, Any] = {
        key: settings.pop(key) for key in list(settings) if key in VARIANT_SETTINGS
    }
    rule = (
        "names a mode that DistributedDataParallel does not know: it reduces gradients in Python "
    )
    rule += "under optimize_ddp=python_reducer alone"
    require(known.get("optimize_ddp") != NO_DDP_MODE, "backends", text, rule)
    try:
        backend = None if name == NO_COMPILER else name
        return Variant(label=_label(name, {**known, **settings}), role="backend", backend=backend,
                       options=settings, **known)  # fmt: skip
    except InvalidSpec as error:
        if error.field == "backends":
            raise
        raise InvalidSpec("backends", text, f"{error.field} {error.rule}") from None


def parse_backends(texts: Sequence[str]) -> list[Variant]:
    """The variants that several texts describe; different ones never share a label."""
    found: dict[str, Variant] = {}
    variants = []
    for text in texts:
        variant = parse_backend(text)
        if found.setdefault(variant.label, variant) != variant:
            variant = replace(variant, label=_marked(variant.label, text))
        variants.append(variant)
    return variants


def _label(name: str, settings: dict[str, Any]) -> str:
    """`inductor-max-autotune-forward`: the values that speak for themselves, the others named. What
    cannot stand in a label is left out, and a digest of the whole tells labels apart."""
    words = [PurePath(name).name.replace(".py:", ":").replace(":", ".").lstrip("_.-")]
    for key, value in settings.items():
        speaks = value in (
            get_args(Scope) + get_args(Mode) + get_args(DdpMode) + get_args(OptimizerForm)
        )
        words.append(str(value) if speaks else f"{key}_{str(value).lower()}")
    label = "-".join(words)
    if RESERVED_LABELS.fullmatch(label):
        return f"backend-{label}"
    return label if _is_label(label) else _marked(label, label)


def _is_label(text: str) -> bool:
    is_short = len(text.encode()) <= MAX_LABEL_BYTES
    return is_short and bool(LABEL.fullmatch(text))


def _marked(label: str, text: str) -> str:
    """The label of a text whose natural label another text already has."""
    clean = re.sub(r"[^A-Za-z0-9.-]+", "_", label).strip("_.-")[:LONGEST_DERIVED]
    return f"{clean or 'backend'}-{sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}"
