"""Whether dead processes hold memory of a CUDA device, according to the driver."""

import os
import subprocess
import time

QUESTION = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
"""One line for each process that holds memory of a device."""


def still_held(patience_seconds: float) -> list[str]:
    """Problems: memory that dead processes still hold after `patience_seconds`.

    Ignores living processes, which are counted elsewhere.
    """
    deadline = time.monotonic() + patience_seconds
    while held := [line for line in _answer() if not os.path.exists(f"/proc/{line.split(',')[0]}")]:
        if time.monotonic() > deadline:
            return [f"the device still holds memory of processes that are gone: {held}"]
        time.sleep(0.2)
    return []


def _answer() -> list[str]:
    found = subprocess.run(QUESTION, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if line.strip()]
