"""What is recorded of the ranks of a block, and of a step in which only one of them compiled."""

from typing import Any

import pytest
import torch

from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.worker.context import RankGroup
from breakeven.runner.worker.device.base import MemoryUse
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.ranks.rank_weights import describe_weights
from breakeven.runner.worker.training.blocks import Block
from breakeven.runner.worker.training.step_rows import BlockCost, BlockRecorder, Steps
from tests.helpers.loop import of_kind

BLOCK = Block(
    first_step=8, num_steps=2, epoch=0, window=8, evaluate=False, ends_epoch=False, warm_up=False
)


class WithRank1(RankGroup):
    """Rank 0 of two; rank 1 made these steps and has these fields."""

    size = 2

    def __init__(self, steps: list[tuple[float, bool, float]], **fields: Any) -> None:
        self._others: list[Any] = [steps, fields]

    def gather(self, value: Any) -> list[Any]:
        return [value, self._others.pop(0)]


def test_a_step_in_which_another_rank_compiles_takes_as_long_as_there(tmp_path: Any) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    group = WithRank1([(3.0, False, 0.2), (5.0, True, 9.0)], seconds=9.2, compile_seconds=8.5)
    losses = [torch.tensor(1.0), torch.tensor(2.0)]
    steps = Steps(losses=[*losses], compiled=[False, False])
    cost = BlockCost(
        seconds=[0.1, 0.4],
        memory=MemoryUse(peak_bytes=None, reserved_bytes=None),
        compile_seconds=0.0,
    )
    BlockRecorder(log, group=group).write(BLOCK, Turn(round=3, position=0), steps, cost)
    log.close()
    events, _ = read_events(tmp_path / "events.jsonl")
    made = [(row["loss"], row["compiled"], row["seconds"]) for row in of_kind(events, "step")]
    assert made == [(2.0, False, 0.1), (3.5, True, 9.0)]
    (block,) = of_kind(events, "block")
    assert (block["compiled"], block["seconds"]) == (True, 9.1)
    ranks = [(row["compile_seconds"], row["losses"]) for row in of_kind(events, "rank_block")]
    assert ranks == [(0.0, [1.0, 2.0]), (8.5, [3.0, 5.0])]


def test_a_single_bit_changes_the_hash_of_the_weights() -> None:
    weights = [torch.ones(3), torch.ones(2, dtype=torch.bfloat16), torch.tensor(7)]
    same = describe_weights([weights[0].clone(), *weights[1:], weights[1]])
    assert same == describe_weights(weights)
    assert same["weights_size"] == pytest.approx(5**0.5)
    weights[0][2] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert describe_weights(weights)["weights_sha256"] != same["weights_sha256"]
    assert same["shards_sha256"] is None
