"""Faults of users' own code, and of the device as torch reports them."""

import random
import time
from pathlib import Path

from benchmarks.breaking.trials import CAPTURE, own, small, submit, wait_for
from benchmarks.breaking.world import Outcome, World
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState

LEAVES_CHILD = "subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3, stderr=-3)"
OUT_OF_MEMORY = "torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB.')"
DEVICE_LOST = "RuntimeError('CUDA error: unspecified launch failure')"
FAILS = """import torch
def fails(module, *given):
    if module.training == {training}:
        {how}
torch.nn.modules.module.register_module_{hook}(fails)"""
"""From then on torch itself raises a device's error in the middle of a model."""
TAKES_TOO_MUCH = "torch.empty(2**42, dtype=torch.uint8, device='cuda')"
"""More than any device has, so its allocator refuses."""
WHERE = (
    ("forward", "forward_hook"),
    ("backward", "full_backward_hook"),
    ("evaluation", "forward_hook"),
)
LEAVES_GRANDCHILD = (
    "subprocess.run(['sh', '-c', 'setsid sleep 600 >/dev/null 2>&1 & sleep 0.1'], check=True)"
)
OWN_CODE: tuple[tuple[str, str, RunState], ...] = (
    ("raises", "raise ValueError('no')", RunState.FAILED),
    ("calls sys.exit(0)", "sys.exit(0)", RunState.FAILED),
    ("calls os._exit(0)", "os._exit(0)", RunState.FAILED),
    ("closes all file descriptors but the first three", "os.closerange(3, 1000)", RunState.FAILED),
    ("leaves a process in a session of its own", LEAVES_CHILD, RunState.FINISHED),
    ("leaves a grandchild in a session of its own", LEAVES_GRANDCHILD, RunState.FINISHED),
    (
        "leaves such a grandchild and is killed",
        f"{LEAVES_GRANDCHILD}; os.kill(os.getpid(), 9)",
        RunState.FAILED,
    ),
    ("forks a child that stays", "if os.fork() == 0: time.sleep(600)", RunState.FINISHED),
    (
        "prints a gigabyte",
        "for _ in range(1000): sys.stdout.write('x' * 1_000_000)",
        RunState.FINISHED,
    ),
    (
        "leaks open files until there are none left",
        "self.kept = [open(__file__) for _ in range(10**6)]",
        RunState.FAILED,
    ),
)
DEVICE: tuple[tuple[str, str, RunState], ...] = tuple(
    (
        f"{words} in {where}",
        FAILS.format(training=where != "evaluation", how=f"raise {error}", hook=hook),
        state,
    )
    for words, error, state in (
        ("a device without memory", OUT_OF_MEMORY, RunState.OUT_OF_MEMORY),
        ("a device that is lost", DEVICE_LOST, RunState.FAILED),
    )
    for where, hook in WHERE
)
CUDA: tuple[tuple[str, str, RunState], ...] = tuple(
    (
        f"CUDA out of memory in {where}",
        FAILS.format(training=where != "evaluation", how=TAKES_TOO_MUCH, hook=hook),
        RunState.OUT_OF_MEMORY,
    )
    for where, hook in WHERE
)
FULL_IN_CAPTURE = """import torch
class Own:
    def train_begin(self, state):
        usual = torch.cuda.graph.__enter__
        def enter(graph):
            usual(graph)
            torch.cuda.set_per_process_memory_fraction(1e-6)
        torch.cuda.graph.__enter__ = enter
"""
"""After the capture of a CUDA graph begins, the allocator gets no more memory of the device."""
ENDLESS = """import ctypes, torch
class Own:
    def train_begin(self, state):
        import torch._inductor.compile_fx
        def forever(*given, **named):
            {how}
        torch._inductor.compile_fx.compile_fx = forever
"""
"""A user's code after which Inductor never ends."""
ENDLESS_HOW = {
    "computes in Python": "while True: pass",
    "waits in C and holds the interpreter": "ctypes.PyDLL(None).sleep(100_000)",
}
ENDLESS_LIMIT_SECONDS = 20.0
"""Longer than a run takes to load."""


def own_code(body: str, expected: RunState, world: World, chance: random.Random) -> Outcome:
    """A user's callback misbehaves in the middle of a training."""
    lines = "\n        ".join(body.splitlines())
    text = (
        "import os, subprocess, sys, time\nclass Own:\n    steps = 0\n"
        f"    def batch_end(self, state):\n        self.steps += 1\n"
        f"        if self.steps != {chance.randint(2, 20)}:\n            return\n        {lines}\n"
    )
    runs = world.submit(small(device=world.device, callbacks=(own(world, text),)))
    world.supervise()
    outcome = world.recorded(runs)
    if expected is RunState.FINISHED:
        outcome.seconds = 0.0
    outcome.expect(runs, expected)
    if any(_size(run) > 70_000_000 for run in runs):
        outcome.problems.append("output.log is larger than it may be")
    return world.judge(world.acknowledged(), outcome)


def full_in_capture(world: World, chance: random.Random) -> Outcome:
    """The device is full when a CUDA graph is captured; the baseline, which captures none,
    finishes. Runs are sequential: in turns, the experiment would be repeated."""
    runs = submit(world, CAPTURE, schedule="sequential", callbacks=(own(world, FULL_IN_CAPTURE),))
    world.supervise()
    outcome = world.recorded(runs)
    outcome.expect(runs[:1], RunState.FINISHED)
    outcome.expect(runs[1:], RunState.OUT_OF_MEMORY)
    return world.judge(world.acknowledged(), outcome)


def endless_compile(how: str, is_stopped: bool, world: World, chance: random.Random) -> Outcome:
    """A compilation does not end: its run is asked to stop, or exceeds its time limit."""
    callback = own(world, ENDLESS.format(how=how))
    limit = {} if is_stopped else {"time_limit_seconds": ENDLESS_LIMIT_SECONDS}
    runs = submit(world, "compile", callbacks=(callback,), **limit)
    world.supervise()
    victim = runs[-1]
    wait_for(world, victim, "compile")
    was_late = victim.is_recorded
    time.sleep(chance.uniform(0, 1.0))
    before = world.acknowledged()
    if is_stopped:
        for run in runs:
            run.request_cancel()
    outcome = world.recorded([victim])
    outcome.was_late = was_late
    world.recorded(runs)
    outcome.expect([victim], RunState.CANCELLED if is_stopped else RunState.TIMEOUT)
    return world.judge(before, outcome)


def _size(run: RunDir) -> int:
    return Path(run.output_file).stat().st_size if run.output_file.exists() else 0
