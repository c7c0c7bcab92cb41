"""Faults of a machine's resources: disk space, open files, memory, the clock."""

import os
import random
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import breakeven.runner.disk_space
from benchmarks.breaking.killing import searched_first
from benchmarks.breaking.trials import own, small, stepping, toy
from benchmarks.breaking.world import Impatience, Outcome, World
from breakeven.runner.protocol.states import RunState

CLOCK = """
import os, pathlib, time
usual = time.time
offset = pathlib.Path(__file__).with_name("offset")
def shifted():
    try:
        return usual() + float(offset.read_text())
    except (OSError, ValueError):
        return usual()
time.time = shifted
"""
"""As `sitecustomize`: a clock that a file sets forward or back."""
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""Control groups, version 1; only root can create one."""
MEMORY_BYTES = 1_500_000_000
TAKES_MEMORY = """class Own:
    def batch_end(self, state):
        kept = [bytearray(b"x" * 10_000_000) for _ in range(1000)]
"""
LEVELS = 50
LEVEL_BYTES = 4_096
"""A page of memory, the least that a file on a tmpfs takes."""


@contextmanager
def _small_disk(world: World) -> Iterator[Path]:
    """Mounts a disk of 16 MB as the data folder, which counts as enough space; yields a file to
    fill it."""
    with_room = breakeven.runner.disk_space.QUEUES_FROM_BYTES
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(world.data_dir.path)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        breakeven.runner.disk_space.QUEUES_FROM_BYTES = 1_000_000
        yield world.data_dir.path / "filler"
    finally:
        breakeven.runner.disk_space.QUEUES_FROM_BYTES = with_room
        world.close()
        subprocess.run(["umount", "--lazy", str(world.data_dir.path)], check=True)


def _fill(filler: Path, but: int = 0) -> None:
    """Fills the disk except for `but` bytes."""
    with filler.open("ab", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
        file.truncate(max(0, file.tell() - but))


def fill_disk(world: World, chance: random.Random) -> Outcome:
    """The disk is full for a while; the ends of runs are recorded once there is space."""
    with _small_disk(world) as filler:
        runs, _ = stepping(world, steps=400)
        time.sleep(chance.uniform(0, 0.5))
        _fill(filler)
        before = world.acknowledged()
        time.sleep(chance.uniform(0.2, 1.5))
        filler.unlink()
        return world.judge(before, world.recorded(runs))


def fill_disk_to_a_level(world: World, chance: random.Random) -> Outcome:
    """The disk has space for the first writes only: at each of 50 levels another write is the first
    to fail."""
    with _small_disk(world) as filler:
        runs = world.submit(toy("one", steps=100))
        _fill(filler, but=chance.randrange(LEVELS) * LEVEL_BYTES)
        world.supervise()
        time.sleep(chance.uniform(1.0, 3.0))
        before = world.acknowledged()
        filler.unlink()
        world.supervise()  # the first may have failed to take its lock
        outcome = world.recorded(runs)
        outcome.expect(runs, RunState.FINISHED, RunState.FAILED)
        return world.judge(before, outcome)


def little_memory(world: World, chance: random.Random) -> Outcome:
    """A control group has too little memory for the training, whose code takes ever more."""
    group = MEMORY_GROUPS / f"breakeven-{os.getpid()}-{chance.randrange(10**6)}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
        runs = world.submit(small(callbacks=(own(world, TAKES_MEMORY),)))
        world.supervise(before=lambda: _join(group))
        outcome = world.recorded(runs)
        outcome.expect(runs, RunState.FAILED, RunState.OUT_OF_MEMORY)
        reasons = [str(run.status.reason) for run in runs]
        outcome.problems += [
            f"its reason is: {reason}" for reason in reasons if "memory ran out" not in reason
        ]
        return world.judge(world.acknowledged(), outcome)
    finally:
        world.close()
        world.wait(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
        group.rmdir()


def _join(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


def few_files(world: World, chance: random.Random) -> Outcome:
    """The supervisor has too few open files to start all runs, and reports this for each."""
    most = chance.randint(12, 26)
    runs = world.submit(toy("one", "two", "three"))
    begun = time.monotonic()
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (most, most))
    process = world.supervise(before=limit)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        raise Impatience(f"a supervisor with {most} files does not end") from None
    world.supervise()  # a supervisor with more files finishes the rest
    world.recorded(runs)
    return world.judge(world.acknowledged(), Outcome(seconds=time.monotonic() - begun))


def set_clock(world: World, chance: random.Random) -> Outcome:
    """The clock is set back or forward by a day while runs are active."""
    site = world.data_dir.path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CLOCK)
    runs, _ = stepping(world, searched_first(site))
    time.sleep(chance.uniform(0, 0.3))
    (site / "offset").write_text(str(chance.choice((-86_400, 86_400))))
    before = world.acknowledged()
    outcome = world.recorded(runs)
    outcome.expect(runs, RunState.FINISHED)
    return world.judge(before, outcome)
