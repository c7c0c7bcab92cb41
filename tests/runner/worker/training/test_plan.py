"""Blocks of a training: when they end, and what follows them."""

from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.specs import experiment as specs
from breakeven.runner.worker.training.blocks import plan_blocks

pytestmark = pytest.mark.heavy
TEN_A_EPOCH = specs.ExperimentSpec(
    name="trial",
    data=specs.DataSpec(num_train_samples=20),
    training=specs.TrainingSpec(batch_size=2),
    block_steps=4,
)
EVALUATED, SAVED = specs.EvaluationSpec, specs.CheckpointSpec


@pytest.mark.parametrize(
    ("changes", "training", "blocks"),
    [
        # Blocks end with their epoch, and each epoch is evaluated,
        (
            {},
            {"epochs": 2},
            [
                (0, 4, False),
                (4, 4, False),
                (8, 2, True),
                (10, 4, False),
                (14, 4, False),
                (18, 2, True),
            ],
        ),
        # or every second one and the end;
        (
            {"block_steps": 20, "evaluation": EVALUATED(every=2)},
            {"epochs": 3},
            [(0, 10, False), (10, 10, True), (20, 10, True)],
        ),
        # also where an evaluation is due, the last one between two points,
        (
            {"block_steps": 10, "evaluation": EVALUATED(when="steps", every=5)},
            {"max_steps": 8},
            [(0, 5, True), (5, 3, True)],
        ),
        # at the end only, or never.
        (
            {"block_steps": 8, "evaluation": EVALUATED(when="end")},
            {"epochs": 2},
            [(0, 8, False), (8, 2, False), (10, 8, False), (18, 2, True)],
        ),
        (
            {"block_steps": 8, "evaluation": EVALUATED(when="never")},
            {"epochs": 1},
            [(0, 8, False), (8, 2, False)],
        ),
        # A number of steps goes over as many epochs as it takes.
        ({"block_steps": 10}, {"max_steps": 13}, [(0, 10, True), (10, 3, True)]),
        # 10 batches in windows of 4 make 3 steps: 4 + 4 + 2.
        ({}, {"gradient_accumulation": 4, "epochs": 2}, [(0, 3, True), (3, 3, True)]),
        # Blocks end where a checkpoint is due.
        (
            {"checkpoints": SAVED(every=3, unit="steps")},
            {"max_steps": 8},
            [(0, 3, False), (3, 3, False), (6, 2, True)],
        ),
    ],
)
def test_blocks_end_with_epochs_and_where_an_evaluation_or_a_checkpoint_is_due(
    changes: dict[str, Any], training: dict[str, Any], blocks: list[tuple[int, int, bool]]
) -> None:
    spec = replace(TEN_A_EPOCH, training=replace(TEN_A_EPOCH.training, **training), **changes)
    blocks_planned = list(plan_blocks(spec))
    assert [
        (block.first_step, block.num_steps, block.evaluate) for block in blocks_planned
    ] == blocks
    assert spec.num_evaluations == sum(block.evaluate for block in blocks_planned)
    # A plan that begins later is the rest of the whole.
    assert list(plan_blocks(spec, first_step=blocks_planned[1].first_step)) == blocks_planned[1:]


def test_timed_steps_know_no_epochs_and_each_process_warms_up_anew() -> None:
    timed = specs.SpeedSpec(batches=3, warm_up_blocks=2, min_rounds=6, max_rounds=6)
    spec = replace(
        TEN_A_EPOCH, scenario="speed", speed=timed, data=specs.DataSpec(num_train_samples=6)
    )
    blocks = list(plan_blocks(spec))
    assert [(block.first_step, block.num_steps, block.window) for block in blocks] == [
        (first, 4, first) for first in range(0, 32, 4)
    ]
    assert [block.warm_up for block in blocks] == [True] * 2 + [False] * 6
    assert not any(block.evaluate for block in blocks) and {block.epoch for block in blocks} == {0}
    lengths = iter([None, 3, 3, 9])
    shortened = list(plan_blocks(spec, most_steps=lambda: next(lengths, None)))[:5]
    assert [(block.first_step, block.num_steps, block.warm_up) for block in shortened] == [
        (0, 4, True),
        (4, 3, True),
        (7, 3, False),
        (10, 4, False),
        (14, 4, False),
    ]
    resumed = plan_blocks(spec, first_step=20)
    assert [(block.first_step, block.warm_up) for block in resumed] == [
        (20, True),
        (24, True),
        (28, False),
    ]
