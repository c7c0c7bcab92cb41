"""Warnings about the device while runs were timed.

A disturbance is a class: `find` looks at one run and compares its blocks with the baseline's. It
appears among the warnings of the comparison and next to the run's own numbers. docs/metrics.md
gives the reasons for the thresholds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import listed
from breakeven.storage.comparison.evidence import Evidence, known
from breakeven.storage.comparison.warnings import ComparisonWarning, Recorded, Severity, kind_of
from breakeven.storage.numbers.sentences import Figure, Sentence, figure, first_few, joined, say
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import MIN_MARGIN

DOUBTFUL_BLOCKS = 0.10
"""Share of a run's steady blocks. Fewer disturbed blocks hardly change a median over rounds."""
SHARED_CPU = 0.10
"""Share of the CPU time that other processes used while steady blocks ran."""
STOLEN_CPU = MIN_MARGIN
CLOCK_DIFFERENCE = MIN_MARGIN
"""Difference of median SM clocks from the baseline's; a larger one could decide a verdict alone."""
FREQUENCY_DIFFERENCE = 0.05
"""The same for a CPU, whose frequency is only read after the block."""
WARMING_CELSIUS = 10.0


@dataclass(frozen=True, kw_only=True)
class Disturbance(ABC):
    """What disturbed the device while steady blocks of one run were timed."""

    title: ClassVar[str]
    remedy: ClassVar[str]
    names_processes: ClassVar[bool] = False
    """Whether the warning names the other processes that were seen."""

    @property
    def kind(self) -> str:
        return kind_of(type(self))

    @classmethod
    @abstractmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        """The disturbance of a run; None without one."""

    @abstractmethod
    def seen(self) -> Sentence:
        """What was seen of it."""


@dataclass(frozen=True, kw_only=True)
class OtherProcess:
    """Another process on the device, and the largest size of its memory there, in bytes."""

    name: str
    pid: int
    memory_bytes: int

    def words(self) -> Sentence:
        size: tuple[str | Figure, ...] = ()
        if self.memory_bytes:
            size = (", ", figure("others_memory_bytes", self.memory_bytes))
        return say(f"{self.name} (pid {self.pid}", *size, ")")


@dataclass(frozen=True, kw_only=True)
class Disturbed(ComparisonWarning):
    """Runs with a disturbance of one kind."""

    runs: Mapping[str, Disturbance]
    processes: tuple[OtherProcess, ...]

    @property
    def kind(self) -> str:
        return self._any().kind

    def _any(self) -> Disturbance:
        return next(iter(self.runs.values()))

    def remedy(self) -> str:
        return self._any().remedy

    def sentence(self) -> Sentence:
        """Names runs with the same observation together."""
        return self._with_seen(
            say(f"{listed(runs)} ", seen) for seen, runs in self._runs_by_seen().items()
        )

    def sentence_without_runs(self) -> Sentence:
        """The sentence next to the numbers of a run."""
        return self._with_seen(self._runs_by_seen())

    def _with_seen(self, seen: Iterable[Sentence]) -> Sentence:
        others = [process.words() for process in self.processes]
        processes = ("; seen: ", first_few(others)) if others else ()
        return say(f"{self._any().title}: ", joined(seen, ", "), *processes, ".")

    def _runs_by_seen(self) -> dict[Sentence, list[str]]:
        groups: dict[Sentence, list[str]] = {}
        for run, disturbance in self.runs.items():
            groups.setdefault(disturbance.seen(), []).append(run)
        return groups


@dataclass(frozen=True, kw_only=True)
class Throttled(Disturbance):
    """Blocks before which the device slowed its clocks, and why."""

    title = "The device throttled its clocks"
    remedy = (
        "Lock its clocks at a speed that it can sustain (nvidia-smi --lock-gpu-clocks), and run "
        "again."
    )
    num_seen: int
    num_looked: int
    held_back: tuple[str, ...]

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        steady = run.steady_device
        reasons = [reason for reason in steady["throttled_by"] if reason]
        if not _are_many(len(reasons), len(steady)):
            return None
        names = sorted({name for of_block in reasons for name in of_block})
        return cls(num_seen=len(reasons), num_looked=len(steady), held_back=tuple(names))

    def seen(self) -> Sentence:
        reasons = Figure("held_back", ", ".join(self.held_back))
        return say(f"{_blocks(self.num_seen, self.num_looked)} (", reasons, ")")


@dataclass(frozen=True, kw_only=True)
class SharedDevice(Disturbance):
    """Samples in which other processes were on the device."""

    title = "Other processes were on the device"
    remedy = "End them or choose another device, and run again."
    names_processes = True
    num_seen: int
    num_looked: int
    was_before: bool
    """Whether they were there before the first block."""

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        if run.computes_on_cpu:
            return None
        looks = run.device["processes"].dropna()
        num_seen = sum(bool(others) for others in looks)
        if not num_seen:
            return None
        first = run.device["round"].isna()
        was_before = any(run.device.loc[first, "processes"])
        return cls(num_seen=num_seen, num_looked=len(looks), was_before=was_before)

    def seen(self) -> Sentence:
        samples = Figure("facts", f"{self.num_seen} of {self.num_looked} samples")
        return say("in ", samples, ", already before the first block" if self.was_before else "")


@dataclass(frozen=True, kw_only=True)
class SharedCpu(Disturbance):
    """The share of CPU time that other processes took. Only for runs on the CPU; for others it only
    starts kernels, and servers are always busy."""

    title = "Other processes took CPU time while steady blocks ran"
    remedy = "End them or wait until they are done, and run again."
    names_processes = True
    others_cpu_share: float
    num_cpus: int

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        if not run.computes_on_cpu or (steady := _with_value(run, "busy_cpu_seconds")) is None:
            return None
        # Sums first: the system counts in hundredths of a second, and a block may be shorter.
        others = steady["busy_cpu_seconds"].sum() - steady["own_cpu_seconds"].sum()
        share = others / _capacity(steady)
        if share <= SHARED_CPU:
            return None
        return cls(others_cpu_share=share, num_cpus=int(steady["cpus"].iloc[-1]))

    def seen(self) -> Sentence:
        share = figure("others_cpu_share", self.others_cpu_share)
        return say(share, f" of {self.num_cpus} CPUs")


@dataclass(frozen=True, kw_only=True)
class StolenCpu(Disturbance):
    """The share of CPU time that the host of a virtual machine gave to others."""

    title = "The host of this virtual machine gave CPU time to others while steady blocks ran"
    remedy = "Run again at a quieter time, or on a dedicated machine."
    stolen_cpu_share: float

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        if (steady := _with_value(run, "stolen_cpu_seconds")) is None:
            return None
        share = steady["stolen_cpu_seconds"].sum() / _capacity(steady)
        return cls(stolen_cpu_share=share) if share > STOLEN_CPU else None

    def seen(self) -> Sentence:
        return say(figure("stolen_cpu_share", self.stolen_cpu_share), " of the CPU time")


@dataclass(frozen=True, kw_only=True)
class CpuQuota(Disturbance):
    """Blocks in which the quota of a container held the run back."""

    title = "The CPU quota of the container throttled runs"
    remedy = "Use fewer threads (cpu_threads), or raise the quota, and run again."
    num_seen: int
    num_looked: int

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        periods = known(run.steady_device["throttled_periods"])
        num_seen = int((periods > 0).sum())
        is_much = _are_many(num_seen, len(periods))
        return cls(num_seen=num_seen, num_looked=len(periods)) if is_much else None

    def seen(self) -> Sentence:
        return say(_blocks(self.num_seen, self.num_looked))


@dataclass(frozen=True, kw_only=True)
class Difference(Disturbance):
    """The medians over steady blocks of a run and of the baseline, in MHz."""

    column: ClassVar[str]
    threshold: ClassVar[float]
    mhz: float
    baseline_mhz: float

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        if baseline is None or run.role == "baseline":
            return None
        own = known(run.steady_device[cls.column])
        if len(own) < MIN_PAIRS:
            return None
        others = known(_beside(baseline, run)[cls.column])
        if len(others) < MIN_PAIRS:
            return None
        difference = cls(mhz=float(np.median(own)), baseline_mhz=float(np.median(others)))
        return difference if abs(difference.change) > cls.threshold else None

    @property
    def change(self) -> float:
        """A share of the baseline's."""
        return self.mhz / self.baseline_mhz - 1

    def seen(self) -> Sentence:
        change = f"{self.change * 100:+.1f} %"
        text = f"{self.mhz:,.0f} MHz against {self.baseline_mhz:,.0f} MHz ({change})"
        return say(Figure(self.column, text))


@dataclass(frozen=True, kw_only=True)
class OtherClock(Difference):
    """A device clock that differs from the baseline's."""

    title = "The device's clock differed from the baseline's"
    remedy = (
        "A higher clock makes a run look faster than its code is, a lower clock slower, by up to "
        "that much. Lock the clocks (nvidia-smi --lock-gpu-clocks) and run again."
    )
    column = "sm_clock_mhz"
    threshold = CLOCK_DIFFERENCE


@dataclass(frozen=True, kw_only=True)
class OtherFrequency(Difference):
    """A frequency of the CPU that differs from the baseline's."""

    title = "The CPU's frequency differed from the baseline's"
    remedy = (
        "A higher frequency makes a run look faster than its code is, a lower frequency slower, by "
        "up to that much. Fix the frequency (cpupower frequency-set) and run again."
    )
    column = "cpu_frequency_mhz"
    threshold = FREQUENCY_DIFFERENCE

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        return super().find(run, baseline) if run.computes_on_cpu else None


@dataclass(frozen=True, kw_only=True)
class ManyThreads(Disturbance):
    """A run with more threads than CPUs."""

    title = "There were more threads than CPUs that the run may use"
    remedy = "Threads wait for each other: use fewer (cpu_threads)."
    num_threads: int
    num_cpus: int

    @classmethod
    def find(cls, run: Evidence, baseline: Evidence | None) -> Self | None:
        threads, usable = (run.environment.get(name) for name in ("cpu_threads", "usable_cpus"))
        if threads is None or usable is None or threads <= usable:
            return None
        return cls(num_threads=threads, num_cpus=usable)

    def seen(self) -> Sentence:
        return say(f"{self.num_threads:.0f} threads on {self.num_cpus:.0f} CPUs")


DISTURBANCES: tuple[type[Disturbance], ...] = (
    Throttled,
    SharedDevice,
    SharedCpu,
    StolenCpu,
    CpuQuota,
    OtherClock,
    OtherFrequency,
    ManyThreads,
)


def disturbances(run: Evidence, baseline: Evidence | None) -> tuple[Disturbed, ...]:
    """The warnings about the device while one run was timed."""
    seen = (kind.find(run, baseline) for kind in DISTURBANCES)
    return tuple(_disturbed({run.label: kind}, [run]) for kind in seen if kind is not None)


def find_device_warnings(
    spec: ExperimentSpec, runs: Sequence[Evidence], by_label: Mapping[str, Sequence[Disturbed]]
) -> Iterator[ComparisonWarning]:
    """The warnings about the device in all runs: one for each disturbance, then about data that was
    not recorded, and about warming. `by_label`: the `disturbances` of each run."""
    for kind in DISTURBANCES:
        disturbed = {
            run.label: (run, warning.runs[run.label])
            for run in runs
            for warning in by_label[run.label]
            if isinstance(warning.runs[run.label], kind)
        }
        if disturbed:
            disturbances_by_label = {label: seen for label, (_, seen) in disturbed.items()}
            yield _disturbed(disturbances_by_label, [run for run, _ in disturbed.values()])
    for text in dict.fromkeys(text for run in runs for text in run.environment.get("notes") or []):
        yield Recorded(severity="minor", text=text)
    if any(map(_cannot_tell_strangers, runs)):
        yield StrangersUnknown()
    yield from WarmedUp.find_in(spec, runs)


def _disturbed(by_run: Mapping[str, Disturbance], runs: Sequence[Evidence]) -> Disturbed:
    named = any(disturbance.names_processes for disturbance in by_run.values())
    return Disturbed(runs=dict(by_run), processes=_other_processes(runs) if named else ())


@dataclass(frozen=True, kw_only=True)
class StrangersUnknown(ComparisonWarning):
    """A device that reports its clock, but no processes; without both it has its own note."""

    severity: Severity = "minor"

    def sentence(self) -> Sentence:
        return say(
            "It is not known whether other processes used the device: the driver does not list the "
            "runs' own processes by their ids, as in many containers."
        )


@dataclass(frozen=True, kw_only=True)
class WarmedUp(ComparisonWarning):
    """Mean temperatures of the first and the last fifth of all steady blocks, by time, in °C.
    Serious without turns, which make it harmless."""

    begin: float
    end: float

    @classmethod
    def find_in(cls, spec: ExperimentSpec, runs: Sequence[Evidence]) -> Iterator[Self]:
        samples = [_with_value(run, "temperature_celsius") for run in runs]
        known_samples = [frame for frame in samples if frame is not None]
        if not known_samples:
            return
        celsius = pd.concat(known_samples).sort_values("time")["temperature_celsius"]
        fifth = len(celsius) // 5
        if fifth == 0:
            return
        begin, end = celsius.iloc[:fifth].mean(), celsius.iloc[-fifth:].mean()
        if end - begin > WARMING_CELSIUS:
            is_serious = spec.schedule == "sequential"
            yield cls(severity="serious" if is_serious else "minor", begin=begin, end=end)

    def sentence(self) -> Sentence:
        rise = Figure("temperature_celsius", f"{self.begin:.0f} to {self.end:.0f} °C")
        return say(
            "The device warmed up from ",
            rise,
            " while steady blocks ran: step times of later blocks are those of a warmer device. "
            "Runs that take turns share this; a longer warm-up avoids it.",
        )


def _with_value(run: Evidence, column: str) -> pd.DataFrame | None:
    """The samples of steady blocks with a value in this column; copies none if all have one."""
    has_value = run.steady_device[column].notna().to_numpy()
    if not has_value.any():
        return None
    return run.steady_device if has_value.all() else run.steady_device[has_value]


def _beside(baseline: Evidence, run: Evidence) -> pd.DataFrame:
    """The baseline's samples from the devices and repeats in which the run was timed."""
    shared = baseline.blocks["process"].isin(run.blocks["process"])
    samples = baseline.steady_device
    if shared.all():
        return samples
    return samples[samples["run_id"].isin(baseline.blocks.loc[shared, "run_id"])]


def _cannot_tell_strangers(run: Evidence) -> bool:
    tells_clock = run.device["sm_clock_mhz"].notna()
    return bool(tells_clock.any() and run.device.loc[tells_clock, "processes"].isna().all())


def _are_many(count: int, total: int) -> bool:
    return count > 0 and count >= DOUBTFUL_BLOCKS * total


def _blocks(num_seen: int, num_looked: int) -> str:
    return f"in {num_seen} of {num_looked} steady blocks"


def _capacity(samples: pd.DataFrame) -> float:
    """Seconds of available CPU time."""
    return float((samples["wall_seconds"] * samples["cpus"]).sum())


def _other_processes(runs: Iterable[Evidence]) -> tuple[OtherProcess, ...]:
    """Every other process on the device during these runs, the largest first. Omits a process
    without a pid, from a journal of another machine."""
    sizes: dict[tuple[str, int], int] = {}
    for run in runs:
        for process in (process for sample in run.device["processes"] for process in sample or []):
            if process["pid"] is not None:
                key = (process["name"] or "a process", process["pid"])
                sizes[key] = max(sizes.get(key, 0), process["memory_bytes"] or 0)
    ordered = sorted(sizes.items(), key=lambda process: -process[1])
    return tuple(
        OtherProcess(name=name, pid=pid, memory_bytes=size) for (name, pid), size in ordered
    )
