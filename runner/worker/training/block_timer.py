"""Times the steps of a block, without collections of garbage in between."""

import gc
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

from torch._dynamo.callback import callback_handler

from breakeven.runner.protocol.turns import Turn
from breakeven.runner.worker.compiler.observer import CompileObserver, not_compiled
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.device.monitor import DeviceMonitor
from breakeven.runner.worker.training.blocks import Block
from breakeven.runner.worker.training.step_rows import BlockCost, BlockRecorder, Steps

EVERY_STEPS = 100
"""Steps between two collections within a block, which limit cyclic garbage. Python itself collects
about as often if each step leaves a few such objects."""

SETTLING_BLOCKS = 2
"""Number of blocks that freeze all objects at their start: the first block creates lasting ones."""


class Collector:
    """Collects garbage only before blocks and between steps.

    It freezes all objects at the start of the first blocks, so that a collection visits only the
    few later objects. During a compilation Python collects as usual, since this is part of its
    cost; afterwards objects are frozen again.
    """

    def __init__(self) -> None:
        self._is_held_back = False
        self._blocks_to_freeze = SETTLING_BLOCKS
        callback_handler.register_start_callback(self._on_compile_start)
        callback_handler.register_end_callback(self._on_compile_end)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Collects garbage, then stops Python's collector for the duration of a block."""
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
    def _on_compile_start(self, *_: Any) -> None:
        gc.unfreeze()
        self._blocks_to_freeze = SETTLING_BLOCKS
        gc.enable()

    @not_compiled
    def _on_compile_end(self, *_: Any) -> None:
        if self._is_held_back:
            gc.disable()


class NoMoreSteps(Exception):
    """Ends a block that waits for a step, if there will be none."""


class BlockTimer:
    """Times the blocks of one run, for any kind of step."""

    def __init__(
        self, context: RunContext, observer: CompileObserver, recorder: BlockRecorder
    ) -> None:
        self._device, self._log = context.device, context.log
        self._observer = observer
        self._recorder = recorder
        self._clock = clock = self._device.clock()
        self.pause, self.resume, self.leave_out = clock.pause, clock.resume, clock.skip
        """Exclude time from the step: until `resume`, or the time since the last step."""
        self._monitor = DeviceMonitor(context.spec, self._device, self._log)
        self._collector = Collector()
        self._num_early_marks = 0
        self._num_marks: list[int] = []
        """Marks of each recorded step of the open block."""
        self._made_early: deque[int] = deque()
        """Early marks of each step that has ended since the last place was yielded."""

    @property
    def has_made_early(self) -> bool:
        """Whether steps have ended that are not recorded yet."""
        return bool(self._made_early)

    def mark_early(self) -> None:
        """Marks the time of what may be the end of a step: `made_early` says later what it was."""
        self._clock.mark()
        self._num_early_marks += 1

    def made_early(self, num_marks: int, *, ends_now: bool) -> None:
        """Tells that the next step took as long as this number of marks, and until now if it
        `ends_now`."""
        marks = min(num_marks, self._num_early_marks)  # the others belong to an earlier block
        self._num_early_marks -= marks
        if ends_now or not marks:
            self._clock.mark()
            marks += 1
        self._made_early.append(marks)

    def step_made(self, steps: Steps) -> None:
        """Marks the end of a step, unless it is marked already, and records whether it compiled."""
        if self._made_early:
            self._num_marks.append(self._made_early.popleft())
        else:
            self._clock.mark()
            self._num_marks.append(1)
        steps.compiled.append(self._observer.compiled_since_last_call())
        self._observer.step += 1

    def run(
        self,
        block: Block,
        turn: Turn,
        step: Callable[[int, Steps], None],
        stops: Callable[[], bool],
    ) -> bool:
        """Makes the steps of a block until `stops` is true; returns whether all were made. `step`
        gets its place in the block and the block's record, and adds its results to it."""
        steps = Steps()
        for place in self.steps(block, turn, steps, stops):
            step(place, steps)
        return len(steps) == block.num_steps

    def steps(
        self, block: Block, turn: Turn, steps: Steps, stops: Callable[[], bool]
    ) -> Generator[int, None, None]:
        """As `run`, for callers that make the steps themselves: yields the place of each step. The
        caller makes the step and adds it to `steps` before it takes the next place, or throws
        `NoMoreSteps` to end the block without this step. It may make some more steps before, if it
        calls `step_made` after each of these: up to `next_look`, and not beyond the block."""
        with self._collector.held_back():
            self._device.reset_memory()
            self._monitor.begin()
            cpu_seconds = time.process_time()
            compile_seconds = self._observer.compile_seconds
            self._clock.start()
            self._num_early_marks, self._num_marks = 0, []
            self._observer.step = block.first_step
            while ((place := len(steps)) < block.num_steps or self._made_early) and not stops():
                if place and place % EVERY_STEPS == 0:
                    gc.collect()
                    self._clock.skip()
                try:
                    yield place
                except NoMoreSteps:
                    break
                self.step_made(steps)
            cost = BlockCost(
                seconds=_summed(self._clock.read(), self._num_marks),
                memory=self._device.memory_use(),
                cpu_seconds=time.process_time() - cpu_seconds,
                compile_seconds=self._observer.compile_seconds - compile_seconds,
            )
            self._made_early.clear()
            self._monitor.end(round=turn.round, first_step=block.first_step)
        steps.complete()
        self._recorder.write(block, turn, steps, cost)
        self._observer.report()
        self._log.flush()


def next_look(place: int) -> int:
    """The place after this one at which the timer has work to do between two steps."""
    return (place // EVERY_STEPS + 1) * EVERY_STEPS


def _summed(seconds: Sequence[float], counts: Sequence[int]) -> list[float]:
    """Sums of this many consecutive numbers each."""
    ends = list(accumulate(counts, initial=0))
    return [sum(seconds[begin:end]) for begin, end in pairwise(ends)]
