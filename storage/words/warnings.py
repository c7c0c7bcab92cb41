"""Texts of the warnings and notes of a comparison: one message for each kind of caution.

The terminal prints the sentences; pages and reports link every number to its definition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.texts import listed
from breakeven.storage.comparison.caution import Caution, Kind
from breakeven.storage.numbers.formats import count_of
from breakeven.storage.numbers.sentences import (
    Facts,
    Prepare,
    Sentence,
    fill,
    joined,
    prepared,
    recorded,
)
from breakeven.storage.statistics.intervals import MIN_PAIRS

MAX_NAMED = 3
"""Largest number of functions, operations or processes in one sentence."""
MAX_VALUE = 60
"""Largest number of characters of a setting's value that is not shortened."""


@dataclass(frozen=True)
class DeviceMessage:
    """A disturbance of the device: title, observation in a run, and remedy."""

    title: str
    seen: str
    remedy: str

    def fill(self, caution: Caution) -> Sentence:
        return fill(
            "{found} {remedy}", found=self.found(caution, "{runs} {seen}"), remedy=self.remedy
        )

    def found(self, caution: Caution, each: str) -> Sentence:
        """Runs with the same observation are named together."""
        alike: dict[Sentence, list[str]] = {}
        for run, facts in caution.runs.items():
            alike.setdefault(fill(self.seen, **facts), []).append(run)
        runs = [fill(each, runs=listed(names), seen=seen) for seen, names in alike.items()]
        processes = [
            fill(PROCESS, **{**one, "name": one["name"] or "a process"})
            for one in caution.figures["processes"]
        ]
        return fill(
            "{title}: {runs}<; seen: {processes}>.",
            title=self.title,
            runs=runs,
            processes=_first(processes),
        )


PROCESS = "{name} (pid {pid:d}<, {memory_bytes:others_memory_bytes}>)"
STEPS_DONE = "[{steps_done:,}< of {num_steps:,}> steps](num_steps)"
ENDED = {
    RunState.FAILED: "failed",
    RunState.CANCELLED: "was stopped",
    RunState.TIMEOUT: "was stopped by its time limit",
    RunState.OUT_OF_MEMORY: "ran out of memory",
    RunState.LOST: "was lost",
    RunState.FINISHED: "has its last finite loss",
}


def caution_words(caution: Caution) -> Sentence:
    """The sentence of a caution, with advice."""
    kind = caution.kind
    if kind in DEVICE:
        return DEVICE[kind].fill(caution)
    template, facts = MESSAGES[kind], {**caution.figures, "facts_by_run": caution.runs}
    if "{run}" in template:
        ((run, mine),) = caution.runs.items()
        facts |= {**mine, "run": run}
    each = (fill(EACH.get(kind, "{run}"), run=run, **mine) for run, mine in caution.runs.items())
    facts["runs"] = joined(each, ", ") if "{runs}" in template else None
    return prepared(template, facts, PREPARE.get(kind))


def doubt_words(caution: Caution) -> Sentence:
    """The sentence of a disturbance during one run, shown next to the numbers of this run."""
    message = DEVICE[caution.kind]
    return message.found(caution, "{seen}")


def ending_words(facts: Facts) -> Sentence:
    """`failed at step 20 of 50`, from `state`, `steps_done` and `num_steps` (0 if unknown)."""
    template = "{verb} at [step {steps_done:d}< of {num_steps:d}>](num_steps)"
    if facts["steps_done"] == 0:
        template = "{verb} before its first step"
    elif 0 < facts["num_steps"] <= facts["steps_done"]:
        template = "{verb} after the last of its [{num_steps:d} steps](num_steps)"
    return fill(template, verb=ENDED[facts["state"]], **facts)


def _first(words: list[Any]) -> Sentence:
    """The first few words, and the number of the others."""
    more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
    return joined([joined(words[:MAX_NAMED], ", "), more])


def _ended_early(facts: Facts) -> Facts:
    """Slots for the run's end, and for the part of its speed that was measured before."""
    rounds, measured = facts.get("num_rounds"), Sentence()
    if rounds is not None and facts["role"] != "control" and facts["steps_done"]:
        if facts["role"] == "baseline":
            measured = fill(
                " The other runs are compared with its rounds before that."
                if rounds
                else " Nothing can be compared with it."
            )
        elif not rounds:
            measured = fill(" Too little was measured before to judge its speed.")
        else:
            is_whole = 0 < facts["num_steps"] <= facts["steps_done"]
            measured = fill(
                " Its speed was measured {when}, in [{rounds:d} rounds](round).",
                when="completely" if is_whole else "before",
                rounds=rounds,
            )
    return {"ending": ending_words(facts), "measured": measured}


def _resumed(facts: Facts) -> Facts:
    moves = [
        fill(
            "at [step {step:d}](step) on {after:d} instead of {before}",
            step=step,
            after=after,
            before=count_of(before, "device"),
        )
        for step, before, after in facts["moves"]
    ]
    steps = [fill("[step {step:d}](step)", step=step) for step in facts["steps"]]
    return {"steps": joined(steps, " and "), "moves": joined(moves, " and ")}


def _grouped(name: str, template: str) -> Callable[[Facts], Facts]:
    """A function for the slot `groups`: each value of a fact with the runs that have the value."""

    def group(facts: Facts) -> Facts:
        groups: dict[Any, list[str]] = {}
        for run, mine in facts["facts_by_run"].items():
            groups.setdefault(mine[name], []).append(run)
        return {
            "groups": [
                fill(template, value=_short(value), runs=runs) for value, runs in groups.items()
            ]
        }

    return group


def _short(value: Any) -> Any:
    """Shortens a long hash or path to both ends, which identify it."""
    if value is None:
        return "not set"
    is_long = isinstance(value, str) and len(value) > MAX_VALUE
    return f"{value[:20]}...{value[-20:]}" if is_long else value


def _lines(facts: Facts) -> list[str]:
    runs = facts["facts_by_run"].items()
    return [f"{count_of(mine['num_lines'], 'line')} of {run}" for run, mine in runs]


def _no_control(facts: Facts) -> Facts:
    state = facts["state"]
    where = "" if facts["environment"] is None else f" in {facts['environment']}"
    if state is None:
        missing = f"The control's run folder{where} is missing or unreadable"
        why = missing if facts["was_asked_for"] else "There is no control"
    elif state.is_final:
        why = f"The control{where} recorded no step ({state_words(state)})"
    else:
        why = f"The control{where} has recorded no step yet ({state})"
    return {"why": why}


def _given_up(facts: Facts) -> Facts:
    functions = [
        fill(
            "<{is_part:?}some calls of >{name}< ({place})>",
            **{**one, "name": one["name"] or "a function"},
        )
        for one in facts["functions"]
    ]
    return {"functions": _first(functions), "reason": facts["reason"].rstrip(".")}


def _measuring_ended(facts: Facts) -> Facts:
    return {
        "rounds": listed(list(map(str, facts["num_rounds"]))),
        "num_over": len(facts["num_rounds"]),
        "has_repeats": facts["repeats"] > 1,
    }


MESSAGES: dict[Kind, str] = {
    "missing runs": "Runs whose folder is missing or unreadable have no numbers: "
    "{runs}.<{lacks_baseline:?} "
    "Nothing can be compared with that baseline.>",
    "ended early": "{run} {ending}<: {reason:recorded}>.<{measured}>",
    "loss not finite": "{run} has a loss that is not finite, first at [step {step:d}](step).",
    "not over": "The numbers of runs that are not over are preliminary: {runs}.",
    "different lengths": "The runs trained for different numbers of steps: {groups}. Their "
    "final losses and "
    "accuracies belong to trainings of different lengths.< The script reads the clock "
    "({clock_reads}): a time budget ends its runs after as many steps as they make in it.>",
    "stopped": "{run} stopped at [step {step:d} of {num_steps:d}](num_steps): {reason:recorded}.",
    "resumed": "{run} was resumed at {steps}: its later part <{has_compiled:?}compiled again, "
    "and compile "
    "latency, graph breaks and recompiles count the first part only><{has_compiled:!}ran in a "
    "new process>; rounds that it did without the baseline do not count.< It continued "
    "{moves}: its step time, throughput and memory mix both parts.>",
    "rounds not added": "Adding rounds to {runs} ended early: {reason:recorded}.",
    "rounds added": "Of [{num_rounds:d} rounds](round) {num_added:d} were added later by "
    "further processes of "
    "{runs}. Compile latency, step time, losses and evaluations come from the first "
    "processes.",
    "repeated lines": "The journals have lines that do not follow the lines before, for example "
    "because a "
    "journal was copied into itself: {counts}. The numbers leave these lines out.",
    "missing lines": "The journals lack lines that the runs wrote, for example because a disk "
    "or a copy lost a "
    "part: {counts}. All numbers come from the remaining lines.",
    "different setting": "The runs differ in {setting}: {groups}.",
    "different sizes": "The script gave runs other amounts of work than the baseline: {runs}. "
    "These rounds are "
    "not compared. Have every run take the same samples.",
    "fallback": "This experiment repeats {experiment_id} one run at a time, because its runs "
    "could not be "
    "alive at once: they need more memory than there is, or the same port, file or lock.",
    "sequential": "The runs took place one after another, so the speedups include drift of "
    "clocks, heat and "
    "other load.",
    "compiled together": "Several runs compiled at the same time: compile latencies and "
    "break-evens are those of a "
    "machine under load. Speedups are not affected: all runs compiled before the timed "
    "rounds.",
    "no control": "{why}: <{is_inference:?}this machine's noise cannot><{is_inference:!}neither "
    "this "
    "machine's noise nor parity can> be judged.",
    "noisy": "This machine is noisy: two equal runs differ by up to {noise_floor:noise_floor}, and "
    "smaller differences are not called faster or slower.",
    "few rounds": f"Fewer than {MIN_PAIRS} rounds can be paired with the baseline, so there is "
    "no interval: {runs}. Train for more steps.",
    "nothing compiled": "Nothing was compiled in {runs}: <{is_script:?}the script never called "
    "the compiled "
    "object, or the compiler left it alone><{is_script:!}the compiler found nothing in the "
    "model that it could capture>, so <{is_one:?}this run is><{is_one:!}these "
    "runs are> the same as the baseline.",
    "given up": "{run} runs {functions} without a compiler, because the compiler gave up "
    "there<{is_all:?} "
    "and compiled nothing else>: {reason}.",
    "compiles throughout": "{run} kept <{is_code:?}compiling code><{is_code:!}capturing CUDA "
    "graphs> until its end, "
    "in {num_compiled_steps:d} of {steps_done:d} steps, so it has no steady block. With "
    "compiling, a step took {compiled_step_seconds:step_seconds}<, the baseline's "
    "{baseline_step_seconds:step_seconds}>. More steps would hardly help.",
    "operations unknown": "Floating-point operations are not known: there is no FLOP formula "
    "for {names}.",
    "answers not compared": "Answers of the compiled model were not compared with those of the "
    "same weights without a "
    "compiler: {runs}< ({error:recorded})>. Their parity does not cover inference.",
    "measuring ended": "Measuring ended after [{rounds} rounds](round)<{has_repeats:?} in "
    "{num_over:d} of "
    "{repeats:d} repeats>: {reason:recorded}.",
    "candidates ended": "Candidates that ended: {runs}.",
    "search ended": "Candidates tried: {num_tried:d}. The search ended: {reason:recorded}.",
    "confirms": "This training tests the answer of the search {experiment_id}, in fresh "
    "processes and from "
    "the beginning.",
    "wide intervals": "Intervals are wider than the requested "
    "[{target_width:noise_floor}](speedup): {runs}; "
    "<{has_repeats:?}processes of the same run differ, and only more repeats show by how "
    "much><{has_repeats:!}allow more rounds or seconds, or use a quieter machine>.",
    "single repeats": "Only one process of {repeats:d} was measured long enough in {runs}: the "
    "interval does not "
    "include how much processes differ.",
    "latency measured once": "Compile latency of {runs} was measured once: the interval of "
    "[break-even](break_even_low) "
    "includes the uncertainty of the saving, but not the variation of compile latencies.",
    "note": "{text}",
    "strangers unknown": "It is not known whether other processes used the device: the driver "
    "does not list the "
    "runs' own processes by their ids, as in many containers.",
    "warmed up": "The device warmed up from [{begin:.0f} to {end:.0f} °C](temperature_celsius) "
    "while "
    "steady blocks ran: step times of later blocks are those of a warmer device. Runs "
    "that take turns share this; a longer warm-up avoids it.",
}
"""A template for each kind of caution. Its slots are the figures of the caution, the list `runs`
(`EACH` filled for every run), the values that `PREPARE` adds and, for a template with the slot
`run`, the facts of the only run."""
EACH: dict[Kind, str] = {
    "candidates ended": "{run} ({reason:recorded})",
    "not over": f"{{run}} ({{state}}, {STEPS_DONE})",
    "different sizes": "{run} in [{num_rounds:d} rounds](round) "
    "([{size:.6g}](samples_per_second) {of} a step "
    "instead of [{baseline_size:.6g}](samples_per_second) in the first of them)",
    "few rounds": "{run} ({num_rounds:round})",
    "wide intervals": "{run} [{width:noise_floor}](speedup)",
}
PREPARE: dict[Kind, Prepare] = {
    "ended early": _ended_early,
    "different lengths": _grouped("num_steps", "[{value:d}](num_steps) ({runs})"),
    "resumed": _resumed,
    "repeated lines": lambda facts: {"counts": _lines(facts)},
    "missing lines": lambda facts: {"counts": _lines(facts)},
    "different setting": _grouped("value", "{value} ({runs})"),
    "no control": _no_control,
    "nothing compiled": lambda facts: {"is_one": len(facts["facts_by_run"]) == 1},
    "given up": _given_up,
    "operations unknown": lambda facts: {"names": _first(list(facts["names"]))},
    "answers not compared": lambda facts: {
        "error": next(
            (mine["error"] for mine in facts["facts_by_run"].values() if mine["error"]), ""
        )
    },
    "measuring ended": _measuring_ended,
    "wide intervals": lambda facts: {"has_repeats": facts["repeats"] > 1},
    "note": lambda facts: {"text": recorded(facts["text"])},
}
BLOCKS_SEEN = "in {num_seen:d} of {num_looked:d} steady blocks"
DEVICE: dict[Kind, DeviceMessage] = {
    "throttled": DeviceMessage(
        "The device throttled its clocks",
        f"{BLOCKS_SEEN} ([{{held_back}}](held_back))",
        "Lock its clocks at a speed that it can sustain (nvidia-smi --lock-gpu-clocks), and run "
        "again.",
    ),
    "shared device": DeviceMessage(
        "Other processes were on the device",
        "in [{num_seen:d} of {num_looked:d} samples](facts)<{was_before:?}, already before the "
        "first block>",
        "End them or choose another device, and run again.",
    ),
    "shared CPU": DeviceMessage(
        "Other processes took CPU time while steady blocks ran",
        "{others_cpu_share:others_cpu_share} of {num_cpus:.0f} CPUs",
        "End them or wait until they are done, and run again.",
    ),
    "stolen CPU": DeviceMessage(
        "The host of this virtual machine gave CPU time to others while steady blocks ran",
        "{stolen_cpu_share:stolen_cpu_share} of the CPU time",
        "Run again at a quieter time, or on a dedicated machine.",
    ),
    "CPU quota": DeviceMessage(
        "The CPU quota of the container throttled runs",
        BLOCKS_SEEN,
        "Use fewer threads (cpu_threads), or raise the quota, and run again.",
    ),
    "other clock": DeviceMessage(
        "The device's clock differed from the baseline's",
        "[{sm_clock_mhz:,.0f} MHz against {baseline:,.0f} MHz ({change:+.1%})](sm_clock_mhz)",
        "A higher clock makes a run look faster than its code is, a lower clock slower, by up to "
        "that much. Lock the clocks (nvidia-smi --lock-gpu-clocks) and run again.",
    ),
    "other frequency": DeviceMessage(
        "The CPU's frequency differed from the baseline's",
        "[{cpu_frequency_mhz:,.0f} MHz against {baseline:,.0f} MHz ({change:+.1%})]"
        "(cpu_frequency_mhz)",
        "A higher frequency makes a run look faster than its code is, a lower frequency slower, by "
        "up to that much. Fix the frequency (cpupower frequency-set) and run again.",
    ),
    "many threads": DeviceMessage(
        "There were more threads than CPUs that the run may use",
        "{num_threads:.0f} threads on {num_cpus:.0f} CPUs",
        "Threads wait for each other: use fewer (cpu_threads).",
    ),
}
