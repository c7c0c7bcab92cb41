"""What a comparison comes to: one `Result` per run, and what a reader must know beside them.

`storage.comparison.comparison` computes them; `docs/metrics.md` defines each number.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from runner.specs.experiment import ExperimentSpec
from storage.statistics.parity import Parity
from storage.statistics.speedups import BreakEven, BreakEvenVerdict, Ratio, SpeedVerdict
from storage.statistics.training_loss import LossCheck, check_loss

SCORES = ("f1", "precision", "recall", "roc_auc", "mse", "mae", "perplexity")
"""Metrics that a task may have beside accuracy."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run shows, and how it compares to the baseline. None is undefined or unmeasured."""

    run_id: str
    label: str
    role: str
    backend: str | None
    state: str
    num_steps: int
    """Steps that were done and recorded."""
    step_seconds: float | None
    samples_per_second: float | None
    tokens_per_second: float | None
    real_tokens_per_second: float | None
    flops_per_second: float | None
    peak_share: float | None
    speedup: Ratio | None
    """None for the baseline, and without a round that baseline and run both spent steadily."""
    p_holm: float | None
    speed_verdict: SpeedVerdict | None
    """None for baseline and control, which are what backends are judged by, and without a step."""
    compile_seconds: float | None
    peak_memory_bytes: int | None
    compile_peak_memory_bytes: int | None
    reserved_memory_bytes: int | None
    accuracy: float | None
    eval_loss: float | None
    metrics: dict[str, float]
    """Every metric of the last evaluation that was defined, by name, without a compiler."""
    final_loss: float | None
    parity: Parity | None
    """None for baseline and control."""
    inference_gap: float | None
    training_loss_excess: float | None
    """None for the baseline, and without a hundred steps."""
    break_even: BreakEven | None
    """None for a run that compiled nothing, or without a paired round."""
    graph_breaks: int | None
    recompiles: int | None
    distinct_graph_breaks: int | None
    guards: int | None
    device_doubts: tuple[str, ...] = ()
    """What befell the device while this run was timed; `Comparison.warnings` say it, too."""

    @property
    def training_loss_check(self) -> LossCheck | None:
        """What PyTorch's training_loss.py, corrected, would say: much less than parity does."""
        return check_loss(self.training_loss_excess)

    @property
    def break_even_verdict(self) -> BreakEvenVerdict | None:
        """Whether `break_even` may be read as a number: only of a run that is clearly faster.

        Of any other run the saving may be chance, and with it the steps that repay the compiling.
        Nor is it clear that compiling never pays, unless the run is slower or no end of the gain's
        interval would repay it.
        """
        found = self.break_even
        if found is None:
            return None
        if found.verdict == "never" or (found.never and self.speed_verdict == "slower"):
            return "never"
        return "reached" if self.speed_verdict == "faster" and not found.never else "unsure"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An experiment's results, one per run in the order of its variants."""

    experiment_id: str
    spec: ExperimentSpec
    baseline: str
    """Label of the run that the others are compared to."""
    results: tuple[Result, ...]
    warnings: tuple[str, ...]
    """What a reader must know before believing the numbers."""
    notes: tuple[str, ...]
    """What a reader would not guess of the workload; it holds for all runs alike."""
    noise_floor: float | None
    loss_band: pd.DataFrame = field(compare=False)
    """step, baseline, low, high: where a correct backend's loss must lie, as far as that is known.

    Empty without a control; ends where the control itself strays far.
    """

    def result_of(self, label: str) -> Result:
        """What a run counts towards: its own result, or that of all its repeats together."""
        return next(one for one in self.results if label in self.spec.repeats_by_label[one.label])

    def table(self) -> pd.DataFrame:
        """One row per run; columns named as in METRICS. Undefined is None, never is infinite.

        Of the scores beside accuracy those have a column that any run has.
        """
        table = pd.DataFrame([_table_row(result) for result in self.results], dtype=object)
        for name in SCORES:
            scores = [result.metrics.get(name) for result in self.results]
            if any(score is not None for score in scores):
                table[name] = pd.Series(scores, dtype=object)
        return table


def _table_row(result: Result) -> dict[str, Any]:
    speedup, parity, pays = result.speedup, result.parity, result.break_even
    never = math.inf if pays is not None and pays.never else None
    return {
        "label": result.label,
        "role": result.role,
        "backend": result.backend,
        "state": result.state,
        "step_seconds": result.step_seconds,
        "samples_per_second": result.samples_per_second,
        "tokens_per_second": result.tokens_per_second,
        "real_tokens_per_second": result.real_tokens_per_second,
        "flops_per_second": result.flops_per_second,
        "peak_share": result.peak_share,
        "speedup": speedup and speedup.median,
        "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high,
        "p_holm": result.p_holm,
        "effect_size": speedup and speedup.effect_size,
        "detectable_effect": speedup and speedup.detectable_effect,
        "speed_verdict": result.speed_verdict,
        "compile_seconds": result.compile_seconds,
        "break_even_verdict": result.break_even_verdict,
        "break_even_steps": never or (pays and pays.steps),
        "break_even_low": pays and pays.low,
        "break_even_high": pays and pays.high,
        "break_even_seconds": never or (pays and pays.seconds),
        "break_even_epochs": never or (pays and pays.epochs),
        "peak_memory_bytes": result.peak_memory_bytes,
        "compile_peak_memory_bytes": result.compile_peak_memory_bytes,
        "reserved_memory_bytes": result.reserved_memory_bytes,
        "accuracy": result.accuracy,
        "eval_loss": result.eval_loss,
        "final_loss": result.final_loss,
        "parity": parity and parity.verdict,
        "first_step_outside": parity and parity.first_step_outside,
        "max_ratio_to_band": parity and parity.max_ratio_to_band,
        "max_ratio_to_interval": parity and parity.max_ratio_to_interval,
        "inference_gap": result.inference_gap,
        "training_loss_excess": result.training_loss_excess,
        "training_loss_check": result.training_loss_check,
        "graph_breaks": result.graph_breaks,
        "recompiles": result.recompiles,
        "distinct_graph_breaks": result.distinct_graph_breaks,
        "guards": result.guards,
    }
