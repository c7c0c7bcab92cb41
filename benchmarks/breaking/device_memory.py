"""Whether a CUDA device's memory is free of processes that are gone, as the driver tells."""

import os
import subprocess
import time

QUESTION = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
"""One line of each process that holds memory of any device."""


def still_held(patience_seconds: float) -> list[str]:
    """What is wrong: memory that is held for processes that are gone, once the patience is over.

    A process that lives is not looked at: it is counted where processes are counted.
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
