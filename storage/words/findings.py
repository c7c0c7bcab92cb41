"""Texts of profiles: why a run is faster or slower than the baseline, and one message for each kind
of finding, with its evidence and its remedy."""

import pandas as pd

from breakeven.runner.arguments.options import FIELDS, written
from breakeven.runner.protocol.states import RunState
from breakeven.storage.comparison.warnings import ENDED
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.sentences import Prepare, Sentence, fill, prepared, short
from breakeven.storage.profile.classes import CLASSES
from breakeven.storage.profile.explanation import Bridge, Explanation, OwnSpeedup
from breakeven.storage.profile.findings import CostFinding, Kind, Remedy
from breakeven.storage.profile.guards import guard_in
from breakeven.storage.profile.profiles import IDLE, Profile
from breakeven.storage.words.compiler_advice import IN_LOOP, LOOP, about_break, about_guard

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
    return fill(
        "{step:step_seconds} a step, {difference:profile_seconds} {change} than the baseline."
        "< Saved: {saved}.>< Added: {spent}.>< {own}>",
        step=bridge.run.step_seconds,
        difference=abs(bridge.difference),
        change="more" if bridge.difference > 0 else "less",
        saved=_parts(saved, bridge),
        spent=_parts(spent, bridge),
        own=own_words(bridge, own) if own else "",
    )


def _parts(parts: pd.DataFrame, bridge: Bridge) -> list[Sentence]:
    least = WORTH_NAMING * (bridge.baseline.step_seconds or 0.0)
    return [
        fill(
            "{seconds:profile_seconds} in “{title}”",
            seconds=abs(row.difference),
            title=class_title(row.work_class, works_by_itself=bridge.run.works_by_itself),
        )
        for row in parts[parts["difference"].abs() >= least].itertuples()
    ]


def own_words(bridge: Bridge, own: OwnSpeedup) -> Sentence:
    """The speedup of the device's busy time, and whether the whole speedup depends on the host."""
    share = max(bridge.baseline.idle_share or 0.0, bridge.run.idle_share or 0.0)
    return fill(
        "GPU-busy-time speedup: [{ratio:.2f}x<{has_interval:?} ({low:.2f} to {high:.2f})>]"
        "(own_speedup), <{is_host_bound:!}and the device rarely waits for the host>"
        "<{is_host_bound:?}the same on any host; the speedup of the whole step depends on how fast "
        "this host starts kernels>.",
        ratio=own.ratio,
        low=own.low,
        high=own.high,
        has_interval=own.low is not None,
        is_host_bound=share >= HOST_BOUND,
    )


def profile_words(profile: Profile) -> Sentence:
    """The cost of profiling a run, or why it has no profile, or why the profile is withheld."""
    if profile.misfit is not None:
        parts, step = profile.misfit.seconds, profile.misfit.step_seconds
        return fill(MISFITS[profile.misfit.kind], run=profile.label, parts=parts, step=step)
    if not profile.is_known:
        why = "; ".join(profile.failures) or _why_not(profile)
        return fill("{run} has no profile: {why}.", run=profile.label, why=why)
    unknown = profile.unknown_kernels
    return fill(
        "{run}: profiling took {cost:profile_cost_seconds}, in no step time; "
        "{unknown:unknown_share} unclassified<: {kernels}<, and {more:d} more>>.<{is_scaled:?} "
        "A step took {step:profile_seconds} while it was profiled; its parts are scaled to the "
        "timed step.>",
        run=profile.label,
        cost=profile.cost_seconds,
        unknown=profile.unknown_share,
        kernels=", ".join(map(short, unknown[:MAX_UNKNOWN])) or None,
        more=max(0, len(unknown) - MAX_UNKNOWN) or None,
        step=float(profile.middle["seconds"]),
        is_scaled=not profile.works_by_itself,
    )


def _why_not(profile: Profile) -> str:
    state = profile.state
    if state.ended_early:
        return f"the run {ENDED[state]} before its profile"
    return "it was off, or the run too short" if state.is_final else "the timed steps come first"


MISFITS = {
    "times": "{run}: the profile is withheld, because it has times that no step can take.",
    "sum": "{run}: the profile is withheld, because its parts come to {parts:profile_seconds} "
    "where {step:profile_seconds} were measured; run it again where nothing else runs.",
    "pace": "{run}: the profile is withheld, because steps took {parts:profile_seconds} while they "
    "were profiled and {step:profile_seconds} before; run it again where nothing else runs.",
}


def finding_words(finding: CostFinding) -> Sentence:
    """A finding with its evidence, and other runs that have the same."""
    evidence, _ = MESSAGES[finding.kind]
    others = [
        fill(
            "{run}<{is_known:?} ({seconds:profile_seconds})>",
            run=label,
            seconds=seconds,
            is_known=seconds is not None,
        )
        for label, seconds in finding.also
    ]
    return fill(
        "{evidence}<{has_cost:?} Potential saving: {bound} {seconds:profile_seconds} a step, "
        "{share:profile_share}.>< Also in {others}.>",
        evidence=prepared(evidence, finding.facts, PREPARE.get(finding.kind)),
        has_cost=finding.seconds is not None and finding.share is not None,
        bound="at least" if finding.kind in OPEN_ENDED else "up to",
        seconds=finding.seconds,
        share=finding.share,
        others=others,
    )


def remedy_words(finding: CostFinding) -> str:
    """Advice on a finding, and the remedy to measure, if there is one."""
    remedy, (_, advice) = finding.remedy, MESSAGES[finding.kind]
    if finding.kind in ("given_up", "graph_breaks"):
        reason = finding.facts["reason"]
        advice = about_break(reason) + (LOOP if IN_LOOP in reason else "")
    elif finding.kind == "recompiled":
        advice = about_guard(finding.facts["reason"])[1]
    return advice if remedy is None else f"{advice} Measure it: {remedy_option(remedy)}."


def remedy_option(remedy: Remedy) -> str:
    """The options of the command line for a remedy."""
    if remedy.backend is not None:
        return f"add the backend {remedy.backend}"
    return " ".join(text for path, value in remedy.fields for text in written(FIELDS[path], value))


MESSAGES: dict[Kind, tuple[str, str]] = {
    "attention_unfused": (
        "attention left the fused kernel. The baseline spends {fused_seconds:profile_seconds} in "
        "this kernel; here attention is a softmax of {softmax_seconds:profile_seconds} between "
        "matrix products of {product_seconds:profile_seconds}<, {float32_seconds:profile_seconds} "
        "of them in float32 without tensor cores>.",
        "Allow half-precision sums in attention, write the mask so that a fused kernel accepts it, "
        "or keep the compiler out of attention.",
    ),
    "float32_products": (
        "matrix products run in float32, without tensor cores, although {precision} was requested "
        "(longest: {kernel:short}).",
        "Allow half-precision sums in unfused attention, or find the code that leaves autocast.",
    ),
    "tf32_off": (
        "matrix products in float32 leave the device's tensor cores unused: TF32 is off.",
        "Allow TF32, which rounds inputs to 10 bits.",
    ),
    "device_idle": (
        "the device waits: in each step [{launches:,.0f} kernels or graphs](launches) are started, "
        "and <{replays_graphs:?}the graph is replayed, so the rest lies outside it>"
        "<{replays_graphs:!}the host starts kernels more slowly than the device runs them>.",
        "Replay CUDA graphs, make batches larger, or take a faster host.",
    ),
    "underfilled": (
        "some kernels have fewer blocks than the device has processors: at <{batch_size:!}this "
        "batch size><a batch size of {batch_size:d}> part of the device is unused.",
        "Make batches larger.",
    ),
    "given_up": (
        "<{functions} runs><{has_none:?}a function runs> without a compiler: Dynamo gave up at "
        "{lines}< ({operators})>.",
        "",
    ),
    "graph_breaks": (
        "the graph breaks at {lines} ({operators}), and each part is entered from Python<: "
        "{between_seconds:profile_seconds} of a step lie between the parts>.",
        "",
    ),
    "recompiled": (
        "{function} was compiled [<{is_once:?}once><{is_once:!}{times:d} times>](recompiles) more, "
        "for {total_seconds:compile_seconds}, because {what} changed ({guard:short})"
        "<{is_over:?}, until Dynamo's limit; from then on it runs without a compiler>.",
        "",
    ),
    "random_as_eager": (
        "separate kernels draw random numbers, as without a compiler, so that losses agree.",
        "Let the compiler draw them within its own kernels; losses then differ by chance.",
    ),
    "padding": (
        "{padding_share:profile_share} of the tokens are padding, which is computed like the rest.",
        "Sort samples by length, or pack them.",
    ),
    "small_kernels": (
        "{op} is started [{calls:,.0f}](kernel_calls) times a step< in the {phase}> for "
        "{kernel_seconds:profile_seconds} of work in all: starting it takes longer than running "
        "it.",
        "Compile that part, fuse it, or do it in one call over all tensors.",
    ),
    "costly_kernel": (
        "one generated kernel, {kernel:short}, takes {kernel_seconds:profile_seconds}; on all of "
        "{title} the baseline spends {baseline_seconds:profile_seconds}.",
        "Report it with this profile; until then keep the operator out of the graph.",
    ),
    "fell_back": (
        "{op} runs in no fused code: its own kernel, {kernel:short}, takes "
        "{kernel_seconds:profile_seconds}.",
        "The compiler generates no code for some operators, or not for their types, such as sums "
        "over repeated indices in bf16: compute that part in float32, or write it another way.",
    ),
    "optimizer_unfused": (
        "the optimizer updates the weights in [{kernels:,.0f} kernels](kernel_calls) a step, not "
        "in one.",
        "Ask for the optimizer's fused form.",
    ),
    "optimizer_compiled_long": (
        "the optimizer took {optimizer_seconds:compile_seconds} to compile, all else "
        "{rest_seconds:compile_seconds}: without compiling the optimizer, training starts that "
        "much sooner.",
        "Compile only the forward pass, and compare step times.",
    ),
    "copied_each_step": (
        "copies between host and device in each step: [{calls:,.0f}](kernel_calls)"
        "<{waits:?}; the host waits for each copy that it reads>.",
        "Keep data on the device, and read losses less often.",
    ),
}
"""For each kind, a template of the evidence and the advice. Slots are the finding's facts and the
values that `PREPARE` adds."""
PREPARE: dict[Kind, Prepare] = {
    "given_up": lambda facts: {
        "lines": facts["lines"] or "lines that are not known",
        "functions": facts["functions"] or None,
        "has_none": not facts["functions"],
        "operators": facts["operators"] or [short(facts["reason"])],
    },
    "graph_breaks": lambda facts: {
        "lines": facts["lines"] or "lines that are not known",
        "operators": facts["operators"] or [short(facts["reason"])],
    },
    "recompiled": lambda facts: {
        "is_once": facts["times"] == 1,
        "what": about_guard(facts["reason"])[0],
        "guard": guard_in(facts["reason"]),
    },
    "small_kernels": lambda facts: {"phase": "" if pd.isna(facts["phase"]) else facts["phase"]},
    "costly_kernel": lambda facts: {"title": CLASSES[facts["work_class"]]},
    "fell_back": lambda facts: {"op": facts["op"] or "an operator"},
}


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
        return "\n".join(str(profile_words(profile)) for profile in withheld)
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
