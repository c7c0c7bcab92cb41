"""Trials whose truth is known: runs that do equal work, and one that does 3 % more.

Each trial records four runs in one process, by turns in an order drawn anew each round: `baseline`,
`control`, `same` (the baseline's work once more) and `slower` (3 % more work of the same kind). All
times are wall clock times of real work on this machine, with whatever disturbs it.
"""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from runner.events import EventLog
from runner.turns import Turn

NAMES = ("baseline", "control", "same", "slower")
SLOWDOWN = 0.03
NUM_ROUNDS, BLOCK_STEPS, NUM_SWEEPS = 200, 2, 100


def take_turns(blocks: Mapping[str, Callable[[Turn], None]], num_rounds: int, seed: int) -> None:
    """One block of each a round, as the supervisor has it."""
    chance = random.Random(seed)
    for number in range(num_rounds):
        order = chance.sample(sorted(blocks), len(blocks))
        for position, name in enumerate(order):
            blocks[name](Turn(round=number, position=position))


class FakeRun:
    """Steps that compute sines of a small array: real work that teaches nobody anything."""

    def __init__(self, journal: Path, num_sweeps: int) -> None:
        self._log = EventLog(journal)
        self._num_sweeps = num_sweeps
        self._values = np.linspace(0.0, 1.0, 512)
        self._out = np.empty_like(self._values)
        self._blocks: list[tuple[Turn, list[float]]] = []

    def block(self, turn: Turn) -> None:
        ends = [time.perf_counter()]
        for _ in range(BLOCK_STEPS):
            for _ in range(self._num_sweeps):
                np.sin(self._values, out=self._out)
            ends.append(time.perf_counter())
        self._blocks.append((turn, list(np.diff(ends))))

    def write(self) -> None:
        """The journal, once all is measured: writing disturbs no step."""
        for turn, durations in self._blocks:
            first = turn.round * BLOCK_STEPS
            for index, seconds in enumerate(durations):
                self._log.append("step", step=first + index, epoch=0, round=turn.round, loss=1.0,
                                 seconds=seconds, compiled=False)  # fmt: skip
            self._log.append("block", round=turn.round, position=turn.position, first_step=first,
                             num_steps=BLOCK_STEPS, seconds=sum(durations),
                             compiled=False)  # fmt: skip
        self._log.close()


def record_trial(folder: Path, seed: int) -> None:
    """One trial of fake steps: a journal `<name>.jsonl` for each run."""
    more = round(NUM_SWEEPS * (1 + SLOWDOWN))
    runs = {
        name: FakeRun(folder / f"{name}.jsonl", more if name == "slower" else NUM_SWEEPS)
        for name in NAMES
    }
    take_turns({name: run.block for name, run in runs.items()}, NUM_ROUNDS, seed)
    for run in runs.values():
        run.write()
