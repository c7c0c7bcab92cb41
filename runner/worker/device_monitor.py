"""How the device and its CPUs fared while a block ran, as `device` events of the journal.

Asked before and after a block, never within one: what it costs is no part of any step
(benchmarks/monitor_cost.py).
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
NAMES_EVERY_SECONDS = 2.0
"""Looking through all processes takes milliseconds."""
MAX_NAMED = 5


class DeviceMonitor:
    """Watches the blocks of one run."""

    def __init__(self, experiment_id: str, device: torch.device, log: EventLog) -> None:
        """Records how the device is before the first block, too."""
        self._log = log
        self._names_next = 0.0
        self._family = Family(experiment_id)
        self._cpus = CpuMonitor(cpu_allowance(), torch.get_num_threads())
        self._nvidia = open_nvidia(experiment_id, device)
        if self._nvidia is not None:
            log.append("device", **self._nvidia.end())

    def begin(self) -> None:
        """A block is about to start."""
        if self._nvidia is not None:
            self._nvidia.begin()
        self._cpus.begin()

    def end(self, *, round: int, first_step: int) -> None:
        """The block is over and the device has nothing left to do."""
        cpus = self._cpus.end()
        device: dict[str, Any]
        if self._nvidia is not None:
            device = self._nvidia.end()
        else:
            device = {"processes": self._busy_strangers(cpus)}
        self._log.append("device", round=round, first_step=first_step, **cpus, **device)

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
