"""How the device and its CPUs fared while a block ran, as `device` events of the journal.

Asked before and after a block, never within one: what it costs is no part of any step
(benchmarks/monitor_cost.py). What a driver answers in microseconds is asked of every block; what is
to be read of all CPUs and processes, of as many as its time allows.
"""

import time
from typing import Any

import torch

from runner.cpus import cpu_allowance
from runner.events import EventLog
from runner.worker.cpu_monitor import CpuMonitor
from runner.worker.nvidia import NvidiaDevice, Unavailable
from runner.worker.processes import Family, Stranger, busy_strangers

WORTH_NAMES = 0.10
"""Share of the CPU time from which on other processes are looked for by name."""
NAMES_EVERY_SECONDS = 5.0
"""Looking through all processes takes milliseconds. It is no part of the share that follows."""
MAX_NAMED = 5
MAX_SHARE = 0.001
"""Of the blocks' time, that looking around may take."""
FIRST_LOOKS = 10
"""Looks that are free, so that a short training is watched as well, on a busy machine above all."""


class Allowance:
    """Keeps what looking around takes to its share of the time that blocks take."""

    def __init__(self) -> None:
        self.looks = 0
        self.spent = 0.0
        self.blocks = 0.0

    @property
    def is_left(self) -> bool:
        return self.looks < FIRST_LOOKS or self.spent < MAX_SHARE * self.blocks

    def take(self, seconds: float) -> None:
        """A look took so long."""
        self.looks += 1
        if self.looks > FIRST_LOOKS:
            self.spent += seconds


class DeviceMonitor:
    """Watches the blocks of one run."""

    def __init__(self, experiment_id: str, device: torch.device, log: EventLog) -> None:
        """Records how the device is before the first block, too."""
        self._log = log
        self._allowance = Allowance()
        self._names_next = 0.0
        self._family = Family(experiment_id)
        self._cpus = CpuMonitor(cpu_allowance(), torch.get_num_threads())
        self._nvidia = open_nvidia(experiment_id, device)
        if self._nvidia is not None:
            log.append("device", **self._nvidia.end(), processes=self._nvidia.strangers())

    def begin(self) -> None:
        """A block is about to start."""
        if self._nvidia is not None:
            self._nvidia.begin()
        self._begun = time.perf_counter()
        self._looks_around = self._allowance.is_left
        if self._looks_around:
            self._cpus.begin()
        self._started = time.perf_counter()

    def end(self, *, round: int, first_step: int) -> None:
        """The block is over and the device has nothing left to do."""
        ended = time.perf_counter()
        fields: dict[str, Any] = {"wall_seconds": ended - self._started}
        if self._nvidia is not None:
            fields |= self._nvidia.end()
        if self._looks_around:
            fields |= self._look_around()
        self._allowance.blocks += ended - self._started
        if self._nvidia is not None or self._looks_around:
            self._log.append("device", round=round, first_step=first_step, **fields)

    def _look_around(self) -> dict[str, Any]:
        """What the CPUs did, and who else is there."""
        asked = time.perf_counter()
        fields = self._cpus.end()
        if self._nvidia is not None:
            fields["processes"] = self._nvidia.strangers()
        self._allowance.take(self._started - self._begun + time.perf_counter() - asked)
        if self._nvidia is None:
            fields["processes"] = self._busy_strangers(fields)
        return fields

    def _busy_strangers(self, cpus: dict[str, Any]) -> list[Stranger]:
        now = time.monotonic()
        if now < self._names_next or _others_share(cpus) <= WORTH_NAMES:
            return []
        self._names_next = now + NAMES_EVERY_SECONDS
        return busy_strangers(self._family)[:MAX_NAMED]


def open_nvidia(experiment_id: str, device: torch.device) -> NvidiaDevice | None:
    """None on the CPU, and where the driver cannot be asked."""
    if device.type != "cuda":
        return None
    try:
        return NvidiaDevice(device, Family(experiment_id))
    except Unavailable:
        return None


def _others_share(cpus: dict[str, Any]) -> float:
    """Of the CPU time, what neither this run nor nobody used; 0 where that is not known."""
    capacity = cpus["wall_seconds"] * cpus["cpus"]
    if "busy_cpu_seconds" not in cpus or not capacity:
        return 0.0
    share: float = (cpus["busy_cpu_seconds"] - cpus["own_cpu_seconds"]) / capacity
    return share
