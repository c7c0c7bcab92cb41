"""Which blocks of two runs are held against each other, and which rounds a speedup rests on."""

import numpy as np
import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.loading import load_evidence, pool
from breakeven.storage.comparison.measuring_warnings import RoundsAdded
from breakeven.storage.comparison.pairs import KEYS, pair
from breakeven.storage.index.store import Store
from tests.helpers.comparisons import row_of
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

Blocks = list[tuple[int, int, int, float]]


def blocks(rows: Blocks) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[*KEYS, "seconds"])


def joined(own: pd.DataFrame, others: pd.DataFrame) -> list[tuple[object, ...]]:
    return [
        (*key, seconds, other)
        for *key, seconds in own.itertuples(index=False)
        for *same, other in others.itertuples(index=False)
        if key == same
    ]


CASES: dict[str, tuple[Blocks, Blocks]] = {
    "the same rounds": ([(1, 2, 10, 0.5), (1, 3, 10, 0.6)], [(1, 2, 10, 0.25), (1, 3, 10, 0.3)]),
    "some rounds": ([(1, 2, 10, 0.5), (1, 4, 10, 0.6)], [(1, 3, 10, 0.25), (1, 4, 10, 0.3)]),
    "other lengths": ([(1, 2, 10, 0.5), (1, 3, 4, 0.6)], [(1, 2, 8, 0.25), (1, 3, 4, 0.3)]),
    "another process": ([(1, 2, 10, 0.5)], [(2, 2, 10, 0.25)]),
    "two processes": ([(1, 2, 10, 0.5), (2, 2, 10, 0.7)], [(1, 2, 10, 0.2), (2, 2, 10, 0.3)]),
    "a round twice": ([(1, 2, 10, 0.5), (1, 2, 10, 0.6)], [(1, 2, 10, 0.25)]),
    "none": ([], [(1, 2, 10, 0.25)]),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_of_one_process_round_and_length_are_paired(case: str) -> None:
    own, others = map(blocks, CASES[case])
    pairs = pair(own, others)
    assert list(pairs.columns) == [*KEYS, "baseline", "other"]
    assert list(pairs.itertuples(index=False, name=None)) == joined(own, others)


def test_a_block_a_round_needs_no_join(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        taken = np.sort(draw.choice(400, 300, replace=False))
        sides.append(
            blocks(
                [
                    (1, int(number), int(draw.choice([9, 10])), float(draw.random()))
                    for number in taken
                ]
            )
        )
    expected = joined(*sides)
    monkeypatch.setattr(pd.DataFrame, "merge", None)
    assert list(pair(*sides).itertuples(index=False, name=None)) == expected
    assert 50 < len(expected) < 300


def test_rounds_of_further_trainings_are_further_rounds_but_for_the_first_of_each(
    data_dir: DataDir,
) -> None:
    """`eager` has no turn in the second training and one in the third: it shares 12 rounds with the
    baseline, and `inductor` 18, of which twelve are twice as fast and six four times."""
    spec = experiment_spec(num_steps=70, block_steps=10, backends=("eager", "inductor"))
    losses = falling_losses(70)
    added = {
        "baseline": (1.0, 1.0),
        "control": (1.0, 1.0),
        "inductor": (0.25, 0.5),
        "eager": (None, 0.5),
    }
    for label, seconds in added.items():
        recording = Recording(data_dir.runs, label, spec).claim().start()
        recording.blocks([0.1 if label != "inductor" else 0.05] * 7, losses)
        for duration in seconds:
            recording.skip_rounds(7) if duration is None else recording.time_more(
                [9.0, *[duration] * 6]
            )
        recording.end()
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
        runs = pool(*load_evidence(store, EXPERIMENT_ID))
    counts = {run.label: run.steady_blocks.groupby("process").size().tolist() for run in runs}
    assert counts == {"baseline": [18], "control": [18], "eager": [12], "inductor": [18]}
    eager, inductor = (row_of(comparison, label).speedup for label in ("eager", "inductor"))
    assert eager.n == 12
    assert inductor.n == 18 and inductor.median == pytest.approx(2.0)
    (added,) = (warning for warning in comparison.warnings if isinstance(warning, RoundsAdded))
    assert (added.num_added, added.num_rounds) == (12, 18)
    assert row_of(comparison, "inductor").value("final_loss") == pytest.approx(1.0, abs=0.3)


def rounds_of(store: Store) -> dict[str, list[int]]:
    """Of each run those that its speedup rests on, counted from 1."""
    frame = compare(store, EXPERIMENT_ID).round_speedups
    return {label: list(of_run["round"]) for label, of_run in frame.groupby("label")}


def test_the_first_round_of_a_training_and_after_a_resumption_is_in_no_speedup(
    data_dir: DataDir,
) -> None:
    """Nothing compiles, so that being the first is all that speaks against the first round."""
    losses = falling_losses(80)
    for label, seconds in (("baseline", 0.2), ("control", 0.2), ("inductor", 0.1)):
        run = Recording(data_dir.runs, label, experiment_spec(num_steps=80)).claim().start()
        run.blocks([10 * seconds, seconds, seconds], losses).checkpoint().resume(30)
        run.blocks([10 * seconds, *[seconds] * 4], losses[30:]).end()
    with Store.in_memory(data_dir) as store:
        steady = [2, 3, 5, 6, 7, 8]
        assert rounds_of(store) == {"control": steady, "inductor": steady}
        assert row_of(compare(store, EXPERIMENT_ID), "inductor").speedup.median == 2.0


def test_what_a_former_training_left_in_memory_is_not_counted(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=30, block_steps=10, controls=0)
    for label in ("baseline", "inductor"):
        recording = Recording(data_dir.runs, label, spec).claim().start()
        for begin in (0, 10, 20):
            losses = falling_losses(30)[begin : begin + 10]
            recording.block([0.1] * 10, losses, (), 2_000_000_000, 2_000_000_000)
        recording.time_more([1.0] * 3, memory=3_000_000_000).end()
    with Store.in_memory(data_dir) as store:
        row = row_of(compare(store, EXPERIMENT_ID), "inductor")
    assert row.measured.peak_memory_bytes == 2_000_000_000


def test_further_rounds_leave_what_the_finished_training_found_out(data_dir: DataDir) -> None:
    """It stopped by its own rules after 30 of 70 steps, and checked its random numbers."""
    spec = experiment_spec(num_steps=70, block_steps=10, backends=("inductor",))
    for label in ("baseline", "control", "inductor"):
        recording = Recording(data_dir.runs, label, spec).claim().start()
        recording.blocks([0.1] * 3, falling_losses(30)).stop("the loss no longer falls")
        recording.log.append("random_numbers", same=True, num_draws=4)
        recording.time_more([9.0, *[1.0] * 6]).end()
    with Store.in_memory(data_dir) as store:
        runs = pool(*load_evidence(store, EXPERIMENT_ID))
        checked = store.query("FROM random_numbers")
    assert {run.label: run.stop and run.stop.step for run in runs} == {
        "baseline": 30,
        "control": 30,
        "inductor": 30,
    }
    assert len(checked) == 3
