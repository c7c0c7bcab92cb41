"""Faults of people's own code, and of the device as torch tells of them."""

import os
import random
import time
from pathlib import Path

from benchmarks.breaking.trials import small
from benchmarks.breaking.world import Outcome, World
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState

LEAVES_CHILD = "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3, stderr=-3)"
OUT_OF_MEMORY = "torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB.')"
DEVICE_LOST = "RuntimeError('CUDA error: unspecified launch failure')"
RAISES = """import torch
def raises(module, *given):
    if module.training == {training}:
        raise {error}
torch.nn.modules.module.register_module_{hook}(raises)"""
"""From then on torch itself raises what a device would, in the middle of a model."""
OWN_CODE: tuple[tuple[str, str, RunState], ...] = (
    ("raises", "raise ValueError('no')", RunState.FAILED),
    ("calls sys.exit(0)", "sys.exit(0)", RunState.FAILED),
    ("calls os._exit(0)", "os._exit(0)", RunState.FAILED),
    ("closes all file descriptors but the first three", "os.closerange(3, 1000)", RunState.FAILED),
    ("leaves a process in a session of its own", LEAVES_CHILD, RunState.FINISHED),
    ("forks a child that stays", "if os.fork() == 0: time.sleep(600)", RunState.FINISHED),
    ("prints a gigabyte", "for _ in range(1000): sys.stdout.write('x' * 1_000_000)",
     RunState.FINISHED),
    ("leaks open files until there are none left",
     "self.kept = [open(__file__) for _ in range(10**6)]", RunState.FAILED),
)  # fmt: skip
DEVICE: tuple[tuple[str, str, RunState], ...] = tuple(
    (f"{words} in {where}", RAISES.format(training=where != "evaluation", error=error, hook=hook),
     state)
    for words, error, state in (
        ("a device without memory", OUT_OF_MEMORY, RunState.OUT_OF_MEMORY),
        ("a device that is lost", DEVICE_LOST, RunState.FAILED),
    )
    for where, hook in (("forward", "forward_hook"), ("backward", "full_backward_hook"),
                        ("evaluation", "forward_hook"))
)  # fmt: skip


def own_code(body: str, expected: RunState, world: World, chance: random.Random) -> Outcome:
    """A callback of one's own misbehaves in the middle of a training."""
    file = world.data_dir.path / "own.py"
    lines = "\n        ".join(body.splitlines())
    file.write_text(
        "import os, subprocess, sys, time\nclass Own:\n    steps = 0\n"
        f"    def batch_end(self, state):\n        self.steps += 1\n"
        f"        if self.steps != {chance.randint(2, 20)}:\n            return\n        {lines}\n"
    )
    os.environ["BREAKEVEN_CODE"] = str(file.parent)
    runs = world.submit(small(callbacks=(f"{file}:Own",)))
    begun = time.monotonic()
    world.supervise()
    world.wait(lambda: all(run.is_recorded for run in runs), "the end")
    outcome = Outcome(seconds=0.0 if expected is RunState.FINISHED else time.monotonic() - begun)
    outcome.problems += [f"{run.state} instead of {expected}" for run in runs
                         if run.state is not expected]  # fmt: skip
    if any(_size(run) > 70_000_000 for run in runs):
        outcome.problems.append("output.log is larger than it may be")
    return world.judge(world.acknowledged(), outcome)


def _size(run: RunDir) -> int:
    return Path(run.output_file).stat().st_size if run.output_file.exists() else 0
