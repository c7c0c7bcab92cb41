"""Times blocks of steps without interruption, and records them at their ends.

Python's garbage collector runs only between timed steps. Otherwise it would interrupt steps for up
to milliseconds, and, where a training creates many lasting objects, one step for 0.4 s, which it
takes to visit all objects of torch and transformers (docs/measurements.md).
"""

import gc
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

from torch._dynamo.callback import CallbackArgs, callback_handler

from breakeven.runner.supervision.turns import Turn
from breakeven.runner.worker.compiler.observer import CompileObserver, not_compiled
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.device.monitor import DeviceMonitor
from breakeven.runner.worker.training.blocks import Block, BlockCost, BlockRecorder, Steps

EVERY_STEPS = 100
"""Steps of a block between two collections, so that cyclic garbage cannot pile up: as many as
Python itself lets pass where a step leaves a few such objects."""
SETTLING_BLOCKS = 2
"""Starts of blocks at which all objects are frozen: the first block still creates lasting ones."""


class Collector:
    """Collects garbage before blocks and between steps alone.

    The objects at the start of the first blocks are frozen, so that a collection visits only the
    few later ones. During compilation Python collects as usual, since that is part of the cost of
    compiling; the objects after it are frozen again.
    """

    def __init__(self) -> None:
        self._is_held_back = False
        self._blocks_to_freeze = SETTLING_BLOCKS
        callback_handler.register_start_callback(self._on_compile_start)
        callback_handler.register_end_callback(self._on_compile_end)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Collects, then keeps Python from collecting for the duration of a block."""
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


class NoMoreSteps(Exception):
    """Thrown into a block that waits for a step, to say that there will be none."""


class BlockTimer:
    """Times the blocks of one run, for any kind of step."""

    def __init__(
        self, context: RunContext, observer: CompileObserver, recorder: BlockRecorder
    ) -> None:
        self._device, self._log = context.device, context.log
        self._observer = observer
        self._recorder = recorder
        self._clock = self._device.clock()
        self._monitor = DeviceMonitor(context.spec.experiment_id, self._device, self._log)
        self._collector = Collector()

    def run(
        self,
        block: Block,
        turn: Turn,
        step: Callable[[int, Steps], None],
        stops: Callable[[], bool],
    ) -> bool:
        """Makes the steps of a block until `stops` is true; whether all were made.

        `step` gets its place in the block, and the record of the block, to which it adds its
        results.
        """
        steps = Steps()
        for place in self.steps(block, turn, steps, stops):
            step(place, steps)
        return len(steps) == block.num_steps

    def steps(
        self, block: Block, turn: Turn, steps: Steps, stops: Callable[[], bool]
    ) -> Generator[int, None, None]:
        """The same for callers that make the steps themselves: yields the place of each step, which
        the caller has to make, and add to `steps`, before it takes the next. `NoMoreSteps` thrown
        into it ends the block before the step that it waits for."""
        with self._collector.held_back():
            self._device.reset_memory()
            self._monitor.begin()
            cpu_seconds = time.process_time()
            self._clock.start()
            for place in range(block.num_steps):
                if stops():
                    break
                if place and place % EVERY_STEPS == 0:
                    gc.collect()
                    self._clock.skip()
                try:
                    yield place
                except NoMoreSteps:
                    break
                self._clock.mark()
                steps.compiled.append(self._observer.compiled_since_last_asked())
                self._observer.step = block.first_step + place + 1
            cost = BlockCost(
                seconds=self._clock.read(),
                memory=self._device.memory_use(),
                cpu_seconds=time.process_time() - cpu_seconds,
            )
            self._monitor.end(round=turn.round, first_step=block.first_step)
        self._recorder.write(block, turn, steps, cost)
        self._observer.report()
        self._log.flush()

    def pause(self) -> None:
        """Leaves the time until `resume` out of the step."""
        self._clock.pause()

    def resume(self) -> None:
        """The step goes on."""
        self._clock.resume()

    def leave_out(self) -> None:
        """Leaves the time since the last step out of the next one."""
        self._clock.skip()
