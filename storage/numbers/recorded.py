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
from breakeven.storage.numbers.metrics import METRICS, Metric, measured

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
    measured("step", "Step", "Optimizer steps are counted from 0.", format_count),
    measured("epoch", "Epoch", "Passes over the training samples are counted from 1.",
              format_count),
    measured("num_steps", "Steps", "Optimizer steps of a run, done or planned.", format_count),
    measured("num_samples", "Samples", "How many samples an evaluation went through.",
              format_count),
    measured("round", "Round", "In a round every run has one turn; counted from 1.",
              format_count),
    measured("device_difference", "Difference between devices",
              "How many times longer the baseline's steps take on the slowest of several devices.",
              format_ratio),
    measured("device_noise", "Noise of a device",
              "The noise floor that an experiment's controls found on the device.", format_share),
    measured("device_stray", "Spread of step times",
              "Middle half of the baseline's block times, over their median.", format_share),
    measured("device_pace", "Pace of a device",
              "The baseline's step time over what the same work usually takes there.",
              format_ratio),
    measured("attempt", "Attempt", "Processes of a run: 1, and one more for each resumption.",
              format_count),
    measured("expected_seconds", "Expected time", "An estimate from what is known so far.",
              format_seconds, "s"),
    measured("planned_seconds", "Total", "Training time for the planned steps, with compiling.",
              format_seconds),
    measured("elapsed_seconds", "Elapsed time", "Wall time since the first run started.",
              format_seconds, "s"),
    measured("loss_difference", "Difference in loss to the baseline",
              "Size of the difference to the baseline's loss at the same step."),
    measured("time_saved", "Time saved against the baseline",
              "Seconds saved per step times steps, less the compile latency.", format_seconds,
              "s"),
    measured("loss_terms", "Terms of the loss", "Each term before it is weighed."),
    measured("own_values", "Numbers of callbacks", "A callback gave the number and its name."),
    measured("gradient_statistics", "Gradient statistics",
              "Norm, mean, deviation, largest element and share of zeros of a gradient."),
    measured("checkpoint_bytes", "Size", "Size of a checkpoint's file.", format_bytes,
              defined_in="checkpoints"),
    measured("checkpoint_seconds", "Written in", "Wall time that writing a checkpoint took.",
              format_seconds, "s", "checkpoints"),
    measured("checkpoint_value", "Value", "The metric by which checkpoints are ranked.",
              defined_in="checkpoints"),
    measured("compilation_seconds", "Took", "Wall time of one compilation.", format_seconds, "s"),
    measured("dynamo_seconds", "Dynamo", "Time that torch reports for capturing the graph.",
              format_seconds, "s", "compile_phases"),
    measured("aot_seconds", "AOT", "Time that torch reports for AOTAutograd.", format_seconds,
              "s", "compile_phases"),
    measured("inductor_seconds", "Inductor", "Time that torch reports for Inductor.",
              format_seconds, "s", "compile_phases"),
    measured("code_seconds", "Code", "Time that torch reports for generating code.",
              format_seconds, "s", "compile_phases"),
    measured("kernel_seconds", "Kernels", "Time that torch reports for waiting for compilers.",
              format_seconds, "s", "compile_phases"),
    measured("compile_phases", "Time by phase", "What each phase of compiling took alone.",
              format_seconds, "s"),
    measured("compile_timeline", "Stages of compiling",
              "When each stage of compiling a frame began, and how long it took.", format_seconds,
              "s"),
    measured("total_seconds", "Total", "Time that torch reports for the frame as a whole.",
              format_seconds, "s", "compile_phases"),
    measured("graph_ops", "Operations", "Operations in the captured graph.", format_count),
    measured("count", "Times", "How often Dynamo stopped there.", format_count,
              defined_in="graph_breaks"),
    measured("hits", "Hits", "Look-ups that the cache answered.", format_count,
              defined_in="compile_cache"),
    measured("misses", "Misses", "Look-ups that it could not answer.", format_count,
              defined_in="compile_cache"),
    measured("bypasses", "Bypasses", "Compilations that cannot be cached.", format_count,
              defined_in="compile_cache"),
    measured("repeats", "Repeats", "Pairs of a cold and a warm process.", format_count),
    measured("num_tensors", "Tensors", "Tensors that were compared.", format_count,
              defined_in="status"),
    measured("num_failed", "Failed", "Those of them that do not pass.", format_count,
              defined_in="status"),
    measured("num_elements", "Elements", "Elements of the tensor.", format_count,
              defined_in="accuracy_rule"),
    measured("max_difference", "Max difference",
              "Largest difference of an element to the baseline's.", defined_in="accuracy_rule"),
    measured("rmse", "RMSE", "Root mean square error against double precision.",
              defined_in="accuracy_rule"),
    measured("baseline_rmse", "Baseline RMSE", "The same of the baseline's own tensor.",
              defined_in="accuracy_rule"),
    measured("multiplier", "Multiplier", "How many times the baseline's error is allowed.",
              defined_in="accuracy_rule"),
    measured("accuracy_rule", "Rule", "When a tensor passes.", format_text),
    measured("activations", "Outputs of layers", "Compared in runs of their own.", format_text),
    measured("scale", "Scale", "The size that counts as 1."),
    measured("tolerance", "Tolerance", "The difference that is allowed, relative and absolute."),
    measured("error_ratio", "Error over the limit", "The error over what the rule allows."),
    measured("sample", "Sample", "Its place in the split, counted from 0.", format_count,
              defined_in="predictions"),
    measured("margin", "Margin", "Probability of the answer less that of the next likely one.",
              defined_in="predictions"),
    measured("compiled_margin", "Compiled margin", "The same of the compiled model's answer.",
              defined_in="predictions"),
    measured("predictions", "Answers", "How many samples were given which answer.",
              format_count),
    measured("unlike_baseline", "Unlike the baseline",
              "Samples that the run answers otherwise than the baseline.", format_count,
              defined_in="predictions"),
    measured("unlike_own_weights", "Compiled unlike its own weights",
              "Samples that the compiled model answers otherwise than the same weights without.",
              format_count, defined_in="predictions"),
    measured("answers", "Answers in pairs",
              "Answers of the compiled model, each with one of the same weights.", format_count),
    measured("batch_size", "Batch size", "Samples of one batch.", format_count),
    measured("compression_ratio", "Memory saved",
              "The baseline's memory needed over the backend's.", format_ratio, "x"),
    measured("sm_clock_mhz", "SM clock", "Clock of the device's cores at the end of a block.",
              format_count, "MHz"),
    measured("memory_clock_mhz", "Memory clock", "Clock of its memory at that time.",
              format_count, "MHz"),
    measured("temperature_celsius", "Temperature", "Of the device at that time.", format_count,
              "\N{DEGREE SIGN}C"),
    measured("power_watts", "Power", "What the device draws at that time.", format_count, "W"),
    measured("energy_joules", "Energy", "What the device used in a block, by its own counter.",
              format_energy, "J"),
    measured("utilization", "Utilization", "Share of the last moments in which a kernel ran.",
              format_share),
    measured("held_back", "Held back", "Why clocks, or the CPU time of a container, were limited.",
              format_text),
    measured("others_memory_bytes", "Memory of others",
              "What processes that are none of the experiment's hold on the device.", format_bytes),
    measured("others_cpu_share", "CPU time of others",
              "Share of the CPU time that other processes took while a block ran.", format_share),
    measured("stolen_cpu_share", "Stolen CPU time",
              "Share of the CPU time that the host of a virtual machine gave to others.",
              format_share),
    measured("cpu_frequency_mhz", "CPU frequency", "Of the fastest CPUs at the end of a block.",
              format_count, "MHz"),
    measured("load_average", "Load average",
              "Processes that ran or waited for a CPU, mean of the last minute."),
    measured("profile_seconds", "Time a step", "What a step spends on work of one kind, while it "
              "was profiled.", format_seconds, "s"),
    measured("profile_share", "Share of a step", "Part of a step's time by the clock.",
              format_share, defined_in="profile_seconds"),
    measured("kernel_calls", "Calls a step", "How often a kernel or operator runs in a step.",
              format_number, defined_in="profile_seconds"),
    measured("unknown_share", "Unclassified", "Part of the kernels' time that no rule classifies.",
              format_share, defined_in="profile_seconds"),
    measured("idle_seconds", "Idle", "What a step takes by the clock and no kernel does.",
              format_seconds, "s"),
    measured("own_speedup", "GPU-busy-time speedup", "The time of the baseline's kernels over that "
              "of the run's, without gaps.", format_ratio, "x"),
    measured("waited_seconds", "Step, waited for", "A step's time when the host waits for the "
              "device after each.", format_seconds, "s"),
    measured("launches", "Launches a step", "Kernels and graphs that the host starts in a step.",
              format_count),
    measured("compute_seconds", "Computing", "Time of a step in which a rank's device computes.",
              format_seconds, "s"),
    measured("communication_seconds", "Communication", "Time of a step in which a rank sends or "
              "waits to send.", format_seconds, "s"),
    measured("exposed_seconds", "Exposed", "Communication that no computing hides.",
              format_seconds, "s"),
    measured("rank_lag", "Lag of the slowest rank", "How much longer than the fastest rank it "
              "computes.", format_share),
    measured("sent_bytes", "Sent a step", "Bytes that a rank puts into collectives in a step.",
              format_bytes, "bytes"),
    measured("profile_cost_seconds", "Cost of profiling", "Time of the profiled turns, which is in "
              "no step time.", format_seconds, "s"),
    measured("suite_change", "Change", "What counts as better or worse than an earlier suite run.",
              format_text),
    measured("left_out", "What a mean rests on",
              "What a mean over models and its verdict would be without one of them.", format_text),
    measured("trend", "Trend", "Levels of a number over experiments of the same training, and the "
              "steps between them.", format_text),
    measured("samples_seen", "Samples so far", "Samples that a training has learned from so far.",
              format_count),
    measured("tokens_seen", "Tokens so far",
              "Tokens that a training has learned from so far, padding included.", format_count),
    measured("disk_bytes", "Size on disk", "All files in the folders of an experiment's runs.",
              format_bytes),
    measured("over_first", "Quotient of speedups", "A speedup over that of the first experiment.",
              format_ratio, "x"),
    measured("scaling_efficiency", "Scaling efficiency", "Throughput of several devices over as "
              "many times that of one.", format_share),
    measured("over_below", "Over the previous stage",
              "Step time of the previous stage over that of this one.", format_ratio, "x"),
    measured("replayed", "Replication", "Where a number should come out when it is replicated, if "
              "only chance lies between.", format_text),
    measured("cautions", "Warnings and notes", "A sentence says which number it is about.",
              format_text),
    measured("facts", "Facts", "What a run records of its machine, its model and its data."),
)  # fmt: skip

NUMBERS: dict[str, Metric] = {**METRICS, **{number.name: number for number in _RECORDED}}
