"""Every number that a page shows, by the name of its column: metrics, and what was recorded.

A page finds here the title of each number and its heading in `docs/metrics.md`; `read_definitions`
has the text.
"""

import re
from dataclasses import dataclass
from functools import cache

from breakeven.runner.project import PACKAGE
from breakeven.storage.numbers.formats import (
    format_bytes,
    format_count,
    format_energy,
    format_number,
    format_ratio,
    format_seconds,
    format_share,
    format_text,
)  # fmt: skip
from breakeven.storage.numbers.metrics import METRICS, Metric

DEFINITIONS_FILE = PACKAGE / "docs" / "metrics.md"


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
    return {one.anchor: one.text for chapter in read_chapters() for one in chapter.definitions}


def _chapter(text: str) -> Chapter:
    introduction, *entries = _split(text, "### ")
    title, _, introduction = introduction.partition("\n")
    parts = (entry.partition("\n") for entry in entries)
    definitions = tuple(Definition(anchor, text.strip()) for anchor, _, text in parts)
    return Chapter(title, introduction.strip(), definitions)


def _split(text: str, heading: str) -> list[str]:
    return re.split(f"^{heading}", text, flags=re.MULTILINE)


_RECORDED = (
    Metric("step", "Step", "Optimizer steps are counted from 0.", format_count),
    Metric("epoch", "Epoch", "Passes over the training samples are counted from 1.",
            format_count),
    Metric("num_steps", "Steps", "Optimizer steps of a run, done or planned.", format_count),
    Metric("num_samples", "Samples", "How many samples an evaluation went through.",
            format_count),
    Metric("round", "Round", "In a round every run has one turn; counted from 1.",
            format_count),
    Metric("device_difference", "Difference between devices",
            "How many times longer the baseline's steps take on the slowest of several devices.",
            format_ratio),
    Metric("device_noise", "Noise of a device",
            "The noise floor that an experiment's controls found on the device.", format_share),
    Metric("device_stray", "Spread of step times",
            "Middle half of the baseline's block times, over their median.", format_share),
    Metric("device_pace", "Pace of a device",
            "The baseline's step time over its median for the same work on this device.",
            format_ratio),
    Metric("attempt", "Attempt", "Processes of a run: 1, and one more for each resumption.",
            format_count),
    Metric("expected_seconds", "Expected time", "An estimate from what is known so far.",
            format_seconds, "s"),
    Metric("planned_seconds", "Total", "Training time for the planned steps, with compiling.",
            format_seconds),
    Metric("elapsed_seconds", "Elapsed time", "Wall time since the first run started.",
            format_seconds, "s"),
    Metric("loss_difference", "Difference in loss to the baseline",
            "Size of the difference to the baseline's loss at the same step."),
    Metric("time_saved", "Time saved against the baseline",
            "Seconds saved per step times steps, less the compile latency.", format_seconds,
            "s"),
    Metric("loss_terms", "Terms of the loss", "Each term before it is weighed."),
    Metric("own_values", "Numbers of callbacks", "A callback gave the number and its name."),
    Metric("gradient_statistics", "Gradient statistics",
            "Norm, mean, deviation, largest element and share of zeros of a gradient."),
    Metric("checkpoint_bytes", "Size", "Size of a checkpoint's file.", format_bytes,
            defined_in="checkpoints"),
    Metric("checkpoint_seconds", "Written in", "Wall time that writing a checkpoint took.",
            format_seconds, "s", "checkpoints"),
    Metric("checkpoint_value", "Value", "The metric by which checkpoints are ranked.",
            defined_in="checkpoints"),
    Metric("compilation_seconds", "Took", "Wall time of one compilation.", format_seconds, "s"),
    Metric("dynamo_seconds", "Dynamo", "Time that torch reports for capturing the graph.",
            format_seconds, "s", "compile_phases"),
    Metric("aot_seconds", "AOT", "Time that torch reports for AOTAutograd.", format_seconds,
            "s", "compile_phases"),
    Metric("inductor_seconds", "Inductor", "Time that torch reports for Inductor.",
            format_seconds, "s", "compile_phases"),
    Metric("code_seconds", "Code", "Time that torch reports for generating code.",
            format_seconds, "s", "compile_phases"),
    Metric("kernel_seconds", "Kernels", "Time that torch reports for waiting for compilers.",
            format_seconds, "s", "compile_phases"),
    Metric("compile_phases", "Time by phase",
            "Time of each phase of compiling, without phases inside it.", format_seconds, "s"),
    Metric("compile_timeline", "Stages of compiling",
            "When each stage of compiling a frame began, and how long it took.", format_seconds,
            "s"),
    Metric("total_seconds", "Total", "Time that torch reports for the frame as a whole.",
            format_seconds, "s", "compile_phases"),
    Metric("graph_ops", "Operations", "Operations in the captured graph.", format_count),
    Metric("count", "Times", "How often Dynamo stopped at this line.", format_count,
            defined_in="graph_breaks"),
    Metric("hits", "Hits", "Look-ups that the cache answered.", format_count,
            defined_in="compile_cache"),
    Metric("misses", "Misses", "Look-ups that it could not answer.", format_count,
            defined_in="compile_cache"),
    Metric("bypasses", "Bypasses", "Compilations that cannot be cached.", format_count,
            defined_in="compile_cache"),
    Metric("repeats", "Repeats", "Pairs of a cold and a warm process.", format_count),
    Metric("num_tensors", "Tensors", "Tensors that were compared.", format_count,
            defined_in="status"),
    Metric("num_failed", "Failed", "Compared tensors that do not pass.", format_count,
            defined_in="status"),
    Metric("num_elements", "Elements", "Elements of the tensor.", format_count,
            defined_in="accuracy_rule"),
    Metric("max_difference", "Max difference",
            "Largest difference of an element to the baseline's.", defined_in="accuracy_rule"),
    Metric("rmse", "RMSE", "Root mean square error against double precision.",
            defined_in="accuracy_rule"),
    Metric("baseline_rmse", "Baseline RMSE",
            "Root mean square error of the baseline's tensor against double precision.",
            defined_in="accuracy_rule"),
    Metric("multiplier", "Multiplier", "How many times the baseline's error is allowed.",
            defined_in="accuracy_rule"),
    Metric("accuracy_rule", "Rule", "When a tensor passes.", format_text),
    Metric("activations", "Outputs of layers", "Compared in separate computations.", format_text),
    Metric("scale", "Scale", "The size in whose units absolute differences count."),
    Metric("tolerance", "Tolerance", "The difference that is allowed, relative and absolute."),
    Metric("error_ratio", "Error over the limit", "The error over what the rule allows."),
    Metric("sample", "Sample", "Its place in the split, counted from 0.", format_count,
            defined_in="predictions"),
    Metric("margin", "Margin", "Probability of the answer less that of the second most likely one.",
            defined_in="predictions"),
    Metric("compiled_margin", "Compiled margin", "Margin of the compiled model's answer.",
            defined_in="predictions"),
    Metric("predictions", "Answers", "Number of samples by true label and answer.",
            format_count),
    Metric("unlike_baseline", "Unlike the baseline",
            "Samples that the run answers differently than the baseline.", format_count,
            defined_in="predictions"),
    Metric("unlike_own_weights", "Compiled unlike its own weights",
            "Samples that the compiled model answers differently than without a compiler.",
            format_count, defined_in="predictions"),
    Metric("answers", "Answers in pairs",
            "Answers of the compiled model, each with one of the same weights.", format_count),
    Metric("batch_size", "Batch size", "Samples of one batch.", format_count),
    Metric("compression_ratio", "Memory saved",
            "The baseline's memory needed over the backend's.", format_ratio, "x"),
    Metric("sm_clock_mhz", "SM clock", "Clock of the device's cores at the end of a block.",
            format_count, "MHz"),
    Metric("memory_clock_mhz", "Memory clock", "Clock of the device's memory after a block.",
            format_count, "MHz"),
    Metric("temperature_celsius", "Temperature", "Temperature of the device after a block.",
            format_count, "\N{DEGREE SIGN}C"),
    Metric("power_watts", "Power", "Power of the device after a block.", format_count, "W"),
    Metric("energy_joules", "Energy", "Energy that the device used in a block, by its own counter.",
            format_energy, "J"),
    Metric("utilization", "Utilization", "Share of NVML's last period in which a kernel ran.",
            format_share),
    Metric("held_back", "Held back", "Why clocks, or the CPU time of a container, were limited.",
            format_text),
    Metric("others_memory_bytes", "Memory of others",
            "Device memory of processes outside the experiment.", format_bytes),
    Metric("others_cpu_share", "CPU time of others",
            "Share of the CPU time that other processes took while a block ran.", format_share),
    Metric("stolen_cpu_share", "Stolen CPU time",
            "Share of the CPU time that the host of a virtual machine gave to others.",
            format_share),
    Metric("cpu_frequency_mhz", "CPU frequency", "Mean of the fastest CPUs, after a block.",
            format_count, "MHz"),
    Metric("load_average", "Load average",
            "Processes that ran or waited for a CPU, mean of the last minute."),
    Metric("profile_seconds", "Time a step",
            "Time of a profiled step in one class of work.", format_seconds, "s"),
    Metric("profile_share", "Share of a step", "Part of a step's time by the clock.",
            format_share, defined_in="profile_seconds"),
    Metric("kernel_calls", "Calls a step", "How often a kernel or operator runs in a step.",
            format_number, defined_in="profile_seconds"),
    Metric("unknown_share", "Unclassified", "Part of the kernels' time that no rule classifies.",
            format_share, defined_in="profile_seconds"),
    Metric("idle_seconds", "Idle", "Time of a step in which no kernel ran.",
            format_seconds, "s"),
    Metric("own_speedup", "GPU-busy-time speedup", "The time of the baseline's kernels over that "
            "of the run's, without gaps.", format_ratio, "x"),
    Metric("waited_seconds", "Step, waited for", "A step's time when the host waits for the "
            "device after each.", format_seconds, "s"),
    Metric("launches", "Launches a step", "Kernels and graphs that the host starts in a step.",
            format_count),
    Metric("compute_seconds", "Computing", "Time of a step in which a rank's device computes.",
            format_seconds, "s"),
    Metric("communication_seconds", "Communication", "Time of a step in which a rank sends or "
            "waits to send.", format_seconds, "s"),
    Metric("exposed_seconds", "Exposed", "Communication that no computing hides.",
            format_seconds, "s"),
    Metric("rank_lag", "Lag of the slowest rank", "How much longer than the fastest rank it "
            "computes.", format_share),
    Metric("sent_bytes", "Sent a step", "Bytes that a rank puts into collectives in a step.",
            format_bytes, "bytes"),
    Metric("profile_cost_seconds", "Cost of profiling", "Time of the profiled turns, which is in "
            "no step time.", format_seconds, "s"),
    Metric("suite_change", "Change", "What counts as better or worse than an earlier suite run.",
            format_text),
    Metric("left_out", "What a mean rests on",
            "What a mean over models and its verdict would be without one of them.", format_text),
    Metric("trend", "Trend", "Levels of a number over experiments of the same training, and the "
            "steps between them.", format_text),
    Metric("samples_seen", "Samples so far", "Samples that a training has learned from so far.",
            format_count),
    Metric("tokens_seen", "Tokens so far",
            "Tokens that a training has learned from so far, padding included.", format_count),
    Metric("disk_bytes", "Size on disk", "All files in the folders of an experiment's runs.",
            format_bytes),
    Metric("over_first", "Quotient of speedups", "A speedup over that of the first experiment.",
            format_ratio, "x"),
    Metric("scaling_efficiency", "Scaling efficiency", "Throughput of N devices over N times the "
            "throughput of one.", format_share),
    Metric("over_below", "Over the previous stage",
            "Step time of the previous stage over that of this one.", format_ratio, "x"),
    Metric("replayed", "Replication", "Range of a replicated number if only chance differs.",
            format_text),
    Metric("cautions", "Warnings and notes", "Each sentence names the numbers that it concerns.",
            format_text),
    Metric("facts", "Facts", "What a run records of its machine, its model and its data."),
)  # fmt: skip

NUMBERS: dict[str, Metric] = {**METRICS, **{number.name: number for number in _RECORDED}}
