"""How the ranks of a run share one training, and communicate outside the steps.

`ALONE` is the run on one device, for which torch.distributed is never imported.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from torch import Tensor, nn

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.compiler.compiling import repeated_blocks
from breakeven.runner.worker.data.splits import RankPart
from breakeven.runner.worker.device.base import Device

Value = TypeVar("Value")
COLLECTIVE_LIMIT = timedelta(seconds=600)
"""How long a collective may take before the run fails: ranks compile at different speeds."""
WAITING_LIMIT = timedelta(days=30)
"""How long a rank may wait for the turn, while others have theirs."""
RANK_SEED_STRIDE = 2_000_003
"""Keeps what ranks draw apart for neighbouring seeds."""


class RankGroup:
    """All ranks of a run, as one of them sees them; this is the one rank of a run on one device."""

    rank = 0
    size = 1

    def share(self, value: Value | None) -> Value:
        """The value of rank 0, on every rank."""
        assert value is not None
        return value

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, in their order, on every rank."""
        return [value]

    def averaged(self, values: list[Any]) -> list[Any]:
        """The means of numbers over all ranks, each of which has a part of the batch."""
        if self.size == 1 or not values:
            return values
        by_place = zip(*self.gather(values), strict=True)
        return [sum(of_ranks) / self.size for of_ranks in by_place]

    def close(self) -> None:
        """Ends the connection to the other ranks."""


ALONE = RankGroup()


class DistributedGroup(RankGroup):
    """Ranks over torch.distributed: one group for what steps do on their devices, another one on
    the host for everything else, so that who waits occupies no device."""

    def __init__(self, device: Device, file: str | None = None) -> None:
        """Reads what torchrun put into the environment; waits until all ranks are there, in a file
        if one is given, else over the network."""
        import torch.distributed as dist
        from torch._C._distributed_c10d import FileStore

        self._dist = dist
        bound = device.torch_device if device.works_by_itself else None
        where: dict[str, Any] = {}
        if file is not None:
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            where = {"store": FileStore(file, size), "rank": rank, "world_size": size}
        dist.init_process_group(
            device.collectives, timeout=COLLECTIVE_LIMIT, device_id=bound, **where
        )
        self._host = dist.new_group(backend="gloo", timeout=WAITING_LIMIT)
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def share(self, value: Value | None) -> Value:
        values: list[Any] = [value]
        self._dist.broadcast_object_list(values, src=0, group=self._host)
        shared: Value = values[0]
        return shared

    def gather(self, value: Value) -> list[Value]:
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, value, group=self._host)
        return found

    def close(self) -> None:
        self._dist.destroy_process_group()


def first_given(group: RankGroup, value: Value | None) -> Value | None:
    """The value of the first rank that has one; the same on every rank."""
    return next((one for one in group.gather(value) if one is not None), None)


def on_rank_0(group: RankGroup, work: Callable[[], None]) -> None:
    """Runs `work` on rank 0, while all other ranks wait.

    An error of rank 0 is raised there; the other ranks raise a `RuntimeError` that names it.
    """
    failure: Exception | None = None
    if group.rank == 0:
        try:
            work()
        except Exception as error:
            failure = error
    message = group.share(str(failure) if failure else "")
    if failure is not None:
        raise failure
    if message:
        raise RuntimeError(f"rank 0: {message}")


class ParallelModel:
    """The model as the ranks train it. With one rank it is the model itself."""

    def __init__(
        self, model: nn.Module, experiment: ExperimentSpec, device: Device, group: RankGroup = ALONE
    ) -> None:
        """The model is on the device; its weights are those of rank 0 afterwards."""
        self.group = group
        self.part = RankPart(group.rank, group.size)
        self.model = model
        """Whose parameters are trained, and which answers without training."""
        self._experiment = experiment
        self.stepped: nn.Module = self._wrapped(model, device)
        """Called for the forward pass of a step."""

    @property
    def is_sharded(self) -> bool:
        """Whether each rank keeps a part of all weights alone."""
        return self.group.size > 1 and self._experiment.parallel == "fsdp"

    def _wrapped(self, model: nn.Module, device: Device) -> nn.Module:
        experiment = self._experiment
        if len(experiment.devices) > 1 and experiment.parallel == "dp":
            numbers = [int(one.partition(":")[2]) for one in experiment.devices]
            return _Copied(model, numbers)
        if self.group.size == 1:
            return model
        if experiment.parallel == "fsdp":
            _shard(model)
            return model
        ids = [device.torch_device] if device.works_by_itself else None
        return nn.parallel.DistributedDataParallel(model, device_ids=ids)

    @contextmanager
    def gradients(self, *, is_last: bool) -> Iterator[None]:
        """Around the backward pass of a micro-batch: only behind the last one of a step are
        gradients averaged."""
        if isinstance(self.stepped, nn.parallel.DistributedDataParallel) and not is_last:
            with self.stepped.no_sync():
                yield
            return
        if self.is_sharded:
            sharded: Any = self.model
            sharded.set_requires_gradient_sync(is_last)
            sharded.set_is_last_backward(is_last)
        yield

    @property
    def seed(self) -> int:
        """For dropout: rank 0 draws the numbers of a run on one device."""
        return self._experiment.training.seed + RANK_SEED_STRIDE * self.group.rank


class _Copied(nn.DataParallel[nn.Module]):
    """Copies that are equally large weigh alike: the loss is the mean of theirs."""

    def gather(self, outputs: Any, output_device: Any) -> Any:
        gathered = super().gather(outputs, output_device)
        if not isinstance(gathered, Tensor) and gathered.get("loss") is not None:
            gathered["loss"] = gathered["loss"].mean()
        return gathered


def _shard(model: nn.Module) -> None:
    from torch.distributed.fsdp import fully_shard

    for block in repeated_blocks(model):
        fully_shard(block)
    fully_shard(model)


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor, gathered if each rank has only a part of it: then all ranks must call this."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()
