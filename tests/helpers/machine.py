"""What the probe would report of this machine, so that tests need not ask torch; and its git."""

import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path

from breakeven.runner.machine.capabilities import Capabilities, Device, visible_hardware
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.workload import Task

TASKS = {
    name: Task.from_dict(task)
    for name, task in json.loads(Path(__file__).with_name("tasks.json").read_text()).items()
}
"""Tasks as the probe lists them; tests/runner/worker/test_tasks.py checks the file."""
MACHINE = Capabilities(
    torch_version=metadata.version("torch"),
    python=sys.executable,
    devices=(Device(id="cpu", name="Test CPU", memory_bytes=None),),
    backends=("cudagraphs", "inductor"),
    debug_backends=("aot_eager", "eager"),
    optimizers=("Adam", "AdamW", "SGD"),
    tasks=TASKS,
    cpp_compiler="/usr/bin/g++",
    seen=visible_hardware(),
    time=time.time(),
)
WITH_GPU = replace(
    MACHINE, devices=(*MACHINE.devices, Device(id="cuda:0", name="Test GPU", memory_bytes=2**36))
)


FAULTS = Path(__file__).parents[1] / "faults"
PLANTED = tuple(
    point.name
    for distribution in metadata.distributions(path=[str(FAULTS)])
    for point in distribution.entry_points
)
"""The backends of a process whose path contains the folder of faults."""


def keep(data_dir: DataDir, machine: Capabilities) -> None:
    data_dir.capabilities_file.write_text(json.dumps(asdict(machine)))


GIT = ("git", "-c", "user.name=me", "-c", "user.email=me@here", "-c", "commit.gpgsign=false")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*GIT, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()
