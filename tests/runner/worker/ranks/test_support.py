"""Settings that are refused because the installed torch does not support them."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from breakeven.runner.specs.arm_fields import NO_DDP_MODE, DdpMode

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]


@pytest.fixture(autouse=True)
def group_of_one(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(parallel: str) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    if parallel == "ddp":
        return DistributedDataParallel(model)
    fully_shard(model)
    return model


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_forward_of_several_ranks_compiles_with_breaks_and_not_as_one_graph(
    parallel: str,
) -> None:
    """Should this fail, torch has learned it, and `runner/specs/experiment.py` may allow it."""
    model, points = wrapped(parallel), torch.ones(2, 4)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(points), model(points))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(points).sum().backward()


@pytest.fixture
def ddp_mode() -> Iterator[None]:
    with torch._dynamo.config.patch(optimize_ddp=True, compiled_autograd=False):
        yield


def test_the_modes_of_ddp_are_those_that_torch_knows() -> None:
    assert {*get_args(DdpMode), NO_DDP_MODE} == set(torch._dynamo.utils._ddp_optimization_mode)


@pytest.mark.usefixtures("ddp_mode")
def test_ddp_does_not_know_the_mode_that_is_refused() -> None:
    """Should this fail, torch has learned it, and `runner/specs/arms.py` may allow it."""
    reduces = {}
    for mode in (*get_args(DdpMode), NO_DDP_MODE):
        torch._dynamo.config.optimize_ddp = mode
        reduces[mode] = DistributedDataParallel(nn.Linear(4, 4))._use_python_reducer
    assert [mode for mode, in_python in reduces.items() if in_python] == ["python_reducer"]


@pytest.mark.usefixtures("ddp_mode")
def test_with_the_reducer_in_python_a_forward_is_one_graph() -> None:
    torch._dynamo.config.optimize_ddp = "python_reducer"
    compiled = torch.compile(wrapped("ddp"), backend="eager", fullgraph=True)
    compiled(torch.ones(2, 4)).sum().backward()
