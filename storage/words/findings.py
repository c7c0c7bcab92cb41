"""One message for each kind of finding in a profile, with its evidence and its remedy."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from breakeven.runner.arguments.options import FIELDS, written
from breakeven.runner.texts import printable
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, joined, say, short
from breakeven.storage.profile.findings import CostFinding, Kind, Remedy
from breakeven.storage.profile.guards import guard_in
from breakeven.storage.profile.kernel_classes import CLASSES
from breakeven.storage.words.compiler_advice import (
    IN_LOOP,
    LOOP,
    about_break,
    about_guard,
    about_shapes,
)

Facts = Mapping[str, Any]
"""The facts of a finding."""
OPEN_ENDED: tuple[Kind, ...] = ("graph_breaks",)
"""Findings that may cost more than measured, for example because a graph break prevents fusion."""


def finding_words(finding: CostFinding) -> Sentence:
    """A finding with its evidence, and other runs that have the same."""
    saving: tuple[Words, ...] = ()
    if finding.seconds is not None and finding.share is not None:
        bound = "at least" if finding.kind in OPEN_ENDED else "up to"
        saving = (
            f" Potential saving: {bound} ",
            figure("profile_seconds", finding.seconds),
            " a step, ",
            figure("profile_share", finding.share),
            ".",
        )
    others = [
        label if seconds is None else say(f"{label} (", figure("profile_seconds", seconds), ")")
        for label, seconds in finding.also
    ]
    also = (" Also in ", joined(others, ", "), ".") if others else ()
    return say(EVIDENCE[finding.kind](finding.facts), *saving, *also)


def remedy_words(finding: CostFinding) -> str:
    """Advice on a finding, and the remedy to measure, if there is one."""
    remedy, advice = finding.remedy, ADVICE.get(finding.kind, "")
    if finding.kind in ("given_up", "graph_breaks"):
        reason = finding.facts["reason"]
        advice = about_break(reason) + (LOOP if IN_LOOP in reason else "")
    elif finding.kind == "recompiled":
        advice = about_guard(finding.facts["reason"])[1]
    elif finding.kind == "shapes_vary":
        advice = about_shapes(finding.facts)
    return advice if remedy is None else f"{advice} Measure it: {remedy_option(remedy)}."


def remedy_option(remedy: Remedy) -> str:
    """The options of the command line for a remedy."""
    if remedy.backend is not None:
        return f"add the backend {remedy.backend}"
    return " ".join(text for path, value in remedy.fields for text in written(FIELDS[path], value))


def _seconds(facts: Facts, name: str) -> Figure:
    return figure("profile_seconds", facts[name])


def _compile_seconds(facts: Facts, name: str) -> Figure:
    return figure("compile_seconds", facts[name])


def _lines(facts: Facts) -> str:
    return ", ".join(facts["lines"]) or "lines that are not known"


def _attention_unfused(facts: Facts) -> Sentence:
    exact: tuple[Words, ...] = ()
    if facts["float32_seconds"]:
        exact = (
            ", ",
            _seconds(facts, "float32_seconds"),
            " of them in float32 without tensor cores",
        )
    return say(
        "attention left the fused kernel. The baseline spends ",
        _seconds(facts, "fused_seconds"),
        " in this kernel; here attention is a softmax of ",
        _seconds(facts, "softmax_seconds"),
        " between matrix products of ",
        _seconds(facts, "product_seconds"),
        *exact,
        ".",
    )


def _float32_products(facts: Facts) -> Sentence:
    return say(
        "matrix products run in float32, without tensor cores, although "
        f"{facts['precision']} was requested (longest: {short(facts['kernel'])})."
    )


def _tf32_off(facts: Facts) -> Sentence:
    return say("matrix products in float32 leave the device's tensor cores unused: TF32 is off.")


def _device_idle(facts: Facts) -> Sentence:
    why = "the host starts kernels more slowly than the device runs them"
    if facts["replays_graphs"]:
        why = "the graph is replayed, so the rest lies outside it"
    started = Figure("launches", f"{facts['launches']:,.0f} kernels or graphs")
    return say("the device waits: in each step ", started, f" are started, and {why}.")


def _underfilled(facts: Facts) -> Sentence:
    size = facts["batch_size"]
    batch = f"a batch size of {size}" if size else "this batch size"
    return say(
        f"some kernels have fewer blocks than the device has processors: at {batch} part of the "
        "device is unused."
    )


def _given_up(facts: Facts) -> Sentence:
    functions = ", ".join(facts["functions"]) or "a function"
    operators = ", ".join(facts["operators"]) or short(facts["reason"])
    where = f"{_lines(facts)} ({operators})"
    return say(f"{functions} runs without a compiler: Dynamo gave up at {where}.")


def _graph_breaks(facts: Facts) -> Sentence:
    operators = ", ".join(facts["operators"]) or short(facts["reason"])
    between: tuple[Words, ...] = ()
    if facts["between_seconds"]:
        between = (": ", _seconds(facts, "between_seconds"), " of a step lie between the parts")
    breaks = f"the graph breaks at {_lines(facts)} ({operators})"
    return say(f"{breaks}, and each part is entered from Python", *between, ".")


def _recompiled(facts: Facts) -> Sentence:
    times, reason = facts["times"], facts["reason"]
    limit = ", until Dynamo's limit; from then on it runs without a compiler"
    return say(
        f"{facts['function']} was compiled ",
        Figure("recompiles", "once" if times == 1 else f"{times} times"),
        " more, for ",
        _compile_seconds(facts, "total_seconds"),
        f", because {about_guard(reason)[0]} changed ({short(guard_in(reason))})",
        f"{limit if facts['is_over'] else ''}.",
    )


def _shapes_vary(facts: Facts) -> Sentence:
    sizes = "; ".join(
        f"dimension {row['dimension']} of {row['input']}: {row['sizes']} sizes from "
        f"{row['least']:,} to {row['most']:,}"
        for row in facts["varying"]
    )
    again: tuple[Words, ...] = ()
    if facts["times"]:
        times = "once" if facts["times"] == 1 else f"{facts['times']} times"
        limit = ", until Dynamo's limit; from then on it runs without a compiler"
        again = (
            " For that it was compiled ",
            Figure("recompiles", times),
            " more, for ",
            _compile_seconds(facts, "total_seconds"),
            f"{limit if facts['is_over'] else ''}.",
        )
    graphs = " Each shape is recorded as a CUDA graph of its own." if facts["has_graphs"] else ""
    return say(
        f"the model's inputs had {facts['distinct']:,} shapes in {facts['calls']:,} calls",
        f" ({printable(sizes)})" if sizes else "",
        f"; the last new one came in call {facts['last_new']:,}.",
        *again,
        graphs,
    )


def _random_as_eager(facts: Facts) -> Sentence:
    return say("separate kernels draw random numbers, as without a compiler, so that losses agree.")


def _padding(facts: Facts) -> Sentence:
    share = figure("profile_share", facts["padding_share"])
    return say(share, " of the tokens are padding, which is computed like the rest.")


def _small_kernels(facts: Facts) -> Sentence:
    phase = "" if pd.isna(facts["phase"]) else f" in the {facts['phase']}"
    return say(
        f"{facts['op']} is started ",
        Figure("kernel_calls", f"{facts['calls']:,.0f}"),
        f" times a step{phase} for ",
        _seconds(facts, "kernel_seconds"),
        " of work in all: starting it takes longer than running it.",
    )


def _costly_kernel(facts: Facts) -> Sentence:
    return say(
        f"one generated kernel, {short(facts['kernel'])}, takes ",
        _seconds(facts, "kernel_seconds"),
        f"; on all of {CLASSES[facts['work_class']]} the baseline spends ",
        _seconds(facts, "baseline_seconds"),
        ".",
    )


def _fell_back(facts: Facts) -> Sentence:
    operator = facts["op"] or "an operator"
    own = f"{operator} runs in no fused code: its own kernel, {short(facts['kernel'])}, takes "
    return say(own, _seconds(facts, "kernel_seconds"), ".")


def _optimizer_unfused(facts: Facts) -> Sentence:
    kernels = Figure("kernel_calls", f"{facts['kernels']:,.0f} kernels")
    return say("the optimizer updates the weights in ", kernels, " a step, not in one.")


def _optimizer_compiled_long(facts: Facts) -> Sentence:
    return say(
        "the optimizer took ",
        _compile_seconds(facts, "optimizer_seconds"),
        " to compile, all else ",
        _compile_seconds(facts, "rest_seconds"),
        ": without compiling the optimizer, training starts that much sooner.",
    )


def _copied_each_step(facts: Facts) -> Sentence:
    calls = Figure("kernel_calls", f"{facts['calls']:,.0f}")
    waits = "; the host waits for each copy that it reads" if facts["waits"] else ""
    return say("copies between host and device in each step: ", calls, f"{waits}.")


EVIDENCE: dict[Kind, Callable[[Facts], Sentence]] = {
    "attention_unfused": _attention_unfused,
    "float32_products": _float32_products,
    "tf32_off": _tf32_off,
    "device_idle": _device_idle,
    "underfilled": _underfilled,
    "given_up": _given_up,
    "graph_breaks": _graph_breaks,
    "recompiled": _recompiled,
    "shapes_vary": _shapes_vary,
    "random_as_eager": _random_as_eager,
    "padding": _padding,
    "small_kernels": _small_kernels,
    "costly_kernel": _costly_kernel,
    "fell_back": _fell_back,
    "optimizer_unfused": _optimizer_unfused,
    "optimizer_compiled_long": _optimizer_compiled_long,
    "copied_each_step": _copied_each_step,
}
"""For each kind, the sentence of its evidence."""
ADVICE: dict[Kind, str] = {
    "attention_unfused": "Allow half-precision sums in attention, write the mask so that a fused "
    "kernel accepts it, or keep the compiler out of attention.",
    "float32_products": "Allow half-precision sums in unfused attention, or find the code that "
    "leaves autocast.",
    "tf32_off": "Allow TF32, which rounds inputs to 10 bits.",
    "device_idle": "Replay CUDA graphs, make batches larger, or take a faster host.",
    "underfilled": "Make batches larger.",
    "random_as_eager": "Let the compiler draw them within its own kernels; losses then differ by "
    "chance.",
    "padding": "Sort samples by length, or pack them.",
    "small_kernels": "Compile that part, fuse it, or do it in one call over all tensors.",
    "costly_kernel": "Report it with this profile; until then keep the operator out of the graph.",
    "fell_back": "The compiler generates no code for some operators, or not for their types, such "
    "as sums over repeated indices in bf16: compute that part in float32, or write it another way.",
    "optimizer_unfused": "Ask for the optimizer's fused form.",
    "optimizer_compiled_long": "Compile only the forward pass, and compare step times.",
    "copied_each_step": "Keep data on the device, and read losses less often.",
}
"""What helps; of other kinds it depends on the reason (`remedy_words`)."""
