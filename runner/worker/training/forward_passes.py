"""Part `inference` of the scenarios `speed` and `cache`: times blocks of forward passes over a few
batches.
"""

from dataclasses import asdict

import torch

from breakeven.runner.supervision.turns import Turn
from breakeven.runner.worker.compiler.compiling import compile_blocks
from breakeven.runner.worker.compiler.observer import CompileObserver
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.data.splits import FixedBatches
from breakeven.runner.worker.model.workload import Workload
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.stepping import MixedPrecision
from breakeven.runner.worker.training.blocks import (
    Block,
    BlockRecorder,
    BlockTimer,
    Steps,
    added_blocks,
    plan_blocks,
)
from breakeven.runner.worker.training.profiler import StepProfiler
from breakeven.runner.worker.turn_source import TurnSource


class ForwardPasses:
    """Repeats the forward passes of one model over the same batches under one backend."""

    def __init__(self, context: RunContext, workload: Workload) -> None:
        """The workload's model is on the device already."""
        self._context = context
        self._experiment = experiment = context.experiment
        self._log, device, variant = context.log, context.device, context.variant
        model = workload.model.eval()
        self._batches = FixedBatches(workload.data.train.to(device.torch_device), experiment)
        observer = CompileObserver(self._log)
        self._timer = BlockTimer(
            context, observer, BlockRecorder(self._log, with_steps=not context.adds_rounds)
        )
        self._profiler = StepProfiler(context, observer)
        if variant.scope == "blocks":
            compile_blocks(model, variant)
        training = experiment.training
        precision = MixedPrecision(training, device.torch_device)
        self._model = Inference(model, precision, variant, training.batch_size, own_loss=False)
        if experiment.steps_like_harness and variant.backend is not None:
            self._profiler.alternate_with(lambda: self._answer_uncompiled)

    @torch.no_grad()
    def measure(self, turns: TurnSource) -> bool:
        """Measures all blocks until the last turn (True), or until the run is stopped (False)."""
        adds_rounds = self._context.adds_rounds
        blocks = added_blocks(self._context) if adds_rounds else plan_blocks(self._experiment)
        for block in blocks:
            turn = turns.wait()
            if turn is None or not self._time_block(block, turn, turns):
                return False
            if turn.last is not None:
                reason, ending = turn.last.reason, asdict(turn.last)
                self._log.append("stopped", step=block.end, reason=reason, ending=ending)
            if block.is_last or turn.last is not None:
                break
            turns.done(finished=False)
        if adds_rounds or self._profiler.take_turns(turns, self._answer):
            turns.done(finished=True)
        return True

    def _time_block(self, block: Block, turn: Turn, turns: TurnSource) -> bool:
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
