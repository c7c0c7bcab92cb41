"""Texts of profiles: why a run is faster or slower than the baseline, and one message for each kind
of finding, with its evidence and its remedy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from breakeven.runner.arguments.options import FIELDS, written
from breakeven.runner.protocol.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.comparison.warnings import ENDED
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, joined, say, short
from breakeven.storage.profile.explanation import Bridge, Explanation, OwnSpeedup
from breakeven.storage.profile.findings import CostFinding, Kind, Remedy
from breakeven.storage.profile.guards import guard_in
from breakeven.storage.profile.kernel_classes import CLASSES
from breakeven.storage.profile.recorded_profiles import IDLE, Misfit, Profile
from breakeven.storage.words.compiler_advice import (
    IN_LOOP,
    LOOP,
    about_break,
    about_guard,
    about_shapes,
)

Facts = Mapping[str, Any]
"""The facts of a finding."""
MAX_PARTS = 3
"""Number of classes named on each side of a bridge."""
WORTH_NAMING = 0.02
"""Smallest share of the baseline's step for which a part is named."""
HOST_BOUND = 0.10
"""Share of idle time in a step from which on the speedup depends on the host."""
MAX_UNKNOWN = 3
"""Number of named kernels without a class; JSON has all."""
OPEN_ENDED: tuple[Kind, ...] = ("graph_breaks",)
"""Findings that may cost more than measured, for example because a graph break prevents fusion."""


def class_title(work_class: str, *, works_by_itself: bool = True) -> str:
    """The displayed name of a class; idle time is named after the idle part."""
    if work_class == IDLE:
        return "device idle" if works_by_itself else "Python, between operators"
    title = CLASSES[work_class]
    # A CPU has no tensor cores.
    return title if works_by_itself else title.removesuffix(", no tensor cores")


def bridge_words(bridge: Bridge, own: OwnSpeedup | None) -> Sentence:
    """Why a step of a run takes more or less time than the baseline's."""
    spent = bridge.parts[bridge.parts["difference"] > 0].nlargest(MAX_PARTS, "difference")
    saved = bridge.parts[bridge.parts["difference"] < 0].nsmallest(MAX_PARTS, "difference")
    return say(
        figure("step_seconds", bridge.run.step_seconds),
        " a step, ",
        figure("profile_seconds", abs(bridge.difference)),
        f" {'more' if bridge.difference > 0 else 'less'} than the baseline.",
        *_listed_parts("Saved", saved, bridge),
        *_listed_parts("Added", spent, bridge),
        *((" ", own_words(bridge, own)) if own else ()),
    )


def _listed_parts(title: str, parts: pd.DataFrame, bridge: Bridge) -> tuple[Words, ...]:
    """Nothing where no part is worth naming."""
    least = WORTH_NAMING * (bridge.baseline.step_seconds or 0.0)
    named = [
        say(
            figure("profile_seconds", abs(row.difference)),
            f" in “{class_title(row.work_class, works_by_itself=bridge.run.works_by_itself)}”",
        )
        for row in parts[parts["difference"].abs() >= least].itertuples()
    ]
    return (f" {title}: ", joined(named, ", "), ".") if named else ()


def own_words(bridge: Bridge, own: OwnSpeedup) -> Sentence:
    """The speedup of the device's busy time, and whether the whole speedup depends on the host."""
    share = max(bridge.baseline.idle_share or 0.0, bridge.run.idle_share or 0.0)
    interval = "" if own.low is None else f" ({own.low:.2f} to {own.high:.2f})"
    host = "and the device rarely waits for the host"
    if share >= HOST_BOUND:
        host = (
            "the same on any host; the speedup of the whole step depends on how fast this host "
            "starts kernels"
        )
    speedup = Figure("own_speedup", f"{own.ratio:.2f}x{interval}")
    return say("GPU-busy-time speedup: ", speedup, f", {host}.")


def words_of_profiles(profiles: Sequence[Profile]) -> list[Sentence]:
    """The words of each profile; the advice on those that are withheld stands once, after the only
    one or in a line for all."""
    withheld = [_may_fit_again(profile) for profile in profiles]
    if sum(withheld) <= 1:
        return [profile_words(profile) for profile in profiles]
    return [*map(_profile_words, profiles), say(AGAIN)]


def profile_words(profile: Profile) -> Sentence:
    """The cost of profiling a run, or why it has no profile, or why the profile is withheld, with
    advice."""
    text = _profile_words(profile)
    return say(text, f" {AGAIN}") if _may_fit_again(profile) else text


AGAIN = "Run it again where nothing else runs."


def _may_fit_again(profile: Profile) -> bool:
    """Whether a profile is withheld because of what else ran."""
    return profile.misfit is not None and profile.misfit.kind != "times"


def _profile_words(profile: Profile) -> Sentence:
    if profile.misfit is not None:
        return say(f"{profile.label}: the profile is withheld, because ", *_misfit(profile.misfit))
    if not profile.is_known:
        why = "; ".join(profile.failures) or _why_not(profile)
        return say(f"{profile.label} has no profile: {why}.")
    unknown = profile.unknown_kernels
    more = f", and {len(unknown) - MAX_UNKNOWN} more" if len(unknown) > MAX_UNKNOWN else ""
    kernels = f": {', '.join(map(short, unknown[:MAX_UNKNOWN]))}{more}" if len(unknown) else ""
    scaled: tuple[Words, ...] = ()
    if not profile.works_by_itself:
        step = figure("profile_seconds", float(profile.middle["seconds"]))
        rest = " while it was profiled; its parts are scaled to the timed step."
        scaled = (" A step took ", step, rest)
    return say(
        f"{profile.label}: profiling took ",
        figure("profile_cost_seconds", profile.cost_seconds),
        ", in no step time; ",
        figure("unknown_share", profile.unknown_share),
        f" unclassified{kernels}.",
        *scaled,
    )


def _why_not(profile: Profile) -> str:
    state = profile.state
    if state.ended_early:
        return f"the run {ENDED[state]} before its profile"
    return "it was off, or the run too short" if state.is_final else "the timed steps come first"


def _misfit(misfit: Misfit) -> tuple[Words, ...]:
    if misfit.kind == "times":
        return ("it has times that no step can take.",)
    parts = figure("profile_seconds", misfit.seconds)
    step = figure("profile_seconds", misfit.step_seconds)
    if misfit.kind == "sum":
        return ("its parts come to ", parts, " where ", step, " were measured.")
    return ("steps took ", parts, " while they were profiled and ", step, " before.")


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


def waterfall_rows(bridge: Bridge) -> pd.DataFrame:
    """The bridge as a table for display: part, baseline, run, difference, in seconds per step."""
    titles = [
        class_title(name, works_by_itself=bridge.run.works_by_itself)
        for name in bridge.parts["work_class"]
    ]
    return bridge.parts.assign(part=titles)[["part", "baseline", "run", "difference"]]


def unprofiled_words(explanation: Explanation) -> str:
    """Why no run of an experiment has a profile."""
    if withheld := [profile for profile in explanation.profiles if profile.misfit is not None]:
        return "\n".join(map(str, words_of_profiles(withheld)))
    states = [RunState(result.state) for result in explanation.comparison.results]
    if not explanation.comparison.spec.profiles:
        return "No run was profiled: the experiment has --profile-steps=0."
    if failures := [failure for profile in explanation.profiles for failure in profile.failures]:
        return f"Profiling failed: {failures[0]}."
    if not all(state.is_final for state in states):
        return "No run has been profiled yet: profiles follow the timed steps."
    if all(state.ended_early for state in states):
        return "No run was profiled: all runs ended before their profile."
    spec = explanation.comparison.spec
    if not spec.num_steps and spec.device != "cpu":
        return (
            "No run was profiled. On a GPU the last steps of a script are profiled, if its number "
            "of steps is known: from Trainer or Lightning, or from --steps."
        )
    return (
        "No run was profiled: the runs were too short for it, imported, or recorded by an older "
        "version."
    )


def bridge_rows(bridge: Bridge) -> list[list[str]]:
    """Titles, a row for each part of the bridge, and the sum."""
    header = ["a step", "baseline", bridge.run.label, "difference"]
    rows = [
        [row.part, *map(format_seconds, (row.baseline, row.run)), signed_seconds(row.difference)]
        for row in waterfall_rows(bridge).itertuples()
    ]
    total = [bridge.baseline.step_seconds, bridge.run.step_seconds]
    return [
        header,
        *rows,
        ["whole step", *map(format_seconds, total), signed_seconds(bridge.difference)],
    ]


def signed_seconds(seconds: float) -> str:
    """A difference of times with its sign."""
    sign = "+" if seconds > 0 else "-" if seconds < 0 else ""
    return sign + format_seconds(abs(seconds))
