"""Requirements of faults, and whether this machine meets them."""

import os
import shutil
from importlib.util import find_spec

from benchmarks.breaking.resources import MEMORY_GROUPS
from benchmarks.breaking.world import HAS_DUCKDB


def lacks(need: str | None, device: str) -> bool:
    """Whether a fault, with real trainings on that device, cannot be tried here."""
    match need:
        case None:
            return False
        case "dashboard":
            return not HAS_DUCKDB or find_spec("streamlit") is None
        case "CUDA":
            return not device.startswith("cuda")
        case "mounting":
            return os.geteuid() != 0
        case "compiler":
            return shutil.which("cc") is None
        case "memory groups":
            return os.geteuid() != 0 or not MEMORY_GROUPS.exists()
    raise ValueError(f"nobody knows what {need!r} is")
