"""The registry of all metrics: name, title, unit, better direction, format and definition.

Charts and tables take titles, units and formats only from here; the table of a comparison has its
columns in this order. `docs/metrics.md` has the full definitions, under the anchor of each metric.
`storage/numbers/recorded.py` adds recorded numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from breakeven.storage.numbers.formats import (
    DASH,
    MILLISECONDS_BELOW,
    format_bytes,
    format_correlation,
    format_count,
    format_energy,
    format_epochs,
    format_flops,
    format_loss,
    format_multiple,
    format_number,
    format_p_value,
    format_rate,
    format_ratio,
    format_seconds,
    format_share,
    format_text,
    format_verdict,
)  # fmt: skip

__all__ = ["DASH", "METRICS", "Metric", "axis_unit"]


@dataclass(frozen=True)
class Metric:
    """One measured quantity; `format` makes a value readable, an undefined one a dash."""

    name: str
    title: str
    definition: str
    format: Callable[[Any], str] = format_number
    unit: str = ""
    defined_in: str = ""
    """Heading in docs/metrics.md, if it is the heading of another metric."""
    better: Literal["higher", "lower"] | None = None

    @property
    def anchor(self) -> str:
        """Its heading in docs/metrics.md."""
        return self.defined_in or self.name

    @property
    def axis_title(self) -> str:
        """Title with the unit, as axes show it."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def axis_unit(name: str, values: pd.Series) -> tuple[float, str]:
    """Factor and axis title for times of a metric in seconds, in the unit that `format` chooses.

    Milliseconds if the median is shorter than a second.
    """
    metric = METRICS[name]
    if values.empty or values.median() >= MILLISECONDS_BELOW:
        return 1.0, metric.axis_title
    return 1e3, f"{metric.title} (ms)"


_ALL = (
    Metric("loss", "Loss",
           "Training loss of one step, as the model returned it, before its update.",
           format_loss, better="lower"),
    Metric("learning_rate", "Learning rate",
           "Rate that the schedule gave the optimizer for one step.", format_number),
    Metric("gradient_norm", "Gradient norm",
           "Norm of all gradients of one step together, before clipping.", format_loss),
    Metric("step_seconds", "Step time",
           "Median duration of a full optimizer step, over the steady steps.",
           format_seconds, "s", better="lower"),
    Metric("cumulative_seconds", "Training time",
           "Sum of the durations of all steps so far, compilation included.",
           format_seconds, "s", better="lower"),
    Metric("samples_per_second", "Throughput", "Samples of one step divided by the step time.",
           format_rate, "samples/s", better="higher"),
    Metric("tokens_per_second", "Token throughput",
           "Tokens of one step, padding included, divided by the step time.",
           format_rate, "tokens/s", better="higher"),
    Metric("real_tokens_per_second", "Token throughput without padding",
           "Tokens of one step without padding, divided by the step time.",
           format_rate, "tokens/s", better="higher"),
    Metric("flops_per_second", "Compute",
           "Floating-point operations of a step, forward and backward, divided by its time.",
           format_flops, "FLOP/s", better="higher"),
    Metric("peak_share", "Share of the device's peak",
           "Operations per second divided by the maximum in the device's data sheet.",
           format_share, better="higher"),
    Metric("energy_per_step", "Energy per step",
           "Energy that the device used in a steady step, by its own counter.",
           format_energy, "J", better="lower"),
    Metric("speedup", "Speedup",
           "Baseline's block time divided by this run's, median of all rounds.",
           format_ratio, "x", better="higher"),
    Metric("speedup_low", "Speedup, lower bound",
           "Lower end of the speedup's 95 % bootstrap interval.",
           format_ratio, "x", better="higher"),
    Metric("speedup_high", "Speedup, upper bound",
           "Upper end of the speedup's 95 % bootstrap interval.",
           format_ratio, "x", better="higher"),
    Metric("p_holm", "p-value",
           "Sign test's p-value of the speedup, Holm-corrected over backends.", format_p_value),
    Metric("effect_size", "Effect size",
           "Rank-biserial correlation: 1 if faster in every round, 0 if in half of them.",
           format_correlation, better="higher"),
    Metric("detectable_effect", "Detectable effect",
           "Smallest change of speed that 80 % of experiments with such rounds would show.",
           format_share, better="lower"),
    Metric("speed_verdict", "Speed",
           "faster or slower (beyond noise, at least 2 %), same, inconclusive, or failed.",
           format_verdict),
    Metric("noise_floor", "Noise floor",
           "Largest distance from 1 in the interval of the control's speedup.",
           format_share, better="lower"),
    Metric("compile_seconds", "Compile latency",
           "Duration of the steps that compiled, minus that of as many steady steps.",
           format_seconds, "s", better="lower"),
    Metric("cold_compile_seconds", "Compile latency, cold",
           "Median compile latency of processes with empty compile caches.",
           format_seconds, "s", better="lower"),
    Metric("warm_compile_seconds", "Compile latency, warm",
           "Median compile latency of processes with the caches of the cold processes.",
           format_seconds, "s", better="lower"),
    Metric("compile_time_saved", "Compile time saved",
           "Share of the cold compile latency that warm caches save, over all repeats.",
           format_share, better="higher"),
    Metric("cold_over_warm", "Cold over warm",
           "Cold compile latency divided by the warm one, median of the repeats.",
           format_ratio, better="higher"),
    Metric("cold_break_even_steps", "Break-even, cold",
           "Steps after which the time saved has paid for compiling with empty caches.",
           format_count, "steps", better="lower"),
    Metric("warm_break_even_steps", "Break-even, warm",
           "Steps after which the time saved has paid for compiling on filled caches.",
           format_count, "steps", better="lower"),
    Metric("break_even_verdict", "Pays off",
           "reached if the run is faster, never if slower or the same, else inconclusive.",
           format_verdict),
    Metric("break_even_steps", "Break-even",
           "Steps after which the time saved per step has paid for compiling.",
           format_count, "steps", better="lower"),
    Metric("break_even_low", "Break-even, lower bound",
           "Break-even at the upper end of the saving's 95 % interval.",
           format_count, "steps", better="lower"),
    Metric("break_even_high", "Break-even, upper bound",
           "Break-even at the lower end of the saving's 95 % interval.",
           format_count, "steps", better="lower"),
    Metric("break_even_seconds", "Break-even time",
           "Training time until break-even, compiling included.",
           format_seconds, "s", better="lower"),
    Metric("break_even_epochs", "Break-even epochs",
           "Break-even steps divided by the steps of an epoch.",
           format_epochs, "epochs", better="lower"),
    Metric("peak_memory_bytes", "Memory needed",
           "Memory that a device must have: the most that torch's allocator reserved in any "
           "steady block, private pools of CUDA graphs included. On the CPU the peak resident "
           "size of the process.", format_bytes, "bytes", better="lower"),
    Metric("compile_peak_memory_bytes", "Memory needed to compile",
           "Memory needed during the blocks that compiled.",
           format_bytes, "bytes", better="lower"),
    Metric("allocated_memory_bytes", "Allocated memory",
           "Highest memory of live tensors in any steady block, without private pools of CUDA "
           "graphs; not recorded on the CPU.",
           format_bytes, "bytes", better="lower"),
    Metric("accuracy", "Accuracy",
           "Share of held-out samples labelled correctly at the last evaluation.",
           format_share, better="higher"),
    Metric("eval_loss", "Evaluation loss",
           "Mean loss on the held-out samples at the last evaluation.",
           format_loss, better="lower"),
    Metric("f1", "F1",
           "Harmonic mean of precision and recall, mean over labels, last evaluation.",
           format_share, better="higher"),
    Metric("precision", "Precision",
           "Share of a label's predictions that are correct, mean over labels.",
           format_share, better="higher"),
    Metric("recall", "Recall",
           "Share of a label's samples that are predicted correctly, mean over labels.",
           format_share, better="higher"),
    Metric("roc_auc", "ROC-AUC",
           "Area under the ROC curve, mean over labels, at the last evaluation.",
           format_loss, better="higher"),
    Metric("mse", "Mean squared error",
           "Mean squared difference of prediction and label at the last evaluation.",
           format_loss, better="lower"),
    Metric("mae", "Mean absolute error",
           "Mean absolute difference of prediction and label at the last evaluation.",
           format_loss, better="lower"),
    Metric("perplexity", "Perplexity",
           "Exponential of the mean loss per token at the last evaluation.",
           format_loss, better="lower"),
    Metric("final_loss", "Final loss", "Mean training loss of the last tenth of the steps done.",
           format_loss, better="lower"),
    Metric("parity", "Parity",
           "Whether losses and accuracy agree with the baseline's, up to rounding.",
           format_verdict),
    Metric("first_step_outside", "First step outside",
           "First step from which the run shows that it learned something else.",
           format_count, "step", better="higher"),
    Metric("max_ratio_to_band", "Largest loss difference",
           "Largest difference in loss to the baseline, divided by the band's half width.",
           format_multiple, "x band", better="lower"),
    Metric("max_ratio_to_interval", "Largest result difference",
           "Largest difference of a mean loss or an evaluation, divided by the allowed one.",
           format_multiple, "x interval", better="lower"),
    Metric("inference_gap", "Inference difference",
           "Largest relative difference in loss of compiled and uncompiled evaluation.",
           format_multiple, better="lower"),
    Metric("training_loss_excess", "Excess loss",
           "Mean loss of the last windows of 100 steps, minus the baseline's; not parity.",
           format_number, better="lower"),
    Metric("training_loss_check", "PyTorch's loss check",
           "Whether the excess loss is at most 0.1; broken runs may pass. Not parity.",
           format_text),
    Metric("graph_breaks", "Graph breaks",
           "How often Dynamo split the graph because it could not trace further.",
           format_count, better="lower"),
    Metric("recompiles", "Recompiles",
           "Frames compiled again because a guard of the earlier code failed.",
           format_count, better="lower"),
    Metric("distinct_graph_breaks", "Distinct graph breaks",
           "Different lines and reasons at which Dynamo split the graph.",
           format_count, better="lower"),
    Metric("guards", "Guards", "Conditions under which compiled code may be used again.",
           format_count, better="lower"),
    Metric("pass_rate", "Pass rate",
           "Share of a suite's checked models that pass the check.",
           format_share, better="higher"),
    Metric("geomean_speedup", "Mean speedup",
           "Geometric mean of a suite's speedups without failures, with its 95 % interval.",
           format_ratio, "x", better="higher"),
    Metric("mean_compile_seconds", "Mean compile latency",
           "Mean of the compile latencies of a suite's models.",
           format_seconds, "s", better="lower"),
    Metric("memory_ratio", "Memory ratio",
           "Memory needed by the baseline divided by the backend's; above 1 it saves memory.",
           format_ratio, "x", better="higher"),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
