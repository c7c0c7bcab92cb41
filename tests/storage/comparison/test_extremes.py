"""Numbers that no measurement can have disturb nothing that is computed, not even by a warning."""

import math
import warnings
from collections.abc import Iterator

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.journals import Recording, experiment_spec, falling_losses

NUM_STEPS = 160
EVEN = [1.0] * NUM_STEPS
EXTREMES = {
    "no numbers": ([math.nan] * NUM_STEPS, math.nan),
    "infinite losses of both signs": ([-math.inf, math.inf] * (NUM_STEPS // 2), 0.1),
    "infinite": ([math.inf] * NUM_STEPS, math.inf),
    "huge losses of both signs, tiny times": ([-1e308, 1e308] * (NUM_STEPS // 2), 1e-300),
    "a loss that explodes, huge times": ([1.1**step for step in range(0, 3200, 20)], 1e308),
    "no time": (EVEN, 0.0),
    "negative times": ([1e308] * NUM_STEPS, -1.0),
}


IDS = {kind: f"20261121-0930{number:02d}-123456-7f3a" for number, kind in enumerate(EXTREMES)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """An experiment of each kind."""
    data_dir = DataDir(tmp_path_factory.mktemp("extremes"))
    for kind in EXTREMES:
        record(data_dir, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Store.in_memory(data_dir) as store:
            yield store


def record(data_dir: DataDir, kind: str) -> None:
    losses, seconds = EXTREMES[kind]
    spec = experiment_spec(num_steps=NUM_STEPS)
    for arm in spec.arms:
        is_baseline = arm.role == "baseline"
        run = Recording(data_dir.runs, arm.label, spec, IDS[kind]).claim().start()
        run.blocks(
            [0.2 if is_baseline else seconds] * 16,
            falling_losses(NUM_STEPS) if is_baseline else losses,
            3.0 if arm.role == "backend" else 0.0,
        )
        run.evaluation(0.8, loss=1.0 if is_baseline else losses[-1]).end()


@pytest.mark.parametrize("kind", EXTREMES)
def test_no_number_of_a_journal_makes_arithmetic_warn(store: Store, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        comparison = compare(store, IDS[kind])
    baseline = comparison.results[0]
    assert baseline.measured.step_seconds == pytest.approx(0.2)
    for result in comparison.results[1:]:
        speedup = result.speedup
        assert speedup is None or (math.isfinite(speedup.median) and speedup.median > 0)
