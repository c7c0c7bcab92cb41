"""What costs time in a run's steps: one rule for each thing that people can do something about.

A rule looks at a run's profile, and at the baseline's; what it finds is data. Sentences are made
where they are shown (`storage/terminal/finding_words.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import Variant, parse_backends
from breakeven.storage.profile.classes import FUSED_ATTENTION, MATMUL
from breakeven.storage.profile.profiles import Profile, hides_optimizer, host_seconds

Kind = Literal[
    "attention_unfused", "float32_products", "tf32_off", "device_idle", "underfilled",
    "graph_breaks", "recompiled", "random_as_eager", "padding", "small_kernels", "costly_kernel",
    "fell_back", "optimizer_unfused", "copied_each_step", "optimizer_compiled_long",
]  # fmt: skip
MIN_SHARE = 0.02
"""Of a step, below which nothing is worth a sentence."""
MUCH = 0.10
SMALL_KERNEL_SECONDS = 5e-6
"""About what starting a kernel takes: a shorter one costs more to start than to run."""
MANY_CALLS = 100
OWN_KERNELS = ("indexing", "normalisation", "loss", "other")
"""Classes of work that Inductor usually fuses, each in kernels of torch's own otherwise."""
NOT_OF_TOKENS = ("optimizer", "transfers", "communication", "bookkeeping")
"""Classes of work that takes as long with fewer tokens."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What would show whether a finding holds."""

    fields: tuple[tuple[str, Any], ...]
    """Fields of the specification, by path, and their new values."""
    backend: str | None = None
    """Where it is a further variant of the same experiment, that one, as `backends` names it."""


@dataclass(frozen=True, kw_only=True)
class CostFinding:
    """Something in a run's steps that costs time."""

    kind: Kind
    label: str
    seconds: float | None
    """Seconds of a step: the most that a remedy could save, for graph breaks the least; None where
    the saving is unknown."""
    share: float | None = None
    """Of the run's step, the same."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was seen, by name: the evidence."""
    remedy: Remedy | None = None
    also: tuple[tuple[str, float | None], ...] = ()
    """Labels of other runs that have the same, and the seconds at stake there."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A profiled run with its profile and further facts."""

    spec: ExperimentSpec
    variant: Variant
    text: str | None
    """The run's backend as the experiment names it; None for baseline and controls."""
    profile: Profile
    baseline: Profile | None
    """None for the baseline itself."""
    workload: dict[str, Any]
    breaks: pd.DataFrame
    """Graph breaks of the run: location, reason, count."""
    frames: pd.DataFrame
    """Compiled frames of the run."""

    @property
    def step_seconds(self) -> float:
        """By the clock, or, without a timed step, by the profiler."""
        return self.profile.step_seconds or self.profile.busy_seconds

    @property
    def is_compiled(self) -> bool:
        return self.variant.backend is not None

    def share(self, seconds: float) -> float:
        return seconds / self.step_seconds

    def seconds(self, *classes: str) -> float:
        return float(self.profile.by_class[list(classes)].sum())

    def found(
        self, kind: Kind, seconds: float | None, remedy: Remedy | None = None, **facts: Any
    ) -> CostFinding:
        share = None if seconds is None else self.share(seconds)
        label = self.profile.label
        if self.spec.is_script and remedy is not None and remedy.backend is None:
            remedy = None  # what a script computes, and how, only its author can change
        return CostFinding(
            kind=kind, label=label, seconds=seconds, share=share, facts=facts, remedy=remedy
        )

    def with_setting(self, name: str, value: str) -> Remedy | None:
        """The run's backend with one setting more, unless it has it; None where there is none."""
        if self.text is None or self.variant.backend != "inductor":
            return None
        separator = "+" if ":" in self.text else ":"
        text = f"{self.text}{separator}{name}={value}"
        if text in self.spec.backends:
            return None
        return Remedy(fields=(("backends", (*self.spec.backends, text)),), backend=text)


def variant_of(spec: ExperimentSpec, label: str) -> tuple[Variant, str | None]:
    """The variant that a result is of, and how the experiment's `backends` name it."""
    first = spec.repeats_by_label[label][0]
    variant = next(one for one in spec.possible_variants if one.label == first)
    labels = [one.label for one in parse_backends(spec.backends)]
    return variant, dict(zip(labels, spec.backends, strict=True)).get(label)


def attention_unfused(case: Case) -> Iterator[CostFinding]:
    """The baseline's attention is one kernel; the run's is products and a softmax, and takes
    longer."""
    if case.baseline is None or not case.is_compiled:
        return
    before = float(case.baseline.by_class[list(FUSED_ATTENTION)].sum())
    after = case.seconds(*FUSED_ATTENTION)
    softmax = case.seconds("attention_math")
    if before < MIN_SHARE / 2 * (case.baseline.step_seconds or 1.0) or after > before / 10:
        return
    products = sum(
        max(0.0, case.seconds(name) - float(case.baseline.by_class[name])) for name in MATMUL
    )
    cost = softmax + products + after - before
    if softmax and case.share(cost) >= MIN_SHARE:
        yield case.found(
            "attention_unfused", cost, _reduced_attention(case),
            fused_seconds=before, softmax_seconds=softmax, product_seconds=products,
            float32_seconds=case.seconds("matmul_float32"),
        )  # fmt: skip


def float32_products(case: Case) -> Iterator[CostFinding]:
    """Products in float32 in an experiment with half precision."""
    seconds = case.seconds("matmul_float32")
    precision = case.spec.training.precision
    if any(attention_unfused(case)):  # which says so, too
        return
    if precision in ("bf16", "fp16") and case.share(seconds) >= MIN_SHARE:
        yield case.found(
            "float32_products", seconds, _reduced_attention(case),
            precision=precision, kernel=_longest(case, "matmul_float32"),
        )  # fmt: skip


def tf32_off(case: Case) -> Iterator[CostFinding]:
    """Products in float32 on a device whose kernels show that it has tensor cores."""
    seconds = case.seconds("matmul_float32")
    names = case.profile.kernels["name"].str
    has_tensor_cores = case.profile.works_by_itself and bool(
        names.contains(r"sm(?:8|9|10|12)\d|cutlass_[89]0|nvjet|ampere_", regex=True).any()
    )
    is_exact = case.spec.training.precision == "float32" and case.spec.settings == "plain"
    if is_exact and has_tensor_cores and case.share(seconds) >= MUCH:
        change = (("training.precision", "tf32"),)
        yield case.found("tf32_off", seconds, Remedy(fields=change))


def device_idle(case: Case) -> Iterator[CostFinding]:
    """The device waits for the host."""
    idle = case.profile.idle_seconds
    if not case.profile.works_by_itself or idle is None or case.share(idle) < MUCH:
        return
    remedy = None
    if case.is_compiled and not case.variant.captures_cuda_graphs:
        remedy = case.with_setting("mode", "reduce-overhead") if case.variant.mode is None else None
    yield case.found(
        "device_idle", idle, remedy,
        launches=float(case.profile.middle["launches"]),
        replays_graphs=case.variant.captures_cuda_graphs, host=case.profile.middle["host_seconds"],
    )  # fmt: skip


def underfilled(case: Case) -> Iterator[CostFinding]:
    """Kernels with fewer blocks than the device has processors."""
    seconds = float(case.profile.middle["underfilled_seconds"] or 0.0) * case.profile.scale
    if case.profile.works_by_itself and case.share(seconds) >= MUCH:
        size = case.spec.training.batch_size
        change = (("training.batch_size", 2 * size),)
        known = None if case.spec.is_script else size
        yield case.found("underfilled", seconds, Remedy(fields=change), batch_size=known)


def graph_breaks(case: Case) -> Iterator[CostFinding]:
    """Lines at which the compiler gave up within a step, more often than once in the run."""
    breaks = case.breaks
    if not case.is_compiled or breaks.empty:
        return
    counted = breaks.groupby("location", sort=False)["count"].sum().sort_values(ascending=False)
    between = host_seconds(case.profile.middle).get("between_graphs") or None
    if between is not None and not case.profile.works_by_itself:
        between *= case.profile.scale
    cost = between
    if between is not None and case.profile.works_by_itself:
        cost = min(between, case.profile.idle_seconds or 0.0)  # what the device does not hide
    yield case.found(
        "graph_breaks", cost, lines=list(counted.index.dropna()[:3]), distinct=len(counted),
        reason=str(breaks["reason"].iloc[0]), between_seconds=between,
    )  # fmt: skip


def recompiled(case: Case) -> Iterator[CostFinding]:
    """Code that was compiled more than once because something it relied on changed."""
    again = case.frames[case.frames["recompile_reason"].notna()]
    if not again.empty:
        yield case.found(
            "recompiled", None, times=len(again), total_seconds=float(again["total_seconds"].sum()),
            reason=str(again["recompile_reason"].iloc[0]), function=str(again["function"].iloc[0]),
        )  # fmt: skip


def random_as_eager(case: Case) -> Iterator[CostFinding]:
    """Random numbers drawn by kernels of their own, as without a compiler, so that they agree."""
    seconds = case.seconds("random")
    if case.variant.backend == "inductor" and case.share(seconds) >= MIN_SHARE:
        yield case.found("random_as_eager", seconds, case.with_setting("fallback_random", "false"))


def padding(case: Case) -> Iterator[CostFinding]:
    """Tokens that mean nothing; at stake is their share of the work that grows with tokens."""
    share = case.workload.get("padding_share") or 0.0
    seconds = _of_tokens(case.profile)
    if case.baseline is not None and hides_optimizer(case.baseline, case.profile):
        seconds = min(seconds, _of_tokens(case.baseline))
    cost = share * seconds
    if share >= 0.2 and case.share(cost) >= MIN_SHARE:
        yield case.found("padding", cost, padding_share=share)


def _of_tokens(profile: Profile) -> float:
    """Seconds of work that grows with tokens."""
    kernels = profile.kernels
    grows = (kernels["phase"] != "optimizer") & ~kernels["work_class"].isin(NOT_OF_TOKENS)
    return float(kernels.loc[grows, "seconds"].sum())


def small_kernels(case: Case) -> Iterator[CostFinding]:
    """An operator that is started very often for next to nothing."""
    kernels = case.profile.kernels
    by_op = kernels[kernels["op"].notna()].groupby(["op", "phase"], dropna=False)
    sums = by_op[["calls", "seconds"]].sum().reset_index()
    small = sums[(sums["calls"] >= MANY_CALLS)
                 & (sums["seconds"] < SMALL_KERNEL_SECONDS * sums["calls"])]  # fmt: skip
    idle = case.profile.idle_share or 0.0
    if small.empty or not case.profile.works_by_itself or idle < MUCH:
        return
    worst = small.loc[small["calls"].idxmax()]
    launches = float(case.profile.middle["launches"])
    calls = float(worst["calls"])
    # The host's share of what it starts is what the device waits for.
    cost = (case.profile.idle_seconds or 0.0) * calls / max(launches, calls)
    if case.share(cost) >= MIN_SHARE:
        yield case.found("small_kernels", cost, op=worst["op"], calls=calls, phase=worst["phase"],
                         kernel_seconds=float(worst["seconds"]))  # fmt: skip


def costly_kernel(case: Case) -> Iterator[CostFinding]:
    """One kernel of generated code that takes more than the baseline spends on all such work."""
    if case.baseline is None or not case.is_compiled:
        return
    generated = case.profile.kernels[case.profile.kernels["name"].str.startswith("triton_")]
    if generated.empty:
        return
    worst = generated.loc[generated["seconds"].idxmax()]
    work_class = str(worst["work_class"])
    before = float(case.baseline.by_class[work_class])
    cost = float(worst["seconds"]) - before
    others_say_it = ("fused", "optimizer", "attention_math")
    if work_class not in others_say_it and case.share(cost) >= MUCH:
        yield case.found("costly_kernel", cost, kernel=worst["name"], work_class=work_class,
                         kernel_seconds=float(worst["seconds"]), calls=float(worst["calls"]),
                         baseline_seconds=before)  # fmt: skip


def fell_back(case: Case) -> Iterator[CostFinding]:
    """A kernel of torch's own in a step of generated code, where the operator could be part of it;
    random numbers, products and attention have such kernels on purpose."""
    if case.variant.backend != "inductor" or not case.profile.works_by_itself:
        return
    kernels = case.profile.kernels
    is_own = ~kernels["name"].str.startswith("triton_") & kernels["work_class"].isin(OWN_KERNELS)
    mine = kernels[is_own & (kernels["phase"] != "optimizer")]
    if mine.empty:
        return
    worst = mine.loc[mine["seconds"].idxmax()]
    cost = float(worst["seconds"])
    if case.share(cost) >= MIN_SHARE:
        op = worst["op"] if isinstance(worst["op"], str) else None  # a replayed graph hides it
        yield case.found("fell_back", cost, kernel=worst["name"], op=op, kernel_seconds=cost)


def optimizer_unfused(case: Case) -> Iterator[CostFinding]:
    """The optimizer's arithmetic in many passes over all weights."""
    kernels = case.profile.kernels
    mine = kernels[(kernels["phase"] == "optimizer") & (kernels["work_class"] == "optimizer")]
    is_fused = mine["op"].fillna("").str.contains("_fused_").any()
    seconds = float(mine["seconds"].sum())
    known = case.spec.training.optimizer in ("Adam", "AdamW", "SGD", "Adagrad")
    if known and not is_fused and case.share(seconds) >= 0.05:
        options = {**case.spec.training.optimizer_options, "fused": True}
        change = (("training.optimizer_options", options),)
        yield case.found("optimizer_unfused", seconds, Remedy(fields=change),
                         kernels=float(mine["calls"].sum()))  # fmt: skip


def copied_each_step(case: Case) -> Iterator[CostFinding]:
    """Data that travel between host and device within a step."""
    kernels = case.profile.kernels
    mine = kernels[kernels["work_class"] == "transfers"]
    to_host = mine[mine["name"].str.contains("DtoH")]["calls"].sum()
    seconds = float(mine["seconds"].sum())
    if to_host >= 1 or case.share(seconds) >= MIN_SHARE:
        yield case.found("copied_each_step", seconds, calls=float(mine["calls"].sum()),
                         waits=float(to_host))  # fmt: skip


def optimizer_compiled_long(case: Case) -> Iterator[CostFinding]:
    """The optimizer took longer to compile than all else of the training together."""
    seconds = case.frames["total_seconds"].fillna(0.0)
    # Further rows of a frame, as of a backward pass, have its number alone.
    updates = case.frames["file"].fillna("").str.startswith("torch/optim/")
    mine = case.frames["compile_id"].isin(case.frames.loc[updates, "compile_id"])
    saved, rest = float(seconds[mine].sum()), float(seconds[~mine].sum())
    if saved > rest:
        is_open = case.variant.scope == "iteration" and "scope=" not in (case.text or "")
        yield case.found(
            "optimizer_compiled_long", None,
            case.with_setting("scope", "forward") if is_open else None,
            optimizer_seconds=saved, rest_seconds=rest,
        )  # fmt: skip


RULES: tuple[Callable[[Case], Iterator[CostFinding]], ...] = (
    attention_unfused, float32_products, tf32_off, device_idle, underfilled, graph_breaks,
    recompiled, random_as_eager, padding, small_kernels, costly_kernel, fell_back,
    optimizer_unfused, copied_each_step, optimizer_compiled_long,
)  # fmt: skip


def _reduced_attention(case: Case) -> Remedy | None:
    if case.spec.training.precision not in ("bf16", "fp16"):
        return None
    return case.with_setting("math_attention", "reduced")


def _longest(case: Case, work_class: str) -> str:
    kernels = case.profile.kernels
    return str(kernels[kernels["work_class"] == work_class].iloc[0]["name"])


def findings(cases: Sequence[Case]) -> list[CostFinding]:
    """One of each kind, that of the run which it costs most, with the others that have it. The most
    costly first; those without a cost last."""
    found = [one for case in cases if case.profile.is_known for rule in RULES for one in rule(case)]
    by_kind: dict[Kind, list[CostFinding]] = {}
    for one in sorted(found, key=lambda one: -(one.share or 0.0)):
        by_kind.setdefault(one.kind, []).append(one)
    return [
        replace(first, also=tuple((other.label, other.seconds) for other in others))
        for first, *others in by_kind.values()
    ]
