"""Times forward passes, a block per turn: part `inference` of the scenarios `speed` and `cache`."""

from dataclasses import asdict

import torch

from breakeven.runner.protocol.turns import Turn
from breakeven.runner.worker.compiler.compile_with_backend import compile_blocks
from breakeven.runner.worker.compiler.observer import CompileObserver
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.data.splits import FixedBatches
from breakeven.runner.worker.model.loaded_workload import Workload
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.stepping import MixedPrecision
from breakeven.runner.worker.training.block_timer import BlockTimer
from breakeven.runner.worker.training.blocks import Block, plan_blocks
from breakeven.runner.worker.training.profiler import StepProfiler
from breakeven.runner.worker.training.step_rows import BlockRecorder, Steps
from breakeven.runner.worker.turn_source import Turns


class ForwardPasses:
    """Repeats the forward passes of one model over the same batches under one backend."""

    def __init__(self, context: RunContext, workload: Workload) -> None:
        """The workload's model is on the device already."""
        self._context = context
        self._experiment = experiment = context.experiment
        self._log, device, arm = context.log, context.device, context.arm
        model = workload.model.eval()
        self._batches = FixedBatches(workload.data.train.to(device.torch_device), experiment)
        observer = CompileObserver(self._log)
        self._timer = BlockTimer(context, observer, BlockRecorder(self._log))
        self._profiler = StepProfiler(context, observer)
        if arm.scope == "blocks":
            compile_blocks(model, arm)
        training = experiment.training
        precision = MixedPrecision(training, device.torch_device)
        self._model = Inference(model, precision, arm, training.batch_size, own_loss=False)
        if experiment.steps_like_harness and arm.backend is not None:
            self._profiler.alternate_with(lambda: self._answer_uncompiled)

    @torch.no_grad()
    def measure(self, turns: Turns) -> bool:
        """Measures all blocks until the last turn (True), or until the run is stopped (False)."""
        for block in plan_blocks(self._experiment):
            turn = turns.wait()
            if turn is None or not self._time_block(block, turn, turns):
                return False
            if turn.last is not None:
                reason, ending = turn.last.reason, asdict(turn.last)
                self._log.append("stopped", step=block.end, reason=reason, ending=ending)
            if block.is_last or turn.last is not None:
                break
            turns.done(finished=False)
        if self._profiler.take_turns(turns, self._answer):
            turns.done(finished=True)
        return True

    def _time_block(self, block: Block, turn: Turn, turns: Turns) -> bool:
        """Times a block; False if the run was stopped meanwhile."""

        def step(place: int, steps: Steps) -> None:
            self._answer(block.first_step + place)

        return self._timer.run(block, turn, step, lambda: turns.stop_requested)

    def _answer(self, number: int) -> None:
        """Makes step `number`: a forward pass for each batch of its window."""
        for batch in self._batches.window(number):
            self._model.forward(batch.inputs)

    def _answer_uncompiled(self, number: int) -> None:
        """Makes the same step without a compiler."""
        for batch in self._batches.window(number):
            self._model.forward_uncompiled(batch.inputs)
