"""Known truth: a compile time T and a gain of d a step come back as T / d by the whole path."""

import random
from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

NUM_BLOCKS, BLOCK_STEPS = 40, 10


@pytest.mark.parametrize(
    ("compile_seconds", "gain", "steps"),
    [(30.0, 0.05, 600), (4.0, 0.02, 200), (95.0, 0.10, 950)],
)
def test_break_even_finds_the_compile_time_over_the_gain(
    tmp_path: Path, compile_seconds: float, gain: float, steps: float
) -> None:
    spec = experiment_spec(num_steps=NUM_BLOCKS * BLOCK_STEPS, block_steps=BLOCK_STEPS)
    losses = falling_losses(spec.num_steps)
    data_dir = DataDir(tmp_path)
    chance = random.Random(7)
    # What slows the machine down for a while slows all runs of a round.
    weather = [chance.uniform(0.95, 1.05) for _ in range(NUM_BLOCKS)]
    for label, seconds in (("baseline", 0.2), ("control", 0.2), ("inductor", 0.2 - gain)):
        recording = Recording(data_dir.runs, label, spec).claim().start()
        own = [seconds * shared * chance.gauss(1.0, 0.005) for shared in weather]
        recording.blocks(own, losses, compile_seconds if label == "inductor" else 0.0)
        recording.end()
    with Store.in_memory(data_dir) as store:
        found = compare(store, EXPERIMENT_ID).results[-1]
    assert found.break_even_verdict == "reached"
    assert found.break_even.steps == pytest.approx(steps, rel=0.05)
    assert found.break_even.low <= steps <= found.break_even.high
