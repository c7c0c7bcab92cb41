"""How the ranks of a run share one training: the model that is stepped, whose gradients are those
of the whole batch, and what becomes of a batch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.compiler.in_place import repeated_blocks
from breakeven.runner.worker.data.batches import Part
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.ranks.group import ALONE, Group

RANK_SEED_STRIDE = 2_000_003
"""Keeps what ranks draw apart for neighbouring seeds."""


class Together:
    """The model as the ranks train it. With one rank it is the model itself."""

    def __init__(
        self, model: nn.Module, experiment: ExperimentSpec, device: Device, group: Group = ALONE
    ) -> None:
        """The model is on the device; its weights are those of rank 0 afterwards."""
        self.group = group
        self.part = Part(group.rank, group.size)
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

    def averaged(self, losses: Sequence[float]) -> list[float]:
        """Of the whole batch, from those that each rank has of its part. All ranks call it."""
        return [sum(parts) / self.group.size
                for parts in zip(*self.group.gather(list(losses)), strict=True)]  # fmt: skip

    @property
    def seed(self) -> int:
        """What dropout draws from: rank 0 draws what a run alone would."""
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


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which each rank may have a part only, as all ranks have it together.

    A collective where that is so: all ranks have to ask.
    """
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()
