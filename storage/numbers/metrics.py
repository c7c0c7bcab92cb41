"""The registry of all numbers: name, title, format, unit, better direction, and definition.

Charts, tables and pages take titles, units and formats only from here; the table of a comparison
has its columns in the order of METRICS. `docs/metrics.md` has the definitions. A number has a
heading there or, within the text of another one, a line that begins with its name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import pandas as pd

from breakeven.runner.project import PACKAGE
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
)

__all__ = ["DASH", "METRICS", "NUMBERS", "Metric", "axis_unit"]

DEFINITIONS_FILE = PACKAGE / "docs" / "metrics.md"
SENTENCE = re.compile(r".+?\.(?=\s|$)", re.DOTALL)
FURTHER = re.compile(r"^\* `(\w+)`: (.+)$", re.MULTILINE)
"""A number that is defined within the text of another one."""


@dataclass(frozen=True)
class Definition:
    """A heading of `docs/metrics.md` and what stands under it, as Markdown."""

    anchor: str
    text: str


@dataclass(frozen=True)
class Chapter:
    """Definitions that belong together, after what holds for all of them."""

    title: str
    introduction: str
    definitions: tuple[Definition, ...]


@cache
def read_chapters() -> tuple[Chapter, ...]:
    """The whole of `docs/metrics.md`; its first chapter is the text before any definition."""
    return tuple(map(_chapter, _split(DEFINITIONS_FILE.read_text().removeprefix("# "), "## ")))


@cache
def read_definitions() -> dict[str, str]:
    """Every definition, as Markdown, by its anchor, in the order of the file."""
    return {
        definition.anchor: definition.text
        for chapter in read_chapters()
        for definition in chapter.definitions
    }


@cache
def _sentences() -> dict[str, Definition]:
    """The heading and the definition in one sentence of every number, by its name."""
    definitions = {}
    for anchor, text in read_definitions().items():
        if first := SENTENCE.match(text):
            definitions[anchor] = Definition(anchor, " ".join(first[0].split()))
        definitions |= {
            name: Definition(anchor, sentence) for name, sentence in FURTHER.findall(text)
        }
    return definitions


def _chapter(text: str) -> Chapter:
    introduction, *entries = _split(text, "### ")
    title, _, introduction = introduction.partition("\n")
    parts = (entry.partition("\n") for entry in entries)
    definitions = tuple(Definition(anchor, text.strip()) for anchor, _, text in parts)
    return Chapter(title, introduction.strip(), definitions)


def _split(text: str, heading: str) -> list[str]:
    return re.split(f"^{heading}", text, flags=re.MULTILINE)


@dataclass(frozen=True)
class Metric:
    """One number; `format` makes a value readable, an undefined one a dash."""

    name: str
    title: str
    format: Callable[[Any], str] = format_number
    unit: str = ""
    better: Literal["higher", "lower"] | None = None

    @property
    def anchor(self) -> str:
        """The heading in docs/metrics.md that defines it."""
        return _sentences()[self.name].anchor

    @property
    def definition(self) -> str:
        """Its definition in one sentence, from docs/metrics.md."""
        return _sentences()[self.name].text

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


_METRICS = (
    Metric("loss", "Loss", format_loss, better="lower"),
    Metric("learning_rate", "Learning rate"),
    Metric("gradient_norm", "Gradient norm", format_loss),
    Metric("step_seconds", "Step time", format_seconds, "s", "lower"),
    Metric("cumulative_seconds", "Training time", format_seconds, "s", "lower"),
    Metric("samples_per_second", "Throughput", format_rate, "samples/s", "higher"),
    Metric("tokens_per_second", "Token throughput", format_rate, "tokens/s", "higher"),
    Metric(
        "real_tokens_per_second",
        "Token throughput without padding",
        format_rate,
        "tokens/s",
        "higher",
    ),
    Metric("flops_per_second", "Compute", format_flops, "FLOP/s", "higher"),
    Metric("peak_share", "Share of the device's peak", format_share, better="higher"),
    Metric("energy_per_step", "Energy per step", format_energy, "J", "lower"),
    Metric("energy_ratio", "Energy saving", format_ratio, "x", "higher"),
    Metric("energy_break_even_steps", "Break-even in energy", format_count, "steps", "lower"),
    Metric("speedup", "Speedup", format_ratio, "x", "higher"),
    Metric("speedup_low", "Speedup, lower bound", format_ratio, "x", "higher"),
    Metric("speedup_high", "Speedup, upper bound", format_ratio, "x", "higher"),
    Metric("p_holm", "p-value", format_p_value),
    Metric("effect_size", "Effect size", format_correlation, better="higher"),
    Metric("detectable_effect", "Detectable effect", format_share, better="lower"),
    Metric("speed_verdict", "Verdict", format_verdict),
    Metric("noise_floor", "Noise floor", format_share, better="lower"),
    Metric("compile_seconds", "Compile latency", format_seconds, "s", "lower"),
    Metric("time_to_loss", "Time to loss", format_seconds, "s", "lower"),
    Metric("cold_compile_seconds", "Compile latency, cold", format_seconds, "s", "lower"),
    Metric("warm_compile_seconds", "Compile latency, warm", format_seconds, "s", "lower"),
    Metric("compile_time_saved", "Compile time saved", format_share, better="higher"),
    Metric("cold_over_warm", "Cold over warm", format_ratio, better="higher"),
    Metric("cold_break_even_steps", "Break-even, cold", format_count, "steps", "lower"),
    Metric("warm_break_even_steps", "Break-even, warm", format_count, "steps", "lower"),
    Metric("break_even_verdict", "Pays off", format_verdict),
    Metric("break_even_steps", "Break-even", format_count, "steps", "lower"),
    Metric("break_even_low", "Break-even, lower bound", format_count, "steps", "lower"),
    Metric("break_even_high", "Break-even, upper bound", format_count, "steps", "lower"),
    Metric("break_even_seconds", "Break-even time", format_seconds, "s", "lower"),
    Metric("break_even_epochs", "Break-even epochs", format_epochs, "epochs", "lower"),
    Metric("peak_memory_bytes", "Memory needed", format_bytes, "bytes", "lower"),
    Metric("compile_peak_memory_bytes", "Memory needed to compile", format_bytes, "bytes", "lower"),
    Metric("allocated_memory_bytes", "Allocated memory", format_bytes, "bytes", "lower"),
    Metric("accuracy", "Accuracy", format_share, better="higher"),
    Metric("eval_loss", "Evaluation loss", format_loss, better="lower"),
    Metric("f1", "F1", format_share, better="higher"),
    Metric("precision", "Precision", format_share, better="higher"),
    Metric("recall", "Recall", format_share, better="higher"),
    Metric("roc_auc", "ROC-AUC", format_loss, better="higher"),
    Metric("mse", "Mean squared error", format_loss, better="lower"),
    Metric("mae", "Mean absolute error", format_loss, better="lower"),
    Metric("perplexity", "Perplexity", format_loss, better="lower"),
    Metric("final_loss", "Final loss", format_loss, better="lower"),
    Metric("parity", "Parity", format_verdict),
    Metric("first_step_outside", "First step outside", format_count, "step", "higher"),
    Metric("max_ratio_to_band", "Largest loss difference", format_multiple, "x band", "lower"),
    Metric(
        "max_ratio_to_interval", "Largest result difference", format_multiple, "x interval", "lower"
    ),
    Metric("inference_gap", "Inference difference", format_multiple, better="lower"),
    Metric("training_loss_excess", "Excess loss", format_number, better="lower"),
    Metric("training_loss_check", "PyTorch's loss check", format_text),
    Metric("graph_breaks", "Graph breaks", format_count, better="lower"),
    Metric("recompiles", "Recompiles", format_count, better="lower"),
    Metric("distinct_graph_breaks", "Distinct graph breaks", format_count, better="lower"),
    Metric("guards", "Guards", format_count, better="lower"),
    Metric("pass_rate", "Pass rate", format_share, better="higher"),
    Metric("geomean_speedup", "Mean speedup", format_ratio, "x", "higher"),
    Metric("mean_compile_seconds", "Mean compile latency", format_seconds, "s", "lower"),
    Metric("memory_ratio", "Memory ratio", format_ratio, "x", "higher"),
)
_RECORDED = (
    Metric("step", "Step", format_count),
    Metric("epoch", "Epoch", format_count),
    Metric("num_steps", "Steps", format_count),
    Metric("num_samples", "Samples", format_count),
    Metric("round", "Round", format_count),
    Metric("attempt", "Attempt", format_count),
    Metric("expected_seconds", "Expected time", format_seconds, "s"),
    Metric("planned_seconds", "Total", format_seconds),
    Metric("elapsed_seconds", "Elapsed time", format_seconds, "s"),
    Metric("loss_difference", "Difference in loss to the baseline"),
    Metric("time_saved", "Time saved against the baseline", format_seconds, "s"),
    Metric("loss_terms", "Terms of the loss"),
    Metric("outcome", "Outcome"),
    Metric("own_values", "Numbers of callbacks"),
    Metric("gradient_statistics", "Gradient statistics"),
    Metric("checkpoint_bytes", "Size", format_bytes),
    Metric("checkpoint_seconds", "Written in", format_seconds, "s"),
    Metric("checkpoint_value", "Value"),
    Metric("compilation_seconds", "Took", format_seconds, "s"),
    Metric("dynamo_seconds", "Dynamo", format_seconds, "s"),
    Metric("aot_seconds", "AOT", format_seconds, "s"),
    Metric("inductor_seconds", "Inductor", format_seconds, "s"),
    Metric("code_seconds", "Code", format_seconds, "s"),
    Metric("kernel_seconds", "Kernels", format_seconds, "s"),
    Metric("compile_phases", "Time by phase", format_seconds, "s"),
    Metric("compile_timeline", "Stages of compiling", format_seconds, "s"),
    Metric("total_seconds", "Total", format_seconds, "s"),
    Metric("graph_ops", "Operations", format_count),
    Metric("count", "Times", format_count),
    Metric("hits", "Hits", format_count),
    Metric("misses", "Misses", format_count),
    Metric("bypasses", "Bypasses", format_count),
    Metric("repeats", "Repeats", format_count),
    Metric("num_tensors", "Tensors", format_count),
    Metric("num_failed", "Failed", format_count),
    Metric("num_elements", "Elements", format_count),
    Metric("max_difference", "Max difference"),
    Metric("rmse", "RMSE"),
    Metric("baseline_rmse", "Baseline RMSE"),
    Metric("multiplier", "Multiplier"),
    Metric("accuracy_rule", "Rule", format_text),
    Metric("activations", "Outputs of layers", format_text),
    Metric("scale", "Scale"),
    Metric("tolerance", "Tolerance"),
    Metric("error_ratio", "Error over the limit"),
    Metric("sample", "Sample", format_count),
    Metric("margin", "Margin"),
    Metric("compiled_margin", "Compiled margin"),
    Metric("predictions", "Answers", format_count),
    Metric("unlike_baseline", "Unlike the baseline", format_count),
    Metric("unlike_own_weights", "Compiled unlike its own weights", format_count),
    Metric("answers", "Answers in pairs", format_count),
    Metric("batch_size", "Batch size", format_count),
    Metric("compression_ratio", "Memory saved", format_ratio, "x"),
    Metric("sm_clock_mhz", "SM clock", format_count, "MHz"),
    Metric("memory_clock_mhz", "Memory clock", format_count, "MHz"),
    Metric("temperature_celsius", "Temperature", format_count, "\N{DEGREE SIGN}C"),
    Metric("power_watts", "Power", format_count, "W"),
    Metric("energy_joules", "Energy", format_energy, "J"),
    Metric("utilization", "Utilization", format_share),
    Metric("held_back", "Held back", format_text),
    Metric("others_memory_bytes", "Memory of others", format_bytes),
    Metric("others_cpu_share", "CPU time of others", format_share),
    Metric("stolen_cpu_share", "Stolen CPU time", format_share),
    Metric("cpu_frequency_mhz", "CPU frequency", format_count, "MHz"),
    Metric("load_average", "Load average"),
    Metric("profile_seconds", "Time a step", format_seconds, "s"),
    Metric("profile_share", "Share of a step", format_share),
    Metric("kernel_calls", "Calls a step"),
    Metric("unknown_share", "Unclassified", format_share),
    Metric("idle_seconds", "Idle", format_seconds, "s"),
    Metric("own_speedup", "GPU-busy-time speedup", format_ratio, "x"),
    Metric("waited_seconds", "Step, waited for", format_seconds, "s"),
    Metric("launches", "Launches a step", format_count),
    Metric("compute_seconds", "Computing", format_seconds, "s"),
    Metric("communication_seconds", "Communication", format_seconds, "s"),
    Metric("exposed_seconds", "Exposed", format_seconds, "s"),
    Metric("rank_compile_seconds", "Compiling", format_seconds, "s"),
    Metric("compile_skew", "Compile skew", format_seconds, "s"),
    Metric("rank_lag", "Lag of the slowest rank", format_share),
    Metric("sent_bytes", "Sent a step", format_bytes, "bytes"),
    Metric("profile_cost_seconds", "Cost of profiling", format_seconds, "s"),
    Metric("suite_change", "Change", format_text),
    Metric("left_out", "What a mean rests on", format_text),
    Metric("trend", "Trend", format_text),
    Metric("samples_seen", "Samples so far", format_count),
    Metric("tokens_seen", "Tokens so far", format_count),
    Metric("disk_bytes", "Size on disk", format_bytes),
    Metric("over_first", "Quotient of speedups", format_ratio, "x"),
    Metric("scaling_efficiency", "Scaling efficiency", format_share),
    Metric("over_below", "Over the previous stage", format_ratio, "x"),
    Metric("warnings", "Warnings", format_text),
    Metric("facts", "Facts"),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
NUMBERS: dict[str, Metric] = {**METRICS, **{number.name: number for number in _RECORDED}}
"""The metrics, and all other numbers that pages show."""
