"""Tells from an error whether a run would lack memory even if nothing else used its device."""

import re
from contextlib import suppress

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.events import each_event
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.machine.cpus import memory_bytes

_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
"""Units in messages of torch's allocators."""
_SIZE = rf"(\d+\.?\d* (?:{'|'.join(_UNITS)}))"
_ON_DEVICE = re.compile(rf"Tried to allocate {_SIZE}\. GPU \d+ has a total capacity of {_SIZE}")
_ALLOCATED = re.compile(rf"Of the allocated memory {_SIZE} is allocated by PyTorch")
_ON_HOST = re.compile(r"you tried to allocate (\d+) bytes")


def lacks_memory_alone(run: RunDir) -> bool:
    """Whether the last error of a run says that its tensors need more memory than there is."""
    message = ""
    with suppress(RunnerError):
        for event in each_event(run.events_file):
            message = str(event.get("message")) if event["kind"] == "error" else message
    if host := _ON_HOST.search(message):
        return int(host[1]) > (memory_bytes() or float("inf"))
    device, allocated = _ON_DEVICE.search(message), _ALLOCATED.search(message)
    if device is None:
        return False
    return _bytes(device[1]) + (_bytes(allocated[1]) if allocated else 0.0) > _bytes(device[2])


def _bytes(size: str) -> float:
    number, unit = size.split()
    return float(number) * _UNITS[unit]
