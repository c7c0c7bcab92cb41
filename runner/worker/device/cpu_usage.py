"""What the CPUs did while a block ran: for this run, for others, and at which frequency."""

import os
import resource
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.runner.machine.cpus import CpuAllowance, cpu_groups, throttled_periods
from breakeven.runner.worker.device.processes import TICKS_PER_SECOND, cpu_seconds

STAT = Path("/proc/stat")
CPUINFO = Path("/proc/cpuinfo")
SYSTEM_CPUS = Path("/sys/devices/system/cpu")
USER, NICE, SYSTEM, IRQ, SOFTIRQ, STEAL = 0, 1, 2, 5, 6, 7
"""Places of the kinds of time in a line of /proc/stat, proc_stat(5). User time includes guests'."""

FREQUENCY_EVERY_SECONDS = 1.0
"""To be asked for its frequency, a CPU may be woken up, and older kernels then sleep for 10 ms."""


@dataclass(frozen=True, kw_only=True)
class MachineTime:
    """Seconds of CPU time since the machine started, over some of its CPUs."""

    busy: float
    stolen: float
    """What the host of a virtual machine gave to others."""


class CpuMonitor:
    """Measures from `begin` to `end`. What the system does not tell is missing."""

    def __init__(self, allowance: CpuAllowance, threads: int) -> None:
        """`threads`: how many CPUs the run computes on."""
        self._cpus = allowance.cpus
        self._threads = threads
        self._groups = cpu_groups()
        self._frequency_next = 0.0
        self.tools: list[int] = []
        """Processes of Breakeven's own beside the run, whose time is nobody else's."""
        self.begin()

    def begin(self) -> None:
        self._machine = machine_time(self._cpus)
        self._throttled = throttled_periods(self._groups)
        self._own = _own_seconds()
        self._of_tools = cpu_seconds(self.tools)
        self._time = time.perf_counter()

    def end(self) -> dict[str, Any]:
        """The fields of a `device` event about the time since `begin`."""
        seconds = time.perf_counter() - self._time
        of_tools = cpu_seconds(self._of_tools)
        own = _own_seconds() - self._own
        own += sum(spent - self._of_tools[pid] for pid, spent in of_tools.items())
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
    """Of all processes together, on these CPUs; None where the system does not tell."""
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
    """Current MHz, mean over the fastest of these CPUs, as many as there are threads.

    The slower ones idle. None where the system does not tell.
    """
    found = sorted(_listed_frequencies(cpus) or _scaled_frequencies(cpus), reverse=True)
    fastest = found[: max(1, threads)]
    return sum(fastest) / len(fastest) if fastest else None


def load_average() -> float | None:
    """Over the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _scaled_frequencies(cpus: Collection[int]) -> list[float]:
    """Where /proc/cpuinfo has none (Arm). With it, all CPUs are asked at once."""
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
    found: list[float] = []
    number = -1
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "processor":
            number = int(value)
        elif name.strip() == "cpu MHz" and number in cpus:
            found.append(float(value))
    return found


def _own_seconds() -> float:
    """CPU time of this process, all its threads, and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
