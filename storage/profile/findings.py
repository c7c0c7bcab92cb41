"""Finds causes of slow steps: one rule for each cause that users can change.

A rule compares a run's profile with the baseline's and returns data; the sentences are in
`storage/words/findings.py`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pandas as pd

from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK, Arm
from breakeven.runner.specs.backends import parse_backends
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.profile.guards import change_in
from breakeven.storage.profile.kernel_classes import FUSED_ATTENTION, MATMUL
from breakeven.storage.profile.recorded_profiles import Profile, hides_optimizer, host_seconds

Kind = Literal[
    "attention_unfused",
    "float32_products",
    "tf32_off",
    "device_idle",
    "underfilled",
    "given_up",
    "graph_breaks",
    "recompiled",
    "shapes_vary",
    "random_as_eager",
    "padding",
    "small_kernels",
    "costly_kernel",
    "fell_back",
    "optimizer_unfused",
    "copied_each_step",
    "optimizer_compiled_long",
]
MIN_SHARE = 0.02
"""Smallest share of a step that is reported."""
LARGE_SHARE = 0.10
"""Share of a step from which a cost is reported that nearly every run has a little of."""
SMALL_KERNEL_SECONDS = 5e-6
"""Approximate time to start a kernel; a shorter kernel takes longer to start than to run."""
MANY_CALLS = 100
MAX_NAMED = 3
"""Lines, functions and operators that a finding names."""
GIVEN_UP = ("function", "failure", "location", "operator")
"""What is known of a frame that Dynamo gave up on."""
RECOMPILE_LIMIT = re.compile("recompile limit|recompile_limit|cache_size_limit")
"""In the reason of a frame that Dynamo gave up on at its limit of compilations."""
OWN_KERNELS = ("indexing", "normalisation", "loss", "other")
"""Classes that Inductor usually fuses; otherwise torch's own kernels compute them."""
NOT_OF_TOKENS = ("optimizer", "transfers", "communication", "bookkeeping")
"""Classes whose time does not depend on the number of tokens."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change of the experiment that tests a finding."""

    fields: tuple[tuple[str, Any], ...]
    """Fields of the specification, by path, and their new values."""
    backend: str | None = None
    """The added backend, as written in `backends`, if the change is a further arm."""


@dataclass(frozen=True, kw_only=True)
class CostFinding:
    """A cause of slow steps in a run."""

    kind: Kind
    label: str
    seconds: float | None
    """Seconds per step: the largest possible saving, for graph breaks the smallest; None if
    unknown."""
    share: float | None = None
    """The same as a share of the run's step."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The evidence, by name."""
    remedy: Remedy | None = None
    also: tuple[tuple[str, float | None], ...] = ()
    """Labels of other runs with the same finding, and their seconds."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A profiled run with its profile and further facts."""

    spec: ExperimentSpec
    arm: Arm
    text: str | None
    """The run's backend as written in the specification; None for baseline and controls."""
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
        """Step time from the timed rounds, or, without a timed step, from the profiler."""
        return self.profile.step_seconds or self.profile.busy_seconds

    @property
    def is_compiled(self) -> bool:
        return self.arm.backend is not None

    def share(self, seconds: float) -> float:
        return seconds / self.step_seconds

    def seconds(self, *classes: str) -> float:
        return float(self.profile.by_class[list(classes)].sum())

    def finding(
        self, kind: Kind, seconds: float | None, remedy: Remedy | None = None, **facts: Any
    ) -> CostFinding:
        share = None if seconds is None else self.share(seconds)
        label = self.profile.label
        if remedy is not None and not self.spec.workload.can_change(remedy.fields[0][0]):
            remedy = None
        return CostFinding(
            kind=kind, label=label, seconds=seconds, share=share, facts=facts, remedy=remedy
        )

    def with_setting(self, name: str, value: str) -> Remedy | None:
        """The run's backend with one more setting; None unless it is new and of `inductor`."""
        if self.text is None or self.arm.backend != "inductor":
            return None
        separator = "+" if ":" in self.text else ":"
        text = f"{self.text}{separator}{name}={value}"
        if text in self.spec.backends:
            return None
        return Remedy(fields=(("backends", (*self.spec.backends, text)),), backend=text)


def arm_of(spec: ExperimentSpec, label: str) -> tuple[Arm, str | None]:
    """The arm of a result, and its text in the experiment's `backends`."""
    first = spec.repeats_by_label[label][0]
    arm = next(possible for possible in spec.possible_arms if possible.label == first)
    labels = [parsed.label for parsed in parse_backends(spec.backends)]
    return arm, dict(zip(labels, spec.backends, strict=True)).get(
        label.partition(ENVIRONMENT_MARK)[0]
    )


def attention_unfused(case: Case) -> Iterator[CostFinding]:
    """The baseline's attention is one kernel; the run's attention is matrix products and a softmax,
    and takes longer."""
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
        yield case.finding(
            "attention_unfused",
            cost,
            _reduced_attention(case),
            fused_seconds=before,
            softmax_seconds=softmax,
            product_seconds=products,
            float32_seconds=case.seconds("matmul_float32"),
        )


def float32_products(case: Case) -> Iterator[CostFinding]:
    """Matrix products in float32 in an experiment with half precision."""
    seconds = case.seconds("matmul_float32")
    precision = case.spec.training.precision
    if any(attention_unfused(case)):  # this finding includes float32 products
        return
    if precision in ("bf16", "fp16") and case.share(seconds) >= MIN_SHARE:
        yield case.finding(
            "float32_products",
            seconds,
            _reduced_attention(case),
            precision=precision,
            kernel=_longest(case, "matmul_float32"),
        )


def tf32_off(case: Case) -> Iterator[CostFinding]:
    """Matrix products in float32 on a device whose kernels show that it has tensor cores."""
    seconds = case.seconds("matmul_float32")
    names = case.profile.kernels["name"].str
    has_tensor_cores = case.profile.works_by_itself and bool(
        names.contains(r"sm(?:8|9|10|12)\d|cutlass_[89]0|nvjet|ampere_", regex=True).any()
    )
    is_exact = case.spec.training.precision == "float32" and case.spec.settings == "plain"
    if is_exact and has_tensor_cores and case.share(seconds) >= LARGE_SHARE:
        change = (("training.precision", "tf32"),)
        yield case.finding("tf32_off", seconds, Remedy(fields=change))


def device_idle(case: Case) -> Iterator[CostFinding]:
    """The device waits for the host."""
    idle = case.profile.idle_seconds
    if not case.profile.works_by_itself or idle is None or case.share(idle) < LARGE_SHARE:
        return
    remedy = None
    if case.is_compiled and not case.arm.captures_cuda_graphs:
        remedy = case.with_setting("mode", "reduce-overhead") if case.arm.mode is None else None
    yield case.finding(
        "device_idle",
        idle,
        remedy,
        launches=float(case.profile.middle["launches"]),
        replays_graphs=case.arm.captures_cuda_graphs,
        host=case.profile.middle["host_seconds"],
    )


def underfilled(case: Case) -> Iterator[CostFinding]:
    """Kernels with fewer blocks than the device has multiprocessors."""
    seconds = float(case.profile.middle["underfilled_seconds"] or 0.0) * case.profile.scale
    if case.profile.works_by_itself and case.share(seconds) >= LARGE_SHARE:
        size = case.spec.training.batch_size
        change = (("training.batch_size", 2 * size),)
        known = size if case.spec.workload.is_specified else None
        yield case.finding("underfilled", seconds, Remedy(fields=change), batch_size=known)


def given_up(case: Case) -> Iterator[CostFinding]:
    """Functions that run without a compiler, because Dynamo gave up on them."""
    failed = _given_up(case)
    if not failed.empty:
        first = failed.iloc[0]
        yield case.finding(
            "given_up",
            None,
            functions=_first_distinct(failed["function"]),
            lines=_first_distinct(failed["location"]),
            operators=_first_distinct(failed["operator"]),
            reason=str(first["failure"]),
        )


def graph_breaks(case: Case) -> Iterator[CostFinding]:
    """Lines at which the compiler split the graph of a step, unless a function was given up there,
    which says it already."""
    breaks = case.breaks
    if not case.is_compiled or breaks.empty:
        return
    known = set(_given_up(case)["location"].dropna())
    breaks = breaks[~breaks["location"].isin(known)]
    if breaks.empty:
        return
    host = host_seconds(case.profile.middle) if case.profile.is_known else {}
    between = host.get("between_graphs") or None
    counted = breaks.groupby("location", sort=False)["count"].sum().sort_values(ascending=False)
    if between is not None and not case.profile.works_by_itself:
        between *= case.profile.scale
    cost = between
    if between is not None and case.profile.works_by_itself:
        cost = min(between, case.profile.idle_seconds or 0.0)  # only while the device is idle
    yield case.finding(
        "graph_breaks",
        cost,
        lines=list(counted.index.dropna()[:3]),
        distinct=len(counted),
        reason=str(breaks["reason"].iloc[0]),
        operators=_first_distinct(_texts(breaks, "operator")),
        between_seconds=between,
    )


def _given_up(case: Case) -> pd.DataFrame:
    """Frames that Dynamo gave up on, except at its limit of compilations."""
    frames = pd.DataFrame({name: _texts(case.frames, name) for name in GIVEN_UP})
    is_limit = frames["failure"].map(_is_limit).astype(bool)
    return frames[frames["failure"].notna() & ~is_limit & case.is_compiled]


def _texts(frame: pd.DataFrame, name: str) -> "pd.Series[Any]":
    """A column of texts, without a value where the journal has none."""
    if name not in frame:
        return pd.Series(None, index=frame.index, dtype=object)
    return frame[name].astype(object)


def _is_limit(failure: object) -> bool:
    """Whether Dynamo gave up on a frame because it had compiled it too often."""
    return isinstance(failure, str) and RECOMPILE_LIMIT.search(failure) is not None


def _first_distinct(values: "pd.Series[Any]") -> list[str]:
    """The first distinct texts, in their order."""
    return list(values.dropna().unique()[:MAX_NAMED])


def recompiled(case: Case) -> Iterator[CostFinding]:
    """Code that was compiled more than once because a guard failed; the reason is the most
    frequent kind of change. Shapes that are known to vary are a finding of their own."""
    again = case.frames[case.frames["recompile_reason"].notna()]
    kinds = again["recompile_reason"].map(lambda reason: change_in(reason)[0])
    if _num_shapes(case) > 1:
        again = again[kinds != "size"]
        kinds = kinds[again.index]
    if again.empty:
        return
    # The first steps of every optimizer create its state.
    counts = kinds[kinds != "optimizer state"].value_counts()
    first = again if counts.empty else again[kinds == counts.index[0]]
    yield case.finding(
        "recompiled",
        None,
        times=len(again),
        total_seconds=float(again["total_seconds"].sum()),
        reason=str(first["recompile_reason"].iloc[0]),
        function=next(iter(_first_distinct(first["function"])), "a function"),
        is_over=_is_over(case),
    )


def shapes_vary(case: Case) -> Iterator[CostFinding]:
    """Inputs of several shapes, which cost compilations, or a CUDA graph for each shape."""
    if not case.is_compiled or _num_shapes(case) < 2:
        return
    again = case.frames[case.frames["recompile_reason"].notna()]
    is_size = again["recompile_reason"].map(lambda reason: change_in(reason)[0] == "size")
    again = again[is_size.astype(bool)]
    has_graphs = case.arm.captures_cuda_graphs
    if again.empty and not has_graphs:
        return
    yield case.finding(
        "shapes_vary",
        None,
        _any_shape(case),
        **_input_shapes(case),
        times=len(again),
        total_seconds=float(again["total_seconds"].sum()),
        is_over=_is_over(case),
        has_graphs=has_graphs,
    )


def _input_shapes(case: Case) -> dict[str, Any]:
    """What the run of a script recorded of the shapes of its inputs; empty if unknown."""
    shapes = case.workload.get("input_shapes")
    return shapes if isinstance(shapes, dict) and None not in shapes.values() else {}


def _num_shapes(case: Case) -> int:
    """Different shapes of a model's inputs; 0 if unknown."""
    return int(_input_shapes(case).get("distinct", 0))


def _any_shape(case: Case) -> Remedy | None:
    """The run's backend, compiled at once for any shape; without CUDA graphs, of which each shape
    needs one."""
    if not case.arm.captures_cuda_graphs:
        return case.with_setting("dynamic", "true") if case.arm.dynamic is None else None
    text = "inductor:dynamic=true"
    if text in case.spec.backends:
        return None
    return Remedy(fields=(("backends", (*case.spec.backends, text)),), backend=text)


def _is_over(case: Case) -> bool:
    """Whether a function was compiled up to Dynamo's limit."""
    return any(map(_is_limit, _texts(case.frames, "failure")))


def random_as_eager(case: Case) -> Iterator[CostFinding]:
    """Random numbers from separate kernels, as without a compiler, so that they are equal."""
    seconds = case.seconds("random")
    if case.arm.backend == "inductor" and case.share(seconds) >= MIN_SHARE:
        yield case.finding(
            "random_as_eager", seconds, case.with_setting("fallback_random", "false")
        )


def padding(case: Case) -> Iterator[CostFinding]:
    """Padding tokens; the cost is their share of the work that grows with tokens."""
    share = case.workload.get("padding_share") or 0.0
    seconds = _of_tokens(case.profile)
    if case.baseline is not None and hides_optimizer(case.baseline, case.profile):
        seconds = min(seconds, _of_tokens(case.baseline))
    cost = share * seconds
    if share >= 0.2 and case.share(cost) >= MIN_SHARE:
        yield case.finding("padding", cost, padding_share=share)


def _of_tokens(profile: Profile) -> float:
    """Seconds of work that grows with tokens."""
    kernels = profile.kernels
    grows = (kernels["phase"] != "optimizer") & ~kernels["work_class"].isin(NOT_OF_TOKENS)
    return float(kernels.loc[grows, "seconds"].sum())


def small_kernels(case: Case) -> Iterator[CostFinding]:
    """An operator with very many calls of very short kernels."""
    kernels = case.profile.kernels
    by_op = kernels[kernels["op"].notna()].groupby(["op", "phase"], dropna=False)
    sums = by_op[["calls", "seconds"]].sum().reset_index()
    small = sums[
        (sums["calls"] >= MANY_CALLS) & (sums["seconds"] < SMALL_KERNEL_SECONDS * sums["calls"])
    ]
    idle = case.profile.idle_share or 0.0
    if small.empty or not case.profile.works_by_itself or idle < LARGE_SHARE:
        return
    worst = small.loc[small["calls"].idxmax()]
    launches = float(case.profile.middle["launches"])
    calls = float(worst["calls"])
    # The idle time is divided among operators by their number of launches.
    cost = (case.profile.idle_seconds or 0.0) * calls / max(launches, calls)
    if case.share(cost) >= MIN_SHARE:
        yield case.finding(
            "small_kernels",
            cost,
            op=worst["op"],
            calls=calls,
            phase=worst["phase"],
            kernel_seconds=float(worst["seconds"]),
        )


def costly_kernel(case: Case) -> Iterator[CostFinding]:
    """A generated kernel that takes longer than the baseline's whole work of its class."""
    if case.baseline is None or not case.is_compiled:
        return
    generated = case.profile.kernels[case.profile.kernels["name"].str.startswith("triton_")]
    if generated.empty:
        return
    worst = generated.loc[generated["seconds"].idxmax()]
    work_class = str(worst["work_class"])
    before = float(case.baseline.by_class[work_class])
    cost = float(worst["seconds"]) - before
    classes_of_other_findings = ("fused", "optimizer", "attention_math")
    if work_class not in classes_of_other_findings and case.share(cost) >= LARGE_SHARE:
        yield case.finding(
            "costly_kernel",
            cost,
            kernel=worst["name"],
            work_class=work_class,
            kernel_seconds=float(worst["seconds"]),
            calls=float(worst["calls"]),
            baseline_seconds=before,
        )


def fell_back(case: Case) -> Iterator[CostFinding]:
    """One of torch's own kernels in compiled code, though Inductor could fuse its operator; random
    numbers, matrix products and attention use such kernels on purpose."""
    if case.arm.backend != "inductor" or not case.profile.works_by_itself:
        return
    kernels = case.profile.kernels
    is_own = ~kernels["name"].str.startswith("triton_") & kernels["work_class"].isin(OWN_KERNELS)
    own_kernels = kernels[is_own & (kernels["phase"] != "optimizer")]
    if own_kernels.empty:
        return
    worst = own_kernels.loc[own_kernels["seconds"].idxmax()]
    cost = float(worst["seconds"])
    if case.share(cost) >= MIN_SHARE:
        op = worst["op"] if isinstance(worst["op"], str) else None  # a replayed graph hides it
        yield case.finding("fell_back", cost, kernel=worst["name"], op=op, kernel_seconds=cost)


def optimizer_unfused(case: Case) -> Iterator[CostFinding]:
    """The optimizer computes in many passes over all weights."""
    kernels = case.profile.kernels
    updates = kernels[(kernels["phase"] == "optimizer") & (kernels["work_class"] == "optimizer")]
    is_fused = updates["op"].fillna("").str.contains("_fused_").any()
    seconds = float(updates["seconds"].sum())
    has_fused_form = case.spec.training.optimizer in ("Adam", "AdamW", "SGD", "Adagrad")
    if has_fused_form and not is_fused and case.share(seconds) >= 0.05:
        options = {**case.spec.training.optimizer_options, "fused": True}
        change = (("training.optimizer_options", options),)
        yield case.finding(
            "optimizer_unfused",
            seconds,
            Remedy(fields=change),
            kernels=float(updates["calls"].sum()),
        )


def copied_each_step(case: Case) -> Iterator[CostFinding]:
    """Data is copied between host and device within a step."""
    kernels = case.profile.kernels
    transfers = kernels[kernels["work_class"] == "transfers"]
    to_host = transfers[transfers["name"].str.contains("DtoH")]["calls"].sum()
    seconds = float(transfers["seconds"].sum())
    if to_host >= 1 or case.share(seconds) >= MIN_SHARE:
        yield case.finding(
            "copied_each_step", seconds, calls=float(transfers["calls"].sum()), waits=float(to_host)
        )


def optimizer_compiled_long(case: Case) -> Iterator[CostFinding]:
    """The optimizer took longer to compile than the rest of the training."""
    seconds = case.frames["total_seconds"].fillna(0.0)
    # Further rows of a frame, such as its backward pass, have only its id.
    updates = case.frames["file"].fillna("").str.startswith("torch/optim/")
    is_update = case.frames["compile_id"].isin(case.frames.loc[updates, "compile_id"])
    optimizer_seconds, rest_seconds = (
        float(seconds[is_update].sum()),
        float(seconds[~is_update].sum()),
    )
    if optimizer_seconds > rest_seconds:
        is_open = case.arm.scope == "iteration" and "scope=" not in (case.text or "")
        yield case.finding(
            "optimizer_compiled_long",
            None,
            case.with_setting("scope", "forward") if is_open else None,
            optimizer_seconds=optimizer_seconds,
            rest_seconds=rest_seconds,
        )


RULES: tuple[Callable[[Case], Iterator[CostFinding]], ...] = (
    attention_unfused,
    float32_products,
    tf32_off,
    device_idle,
    underfilled,
    given_up,
    graph_breaks,
    recompiled,
    shapes_vary,
    random_as_eager,
    padding,
    small_kernels,
    costly_kernel,
    fell_back,
    optimizer_unfused,
    copied_each_step,
    optimizer_compiled_long,
)


OF_COMPILING = (given_up, graph_breaks, recompiled, shapes_vary, optimizer_compiled_long)
"""Rules that need no profile, but what the compiler reported."""


def _reduced_attention(case: Case) -> Remedy | None:
    if case.spec.training.precision not in ("bf16", "fp16"):
        return None
    return case.with_setting("math_attention", "reduced")


def _longest(case: Case, work_class: str) -> str:
    kernels = case.profile.kernels
    return str(kernels[kernels["work_class"] == work_class].iloc[0]["name"])


def findings(cases: Sequence[Case]) -> list[CostFinding]:
    """One finding of each kind, from the run with the highest cost, with the other runs that have
    it. The most costly first; findings without a cost last."""
    of_all_cases = [
        finding
        for case in cases
        for rule in (RULES if case.profile.is_known else OF_COMPILING)
        for finding in rule(case)
    ]
    by_kind: dict[Kind, list[CostFinding]] = {}
    of_all_cases.sort(key=lambda finding: -(finding.share or 0.0))
    for finding in of_all_cases:
        by_kind.setdefault(finding.kind, []).append(finding)
    return [
        replace(first, also=tuple((other.label, other.seconds) for other in others))
        for first, *others in by_kind.values()
    ]
