"""What the ranks of a run ask of each other on the host, outside the steps.

`ALONE` is the run on one device, for which torch.distributed is never imported.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from breakeven.runner.worker.device.base import Device

Value = TypeVar("Value")
COLLECTIVE_LIMIT = timedelta(seconds=600)
"""How long a collective may take before the run fails: ranks compile at different speeds."""
WAITING_LIMIT = timedelta(days=30)
"""How long a rank may wait for the turn, while others have theirs."""


class Group(Protocol):
    """All ranks of a run, as one of them sees them."""

    rank: int
    size: int

    def share(self, value: Value | None) -> Value:
        """What rank 0 has, on every rank."""

    def gather(self, value: Value) -> list[Value]:
        """What each rank has, in their order, on every rank."""

    def barrier(self) -> None:
        """Waits until all ranks are here."""

    def close(self) -> None:
        """Nothing is asked of others any more."""


class Alone:
    """The one rank of a run on one device."""

    rank = 0
    size = 1

    def share(self, value: Value | None) -> Value:
        assert value is not None
        return value

    def gather(self, value: Value) -> list[Value]:
        return [value]

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass


ALONE = Alone()


class RankGroup:
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
        self.rank: int = dist.get_rank()
        self.size: int = dist.get_world_size()

    def share(self, value: Value | None) -> Value:
        held: list[Any] = [value]
        self._dist.broadcast_object_list(held, src=0, group=self._host)
        shared: Value = held[0]
        return shared

    def gather(self, value: Value) -> list[Value]:
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, value, group=self._host)
        return found

    def barrier(self) -> None:
        self.gather(None)

    def close(self) -> None:
        self._dist.destroy_process_group()


def first_given(group: Group, value: Value | None) -> Value | None:
    """What the first rank has that has anything; the same on every rank."""
    return next((one for one in group.gather(value) if one is not None), None)


def on_rank_0(group: Group, work: Callable[[], None]) -> None:
    """Has rank 0 do something, and all others wait until it is done, or has failed.

    Raises what rank 0 met, there; elsewhere a `RuntimeError` that says so.
    """
    failure: Exception | None = None
    if group.rank == 0:
        try:
            work()
        except Exception as error:
            failure = error
    said = group.share(str(failure) if failure else "")
    if failure is not None:
        raise failure
    if said:
        raise RuntimeError(f"rank 0: {said}")
