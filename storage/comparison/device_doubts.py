"""What befell the device while runs were timed, and casts doubt on their times.

A rule looks at one run, whose blocks are compared with the baseline's; what it finds stands among
the warnings of the comparison and beside the run's own numbers. docs/metrics.md gives the reasons
for the thresholds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from runner.specs.experiment import ExperimentSpec
from storage.comparison.evidence import Evidence
from storage.comparison.roles import of_role
from storage.numbers.formats import format_bytes, format_share
from storage.statistics.resampling import MIN_PAIRS
from storage.statistics.speedups import MIN_MARGIN

DOUBTFUL_BLOCKS = 0.10
"""Share of a run's steady blocks: what befalls fewer hardly moves a median over rounds."""
SHARED_CPU = 0.10
"""Share of the CPU time that others took while steady blocks ran."""
STOLEN_CPU = MIN_MARGIN
CLOCK_DIFFERENCE = MIN_MARGIN
"""Of a median SM clock from the baseline's: a larger one alone could make a verdict."""
FREQUENCY_DIFFERENCE = 0.05
"""The same of a CPU, whose frequency is only read once the block is over."""
WARMING_CELSIUS = 10.0
MAX_NAMED = 3
STRANGERS_UNKNOWN = (
    "Whether other processes were on the device is not known: the driver does not list the runs' "
    "own under their numbers, as in many containers."
)


@dataclass(frozen=True)
class Rule:
    """One thing that may have gone wrong: how to see it, what to call it, what to do."""

    title: str
    find: Callable[[Evidence, Evidence | None], str | None]
    """Run and baseline to what was seen; None if nothing was."""
    remedy: str
    is_about_others: bool = False
    """Whether the processes that were seen are to be named."""

    def sentence(self, seen: str, runs: Sequence[Evidence]) -> str:
        """What was seen, and of which processes in these runs."""
        names = _named(runs) if self.is_about_others else ""
        return f"{self.title}: {seen}{f'; seen: {names}' if names else ''}."


def device_doubts(run: Evidence, baseline: Evidence | None) -> tuple[str, ...]:
    """What was seen of one run, a sentence for each rule."""
    found = [(rule, rule.find(run, baseline)) for rule in RULES]
    return tuple(rule.sentence(seen, [run]) for rule, seen in found if seen is not None)


def device_cautions(spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[str]:
    """What was seen of all runs, said once for each rule, with what to do about it."""
    baseline = of_role(runs, "baseline")
    for rule in RULES:
        found = [(run, seen) for run in runs if (seen := rule.find(run, baseline)) is not None]
        if found:
            listed = ", ".join(f"{run.label} {seen}" for run, seen in found)
            yield f"{rule.sentence(listed, [run for run, _ in found])} {rule.remedy}"
    if spec.schedule == "sequential":
        yield from _about_warming(runs)


def device_notes(spec: ExperimentSpec, runs: Sequence[Evidence]) -> tuple[str, ...]:
    """What was not recorded and why, and what turns make harmless."""
    told = [note for run in runs for note in run.environment.get("notes") or []]
    told += [STRANGERS_UNKNOWN for run in runs if _cannot_tell_strangers(run)]
    warming = () if spec.schedule == "sequential" else _about_warming(runs)
    return (*dict.fromkeys(told), *warming)


def _throttled(run: Evidence, _: Evidence | None) -> str | None:
    steady = _steady(run)
    reasons = [reason for reason in steady["throttled_by"] if reason]
    if not _many(len(reasons), len(steady)):
        return None
    names = sorted({name for some in reasons for name in some})
    return f"in {len(reasons)} of {len(steady)} steady blocks ({', '.join(names)})"


def _shared_device(run: Evidence, _: Evidence | None) -> str | None:
    if run.computes_on_cpu:
        return None
    looks = run.device["processes"].dropna()
    with_others = [others for others in looks if others]
    if not with_others:
        return None
    said = f"in {len(with_others)} of {len(looks)} samples"
    first = run.device["round"].isna()
    before = any(run.device.loc[first, "processes"])
    return f"{said}, before the first block already" if before else said


def _shared_cpu(run: Evidence, _: Evidence | None) -> str | None:
    """Elsewhere the CPU only starts kernels, and a server's other CPUs are busy all the time."""
    steady = _steady(run).dropna(subset=["busy_cpu_seconds"])
    if not run.computes_on_cpu or steady.empty:
        return None
    # Summed up first: the system counts in hundredths of a second, which a block may be short of.
    others = steady["busy_cpu_seconds"].sum() - steady["own_cpu_seconds"].sum()
    share = others / _capacity(steady)
    if share <= SHARED_CPU:
        return None
    return f"{format_share(share)} of {int(steady['cpus'].iloc[-1])} CPUs"


def _stolen_cpu(run: Evidence, _: Evidence | None) -> str | None:
    steady = _steady(run).dropna(subset=["stolen_cpu_seconds"])
    if steady.empty:
        return None
    share = steady["stolen_cpu_seconds"].sum() / _capacity(steady)
    return f"{format_share(share)} of the CPU time" if share > STOLEN_CPU else None


def _quota(run: Evidence, _: Evidence | None) -> str | None:
    steady = _steady(run).dropna(subset=["throttled_periods"])
    held_back = int((steady["throttled_periods"] > 0).sum())
    if not _many(held_back, len(steady)):
        return None
    return f"in {held_back} of {len(steady)} steady blocks"


def _clock(run: Evidence, baseline: Evidence | None) -> str | None:
    return _difference(run, baseline, "sm_clock_mhz", CLOCK_DIFFERENCE)


def _frequency(run: Evidence, baseline: Evidence | None) -> str | None:
    if not run.computes_on_cpu:
        return None
    return _difference(run, baseline, "cpu_frequency_mhz", FREQUENCY_DIFFERENCE)


def _difference(
    run: Evidence, baseline: Evidence | None, column: str, threshold: float
) -> str | None:
    """Of medians over steady blocks."""
    if baseline is None or run.role == "baseline":
        return None
    mine, its = _steady(run)[column].dropna(), _steady(baseline)[column].dropna()
    if min(len(mine), len(its)) < MIN_PAIRS:
        return None
    here, there = float(mine.median()), float(its.median())
    change = here / there - 1
    if abs(change) <= threshold:
        return None
    return f"{here:,.0f} MHz against {there:,.0f} MHz ({change * 100:+.1f} %)"


def _threads(run: Evidence, _: Evidence | None) -> str | None:
    threads, usable = (run.environment.get(name) for name in ("cpu_threads", "usable_cpus"))
    if threads is None or usable is None or threads <= usable:
        return None
    return f"{threads:.0f} threads on {usable:.0f} CPUs"


def _about_warming(runs: Sequence[Evidence]) -> Iterator[str]:
    """From the first to the last fifth of all steady blocks, by time."""
    samples = pd.concat([_steady(run) for run in runs]) if runs else pd.DataFrame()
    known = samples.dropna(subset=["temperature_celsius"]).sort_values("time")
    fifth = len(known) // 5
    if fifth == 0:
        return
    begin = known["temperature_celsius"].iloc[:fifth].mean()
    end = known["temperature_celsius"].iloc[-fifth:].mean()
    if end - begin > WARMING_CELSIUS:
        yield (
            f"The device warmed up from {begin:.0f} to {end:.0f} \N{DEGREE SIGN}C while steady "
            "blocks ran: step times of later blocks are those of a warmer device. Runs that take "
            "turns share this; a longer warm-up avoids it."
        )


def _cannot_tell_strangers(run: Evidence) -> bool:
    """Of a device that tells its clock; one that tells nothing has a note of its own."""
    asked = run.device[run.device["sm_clock_mhz"].notna()]
    return len(asked) > 0 and bool(asked["processes"].isna().all())


def _steady(run: Evidence) -> pd.DataFrame:
    return run.device[run.device["steady"].astype(bool)]


def _many(count: int, total: int) -> bool:
    return count > 0 and count >= DOUBTFUL_BLOCKS * total


def _capacity(samples: pd.DataFrame) -> float:
    """Seconds of CPU time that there were to share."""
    return float((samples["wall_seconds"] * samples["cpus"]).sum())


def _named(runs: Sequence[Evidence]) -> str:
    """`python (pid 4711, 2.00 GiB)` and so on, the largest first."""
    sizes: dict[tuple[str | None, int], int] = {}
    for one in (one for run in runs for listed in run.device["processes"] for one in listed or []):
        key = (one["name"], one["pid"])
        sizes[key] = max(sizes.get(key, 0), one["memory_bytes"] or 0)
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    texts = [
        f"{name or 'a process'} (pid {pid}{f', {format_bytes(size)}' if size else ''})"
        for (name, pid), size in ordered
    ]
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return ", ".join(texts[:MAX_NAMED]) + more


RULES = (
    Rule(
        "The device held its clocks back",
        _throttled,
        "Cool it better, or lock its clocks below what it can hold "
        "(nvidia-smi --lock-gpu-clocks), and run again.",
    ),
    Rule(
        "Other processes were on the device",
        _shared_device,
        "End them or choose another device, and run again.",
        is_about_others=True,
    ),
    Rule(
        "Other processes took CPU time while steady blocks ran",
        _shared_cpu,
        "End them or wait until they are done, and run again.",
        is_about_others=True,
    ),
    Rule(
        "The host of this virtual machine gave CPU time to others while steady blocks ran",
        _stolen_cpu,
        "Run again at a calmer time, or on a machine of one's own.",
    ),
    Rule(
        "The CPU quota of the container held runs back",
        _quota,
        "Use fewer threads (cpu_threads), or raise the quota, and run again.",
    ),
    Rule(
        "The device's clock differed from the baseline's",
        _clock,
        "That much of the speedup may be the clock's, not the code's. Lock the clocks "
        "(nvidia-smi --lock-gpu-clocks) and run again.",
    ),
    Rule(
        "The CPU's frequency differed from the baseline's",
        _frequency,
        "That much of the speedup may be the frequency's, not the code's. Fix the frequency "
        "(cpupower frequency-set) and run again.",
    ),
    Rule(
        "There were more threads than CPUs that the run may use",
        _threads,
        "They wait for each other: use fewer (cpu_threads).",
    ),
)
