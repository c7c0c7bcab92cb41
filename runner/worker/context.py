"""A run, its device and its journal, for all code that works on it; its ranks: how they share one
training, and communicate outside the steps.

`ALONE` stands for a run on one device, which never imports torch.distributed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.worker.compiler.compile_with_backend import repeated_blocks
from breakeven.runner.worker.data.splits import RankPart
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog

Value = TypeVar("Value")
COLLECTIVE_LIMIT = timedelta(seconds=600)
"""Time limit of a collective, long because ranks compile at different speeds."""
WAITING_LIMIT = timedelta(days=30)
"""Time limit of a rank's wait for its turn."""
RANK_SEED_STRIDE = 2_000_003
"""Distance between seeds of ranks, so that runs with neighbouring seeds share none."""


class RankGroup:
    """The ranks of a run, as one rank sees them; this class is for a run on one device."""

    rank = 0
    size = 1
    is_waiting = False
    """Whether this rank waits for others."""

    def share(self, value: Value | None) -> Value:
        """Returns the value of rank 0 on every rank."""
        assert value is not None
        return value

    def gather(self, value: Value) -> list[Value]:
        """Returns the values of all ranks, in their order, on every rank."""
        return [value]

    def of_steps(self, values: list[Any]) -> list[list[Any]]:
        """The values of all ranks for the steps of a block, in the order of ranks."""
        return self.gather(values)

    def averaged(self, values: list[Any]) -> list[Any]:
        """Means of numbers over all ranks; each rank has a part of the batch."""
        return mean_of_ranks(self.of_steps(values)) if values else values

    def report_failure(self, log: EventLog, status: int, fields: dict[str, Any]) -> None:
        """Records the failure of a process that ends at once; `fields` of an `error` event."""
        log.append("error", **fields)
        log.flush(durable=True)

    def script_ended(self, num_steps: int) -> None:
        """Tells the other ranks that the script of this one ended."""

    def script_starts_again(self) -> None:
        """Forgets, on each rank, that the scripts of all have ended."""

    def blocked(self, is_blocked: bool) -> None:
        """Tells that this rank waits for others before its first step, or no longer does."""

    def left_behind(self) -> str | None:
        """Why a rank that waits for others waits in vain: a script of theirs has ended."""
        return None

    def close(self) -> None:
        """Ends the connection to the other ranks."""


def mean_of_ranks(by_rank: list[list[Any]]) -> list[Any]:
    """The means over the ranks that have a number at each place."""
    return [_mean(numbers) for numbers in zip(*by_rank, strict=True)]


def _mean(numbers: tuple[float | None, ...]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else None


ALONE = RankGroup()


class DistributedGroup(RankGroup):
    """Ranks over torch.distributed: steps use a group on the devices, all else a group on the host,
    so that a waiting rank occupies no device."""

    def __init__(self, device: Device, file: str | None = None) -> None:
        """Reads torchrun's environment variables and waits for all ranks, which meet in `file` if
        it is given, else over the network."""
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
        values: list[Any] = [None] * self.size
        self._dist.all_gather_object(values, value, group=self._host)
        return values

    def close(self) -> None:
        self._dist.destroy_process_group()


def on_rank_0(group: RankGroup, work: Callable[[], None]) -> None:
    """Runs `work` on rank 0, while all other ranks wait. Rank 0 raises its own error; the other
    ranks raise a `RuntimeError` that quotes it."""
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
    """The model, wrapped for training on several ranks or devices."""

    def __init__(
        self, model: nn.Module, experiment: ExperimentSpec, device: Device, group: RankGroup = ALONE
    ) -> None:
        """Gives the model, which is on the device, the weights of rank 0."""
        self.group = group
        self.part = RankPart(group.rank, group.size)
        self.model = model
        """The plain model: owns the parameters and makes evaluations."""
        self._experiment = experiment
        self.stepped: nn.Module = self._wrapped(model, device)
        """The wrapped model, for the forward pass of a step."""

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds only a part of the weights."""
        return self.group.size > 1 and self._experiment.parallel == "fsdp"

    def _wrapped(self, model: nn.Module, device: Device) -> nn.Module:
        experiment = self._experiment
        if len(experiment.devices) > 1 and experiment.parallel == "dp":
            numbers = [int(name.partition(":")[2]) for name in experiment.devices]
            return _Copied(model, numbers)
        if self.group.size == 1:
            return model
        if experiment.parallel == "fsdp":
            from torch.distributed.fsdp import fully_shard

            for part in (*repeated_blocks(model), model):
                fully_shard(part)
            return model
        ids = [device.torch_device] if device.works_by_itself else None
        return nn.parallel.DistributedDataParallel(model, device_ids=ids)

    @contextmanager
    def gradients(self, *, is_last: bool) -> Iterator[None]:
        """Surrounds the backward pass of a micro-batch; the last of a step averages gradients."""
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
        """Seed for dropout; rank 0 draws the same numbers as a run on one device."""
        return self._experiment.training.seed + RANK_SEED_STRIDE * self.group.rank


class _Copied(nn.DataParallel[nn.Module]):
    """The loss is the mean over copies, since their parts of the batch are equally large."""

    def gather(self, outputs: Any, output_device: Any) -> Any:
        gathered = super().gather(outputs, output_device)
        if not isinstance(gathered, Tensor) and gathered.get("loss") is not None:
            gathered["loss"] = gathered["loss"].mean()
        return gathered


def full_tensor(tensor: Tensor) -> Tensor:
    """Gathers a tensor of which each rank has a part; then all ranks must call this."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


@dataclass(frozen=True)
class RunContext:
    """One run in this process."""

    spec: RunSpec
    run: RunDir
    device: Device
    log: EventLog
    group: RankGroup = ALONE
    """All ranks of the run."""
    earlier_times: int = 0
    """How often the script has run in this process before."""

    @property
    def experiment(self) -> ExperimentSpec:
        return self.spec.experiment

    @property
    def work(self) -> ExperimentSpec:
        """The experiment in the run's own batch size."""
        return self.spec.work

    @cached_property
    def only_times(self) -> bool:
        """Whether the run has trained to its end and only times more steps."""
        return self.earlier_times > 0 or self.run.only_times

    @property
    def workplace(self) -> Path:
        """The working folder of a script. It starts again in another one, which goes with the
        compile caches: the files of the finished training stay as they are."""
        return self.run.compile_cache / "work" if self.only_times else self.run.workplace

    @property
    def arm(self) -> Arm:
        return self.spec.arm
