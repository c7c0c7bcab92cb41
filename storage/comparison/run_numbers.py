"""Computes the numbers of one run from its series, without comparing it with another run."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Precision
from breakeven.storage.comparison.evidence import Evidence, number


@dataclass(frozen=True, kw_only=True)
class RunNumbers:
    """The numbers of a run, named as in METRICS. None means undefined or unmeasured."""

    num_steps: int
    """Recorded steps."""
    step_seconds: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    real_tokens_per_second: float | None
    flops_per_second: float | None
    peak_share: float | None
    energy_per_step: float | None
    """None without a readable counter, and if several devices share a run."""
    compile_seconds: float | None
    warm_compile_seconds: float | None
    """Of a later start with the compile caches of the first one."""
    peak_memory_bytes: int | None
    compile_peak_memory_bytes: int | None
    allocated_memory_bytes: int | None
    accuracy: float | None
    eval_loss: float | None
    metrics: dict[str, float]
    """All defined metrics of the last evaluation without a compiler, by name."""
    final_loss: float | None
    graph_breaks: int | None
    """None for a run that compiled nothing, as `distinct_graph_breaks`."""
    recompiles: int | None
    """None if Dynamo reported no frame, as `guards`."""
    distinct_graph_breaks: int | None
    guards: int | None


def measure(spec: ExperimentSpec, run: Evidence) -> RunNumbers:
    """The numbers of a run from its present data."""
    # A script that starts again may leave something of its former training in memory.
    first = run.first_training
    steady = first[first["steady"].to_numpy(bool)]
    steady = run.steady_blocks if steady.empty else steady
    flops_per_second = _per_second(run, run.workload.get("flops_per_step"))
    breaks = run.compiling.graph_breaks if run.has_compiled else None
    frames = run.compiling.frames
    precision = spec.precision or run.workload.get("precision")
    return RunNumbers(
        num_steps=len(run.steps),
        step_seconds=run.step_seconds,
        samples_per_second=_per_second(run, run.per_step("samples")),
        tokens_per_second=_per_second(run, run.per_step("tokens")),
        real_tokens_per_second=_real_tokens_per_second(run),
        flops_per_second=flops_per_second,
        peak_share=_peak_share(run, flops_per_second, precision),
        energy_per_step=_energy_per_step(run),
        compile_seconds=run.compile_seconds,
        warm_compile_seconds=run.later_compile_seconds,
        peak_memory_bytes=memory_needed(steady, on_cpu=run.computes_on_cpu),
        compile_peak_memory_bytes=memory_needed(
            first[MEMORY][first["compiled"].to_numpy(bool)], on_cpu=run.computes_on_cpu
        ),
        allocated_memory_bytes=None if run.computes_on_cpu else _most(steady["peak_memory_bytes"]),
        accuracy=run.last_evaluation("accuracy"),
        eval_loss=run.last_evaluation("loss"),
        metrics=_last_scores(run, spec.evaluation.primary_split),
        final_loss=final_loss(run.learning.losses),
        graph_breaks=None if breaks is None else int(breaks["count"].fillna(1).sum()),
        recompiles=int(frames["recompile_reason"].notna().sum()) if len(frames) else None,
        distinct_graph_breaks=None
        if breaks is None
        else len({*zip(breaks["location"], breaks["reason"], strict=True)}),
        guards=_whole_number(frames["guards"].sum(min_count=1)),
    )


@dataclass(frozen=True, kw_only=True)
class CapturedGraphs:
    """What Dynamo captured in training; numbers are None if it reported no frame."""

    num_operations: int | None
    """Operations of all graphs."""
    num_graphs: int | None
    """Graphs with any operation."""
    num_break_reasons: int | None
    """Distinct reasons for graph breaks; None for a run that compiled nothing."""

    @property
    def has_compiled(self) -> bool:
        """Whether anything was compiled in the run."""
        return self.num_break_reasons is not None


def captured(run: Evidence) -> CapturedGraphs:
    """The graphs of a run from its present data."""
    operations = run.compiling.frames["graph_ops"].dropna()
    reasons = run.compiling.graph_breaks["reason"] if run.has_compiled else None
    return CapturedGraphs(
        num_operations=int(operations.sum()) if len(operations) else None,
        num_graphs=int((operations > 0).sum()) if len(operations) else None,
        num_break_reasons=None if reasons is None else reasons.nunique(),
    )


def _energy_per_step(run: Evidence) -> float | None:
    """Joules of the steady blocks with measured energy, divided by their steps; None if the blocks
    were too short for the device's counter to advance."""
    names = ("energy_joules", "num_steps")
    energy, steps = (run.steady_device[name].to_numpy(dtype=float) for name in names)
    known = ~(np.isnan(energy) | np.isnan(steps))
    joules = energy[known].sum()
    return number(joules / steps[known].sum()) if joules > 0 else None


MEMORY = ["peak_memory_bytes", "reserved_memory_bytes"]


def memory_needed(blocks: pd.DataFrame, *, on_cpu: bool) -> int | None:
    """Bytes that a device needs for these blocks: the most memory that the allocator reserved from
    the driver; on the CPU the most resident memory. None if not recorded: allocated memory is no
    substitute, because it excludes private pools of captured graphs.
    """
    return _most(blocks["peak_memory_bytes" if on_cpu else "reserved_memory_bytes"])


@np.errstate(invalid="ignore")
def final_loss(losses: pd.Series) -> float | None:
    """Mean over the last tenth of the steps done, at least one; NaN if one of these losses is NaN,
    or if two are infinite with different signs."""
    if losses.empty:
        return None
    return float(losses.iloc[-max(1, len(losses) // 10) :].mean(skipna=False))


def _per_second(run: Evidence, per_step: float | None) -> float | None:
    """Throughput of a quantity with this amount per step."""
    step_seconds = run.step_seconds
    return None if per_step is None or not step_seconds else per_step / step_seconds


def _real_tokens_per_second(run: Evidence) -> float | None:
    """Token throughput without padding."""
    rate, padding = _per_second(run, run.per_step("tokens")), run.workload.get("padding_share")
    return None if rate is None or padding is None else rate * (1 - padding)


def _peak_share(run: Evidence, achieved: float | None, precision: Precision | None) -> float | None:
    """Share of the device's peak; None if the peak is unknown."""
    if achieved is None or precision is None:
        return None
    peak = peak_flops(run.environment.get("device_name"), precision)
    return None if peak is None else achieved / peak


def _last_scores(run: Evidence, split: str) -> dict[str, float]:
    """All metrics of the last evaluation of a split without a compiler, by name."""
    scores = run.learning.scores
    counts = (scores["split"] == split).to_numpy(bool) & ~scores["compiled"].to_numpy(bool)
    steps = np.where(counts, scores["step"].to_numpy(float), np.nan)
    last = steps == np.fmax.reduce(steps, initial=np.nan)
    scores_by_name = zip(scores["name"].array[last], scores["value"][last], strict=True)
    return {str(name): value for name, value in scores_by_name if name != "loss"}


def _most(bytes_of_blocks: pd.Series) -> int | None:
    return _whole_number(bytes_of_blocks.max())


def _whole_number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


TERA = 1e12
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16", "fp16")

A100 = (19.5, 156, 312, 312)
H100_SXM = (67, 494.7, 989.4, 989.4)
H100_NVL = (60, 417.5, 835.5, 835.5)
PEAKS: dict[str, tuple[float | None, ...]] = {
    # CUDA's name of the device: TFLOPS in float32 (CUDA cores), TF32, bf16, fp16 (tensor cores).
    "NVIDIA H100 * HBM3": H100_SXM,  # H100 Tensor Core GPU data sheet, H100 SXM
    "NVIDIA H100 PCIe": (51, 378, 756.5, 756.5),  # H100 Tensor Core GPU data sheet, H100 PCIe
    "NVIDIA H100 NVL": H100_NVL,  # H100 Tensor Core GPU data sheet, H100 NVL
    "NVIDIA H200": H100_SXM,  # H200 Tensor Core GPU data sheet, H200 SXM
    "NVIDIA H200 NVL": H100_NVL,  # H200 Tensor Core GPU data sheet, H200 NVL
    "NVIDIA B200": (75, 1100, 2250, 2250),  # Blackwell data sheet, one GPU of HGX B200
    "NVIDIA A100-*": A100,  # A100 Tensor Core GPU data sheet, alike for SXM and PCIe
    "NVIDIA A100 80GB PCIe": A100,
    "NVIDIA L40S": (91.6, 183, 362, 362),  # L40S data sheet
    "NVIDIA L4": (30.3, 60, 121, 121),  # L4 Tensor Core GPU data sheet
    "NVIDIA A10": (31.2, 62.5, 125, 125),  # A10 Tensor Core GPU data sheet
    "* T4": (8.1, None, None, 65),  # T4 Tensor Core GPU data sheet
    "* V100-SXM2-*": (15.7, None, None, 125),  # V100 Tensor Core GPU data sheet, for NVLink
    "* V100-PCIE-*": (14, None, None, 112),  # V100 Tensor Core GPU data sheet, for PCIe
    "* RTX 4090": (82.6, 82.6, 165.2, 165.2),  # Ada GPU architecture whitepaper, appendix A
    "* RTX 3090": (35.6, 35.6, 71, 71),  # GA102 GPU architecture whitepaper, appendix A
}
"""None if the device has no unit for the precision. The names do not include slices of a device
(MIG) or related models, such as `RTX 4090 Laptop GPU` or `A10G`."""


def peak_flops(device_name: str | None, precision: Precision) -> float | None:
    """Peak operations per second; None for a device that is not listed, such as any CPU."""
    name = device_name or ""
    for pattern, peaks in PEAKS.items():
        if fnmatchcase(name, pattern) and "MIG" not in name.split():
            peak = peaks[PRECISIONS.index(precision)]
            return None if peak is None else peak * TERA
    return None
