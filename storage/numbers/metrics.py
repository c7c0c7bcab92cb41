"""The one registry of what is measured: name, title, unit, which way is better, how it is written.

Charts and tables take titles, units and formats from here only, and the table of a comparison its
columns in this order. `docs/metrics.md` has the full
definitions, under the anchor that each metric names; `storage/numbers/recorded.py` adds what is
shown as it was recorded.
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
)  # fmt: skip

__all__ = ["DASH", "METRICS", "Metric", "axis_unit"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One measured quantity; `format` writes a value for people, undefined as a dash."""

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"] | None
    format: Callable[[Any], str]
    definition: str
    defined_in: str = ""
    """Heading in docs/metrics.md under which it stands, if that is another's."""

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
    Metric(
        name="loss", title="Loss", unit="", better="lower", format=format_loss,
        definition="Training loss of one step, as the model returned it, before its update.",
    ),
    Metric(
        name="learning_rate", title="Learning rate", unit="", better=None, format=format_number,
        definition="What the schedule gave the optimizer for one step.",
    ),
    Metric(
        name="gradient_norm", title="Gradient norm", unit="", better=None, format=format_loss,
        definition="Norm of all gradients of one step together, before clipping.",
    ),
    Metric(
        name="step_seconds", title="Step time", unit="s", better="lower", format=format_seconds,
        definition="Median duration of a full optimizer step, over the steady steps.",
    ),
    Metric(
        name="cumulative_seconds", title="Training time", unit="s", better="lower",
        format=format_seconds,
        definition="Sum of the durations of all steps so far, compilation included.",
    ),
    Metric(
        name="samples_per_second", title="Throughput", unit="samples/s", better="higher",
        format=format_rate,
        definition="Samples of one step over the step time.",
    ),
    Metric(
        name="tokens_per_second", title="Token throughput", unit="tokens/s", better="higher",
        format=format_rate,
        definition="Tokens of one step, padding included, over the step time.",
    ),
    Metric(
        name="real_tokens_per_second", title="Token throughput without padding", unit="tokens/s",
        better="higher", format=format_rate,
        definition="Tokens of one step that are no padding, over the step time.",
    ),
    Metric(
        name="flops_per_second", title="Compute", unit="FLOP/s", better="higher",
        format=format_flops,
        definition="Floating-point operations of one step, forward and backward, over its time.",
    ),
    Metric(
        name="peak_share", title="Share of the device's peak", unit="", better="higher",
        format=format_share,
        definition="Operations per second over the most that the device's data sheet promises.",
    ),
    Metric(
        name="speedup", title="Speedup", unit="x", better="higher", format=format_ratio,
        definition="Median over rounds of the baseline's block time over this run's.",
    ),
    Metric(
        name="speedup_low", title="Speedup, lower bound", unit="x", better="higher",
        format=format_ratio,
        definition="Lower end of the speedup's 95 % bootstrap interval.",
    ),
    Metric(
        name="speedup_high", title="Speedup, upper bound", unit="x", better="higher",
        format=format_ratio,
        definition="Upper end of the speedup's 95 % bootstrap interval.",
    ),
    Metric(
        name="p_holm", title="p-value", unit="", better=None, format=format_p_value,
        definition="Sign test's p-value of the speedup, Holm-corrected over backends.",
    ),
    Metric(
        name="effect_size", title="Effect size", unit="", better="higher",
        format=format_correlation,
        definition="Rank-biserial correlation: 1 if faster in every round, 0 if in half of them.",
    ),
    Metric(
        name="detectable_effect", title="Detectable effect", unit="", better="lower",
        format=format_share,
        definition="Change of speed that rounds like these tell from none in 80 % of experiments.",
    ),
    Metric(
        name="speed_verdict", title="Speed", unit="", better=None, format=format_text,
        definition="faster, slower, same or unsure, beyond noise and at least 2 %; or failed.",
    ),
    Metric(
        name="noise_floor", title="Noise floor", unit="", better="lower", format=format_share,
        definition="How far from 1 the interval of the control's speedup reaches.",
    ),
    Metric(
        name="compile_seconds", title="Compile latency", unit="s", better="lower",
        format=format_seconds,
        definition="Duration of the training steps that compiled, minus as many steady steps.",
    ),
    Metric(
        name="cold_compile_seconds", title="Compile latency, cold", unit="s", better="lower",
        format=format_seconds,
        definition="Compile latency of processes that began with empty compile caches, median.",
    ),
    Metric(
        name="warm_compile_seconds", title="Compile latency, warm", unit="s", better="lower",
        format=format_seconds,
        definition="Compile latency of processes on the caches that the cold ones left, median.",
    ),
    Metric(
        name="compile_time_saved", title="Compile time saved", unit="", better="higher",
        format=format_share,
        definition="Share of the cold compile latency that warm caches save, over all repeats.",
    ),
    Metric(
        name="cold_over_warm", title="Cold over warm", unit="", better="higher",
        format=format_ratio,
        definition="Cold compile latency over the warm one, median over the repeats.",
    ),
    Metric(
        name="cold_break_even_steps", title="Break-even, cold", unit="steps", better="lower",
        format=format_count,
        definition="Steps after which the time saved has paid for compiling with empty caches.",
    ),
    Metric(
        name="warm_break_even_steps", title="Break-even, warm", unit="steps", better="lower",
        format=format_count,
        definition="Steps after which the time saved has paid for compiling on filled caches.",
    ),
    Metric(
        name="break_even_verdict", title="Pays off", unit="", better=None, format=format_text,
        definition="reached if the run is faster, never if slower or the same, else unsure.",
    ),
    Metric(
        name="break_even_steps", title="Break-even", unit="steps", better="lower",
        format=format_count,
        definition="Steps after which the time saved per step has paid for compiling.",
    ),
    Metric(
        name="break_even_low", title="Break-even, lower bound", unit="steps", better="lower",
        format=format_count,
        definition="Break-even at the upper end of the saving's 95 % interval.",
    ),
    Metric(
        name="break_even_high", title="Break-even, upper bound", unit="steps", better="lower",
        format=format_count,
        definition="Break-even at the lower end of the saving's 95 % interval.",
    ),
    Metric(
        name="break_even_seconds", title="Break-even time", unit="s", better="lower",
        format=format_seconds,
        definition="Training time until break-even, compiling included.",
    ),
    Metric(
        name="break_even_epochs", title="Break-even epochs", unit="epochs", better="lower",
        format=format_epochs,
        definition="Break-even steps over the steps of an epoch.",
    ),
    Metric(
        name="peak_memory_bytes", title="Memory needed", unit="bytes", better="lower",
        format=format_bytes,
        definition="What a device must have: the most that torch's allocator reserved during "
        "any steady block, private pools of captured graphs included. On the CPU the most that "
        "the process held (peak resident size).",
    ),
    Metric(
        name="compile_peak_memory_bytes", title="Memory needed to compile", unit="bytes",
        better="lower", format=format_bytes,
        definition="The same as memory needed, over the blocks that compiled.",
    ),
    Metric(
        name="allocated_memory_bytes", title="Allocated memory", unit="bytes", better="lower",
        format=format_bytes,
        definition="Highest memory of live tensors during any steady block, without what captured "
        "graphs keep in private pools; not recorded on the CPU.",
    ),
    Metric(
        name="accuracy", title="Accuracy", unit="", better="higher", format=format_share,
        definition="Share of held-out samples labelled correctly at the last evaluation.",
    ),
    Metric(
        name="eval_loss", title="Evaluation loss", unit="", better="lower", format=format_loss,
        definition="Mean loss on the held-out samples at the last evaluation.",
    ),
    Metric(
        name="f1", title="F1", unit="", better="higher", format=format_share,
        definition="Harmonic mean of precision and recall, mean over labels, last evaluation.",
    ),
    Metric(
        name="precision", title="Precision", unit="", better="higher", format=format_share,
        definition="Share of a label's predictions that are right, mean over labels.",
    ),
    Metric(
        name="recall", title="Recall", unit="", better="higher", format=format_share,
        definition="Share of a label's samples that are predicted so, mean over labels.",
    ),
    Metric(
        name="roc_auc", title="ROC-AUC", unit="", better="higher", format=format_loss,
        definition="Area under the ROC curve, mean over labels, at the last evaluation.",
    ),
    Metric(
        name="mse", title="Mean squared error", unit="", better="lower", format=format_loss,
        definition="Mean squared difference of prediction and label at the last evaluation.",
    ),
    Metric(
        name="mae", title="Mean absolute error", unit="", better="lower", format=format_loss,
        definition="Mean size of the difference of prediction and label at the last evaluation.",
    ),
    Metric(
        name="perplexity", title="Perplexity", unit="", better="lower", format=format_loss,
        definition="Exponential of the mean loss per token at the last evaluation.",
    ),
    Metric(
        name="final_loss", title="Final loss", unit="", better="lower", format=format_loss,
        definition="Mean training loss of the last tenth of the steps done.",
    ),
    Metric(
        name="parity", title="Parity", unit="", better=None, format=format_text,
        definition="Whether losses and accuracy agree with the baseline's, up to rounding.",
    ),
    Metric(
        name="first_step_outside", title="First step outside", unit="step", better="higher",
        format=format_count,
        definition="First step from which it shows that another thing was learned.",
    ),
    Metric(
        name="max_ratio_to_band", title="Largest difference", unit="x band", better="lower",
        format=format_multiple,
        definition="Largest difference in loss to the baseline, over the band's half width.",
    ),
    Metric(
        name="max_ratio_to_interval", title="Largest difference later", unit="x interval",
        better="lower", format=format_multiple,
        definition="Largest difference of a window or an evaluation, over what is allowed of it.",
    ),
    Metric(
        name="inference_gap", title="Inference difference", unit="", better="lower",
        format=format_multiple,
        definition="Largest relative difference in loss of compiled and uncompiled evaluation.",
    ),
    Metric(
        name="training_loss_excess", title="Excess of loss", unit="", better="lower",
        format=format_number,
        definition="Mean loss of the last windows of 100 steps, less the baseline's; not parity.",
    ),
    Metric(
        name="training_loss_check", title="training_loss.py, corrected", unit="", better=None,
        format=format_text,
        definition="Whether the excess of loss is at most 0.1; broken runs may pass. Not parity.",
    ),
    Metric(
        name="graph_breaks", title="Graph breaks", unit="", better="lower", format=format_count,
        definition="How often Dynamo split the graph because it could not trace on.",
    ),
    Metric(
        name="recompiles", title="Recompiles", unit="", better="lower", format=format_count,
        definition="Frames compiled again because a guard of the earlier code failed.",
    ),
    Metric(
        name="distinct_graph_breaks", title="Distinct graph breaks", unit="", better="lower",
        format=format_count,
        definition="Different lines and reasons at which Dynamo split the graph.",
    ),
    Metric(
        name="guards", title="Guards", unit="", better="lower", format=format_count,
        definition="Conditions under which compiled code may be used again.",
    ),
    Metric(
        name="pass_rate", title="Pass rate", unit="", better="higher", format=format_share,
        definition="Share of a suite's models, of those that were checked, whose check passes.",
    ),
    Metric(
        name="geomean_speedup", title="Mean speedup", unit="x", better="higher",
        format=format_ratio,
        definition="Geometric mean of the speedups of a suite's models, failures left out; 95 %.",
    ),
    Metric(
        name="mean_compile_seconds", title="Mean compile latency", unit="s", better="lower",
        format=format_seconds,
        definition="Mean of the compile latencies of a suite's models.",
    ),
    Metric(
        name="memory_ratio", title="Memory ratio", unit="x", better="higher", format=format_ratio,
        definition="The baseline's memory needed over the backend's; above 1 the backend saves.",
    ),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
