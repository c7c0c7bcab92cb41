"""What the NVIDIA driver tells of a CUDA device: clocks, temperature, power, who else is on it.

Asked through NVML, by the optional package nvidia-ml-py. NVML counts devices as they sit in the
machine, whatever CUDA_VISIBLE_DEVICES hides from torch, so a device is found by its UUID.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

from breakeven.runner.worker.device.base import NOT_RECORDED, Unavailable
from breakeven.runner.worker.device.processes import Family, Stranger, process_name

try:
    import pynvml
except ImportError:
    pynvml = None

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
"""Bits of NVML's clock event reasons that hold clocks below what was asked for. Idle, and clocks
that somebody set on purpose, are none."""
THROTTLE_COUNTERS = {
    74: "power cap",
    269: "thermal slowdown",
    76: "sync boost",
    77: "board limit",
    79: "reliability voltage",
}
"""NVML's fields that count the nanoseconds for which clocks were held back. All are answered in
microseconds; nvmlDeviceGetViolationStatus, which tells the same, takes half a millisecond each."""


class NvidiaDriver:
    """Of one device; what it does not support is None."""

    def __init__(self, device: torch.device, family: Family) -> None:
        """Raises `Unavailable`."""
        if pynvml is None:
            why = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
            raise Unavailable(f"{NOT_RECORDED}: {why}.")
        try:
            pynvml.nvmlInit()
            self._handle = _find(device)
        except pynvml.NVMLError as error:
            raise Unavailable(f"{NOT_RECORDED}: NVML answers {str(error)!r}.") from error
        self._family = family
        self._counted: dict[str, float] = {}

    @property
    def limits(self) -> dict[str, Any]:
        """What the device is set to: fields of the `environment` event."""
        return {
            "max_sm_clock_mhz": self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            "power_limit_watts": _thousandth(self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)),
        }

    def begin(self) -> None:
        self._counted = self._throttle_counters()

    def end(self) -> dict[str, Any]:
        """The fields of a `device` event: how the device is now, and for how long it throttled
        since `begin`. Clocks first: they fall soon after the work is over."""
        sm_clock = self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM)
        reasons = self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
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
            "utilization": None if utilization is None else utilization.gpu / 100,
            "throttle_reasons": None if reasons is None else named_reasons(reasons),
            "throttled_seconds": {
                name: seconds - self._counted.get(name, seconds)
                for name, seconds in counted.items()
            }
            or None,
            "device_memory_used_bytes": None if memory is None else memory.used,
        }

    def strangers(self) -> list[Stranger] | None:
        """Processes on the device that are none of the experiment's: the slowest of the questions.

        None where they cannot be told: in many containers the driver lists no processes, or those
        of the whole machine under numbers that mean others here.
        """
        listed = self._ask(pynvml.nvmlDeviceGetComputeRunningProcesses)
        if listed is None or all(process.pid != os.getpid() for process in listed):
            return None
        return [
            Stranger(
                pid=process.pid,
                name=process_name(process.pid),
                # No process on the device holds nothing: 0 is what some containers answer.
                memory_bytes=process.usedGpuMemory or None,
            )
            for process in listed
            if not self._family.includes(process.pid)
        ]

    def _throttle_counters(self) -> dict[str, float]:
        """Seconds for which each policy has held clocks back so far."""
        answers = self._ask(pynvml.nvmlDeviceGetFieldValues, list(THROTTLE_COUNTERS)) or ()
        return {
            THROTTLE_COUNTERS[answer.fieldId]: answer.value.ullVal / 1e9
            for answer in answers
            if answer.nvmlReturn == pynvml.NVML_SUCCESS
            and answer.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        }

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(self._handle, *arguments)
        except pynvml.NVMLError:
            return None


def named_reasons(bits: int) -> list[str]:
    """Why the clocks are held back, of NVML's bits; empty if they are not."""
    return [name for bit, name in THROTTLE_REASONS.items() if bits & bit]


def _find(device: torch.device) -> Any:
    uuid = torch.cuda.get_device_properties(device).uuid
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        # A slice of a device (MIG) has a UUID of its own.
        return pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def _thousandth(value: float | None) -> float | None:
    """Watts of NVML's milliwatts."""
    return None if value is None else value / 1000
