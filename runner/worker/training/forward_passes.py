"""Part `inference` of the scenarios `speed` and `cache`: forward passes over a few batches, timed
by blocks.
"""

from dataclasses import asdict

import torch

from runner.specs.experiment import RunSpec
from runner.supervision.turns import Turn
from runner.worker.callbacks import TrainingState
from runner.worker.compiler.compiling import CompileObserver, compile_blocks
from runner.worker.data.batches import FixedBatches
from runner.worker.device.base import Device
from runner.worker.device.monitor import DeviceMonitor
from runner.worker.event_log import EventLog
from runner.worker.model.workload import Workload
from runner.worker.step.inference import Inference
from runner.worker.step.stepping import MixedPrecision
from runner.worker.training.plan import Block, plan_blocks
from runner.worker.training.recording import BlockCost, BlockRecorder, Steps
from runner.worker.turn_source import TurnSource


class ForwardPasses:
    """Has one model answer the same batches over and over under one backend."""

    def __init__(self, spec: RunSpec, workload: Workload, device: Device, log: EventLog) -> None:
        """The workload's model is on the device already."""
        self._experiment = experiment = spec.experiment
        self._log = log
        model = workload.model.eval()
        self._batches = FixedBatches(workload.data.train.to(device.torch_device), experiment)
        self._observer = CompileObserver(log)
        self._clock = device.clock()
        self._memory = device.memory()
        self._monitor = DeviceMonitor(spec.experiment_id, device, log)
        self._recorder = BlockRecorder(log, (), TrainingState(model=model, optimizers=()))
        if spec.variant.scope == "blocks":
            compile_blocks(model, spec.variant)
        training = experiment.training
        precision = MixedPrecision(training, device.torch_device)
        self._model = Inference(model, precision, spec.variant, training.batch_size, own_loss=False)

    @torch.no_grad()
    def measure(self, turns: TurnSource) -> bool:
        """Block after block until a turn is the last one (True), or until somebody asks to stop
        (False)."""
        for block in plan_blocks(self._experiment):
            turn = turns.wait()
            if turn is None or not self._time_block(block, turn, turns):
                return False
            is_over = block.end == self._experiment.num_steps or turn.last is not None
            if turn.last is not None:
                told = {"reason": turn.last.reason, "ending": asdict(turn.last)}
                self._log.append("stopped", step=block.end, **told)
            turns.done(finished=is_over)
            if is_over:
                return True
        return True

    def _time_block(self, block: Block, turn: Turn, turns: TurnSource) -> bool:
        """Whether all its steps were done."""
        steps = Steps()
        self._memory.reset()
        self._monitor.begin()
        self._clock.start()
        for step in range(block.first_step, block.end):
            if turns.stop_requested:
                break
            for batch in self._batches.window(step):
                self._model.forward(batch.inputs)
            self._clock.mark()
            steps.compiled.append(self._observer.compiled_since_last_asked())
            self._observer.step = step + 1
        cost = BlockCost(seconds=self._clock.read(), memory=self._memory.read())
        self._monitor.end(round=turn.round, first_step=block.first_step)
        self._recorder.write(block, turn, steps, cost)
        self._observer.report()
        self._log.flush()
        return len(steps) == block.num_steps
