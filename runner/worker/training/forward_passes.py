"""Part `inference` of the scenarios `speed` and `cache`: forward passes over a few batches, timed
by blocks.
"""

from dataclasses import asdict

import torch

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.supervision.turns import Turn
from breakeven.runner.worker.compiler.compiling import CompileObserver
from breakeven.runner.worker.compiler.in_place import compile_blocks
from breakeven.runner.worker.data.batches import FixedBatches
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.workload import Workload
from breakeven.runner.worker.profiling.profiler import StepProfiler
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.stepping import MixedPrecision
from breakeven.runner.worker.training.plan import Block, plan_blocks
from breakeven.runner.worker.training.recording import BlockRecorder, Steps
from breakeven.runner.worker.training.timing import BlockTimer
from breakeven.runner.worker.turn_source import TurnSource


class ForwardPasses:
    """Has one model answer the same batches over and over under one backend."""

    def __init__(
        self, spec: RunSpec, workload: Workload, run: RunDir, device: Device, log: EventLog
    ) -> None:
        """The workload's model is on the device already."""
        self._experiment = experiment = spec.experiment
        self._log = log
        model = workload.model.eval()
        self._batches = FixedBatches(workload.data.train.to(device.torch_device), experiment)
        recorder = BlockRecorder(log)
        observer = CompileObserver(log)
        self._timer = BlockTimer(spec.experiment_id, device, log, observer, recorder)
        self._profiler = StepProfiler(experiment, run, device, log, observer)
        if spec.variant.scope == "blocks":
            compile_blocks(model, spec.variant)
        training = experiment.training
        precision = MixedPrecision(training, device.torch_device)
        self._model = Inference(model, precision, spec.variant, training.batch_size, own_loss=False)
        if experiment.steps_like_harness and spec.variant.backend is not None:
            self._profiler.alternate_with(lambda: self._answer_uncompiled)

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
            if is_over:
                break
            turns.done(finished=False)
        if self._profiler.take_turns(turns, self._answer):
            turns.done(finished=True)
        return True

    def _time_block(self, block: Block, turn: Turn, turns: TurnSource) -> bool:
        """Whether all its steps were done."""

        def step(place: int, steps: Steps) -> None:
            self._answer(block.first_step + place)

        return self._timer.run(block, turn, step, lambda: turns.stop_requested)

    def _answer(self, number: int) -> None:
        """One step: the forward passes over the batches of its place."""
        for batch in self._batches.window(number):
            self._model.forward(batch.inputs)

    def _answer_uncompiled(self, number: int) -> None:
        """The same without a compiler."""
        for batch in self._batches.window(number):
            self._model.forward_uncompiled(batch.inputs)
