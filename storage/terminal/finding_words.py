"""What profiles show, in words: a sentence for why a run is faster or slower than the baseline, and
one for each kind of finding, with its evidence and its remedy."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from breakeven.runner.commands.options import FIELDS, written
from breakeven.runner.folders.states import RunState
from breakeven.storage.numbers.formats import format_count
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, joined, said
from breakeven.storage.profile.classes import CLASSES
from breakeven.storage.profile.explanation import Bridge, OwnSpeedup
from breakeven.storage.profile.findings import CostFinding, Kind, Remedy
from breakeven.storage.profile.profiles import IDLE, Misfit, Profile
from breakeven.storage.terminal.ending_words import VERBS

MAX_PARTS = 3
"""Classes named on each side of a bridge."""
WORTH_NAMING = 0.02
"""Of the baseline's step, below which a part is not named."""
HOST_BOUND = 0.10
"""Of a step, from which on idle time makes the clock's speedup depend on the host."""
MAX_KERNEL_NAME = 90
OPEN_ENDED: tuple[Kind, ...] = ("graph_breaks",)
"""Findings that may cost more than is known: what a graph break keeps from being fused, say."""
Facts = Mapping[str, Any]


def class_title(work_class: str, *, works_by_itself: bool = True) -> str:
    """The name of a class for people; of idle time by what idles."""
    if work_class == IDLE:
        return "device idle" if works_by_itself else "Python, between operators"
    title = CLASSES[work_class]
    # Where the CPUs are the device nobody expects any.
    return title if works_by_itself else title.removesuffix(", no tensor cores")


def bridge_words(found: Bridge, own: OwnSpeedup | None) -> Sentence:
    """Why a run takes as long as it does, beside the baseline."""
    spent = found.parts[found.parts["difference"] > 0].nlargest(MAX_PARTS, "difference")
    saved = found.parts[found.parts["difference"] < 0].nsmallest(MAX_PARTS, "difference")
    least = WORTH_NAMING * (found.baseline.step_seconds or 0.0)
    words: list[Words] = [
        said(
            "{seconds} a step, {change} than the baseline.",
            seconds=figure("step_seconds", found.run.step_seconds),
            change=_change(found.difference),
        )
    ]
    for verb, parts in (("Saved:", saved), ("Added:", spent)):
        named = parts[parts["difference"].abs() >= least]
        if not named.empty:
            listed = joined([_part(row, found) for row in named.itertuples()], ", ")
            words.append(said(" {verb} {listed}.", verb=verb, listed=listed))
    if own is not None:
        words.append(said(" {sure}", sure=own_words(found, own)))
    return joined(words)


def own_words(found: Bridge, own: OwnSpeedup) -> Sentence:
    """Which of the two speedups is sure on another host."""
    interval = "" if own.low is None else f" ({own.low:.2f} to {own.high:.2f})"
    share = max(found.baseline.idle_share or 0.0, found.run.idle_share or 0.0)
    number = Figure("own_speedup", f"{own.ratio:.2f}x{interval}")
    if share < HOST_BOUND:
        return said("By the device's own time it is {ratio}: the host hardly matters.",
                    ratio=number)  # fmt: skip
    return said(
        "By the device's own time it is {ratio}: that holds on any host, while the clock's speedup "
        "depends on how fast this one starts kernels.",
        ratio=number,
    )


def _change(seconds: float) -> Sentence:
    word = "more" if seconds > 0 else "less"
    return said("{seconds} {word}", seconds=figure("profile_seconds", abs(seconds)), word=word)


def _part(row: Any, found: Bridge) -> Sentence:
    title = class_title(row.work_class, works_by_itself=found.run.works_by_itself)
    return said("{seconds} of {title}", title=title,
                seconds=figure("profile_seconds", abs(row.difference)))  # fmt: skip


def profile_words(profile: Profile) -> Sentence:
    """What profiling a run cost, or why there is no profile, or why none is shown."""
    if profile.misfit is not None:
        return _withheld(profile.label, profile.misfit)
    if not profile.is_known:
        why = "; ".join(profile.failures) or _why_not(profile.state)
        return said("{run} has no profile: {why}.", run=profile.label, why=why)
    scaled = said(
        " A step took {seconds} while it was profiled; its parts are scaled to the timed step.",
        seconds=figure("profile_seconds", float(profile.middle["seconds"])),
    )
    return said(
        "{run}: profiled for {cost}, in no timing; {unknown} of its time in kernels that no rule "
        "knows.{scaled}",
        run=profile.label,
        cost=figure("profile_cost_seconds", profile.cost_seconds),
        scaled="" if profile.works_by_itself else scaled,
        unknown=figure("unknown_share", profile.unknown_share),
    )


def _why_not(state: RunState) -> str:
    if state.ended_early:
        return f"the run {VERBS[state]} before"
    return "it was recorded without, or too short" if state.is_final else "it comes in the end"


def _withheld(label: str, found: Misfit) -> Sentence:
    if found.kind == "times":
        return said("{run}: the profile is withheld, because it has times that no step can take.",
                    run=label)  # fmt: skip
    words = {
        "sum": "its parts come to {parts} where {step} were measured",
        "pace": "steps took {parts} while they were profiled and {step} before",
    }[found.kind]
    return said(
        f"{{run}}: the profile is withheld, because {words}; run it again where nothing else runs.",
        run=label,
        parts=figure("profile_seconds", found.seconds),
        step=figure("profile_seconds", found.step_seconds),
    )


def finding_words(finding: CostFinding) -> Sentence:
    """What was found of a run, with its evidence, and who else has it."""
    parts: list[Words] = [SENTENCES[finding.kind](finding.facts)]
    if finding.seconds is not None and finding.share is not None:
        bound = "at least" if finding.kind in OPEN_ENDED else "up to"
        parts.append(said(f" At stake: {bound} {{seconds}} a step, {{share}}.",
                          seconds=figure("profile_seconds", finding.seconds),
                          share=figure("profile_share", finding.share)))  # fmt: skip
    if finding.also:
        others = [label if seconds is None
                  else said("{run} ({seconds})", run=label, seconds=_seconds(seconds))
                  for label, seconds in finding.also]  # fmt: skip
        parts.append(said(" So has {others}.", others=joined(others, ", ")))
    return joined(parts)


def remedy_words(finding: CostFinding) -> str:
    """What to do about it; with a remedy that can be measured, what that is."""
    remedy = finding.remedy
    if remedy is not None:
        return f"{ADVICE[finding.kind]} Measure it: {remedy_option(remedy)}."
    return ADVICE[finding.kind]


def remedy_option(remedy: Remedy) -> str:
    """As the command line takes it."""
    if remedy.backend is not None:
        return f"add the backend {remedy.backend}"
    return " ".join(text for path, value in remedy.fields for text in written(FIELDS[path], value))


def _seconds(seconds: float) -> Figure:
    return figure("profile_seconds", seconds)


def _attention_unfused(facts: Facts) -> Sentence:
    return said(
        "attention left the fused kernel. The baseline spends {fused} in one; here it is a softmax "
        "of {softmax} between matrix products of {products}{float32}.",
        fused=_seconds(facts["fused_seconds"]),
        softmax=_seconds(facts["softmax_seconds"]),
        products=_seconds(facts["product_seconds"]),
        float32=said(", {seconds} of them in float32 without tensor cores",
                     seconds=_seconds(facts["float32_seconds"]))
        if facts["float32_seconds"] > 0
        else "",
    )  # fmt: skip


def _float32_products(facts: Facts) -> Sentence:
    return said(
        "matrix products run in float32, without tensor cores, though {precision} was asked for "
        "(longest: {kernel}).",
        precision=facts["precision"],
        kernel=_kernel(facts["kernel"]),
    )


def _tf32_off(facts: Facts) -> Sentence:
    return said("matrix products in float32 leave the device's tensor cores unused: TF32 is off.")


def _device_idle(facts: Facts) -> Sentence:
    how = "the graph is replayed, so what is left lies outside it" if facts["replays_graphs"] else (
        "the host starts kernels more slowly than the device works them off"
    )  # fmt: skip
    return said("the device waits: in each step {launches} are started, and {how}.",
                launches=Figure("launches", f"{format_count(facts['launches'])} kernels or graphs"),
                how=how)  # fmt: skip


def _underfilled(facts: Facts) -> Sentence:
    size = facts["batch_size"]  # that of a script nobody but itself knows
    at = "at this batch size" if size is None else f"at a batch size of {size}"
    return said("kernels with fewer blocks than the device has processors: {at} they leave it "
                "partly empty.", at=at)  # fmt: skip


def _graph_breaks(facts: Facts) -> Sentence:
    lines = ", ".join(facts["lines"]) or "lines that are not known"
    between = facts["between_seconds"]
    takes = "" if between is None else said(
        ": {seconds} of a step lie between the parts", seconds=figure("profile_seconds", between)
    )  # fmt: skip
    return said("the graph breaks at {lines} ({reason}), and each part is entered from "
                "Python{takes}.", lines=lines, reason=_first_line(facts["reason"]),
                takes=takes)  # fmt: skip


def _recompiled(facts: Facts) -> Sentence:
    return said(
        "{function} was compiled {times} more, for {seconds}, because a guard failed ({reason}).",
        function=facts["function"],
        times=Figure("recompiles", _times(facts["times"])),
        seconds=figure("compile_seconds", facts["total_seconds"]),
        reason=_first_line(facts["reason"]),
    )


def _random_as_eager(facts: Facts) -> Sentence:
    return said("random numbers are drawn by kernels of their own, as without a compiler, so that "
                "losses agree.")  # fmt: skip


def _padding(facts: Facts) -> Sentence:
    return said("{share} of the tokens are padding, which is computed with all the rest.",
                share=figure("profile_share", facts["padding_share"]))  # fmt: skip


def _small_kernels(facts: Facts) -> Sentence:
    where = f" in the {facts['phase']}" if isinstance(facts["phase"], str) else ""
    return said(
        "{op} is started {calls} times a step{where} for {seconds} of work in all: starting it "
        "takes longer than running it.",
        op=facts["op"],
        calls=Figure("kernel_calls", format_count(facts["calls"])),
        where=where,
        seconds=_seconds(facts["kernel_seconds"]),
    )


def _costly_kernel(facts: Facts) -> Sentence:
    return said(
        "one generated kernel, {kernel}, takes {seconds}; on all of {title} the baseline spends "
        "{before}.",
        kernel=_kernel(facts["kernel"]),
        seconds=_seconds(facts["kernel_seconds"]),
        title=CLASSES[facts["work_class"]],
        before=_seconds(facts["baseline_seconds"]),
    )


def _optimizer_unfused(facts: Facts) -> Sentence:
    kernels = Figure("kernel_calls", f"{format_count(facts['kernels'])} kernels")
    return said("the optimizer goes over all weights in {kernels} a step, not in one.",
                kernels=kernels)  # fmt: skip


def _copied_each_step(facts: Facts) -> Sentence:
    waits = "; the host waits for each one that it reads" if facts["waits"] else ""
    calls = Figure("kernel_calls", format_count(facts["calls"]))
    return said("in each step data travel between host and device {calls} times{waits}.",
                calls=calls, waits=waits)  # fmt: skip


SENTENCES: dict[Kind, Callable[[Facts], Sentence]] = {
    "attention_unfused": _attention_unfused,
    "float32_products": _float32_products,
    "tf32_off": _tf32_off,
    "device_idle": _device_idle,
    "underfilled": _underfilled,
    "graph_breaks": _graph_breaks,
    "recompiled": _recompiled,
    "random_as_eager": _random_as_eager,
    "padding": _padding,
    "small_kernels": _small_kernels,
    "costly_kernel": _costly_kernel,
    "optimizer_unfused": _optimizer_unfused,
    "copied_each_step": _copied_each_step,
}
ADVICE: dict[Kind, str] = {
    "attention_unfused": "Let half-precision sums be half precision, write the mask so that a "
    "fused kernel takes it, or keep the compiler out of attention.",
    "float32_products": "Let sums of unfused attention be made in half precision, or find what "
    "leaves autocast.",
    "tf32_off": "Allow TF32, which rounds inputs to 10 bits.",
    "device_idle": "Replay CUDA graphs, make batches larger, or take a faster host.",
    "underfilled": "Make batches larger.",
    "graph_breaks": "Rewrite the line, or move it out of the step.",
    "recompiled": "Keep shapes and flags the same from step to step, or compile with dynamic=true.",
    "random_as_eager": "Let the compiler draw them within its own kernels; losses then differ by "
    "chance.",
    "padding": "Sort samples by length, or pack them.",
    "small_kernels": "Compile that part, fuse it, or do it in one call over all tensors.",
    "costly_kernel": "Report it with this profile; until then keep the operator out of the graph.",
    "optimizer_unfused": "Ask for the optimizer's fused form.",
    "copied_each_step": "Keep data on the device, and read losses once in a while only.",
}
"""What to do about each kind of finding."""


def _kernel(name: str) -> str:
    return name if len(name) <= MAX_KERNEL_NAME else f"{name[:MAX_KERNEL_NAME]}…"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= MAX_KERNEL_NAME else f"{line[:MAX_KERNEL_NAME]}…"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def waterfall_rows(found: Bridge) -> pd.DataFrame:
    """The bridge as a table for people: part, baseline, run, difference, in seconds a step."""
    titles = [class_title(name, works_by_itself=found.run.works_by_itself)
              for name in found.parts["work_class"]]  # fmt: skip
    return found.parts.assign(part=titles)[["part", "baseline", "run", "difference"]]
