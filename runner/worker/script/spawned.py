"""Processes that a script starts itself, by `torch.multiprocessing.spawn`: its ranks, which
Breakeven has started already.

Such scripts also say where ranks meet, often by a fixed port, at which ranks of several runs would
disturb each other. Ranks meet where their run says.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.context import RankGroup

PLACE = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
SPAWNS = (
    "the script starts {count} processes itself (torch.multiprocessing.spawn), and Breakeven has "
    "started {known}. Have Breakeven start them: --set script.ranks={count}"
)


class Joined:
    """What `spawn(..., join=False)` returns: its processes have ended."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


@contextmanager
def started_ranks(group: RankGroup) -> Iterator[None]:
    """Makes `spawn` call its function in this process, as the rank that this is; its ranks meet
    where their run says, whatever address the script names."""
    multiprocessing: Any = torch.multiprocessing
    spawn, init = multiprocessing.spawn, torch.distributed.init_process_group
    place = {name: os.environ[name] for name in PLACE if name in os.environ}
    signature = inspect.signature(init)
    is_spawned = False

    @functools.wraps(spawn)
    def called(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        **others: Any,
    ) -> Joined | None:
        nonlocal is_spawned
        if nprocs != group.size:
            raise WorkloadError(SPAWNS.format(count=nprocs, known=group.size))
        is_spawned = True
        fn(group.rank, *args)
        return None if join else Joined()

    @functools.wraps(init)
    def initialized(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        if is_spawned and place and given.arguments.get("store") is None:
            os.environ.update(place)
            given.arguments["init_method"] = "env://"
        init(*given.args, **given.kwargs)

    multiprocessing.spawn = called
    torch.distributed.init_process_group = initialized
    try:
        yield
    finally:
        multiprocessing.spawn = spawn
        torch.distributed.init_process_group = init
