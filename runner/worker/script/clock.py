"""The clock of a script, which stands still while its run waits for its turn.

A script may train for a time budget, or lower its learning rate by the clock. Without this it would
count the time of all other runs.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch._dynamo.decorators import skip

from breakeven.runner.worker.compiler.observer import short_path
from breakeven.runner.worker.script.torch_compile import is_library

CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
NANOSECONDS = 1_000_000_000
TIMERS = ("lightning.pytorch.callbacks.timer", "pytorch_lightning.callbacks.timer")
"""Modules of libraries that end a training by the clock."""
MAX_PLACES = 3
"""Number of places in the script that are noted."""


class ScriptClock:
    """Leaves out waiting for turns from the clocks that the script's own modules read. Its threads
    also see clocks that never run backwards."""

    def __init__(self) -> None:
        self._real: dict[str, Callable[[], Any]] = {name: getattr(time, name) for name in CLOCKS}
        self._state: tuple[int, dict[str, Any] | None] = (0, None)
        """Nanoseconds left out so far; while the clock stands still, also what each clock shows."""
        self.places: list[str] = []
        """Where the script read a clock first: `file:line`."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        left_out, _ = self._state
        self._state = (left_out, {name: self._shown(name, left_out) for name in CLOCKS})
        since = self._real["perf_counter_ns"]()
        try:
            yield
        finally:
            self._state = (left_out + self._real["perf_counter_ns"]() - since, None)

    def _shown(self, name: str, left_out: int) -> Any:
        return self._real[name]() - (left_out if name.endswith("_ns") else left_out / NANOSECONDS)

    def read(self, name: str) -> Any:
        """What a clock shows to the script."""
        while True:
            state = left_out, frozen = self._state
            shown = self._shown(name, left_out) if frozen is None else frozen[name]
            if state is self._state:  # else another thread has waited meanwhile
                return shown

    @contextmanager
    def replacing_time_functions(self) -> Iterator[None]:
        """Replaces the functions of `time` for the script's own modules; libraries and this runner
        get the real ones."""
        for name, function in self._real.items():
            setattr(time, name, self._replaced(name, function))
        try:
            yield
        finally:
            for name, function in self._real.items():
                setattr(time, name, function)

    def _replaced(self, name: str, function: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(function)
        def read() -> Any:
            caller = sys._getframe(1)
            if is_library(caller) and caller.f_globals.get("__name__") not in TIMERS:
                return function()
            self._note(caller)
            return self.read(name)

        return skip(read)  # Dynamo breaks the graph here, as it does at the real function

    def _note(self, caller: Any) -> None:
        if len(self.places) < MAX_PLACES:
            place = f"{short_path(caller.f_code.co_filename)}:{caller.f_lineno}"
            place = place.removeprefix(f"{Path.cwd()}/")
            if place not in self.places:
                self.places.append(place)
