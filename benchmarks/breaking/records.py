"""Results of trials as lines of JSON, which files of several machines can combine."""

import os
import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from benchmarks.breaking.kept_lines import read_lines
from benchmarks.breaking.world import Outcome


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trial."""

    fault: str
    number: int
    """Number among the trials of this fault, from 0; with the seed it determines the random
    moments."""
    seed: int
    device: str
    """Device of its training; empty without one."""
    machine: str
    began: float
    """Seconds since the epoch."""
    took: float
    """Duration in seconds."""
    outcome: Outcome

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        return cls(**{**content, "outcome": Outcome(**content["outcome"])})

    @property
    def trial(self) -> tuple[str, str, int, int]:
        """A key that is equal for repeated trials."""
        return self.fault, self.device, self.seed, self.number


def read(files: Iterable[Path]) -> list[Record]:
    """Records of all files; of repeated trials the latest."""
    records = (Record.from_dict(line) for file in files for line in read_lines(file))
    return list({record.trial: record for record in records}.values())


def this_machine(device: str) -> str:
    """The machine as a phrase for the document."""
    cores = len(os.sched_getaffinity(0))
    parts = [
        f"{platform.system()}, Python {platform.python_version()}, torch {_version('torch')}",
        f"{cores} cores of an {_cpu()}",
    ]
    if device.startswith("cuda"):
        command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        name, driver = (
            subprocess.run(command, capture_output=True, text=True, check=True)
            .stdout.splitlines()[0]
            .split(", ")
        )
        parts.append(f"{name} with driver {driver}")
    return ", ".join(parts)


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(none)"
