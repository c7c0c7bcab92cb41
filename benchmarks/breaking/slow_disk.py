"""Faults of a slow disk, or of one with an exhausted quota, as system calls would report them.

A preloaded library hinders writes below the data folder, and no others, in the supervisor and in
runs. So the kernel need not support delayed devices or quotas.
"""

import random
import subprocess
import time
from pathlib import Path

from benchmarks.breaking.trials import stepping
from benchmarks.breaking.world import Outcome, World
from breakeven.runner.protocol.states import RunState

SHIM = Path(__file__).with_name("disk_shim.c")


class Disk:
    """The disk of a world's data folder, if a supervisor runs with `environment`."""

    def __init__(self, world: World) -> None:
        beside = world.data_dir.path.parent
        self._control, library = beside / "disk", beside / "disk_shim.so"
        self.takes(milliseconds=0)
        quoted = {"FOLDER": world.data_dir.path, "CONTROL": self._control}
        defined = [f'-D{name}="{path}"' for name, path in quoted.items()]
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", *defined, "-o", library, SHIM], check=True)
        self.environment = {"LD_PRELOAD": str(library)}

    def takes(self, *, milliseconds: int, is_used_up: bool = False) -> None:
        """Sets the delay of each write from now on; each write reads it again."""
        new = self._control.with_suffix(".new")
        new.write_text(f"{milliseconds} {int(is_used_up)}")
        new.replace(self._control)


def slow_disk(then_stop: bool, world: World, chance: random.Random) -> Outcome:
    """Writes are so slow that runs wait for the disk for a while; or they are stopped meanwhile."""
    disk = Disk(world)
    runs, _ = stepping(world, disk.environment)
    disk.takes(milliseconds=chance.choice((20, 100, 400)))
    before = world.acknowledged()
    if then_stop:
        for run in runs:
            run.request_cancel()
    else:
        time.sleep(chance.uniform(1.0, 4.0))
        before = world.acknowledged()
        disk.takes(milliseconds=0)
    outcome = world.recorded(runs)
    outcome.expect(runs, RunState.FINISHED, *([RunState.CANCELLED] if then_stop else []))
    return world.judge(before, outcome)


def used_up_quota(world: World, chance: random.Random) -> Outcome:
    """For a while the folder's owner may write nothing more (EDQUOT), as on a full disk."""
    disk = Disk(world)
    runs, _ = stepping(world, disk.environment, steps=400)
    time.sleep(chance.uniform(0, 0.5))
    disk.takes(milliseconds=0, is_used_up=True)
    before = world.acknowledged()
    time.sleep(chance.uniform(0.2, 1.5))
    disk.takes(milliseconds=0)
    outcome = world.recorded(runs)
    outcome.expect(runs, RunState.FINISHED, RunState.FAILED)
    return world.judge(before, outcome)
