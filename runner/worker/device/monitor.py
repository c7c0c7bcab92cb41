"""State of the device and its CPUs while a block ran, as `device` events of the journal.

All measurements happen before and after a block and are part of no step (docs/decisions.md). But
they delay the run, so only as many short blocks are watched as keep the delay below a small share
of their time.
"""

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.runner.machine.cpus import (
    CpuAllowance,
    control_groups,
    cpu_allowance,
    throttled_periods,
)
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.nvml import NvidiaDriver, Unavailable
from breakeven.runner.worker.device.other_processes import (
    TICKS_PER_SECOND,
    ExperimentProcesses,
    OtherProcess,
    breakeven_processes,
    busy_processes,
    cpu_seconds,
)
from breakeven.runner.worker.device.rapl import PackageEnergy
from breakeven.runner.worker.event_log import EventLog

STAT = Path("/proc/stat")
CPUINFO = Path("/proc/cpuinfo")
SYSTEM_CPUS = Path("/sys/devices/system/cpu")
USER, NICE, SYSTEM, IRQ, SOFTIRQ, STEAL = 0, 1, 2, 5, 6, 7
"""Places of kinds of time in a line of /proc/stat, proc_stat(5). User time includes guest time."""

FREQUENCY_EVERY_SECONDS = 1.0
"""Time between reads of the frequency. A read may wake a CPU; older kernels sleep 10 ms for it."""
WORTH_NAMES = 0.10
"""Share of CPU time by others from which on their processes are listed."""
NAMES_EVERY_SECONDS = 5.0
"""Time between lists of all processes, which take milliseconds and are not part of `MAX_SHARE`."""
MAX_NAMED = 5
MAX_SHARE = 0.0005
"""Largest share of the blocks' time that each watch may take."""
FIRST_FREE = 10
"""Number of first blocks that are always watched, so that short trainings are watched, too."""


@dataclass(frozen=True, kw_only=True)
class MachineTime:
    """Seconds of CPU time since the machine started, summed over some of its CPUs."""

    busy: float
    stolen: float
    """Time that a virtual machine's host gave to other machines."""


class CpuMonitor:
    """Measures CPUs from `begin` to `end`, as far as the system reports."""

    def __init__(self, allowance: CpuAllowance, threads: int) -> None:
        """`threads`: number of CPUs that the run uses."""
        self._cpus = allowance.cpus
        self._threads = threads
        self._groups = control_groups()
        self._frequency_next = 0.0
        self.breakeven_pids: list[int] = []
        """Breakeven's other processes; their CPU time counts as this run's own."""
        self.begin()

    def begin(self) -> None:
        self._machine = machine_time(self._cpus)
        self._throttled = throttled_periods(self._groups)
        self._own = _own_seconds()
        self._breakeven_seconds = cpu_seconds(self.breakeven_pids)
        self._time = time.perf_counter()

    def end(self) -> dict[str, Any]:
        """The fields of a `device` event for the time since `begin`."""
        seconds = time.perf_counter() - self._time
        breakeven_seconds = cpu_seconds(self._breakeven_seconds)
        own = _own_seconds() - self._own
        own += sum(now - self._breakeven_seconds[pid] for pid, now in breakeven_seconds.items())
        machine, before = machine_time(self._cpus), self._machine
        throttled, throttled_before = throttled_periods(self._groups), self._throttled
        fields: dict[str, Any] = {
            "wall_seconds": seconds,
            "cpus": len(self._cpus),
            "own_cpu_seconds": own,
        }
        if machine is not None and before is not None:
            fields["busy_cpu_seconds"] = machine.busy - before.busy
            fields["stolen_cpu_seconds"] = machine.stolen - before.stolen
        if throttled is not None and throttled_before is not None:
            fields["throttled_periods"] = throttled - throttled_before
        if self._time >= self._frequency_next:
            self._frequency_next = self._time + FREQUENCY_EVERY_SECONDS
            fields["cpu_frequency_mhz"] = cpu_frequency(self._cpus, self._threads)
        return fields | {"load_average": load_average()}


def machine_time(cpus: Collection[int], stat: Path = STAT) -> MachineTime | None:
    """Time of all processes on these CPUs; None if unknown."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{number}" for number in cpus}
    rows = [row[1:] for row in map(str.split, lines) if row and row[0] in names]
    if len(rows) < len(names):
        return None
    ticks = [sum(int(row[place]) for row in rows) for place in range(STEAL + 1)]
    busy = sum(ticks[place] for place in (USER, NICE, SYSTEM, IRQ, SOFTIRQ))
    return MachineTime(busy=busy / TICKS_PER_SECOND, stolen=ticks[STEAL] / TICKS_PER_SECOND)


def cpu_frequency(cpus: Collection[int], threads: int) -> float | None:
    """Current frequency in MHz, as the mean over the fastest CPUs, one for each thread, since the
    others are idle. None if unknown."""
    frequencies = sorted(_listed_frequencies(cpus) or _scaled_frequencies(cpus), reverse=True)
    fastest = frequencies[: max(1, threads)]
    return sum(fastest) / len(fastest) if fastest else None


def load_average() -> float | None:
    """Load average over the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _scaled_frequencies(cpus: Collection[int]) -> list[float]:
    """Frequencies on systems whose /proc/cpuinfo has none (Arm); elsewhere one read gets all."""
    try:
        return [
            int((SYSTEM_CPUS / f"cpu{number}/cpufreq/scaling_cur_freq").read_text()) / 1000
            for number in cpus
        ]
    except (OSError, ValueError):
        return []


def _listed_frequencies(cpus: Collection[int], cpuinfo: Path = CPUINFO) -> list[float]:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return []
    frequencies: list[float] = []
    number = -1
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "processor":
            number = int(value)
        elif name.strip() == "cpu MHz" and number in cpus:
            frequencies.append(float(value))
    return frequencies


def _own_seconds() -> float:
    """CPU time of this process with all threads, of its ended children, and of those that a script
    started with `multiprocessing`, such as the processes of its data loaders."""
    living = [
        process.pid for process in multiprocessing.active_children() if process.pid is not None
    ]
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ended = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return ended + sum(cpu_seconds(living).values())


class BlockWatch:
    """Measures before and after blocks, as many as its share of their time allows."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], dict[str, Any]]) -> None:
        self._begin = begin
        self._end = end
        self._is_watched = False
        self._num_watched = 0
        self._spent = 0.0
        self._allowed = 0.0

    def begin(self) -> bool:
        """Measures before a block if it is watched; returns whether it is."""
        self._is_watched = self._num_watched < FIRST_FREE or self._spent < self._allowed
        if self._is_watched:
            began = time.perf_counter()
            self._begin()
            self._took = time.perf_counter() - began
        return self._is_watched

    def end(self, block_seconds: float) -> dict[str, Any]:
        """Measures after the block; returns fields, empty if it was not watched."""
        self._allowed += MAX_SHARE * block_seconds
        if not self._is_watched:
            return {}
        self._is_watched = False
        began = time.perf_counter()
        fields = self._end()
        self._num_watched += 1
        if self._num_watched > FIRST_FREE:
            self._spent += self._took + time.perf_counter() - began
        return fields


class DeviceMonitor:
    """Watches a run's blocks: one watch for the driver, a slower one for CPUs and processes."""

    def __init__(self, spec: RunSpec, device: Device, log: EventLog) -> None:
        """Also records the state of the device before the first block."""
        self._log = log
        experiment = spec.experiment
        sharing = experiment.devices if experiment.num_devices > 1 else ()
        self._num_metered = max(1, len(sharing))
        self._names_next = 0.0
        self._experiment = ExperimentProcesses(spec.experiment_id)
        self._cpus = CpuMonitor(cpu_allowance(), torch.get_num_threads())
        self._cpus.breakeven_pids = breakeven_processes()
        self._is_cpu = device.type == "cpu"
        self._packages = PackageEnergy()
        self._driver: NvidiaDriver | None = None
        with suppress(Unavailable):  # The `environment` event has the reason.
            self._driver = device.open_driver(spec.experiment_id, sharing)
        self._watches = [BlockWatch(self._begin_cpus, self._measure_cpus)]
        if self._driver is not None:
            # The driver first, because clocks fall soon after the work.
            self._watches.insert(0, BlockWatch(self._driver.begin, self._driver.end))
            log.append("device", **self._driver.end(), processes=self._driver.other_processes())

    def begin(self) -> None:
        """Measures before a block."""
        # CPUs only together with the driver, so that every sample of a device has clocks.
        for watch in self._watches:
            if not watch.begin():
                break
        self._started = time.perf_counter()

    def end(self, *, round: int, first_step: int) -> None:
        """Measures after a block, when the device is idle, and records the fields."""
        seconds = time.perf_counter() - self._started
        fields: dict[str, Any] = {}
        for watch in self._watches:
            fields |= watch.end(seconds)
        if self._driver is None and self._is_cpu and "cpus" in fields:
            fields["processes"] = self._busy_processes(fields)
        if fields:
            fields.setdefault("wall_seconds", seconds)
            if self._num_metered > 1 and fields.get("energy_joules") is not None:
                fields["energy_devices"] = self._num_metered
            self._log.append("device", round=round, first_step=first_step, **fields)

    def _begin_cpus(self) -> None:
        self._cpus.begin()
        if self._is_cpu:
            self._packages.begin()

    def _measure_cpus(self) -> dict[str, Any]:
        """The fields of the CPUs, and other processes if the driver lists them."""
        joules = self._packages.joules() if self._is_cpu else None
        fields = self._cpus.end()
        if joules is not None:
            fields["energy_joules"] = joules
        if self._driver is not None:
            fields["processes"] = self._driver.other_processes()
        return fields

    def _busy_processes(self, cpus: dict[str, Any]) -> list[OtherProcess]:
        now = time.monotonic()
        if now < self._names_next or _others_share(cpus) <= WORTH_NAMES:
            return []
        self._names_next = now + NAMES_EVERY_SECONDS
        # Later shares then contain only the time of other processes.
        self._cpus.breakeven_pids = breakeven_processes()
        return busy_processes(self._experiment)[:MAX_NAMED]


def _others_share(cpus: dict[str, Any]) -> float:
    """The share of the CPU time that other processes used; 0 if unknown."""
    capacity = cpus["wall_seconds"] * cpus["cpus"]
    if "busy_cpu_seconds" not in cpus or not capacity:
        return 0.0
    share: float = (cpus["busy_cpu_seconds"] - cpus["own_cpu_seconds"]) / capacity
    return share
