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


@pytest.mark.parametrize(
    ("changes", "blocks"),
    [
        # Blocks end with their epoch, and each epoch is evaluated,
        ({"epochs": 2}, [(0, 4, False), (4, 4, False), (8, 2, True),
                         (10, 4, False), (14, 4, False), (18, 2, True)]),
        # or every second one and the end;
        ({"block_steps": 20, "epochs": 3, "evaluation": EvaluationSpec(every=2)},
         [(0, 10, False), (10, 10, True), (20, 10, True)]),
        # also where an evaluation is due, the last one between two points,
        ({"max_steps": 9, "evaluation": EvaluationSpec(when="steps", every=3)},
         [(0, 3, True), (3, 3, True), (6, 3, True)]),
        ({"block_steps": 10, "max_steps": 8, "evaluation": EvaluationSpec(when="steps", every=5)},
         [(0, 5, True), (5, 3, True)]),
        # at the end only, or never.
        ({"block_steps": 8, "epochs": 2, "evaluation": EvaluationSpec(when="end")},
         [(0, 8, False), (8, 2, False), (10, 8, False), (18, 2, True)]),
        ({"block_steps": 8, "epochs": 1, "evaluation": EvaluationSpec(when="never")},
         [(0, 8, False), (8, 2, False)]),
        # A number of steps goes over as many epochs as it takes.
        ({"block_steps": 10, "max_steps": 13}, [(0, 10, True), (10, 3, True)]),
        # 10 batches in windows of 4 make 3 steps: 4 + 4 + 2.
        ({"gradient_accumulation": 4, "epochs": 2}, [(0, 3, True), (3, 3, True)]),
        # Blocks end where a checkpoint is due.
        ({"max_steps": 8, "checkpoints": CheckpointSpec(every=3, unit="steps")},
         [(0, 3, False), (3, 3, False), (6, 2, True)]),
    ],
)  # fmt: skip
def test_blocks_end_with_epochs_and_where_an_evaluation_or_a_checkpoint_is_due(
    changes: dict[str, Any], blocks: list[tuple[int, int, bool]]
) -> None:
    assert plan(**changes) == blocks


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
