"""Reports of the NVIDIA driver on a device (clocks, temperature, power, other processes) from NVML,
with the optional package nvidia-ml-py.

NVML counts all devices of the machine, even those that CUDA_VISIBLE_DEVICES hides from torch, so a
device is found by its UUID.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from breakeven.runner.worker.device.other_processes import (
    ExperimentProcesses,
    OtherProcess,
    process_name,
)

try:
    import pynvml
except ImportError:
    pynvml = None

NOT_RECORDED = (
    "Clocks, temperature, power, throttling and other processes on the device were not recorded"
)
THROTTLE_REASONS = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "power brake",
    0x200: "board limit",
    0x400: "reliability voltage",
}
"""Bits of NVML's clock event reasons that hold clocks below their setting; excludes idle clocks and
clocks that a user has set."""
THROTTLE_COUNTERS = {
    74: "power cap",
    269: "thermal slowdown",
    76: "sync boost",
    77: "board limit",
    79: "reliability voltage",
}
"""NVML's fields that count nanoseconds with reduced clocks. Reading all takes microseconds;
nvmlDeviceGetViolationStatus gives the same counts, but takes half a millisecond for each."""


class Unavailable(Exception):
    """Raised if no driver reports on the device; the reason is a sentence for the journal."""


class NvidiaDriver:
    """NVML's reports on one device, with the energy of all devices that share the run; unsupported
    reports are None."""

    def __init__(
        self,
        device: torch.device,
        experiment: ExperimentProcesses,
        sharing: Sequence[torch.device] = (),
    ) -> None:
        """`sharing`: all devices of the run on this machine, by default this one. Raises
        `Unavailable` if NVML cannot be used."""
        if pynvml is None:
            why = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
            raise Unavailable(f"{NOT_RECORDED}: {why}.")
        try:
            pynvml.nvmlInit()
            self._handle = _find(device)
            self._sharing = [_find(shared) for shared in sharing] or [self._handle]
        except pynvml.NVMLError as error:
            raise Unavailable(f"{NOT_RECORDED}: NVML answers {str(error)!r}.") from error
        self._experiment = experiment
        self._throttled_before: dict[str, float] = {}
        self._millijoules_before: int | None = None

    @property
    def limits(self) -> dict[str, Any]:
        """Settings of the device: fields of the `environment` event."""
        return {
            "max_sm_clock_mhz": self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            "power_limit_watts": _thousandth(self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)),
        }

    def begin(self) -> None:
        """Prepares for a block that is about to start."""
        self._throttled_before = self._throttle_counters()
        self._millijoules_before = self._millijoules()

    def end(self) -> dict[str, Any]:
        """The fields of a `device` event: the state of the device now and since `begin`."""
        # Clocks first, because they fall soon after the work.
        sm_clock = self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)
        reasons = self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        energy = self._millijoules()
        counted = self._throttle_counters()
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo)
        utilization = self._ask(pynvml.nvmlDeviceGetUtilizationRates)
        return {
            "sm_clock_mhz": sm_clock,
            "memory_clock_mhz": self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            "temperature_celsius": self._ask(
                pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU
            ),
            "power_watts": _thousandth(self._ask(pynvml.nvmlDeviceGetPowerUsage)),
            "energy_joules": None
            if energy is None or self._millijoules_before is None
            else (energy - self._millijoules_before) / 1000,
            "utilization": None if utilization is None else utilization.gpu / 100,
            "throttle_reasons": None if reasons is None else named_reasons(reasons),
            "throttled_seconds": {
                name: seconds - self._throttled_before.get(name, seconds)
                for name, seconds in counted.items()
            }
            or None,
            "device_memory_used_bytes": None if memory is None else memory.used,
        }

    def other_processes(self) -> list[OtherProcess] | None:
        """Processes on the device that do not belong to the experiment; None if unknown."""
        # In many containers the driver lists none, or the whole machine's processes by other ids
        # than those in the container. This is the slowest query.
        listed = self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses)
        if listed is None or all(process.pid != os.getpid() for process in listed):
            return None
        return [
            OtherProcess(
                pid=process.pid,
                name=process_name(process.pid),
                # Every process on the device holds memory, but some containers report 0.
                memory_bytes=process.usedGpuMemory or None,
            )
            for process in listed
            if not self._experiment.includes(process.pid)
        ]

    def _millijoules(self) -> int | None:
        """Energy that all devices of the run have used since the driver was loaded, in
        millijoules."""
        counted = [
            self._ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle=device)
            for device in self._sharing
        ]
        return None if None in counted else sum(counted)

    def _throttle_counters(self) -> dict[str, float]:
        """Seconds during which each policy has reduced clocks so far."""
        answers = self._ask(pynvml.nvmlDeviceGetFieldValues, list(THROTTLE_COUNTERS)) or ()
        return {
            THROTTLE_COUNTERS[answer.fieldId]: answer.value.ullVal / 1e9
            for answer in answers
            if answer.nvmlReturn == pynvml.NVML_SUCCESS
            and answer.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        }

    def _ask(self, question: Callable[..., Any], *arguments: Any, handle: Any = None) -> Any:
        try:
            return question(handle or self._handle, *arguments)
        except pynvml.NVMLError:
            return None


def named_reasons(bits: int) -> list[str]:
    """Names of NVML's reasons for reduced clocks; empty if there are none."""
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


def _find(device: torch.device) -> Any:
    uuid = torch.cuda.get_device_properties(device).uuid
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        # A slice of a device (MIG) has its own UUID.
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _thousandth(value: float | None) -> float | None:
    """A thousandth: watts from NVML's milliwatts."""
    return None if value is None else value / 1000
