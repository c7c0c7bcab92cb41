"""Blocks of steps, timed without interruption and written down when they are over."""

import gc
from collections.abc import Callable

from runner.supervision.turns import Turn
from runner.worker.compiler.compiling import CompileObserver
from runner.worker.device.base import Device
from runner.worker.device.monitor import DeviceMonitor
from runner.worker.event_log import EventLog
from runner.worker.training.collecting import EVERY_STEPS, Collector
from runner.worker.training.plan import Block
from runner.worker.training.recording import BlockCost, BlockRecorder, Steps


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
        with self._collector.held_back():
            self._memory.reset()
            self._monitor.begin()
            self._clock.start()
            for place in range(block.num_steps):
                if stops():
                    break
                if place and place % EVERY_STEPS == 0:
                    gc.collect()
                    self._clock.skip()
                step(place, steps)
                self._clock.mark()
                steps.compiled.append(self._observer.compiled_since_last_asked())
                self._observer.step = block.first_step + place + 1
            cost = BlockCost(seconds=self._clock.read(), memory=self._memory.read())
            self._monitor.end(round=turn.round, first_step=block.first_step)
        self._recorder.write(block, turn, steps, cost)
        self._observer.report()
        self._log.flush()
        return len(steps) == block.num_steps
