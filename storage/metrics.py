"""The one registry of what is measured: name, title, unit, which way is better, how it is written.

Charts and tables take titles, units and formats from here only. `docs/metrics.md` has the full
definitions, under the anchor that each metric names.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

DASH = "\N{EN DASH}"
"""Stands for what is undefined or was not measured."""
MILLISECONDS_BELOW = 0.9995
"""Seconds; rounded to three digits, from here on it is a second."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One measured quantity; `format` writes a value for people, undefined as a dash."""

    name: str
    title: str
    unit: str
    better: Literal["higher", "lower"] | None
    format: Callable[[Any], str]
    definition: str

    @property
    def anchor(self) -> str:
        """Its heading in docs/metrics.md."""
        return self.name

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


def format_loss(value: Any) -> str:
    """Four digits; a loss that is not finite is a finding, so only None is a dash."""
    if value is None:
        return DASH
    return "NaN" if math.isnan(value) else f"{value:.4g}"


def _defined(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """A format that writes None, NaN and the like as a dash."""

    def written(value: Any) -> str:
        return DASH if pd.isna(value) else write(value)

    return written


@_defined
def format_seconds(seconds: Any) -> str:
    """0.85 ms, 12.3 ms, 1.23 s, 95.1 s, 3 min 20 s, 2 h 5 min; infinite time is never."""
    if math.isinf(seconds):
        return "never"
    if abs(seconds) < MILLISECONDS_BELOW:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 119.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


@_defined
def format_bytes(num_bytes: Any) -> str:
    """In MiB (2^20 bytes), from 1 GiB on in GiB (2^30)."""
    if num_bytes < 2**30:
        return f"{num_bytes / 2**20:.1f} MiB"
    return f"{num_bytes / 2**30:.2f} GiB"


@_defined
def format_count(count: Any) -> str:
    """A whole number with thousands separated; an infinite number of steps is never reached."""
    return "never" if math.isinf(count) else f"{count:,.0f}"


@_defined
def format_ratio(ratio: Any) -> str:
    return f"{ratio:.2f}x"


@_defined
def format_multiple(multiple: Any) -> str:
    return f"{multiple:.2g}" if math.isfinite(multiple) else "infinite"


@_defined
def format_share(share: Any) -> str:
    return f"{share * 100:.1f} %"


@_defined
def format_rate(rate: Any) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


@_defined
def format_epochs(epochs: Any) -> str:
    return "never" if math.isinf(epochs) else f"{epochs:,.{1 if epochs < 10 else 0}f}"


@_defined
def format_number(number: Any) -> str:
    """Four digits, very large and very small ones with an exponent."""
    return f"{number:.4g}"


@_defined
def format_p_value(p: Any) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


format_text = _defined(str)

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
        definition="Wilcoxon signed-rank p-value of the speedup, Holm-corrected over backends.",
    ),
    Metric(
        name="speed_verdict", title="Speed", unit="", better=None, format=format_text,
        definition="faster, slower, same or unsure, beyond noise and a margin of at least 2 %.",
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
        name="peak_memory_bytes", title="Peak memory", unit="bytes", better="lower",
        format=format_bytes,
        definition="Highest memory in use during any steady block.",
    ),
    Metric(
        name="compile_peak_memory_bytes", title="Peak memory while compiling", unit="bytes",
        better="lower", format=format_bytes,
        definition="Highest memory in use during any block that compiled.",
    ),
    Metric(
        name="reserved_memory_bytes", title="Reserved memory", unit="bytes", better="lower",
        format=format_bytes,
        definition="Most that the CUDA allocator held from the driver after any steady block.",
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
        definition="First step at which the loss leaves the control's band.",
    ),
    Metric(
        name="max_ratio_to_band", title="Largest difference", unit="x band", better="lower",
        format=format_multiple,
        definition="Largest difference in loss to the baseline, over the band's half width.",
    ),
    Metric(
        name="break_even_verdict", title="Pays off", unit="", better=None, format=format_text,
        definition="reached, never or unsure; only of a run that is faster the steps are certain.",
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
        definition="Training time of this run until break-even, compiling included.",
    ),
    Metric(
        name="break_even_epochs", title="Break-even epochs", unit="epochs", better="lower",
        format=format_epochs,
        definition="Break-even steps over the steps of an epoch.",
    ),
    Metric(
        name="graph_breaks", title="Graph breaks", unit="", better="lower", format=format_count,
        definition="How often Dynamo split the graph because it could not trace on.",
    ),
    Metric(
        name="recompiles", title="Recompiles", unit="", better="lower", format=format_count,
        definition="Frames compiled again because a guard of the earlier code failed.",
    ),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}
