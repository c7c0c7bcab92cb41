"""Data loaders of a script: the number of their processes, and how long a step waits for them.

The processes work in the turns of their run only. Otherwise they would fill their queue while
another run is timed: they would slow that run down, and the steps of their own next block would
find loaded batches.
"""

import functools
import inspect
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, dataloader

from breakeven.runner.errors import WorkloadError

REPEATS = (
    "loader_workers cannot be set for a data loader of an IterableDataset ({}): each process would "
    "load all samples again"
)


class LoaderClock:
    """Measures how long the script waits for its data loaders."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def read(self) -> float:
        """Seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Measures the start of each pass through a data loader, and each of its batches."""
        iterator = dataloader._BaseDataLoaderIter
        begin, advance = DataLoader.__iter__, iterator.__next__
        DataLoader.__iter__ = self._measured(begin)  # type: ignore[method-assign]
        iterator.__next__ = self._measured(advance)  # type: ignore[method-assign]
        try:
            yield
        finally:
            DataLoader.__iter__ = begin  # type: ignore[method-assign]
            iterator.__next__ = advance  # type: ignore[method-assign]

    def _measured(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def measured(self_: Any) -> Any:
            since = time.perf_counter()
            try:
                return call(self_)
            finally:
                self._seconds += time.perf_counter() - since

        return measured


@contextmanager
def forced_loader_workers(workers: int, *, pinned: bool) -> Iterator[None]:
    """Each data loader of the script gets this number of processes (0: no change), and `pinned`
    memory. An iterable-style data set raises `WorkloadError` in the script."""
    make = DataLoader.__init__
    signature = inspect.signature(make)

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        dataset = given.arguments.get("dataset")
        if isinstance(dataset, IterableDataset):
            raise WorkloadError(REPEATS.format(type(dataset).__name__))
        given.arguments["num_workers"] = workers
        if pinned:
            given.arguments["pin_memory"] = True
        make(*given.args, **given.kwargs)

    if workers:
        DataLoader.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataLoader.__init__ = make  # type: ignore[method-assign]


@contextmanager
def paused_processes() -> Iterator[None]:
    """Suspends the processes that the script started with `multiprocessing`, such as those of data
    loaders."""
    processes = [
        process.pid for process in multiprocessing.active_children() if process.pid is not None
    ]
    _signal(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(processes, signal.SIGCONT)


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
