"""What befell the device, in words: as warnings of a comparison, and beside one run's numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.storage.comparison.caution import Caution, Kind
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, joined, said

MAX_NAMED = 3
"""Of processes that were seen."""
Facts = Mapping[str, Any]


def device_words(caution: Caution) -> Sentence:
    """All that is to be said of it, and what to do about it."""
    words = DEVICE[caution.kind]
    runs = ((label, words.seen(facts)) for label, facts in caution.runs.items())
    listed = joined((said("{run} {seen}", run=label, seen=seen) for label, seen in runs), ", ")
    return said("{found} {remedy}", found=_found(caution, listed), remedy=words.remedy)


def doubt_words(caution: Caution) -> Sentence:
    """What befell the device while one run was timed, as it stands beside that run's numbers."""
    (facts,) = caution.runs.values()
    return _found(caution, DEVICE[caution.kind].seen(facts))


def _found(caution: Caution, seen: Words) -> Sentence:
    title, others = DEVICE[caution.kind].title, _named(caution.figures["processes"])
    ending = said("; seen: {others}", others=others) if others.parts else ""
    return said("{title}: {seen}{ending}.", title=title, seen=seen, ending=ending)


def _named(processes: Sequence[Facts]) -> Sentence:
    """`python (pid 4711, 2.00 GiB)` and so on, of the first few."""
    named = [
        said(
            "{name} (pid {pid}{size})",
            name=one["name"] or "a process",
            pid=str(one["pid"]),
            size=said(", {size}", size=figure("others_memory_bytes", one["memory_bytes"]))
            if one["memory_bytes"]
            else "",
        )
        for one in processes
    ]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return joined([joined(named[:MAX_NAMED], ", "), more])


def _throttled(facts: Facts) -> Sentence:
    reasons = Figure("held_back", ", ".join(facts["held_back"]))
    return said("{blocks} ({reasons})", blocks=_blocks(facts), reasons=reasons)


def _blocks(facts: Facts) -> Sentence:
    return said(f"in {facts['num_seen']} of {facts['num_looked']} steady blocks")


def _samples(facts: Facts) -> Sentence:
    count = Figure("facts", f"{facts['num_seen']} of {facts['num_looked']} samples")
    before = ", before the first block already" if facts["was_before"] else ""
    return said("in {count}{before}", count=count, before=before)


def _shared_cpu(facts: Facts) -> Sentence:
    share = figure("others_cpu_share", facts["others_cpu_share"])
    return said("{share} of {cpus} CPUs", share=share, cpus=str(facts["num_cpus"]))


def _stolen_cpu(facts: Facts) -> Sentence:
    share = figure("stolen_cpu_share", facts["stolen_cpu_share"])
    return said("{share} of the CPU time", share=share)


def _clock(name: str) -> Callable[[Facts], Sentence]:
    def seen(facts: Facts) -> Sentence:
        here, there = facts[name], facts["baseline"]
        change = f"{here:,.0f} MHz against {there:,.0f} MHz ({facts['change'] * 100:+.1f} %)"
        return said("{change}", change=Figure(name, change))

    return seen


def _threads(facts: Facts) -> Sentence:
    return said(f"{facts['num_threads']:.0f} threads on {facts['num_cpus']:.0f} CPUs")


@dataclass(frozen=True)
class _DeviceWords:
    """What befell the device, in words: what to call it, what was seen of a run, what to do."""

    title: str
    seen: Callable[[Facts], Sentence]
    remedy: str


DEVICE: dict[Kind, _DeviceWords] = {
    "throttled": _DeviceWords(
        "The device held its clocks back",
        _throttled,
        "Cool it better, or lock its clocks below what it can hold "
        "(nvidia-smi --lock-gpu-clocks), and run again.",
    ),
    "shared device": _DeviceWords(
        "Other processes were on the device",
        _samples,
        "End them or choose another device, and run again.",
    ),
    "shared CPU": _DeviceWords(
        "Other processes took CPU time while steady blocks ran",
        _shared_cpu,
        "End them or wait until they are done, and run again.",
    ),
    "stolen CPU": _DeviceWords(
        "The host of this virtual machine gave CPU time to others while steady blocks ran",
        _stolen_cpu,
        "Run again at a calmer time, or on a machine of one's own.",
    ),
    "CPU quota": _DeviceWords(
        "The CPU quota of the container held runs back",
        _blocks,
        "Use fewer threads (cpu_threads), or raise the quota, and run again.",
    ),
    "other clock": _DeviceWords(
        "The device's clock differed from the baseline's",
        _clock("sm_clock_mhz"),
        "That much of the speedup may be the clock's, not the code's. Lock the clocks "
        "(nvidia-smi --lock-gpu-clocks) and run again.",
    ),
    "other frequency": _DeviceWords(
        "The CPU's frequency differed from the baseline's",
        _clock("cpu_frequency_mhz"),
        "That much of the speedup may be the frequency's, not the code's. Fix the frequency "
        "(cpupower frequency-set) and run again.",
    ),
    "many threads": _DeviceWords(
        "There were more threads than CPUs that the run may use",
        _threads,
        "They wait for each other: use fewer (cpu_threads).",
    ),
}
