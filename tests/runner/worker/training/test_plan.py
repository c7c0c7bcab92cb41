from typing import Any

import pytest

from breakeven.runner.specs.experiment import (
    CheckpointSpec,
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    SpeedSpec,
    TrainingSpec,
)
from breakeven.runner.specs.training import EvaluationPoint
from breakeven.runner.worker.training.blocks import plan_blocks

pytestmark = pytest.mark.heavy


def plan(
    block_steps: int = 4,
    samples: int = 20,
    evaluation: EvaluationSpec = EvaluationSpec(),  # noqa: B008
    checkpoints: CheckpointSpec = CheckpointSpec(),  # noqa: B008
    **training: Any,
) -> list[tuple[int, int, bool]]:
    """(first step, number of steps, evaluate); 2 samples a batch: 10 steps an epoch."""
    spec = ExperimentSpec(
        name="trial",
        data=DataSpec(num_train_samples=samples),
        training=TrainingSpec(batch_size=2, **training),
        evaluation=evaluation,
        checkpoints=checkpoints,
        block_steps=block_steps,
    )
    return [(block.first_step, block.num_steps, block.evaluate) for block in plan_blocks(spec)]


def test_blocks_end_with_their_epoch_and_each_epoch_is_evaluated() -> None:
    assert plan(epochs=2) == [
        (0, 4, False), (4, 4, False), (8, 2, True),
        (10, 4, False), (14, 4, False), (18, 2, True),
    ]  # fmt: skip


def test_every_second_epoch_and_the_end_are_evaluated() -> None:
    every_second = EvaluationSpec(every=2)
    blocks = plan(20, epochs=3, evaluation=every_second)
    evaluated = [first for first, _, evaluate in blocks if evaluate]
    assert evaluated == [10, 20]  # the blocks that end epochs 2 and 3


def test_blocks_end_where_an_evaluation_is_due() -> None:
    assert plan(max_steps=9, evaluation=EvaluationSpec(when="steps", every=3)) == [
        (0, 3, True), (3, 3, True), (6, 3, True)
    ]  # fmt: skip


def test_the_last_step_is_evaluated_even_between_two_points() -> None:
    assert plan(10, max_steps=8, evaluation=EvaluationSpec(when="steps", every=5)) == [
        (0, 5, True), (5, 3, True)
    ]  # fmt: skip


@pytest.mark.parametrize(("point", "evaluated"), [("end", [16]), ("never", [])])
def test_evaluation_at_the_end_only_or_never(point: EvaluationPoint, evaluated: list[int]) -> None:
    blocks = plan(8, epochs=2, evaluation=EvaluationSpec(when=point))
    assert [first for first, _, evaluate in blocks if evaluate] == [n + 2 for n in evaluated]


def test_a_number_of_steps_goes_over_as_many_epochs_as_it_takes() -> None:
    assert [block[:2] for block in plan(max_steps=13, block_steps=10)] == [(0, 10), (10, 3)]


def test_accumulation_makes_fewer_steps_of_the_same_batches() -> None:
    # 10 batches in windows of 4 make 3 steps: 4 + 4 + 2.
    assert [block[:2] for block in plan(gradient_accumulation=4, epochs=2)] == [(0, 3), (3, 3)]


def test_blocks_end_where_a_checkpoint_is_due() -> None:
    every = CheckpointSpec(every=3, unit="steps")
    assert [block[:2] for block in plan(max_steps=8, checkpoints=every)] == [(0, 3), (3, 3), (6, 2)]


def test_a_plan_that_begins_later_is_the_rest_of_the_whole() -> None:
    spec = ExperimentSpec(
        name="trial",
        data=DataSpec(num_train_samples=20),
        training=TrainingSpec(batch_size=2, epochs=2),
        block_steps=4,
    )
    whole = list(plan_blocks(spec))
    assert list(plan_blocks(spec, first_step=14)) == whole[4:]  # 4 + 4 + 2 + 4 steps come before


def test_timed_steps_know_no_epochs_and_each_process_warms_up_anew() -> None:
    spec = ExperimentSpec(
        name="trial",
        scenario="speed",
        data=DataSpec(num_train_samples=6),
        training=TrainingSpec(batch_size=2),
        speed=SpeedSpec(batches=3, warm_up_blocks=2, min_rounds=6, max_rounds=6),
        block_steps=4,
    )
    blocks = list(plan_blocks(spec))
    assert [(block.first_step, block.num_steps, block.window) for block in blocks] == [
        (first, 4, first) for first in range(0, 32, 4)
    ]
    assert [block.warm_up for block in blocks] == [True] * 2 + [False] * 6
    assert not any(block.evaluate for block in blocks) and {block.epoch for block in blocks} == {0}
    # A resumed one goes on in the middle.
    later = list(plan_blocks(spec, first_step=16))
    assert [block.first_step for block in later] == [16, 20, 24, 28]
    assert [block.warm_up for block in later] == [True, True, False, False]


@pytest.mark.parametrize(
    ("when", "every", "times"),
    [("never", 1, 0), ("end", 1, 1), ("steps", 7, 4), ("steps", 8, 3), ("epochs", 1, 3),
     ("epochs", 2, 2), ("steps", 100, 1)],
)  # fmt: skip
def test_a_run_is_evaluated_as_often_as_its_specification_says(
    when: str, every: int, times: int
) -> None:
    # 3 epochs of 8 steps.
    spec = ExperimentSpec(
        name="x", data=DataSpec(num_train_samples=32),
        training=TrainingSpec(batch_size=4, epochs=3),
        evaluation=EvaluationSpec(when=when, every=every), block_steps=5,
    )  # fmt: skip
    assert spec.num_evaluations == times
    assert sum(block.evaluate for block in plan_blocks(spec)) == times
