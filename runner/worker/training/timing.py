"""Blocks of steps, timed without interruption and written down when they are over."""

import gc
import time
from collections.abc import Callable, Generator

from breakeven.runner.supervision.turns import Turn
from breakeven.runner.worker.compiler.compiling import CompileObserver
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.monitor import DeviceMonitor
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.training.collecting import EVERY_STEPS, Collector
from breakeven.runner.worker.training.plan import Block
from breakeven.runner.worker.training.recording import BlockCost, BlockRecorder, Steps


class NoMoreSteps(Exception):
    """Thrown into a block that waits for a step: there will be none."""


class BlockTimer:
    """Times the blocks of one run, whatever a step of it is."""

    def __init__(
        self,
        experiment_id: str,
        device: Device,
        log: EventLog,
        observer: CompileObserver,
        recorder: BlockRecorder,
    ) -> None:
        self._log = log
        self._observer = observer
        self._recorder = recorder
        self._clock = device.clock()
        self._memory = device.memory()
        self._monitor = DeviceMonitor(experiment_id, device, log)
        self._collector = Collector()

    def run(
        self,
        block: Block,
        turn: Turn,
        step: Callable[[int, Steps], None],
        stops: Callable[[], bool],
    ) -> bool:
        """Takes the steps of a block until `stops` says so; whether all were done.

        `step` is given its place in the block and what the block has recorded so far, to which it
        adds what it computed.
        """
        steps = Steps()
        for place in self.steps(block, turn, steps, stops):
            step(place, steps)
        return len(steps) == block.num_steps

    def steps(
        self, block: Block, turn: Turn, steps: Steps, stops: Callable[[], bool]
    ) -> Generator[int, None, None]:
        """The same for those who cannot be called: gives the place of each step, which has to be
        made, and added to `steps`, before the next is asked for. `NoMoreSteps` thrown into it ends
        the block before the step that it waits for."""
        with self._collector.held_back():
            self._memory.reset()
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
                memory=self._memory.read(),
                cpu_seconds=time.process_time() - cpu_seconds,
            )
            self._monitor.end(round=turn.round, first_step=block.first_step)
        self._recorder.write(block, turn, steps, cost)
        self._observer.report()
        self._log.flush()

    def pause(self) -> None:
        """What follows is part of no step, until `resume`."""
        self._clock.pause()

    def resume(self) -> None:
        """The step goes on."""
        self._clock.resume()

    def leave_out(self) -> None:
        """What was done since the last step is part of none."""
        self._clock.skip()
