"""Python's garbage collector, kept out of the steps that are timed.

Left to itself it stops steps for up to milliseconds, and where a training makes much that stays,
one of them for as long as it takes to look through all that torch and transformers have loaded:
0.4 s (docs/measurements.md). Here it works between steps.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from torch._dynamo.callback import CallbackArgs, callback_handler

from breakeven.runner.worker.compiler.compiling import not_compiled

EVERY_STEPS = 100
"""Steps of a block between two collections, so that what only cycles hold cannot pile up: as many
as Python itself lets pass where a step leaves a few such objects."""
SETTLING_BLOCKS = 2
"""Starts of blocks at which what lives is frozen: the first block still makes much that stays."""


class Collector:
    """Collects before blocks and between steps, and only there.

    What lives when the first blocks start is frozen, so that a collection looks at what came later,
    which is little. While something compiles all is as in anybody's process, since collections are
    part of what compiling costs; afterwards what then lives is frozen.
    """

    def __init__(self) -> None:
        self._is_held_back = False
        self._blocks_to_freeze = SETTLING_BLOCKS
        callback_handler.register_start_callback(self._on_compile_start)
        callback_handler.register_end_callback(self._on_compile_end)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Collects, and then no more by itself for the duration of a block."""
        gc.collect()
        if self._blocks_to_freeze:
            gc.freeze()
            self._blocks_to_freeze -= 1
        self._is_held_back = True
        gc.disable()
        try:
            yield
        finally:
            self._is_held_back = False
            gc.enable()

    @not_compiled
    def _on_compile_start(self, args: CallbackArgs) -> None:
        gc.unfreeze()
        self._blocks_to_freeze = SETTLING_BLOCKS
        gc.enable()

    @not_compiled
    def _on_compile_end(self, args: CallbackArgs) -> None:
        if self._is_held_back:
            gc.disable()
