"""Texts of profiles: why a run is faster or slower than the baseline, and why it has no profile."""

from collections.abc import Sequence

import pandas as pd

from breakeven.runner.protocol.states import RunState
from breakeven.storage.comparison.warnings import ENDED
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, joined, say, short
from breakeven.storage.profile.explanation import Bridge, Explanation, OwnSpeedup
from breakeven.storage.profile.kernel_classes import CLASSES
from breakeven.storage.profile.recorded_profiles import IDLE, Misfit, Profile

MAX_PARTS = 3
"""Number of classes named on each side of a bridge."""
WORTH_NAMING = 0.02
"""Smallest share of the baseline's step for which a part is named."""
HOST_BOUND = 0.10
"""Share of idle time in a step from which on the speedup depends on the host."""
MAX_UNKNOWN = 3
"""Number of named kernels without a class; JSON has all."""


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
