"""How the device and its CPUs fared while a block ran, as `device` events of the journal.

Asked before and after a block, never within one: what it costs is no part of any step
(docs/decisions/watching-the-device.md). It holds up the run all the same, so of short blocks only
as many are watched as take a small share of their time.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.worker.device.base import Device, Driver, Unavailable
from breakeven.runner.worker.device.cpu_usage import CpuMonitor
from breakeven.runner.worker.device.processes import Family, Stranger, busy_strangers, tools
from breakeven.runner.worker.event_log import EventLog

WORTH_NAMES = 0.10
"""Share of the CPU time from which on other processes are looked for by name."""
NAMES_EVERY_SECONDS = 5.0
"""Looking through all processes takes milliseconds. It is no part of the share that follows."""
MAX_NAMED = 5
MAX_SHARE = 0.0005
"""Of the blocks' time, that each watch may take."""
FIRST_FREE = 10
"""Blocks that are watched for nothing, so that a short training is watched as well, on a busy
machine above all."""


class Watch:
    """Asked before and after blocks, of as many as its share of their time allows."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], dict[str, Any]]) -> None:
        self._begin = begin
        self._end = end
        self._asks = False
        self._asked = 0
        self._spent = 0.0
        self._allowed = 0.0

    def begin(self) -> bool:
        """A block is about to start; whether it is watched."""
        self._asks = self._asked < FIRST_FREE or self._spent < self._allowed
        if self._asks:
            began = time.perf_counter()
            self._begin()
            self._took = time.perf_counter() - began
        return self._asks

    def end(self, block_seconds: float) -> dict[str, Any]:
        """The block is over; the answer, empty if this one was not watched."""
        self._allowed += MAX_SHARE * block_seconds
        if not self._asks:
            return {}
        self._asks = False
        began = time.perf_counter()
        fields = self._end()
        self._asked += 1
        if self._asked > FIRST_FREE:
            self._spent += self._took + time.perf_counter() - began
        return fields


class DeviceMonitor:
    """Watches the blocks of one run: what the driver tells, and apart from it what takes longer,
    all CPUs and processes."""

    def __init__(self, experiment_id: str, device: Device, log: EventLog) -> None:
        """Records how the device is before the first block, too."""
        self._log = log
        self._names_next = 0.0
        self._family = Family(experiment_id)
        self._cpus = CpuMonitor(cpu_allowance(), torch.get_num_threads())
        self._cpus.tools = tools()
        self._is_cpu = device.type == "cpu"
        self._driver = _open_driver(experiment_id, device)
        self._watches = [Watch(self._cpus.begin, self._look_around)]
        if self._driver is not None:
            # Before the look around: clocks fall soon after the work is over.
            self._watches.insert(0, Watch(self._driver.begin, self._driver.end))
            log.append("device", **self._driver.end(), processes=self._driver.strangers())

    def begin(self) -> None:
        """A block is about to start."""
        # No look around without the driver: every sample of a device tells its clocks.
        for watch in self._watches:
            if not watch.begin():
                break
        self._started = time.perf_counter()

    def end(self, *, round: int, first_step: int) -> None:
        """The block is over and the device has nothing left to do."""
        seconds = time.perf_counter() - self._started
        fields: dict[str, Any] = {}
        for watch in self._watches:
            fields |= watch.end(seconds)
        if self._driver is None and self._is_cpu and "cpus" in fields:
            fields["processes"] = self._busy_strangers(fields)
        if fields:
            fields.setdefault("wall_seconds", seconds)
            self._log.append("device", round=round, first_step=first_step, **fields)

    def _look_around(self) -> dict[str, Any]:
        """What the CPUs did, and who else is on a device that lists its processes."""
        fields = self._cpus.end()
        if self._driver is not None:
            fields["processes"] = self._driver.strangers()
        return fields

    def _busy_strangers(self, cpus: dict[str, Any]) -> list[Stranger]:
        now = time.monotonic()
        if now < self._names_next or _others_share(cpus) <= WORTH_NAMES:
            return []
        self._names_next = now + NAMES_EVERY_SECONDS
        # The share of the blocks to come is then that of others alone.
        self._cpus.tools = tools()
        return busy_strangers(self._family)[:MAX_NAMED]


def _open_driver(experiment_id: str, device: Device) -> Driver | None:
    """None on the CPU, and where nothing can be asked."""
    try:
        return device.open_driver(experiment_id)
    except Unavailable:  # the `environment` event says why
        return None


def _others_share(cpus: dict[str, Any]) -> float:
    """Of the CPU time, what neither this run nor nobody used; 0 where that is not known."""
    capacity = cpus["wall_seconds"] * cpus["cpus"]
    if "busy_cpu_seconds" not in cpus or not capacity:
        return 0.0
    share: float = (cpus["busy_cpu_seconds"] - cpus["own_cpu_seconds"]) / capacity
    return share
