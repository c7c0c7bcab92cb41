"""The training loop: one block of steps a turn, everything measured and written down."""

import torch
from torch import Tensor, nn

from runner.events import EventLog
from runner.spec import RunSpec
from runner.turns import Turn
from runner.worker.compiling import CompileObserver, compile_step
from runner.worker.data import Dataset
from runner.worker.evaluation import evaluate
from runner.worker.measuring import PeakMemory, make_clock
from runner.worker.stepping import MixedPrecision, make_optimizer, make_step
from runner.worker.turn_source import TurnSource

EPOCH_SEED_STRIDE = 1_000_003
"""Keeps the orders of all epochs apart for neighbouring seeds."""


class Trainer:
    """Trains one model on one data set under one backend.

    The whole iteration is one function, and that function is what the backend compiles. Losses
    stay on the device until their block is over, so nothing waits for the device inside a block.
    """

    def __init__(
        self, spec: RunSpec, model: nn.Module, data: Dataset, device: torch.device, log: EventLog
    ) -> None:
        self._training = spec.experiment.training
        self._block_steps = spec.experiment.block_steps
        self._model = model.to(device).train()
        self._train_split = data.train.to(device)
        self._evaluation_split = data.evaluation.to(device)
        self._device = device
        self._log = log
        self._observer = CompileObserver(log)
        self._clock = make_clock(device)
        self._memory = PeakMemory(device)
        self._losses = torch.empty(self._block_steps, device=device)
        self._precision = MixedPrecision(self._training, device)
        optimizer = make_optimizer(self._training, self._model, device)
        step = make_step(self._model, optimizer, self._precision)
        self._step = compile_step(spec.variant.backend, step)

    def train(self, turns: TurnSource) -> bool:
        """Trains until all epochs are done (True) or somebody asks to stop (False)."""
        # From here on every run of an experiment draws the same random numbers.
        torch.manual_seed(self._training.seed)
        for epoch in range(self._training.epochs):
            batches = self._batches(epoch)
            for start in range(0, len(batches), self._block_steps):
                turn = turns.wait()
                if turn is None:
                    return False
                block = batches[start : start + self._block_steps]
                if not self._train_block(epoch, block, turn, turns):
                    return False
                is_last = start + self._block_steps >= len(batches)
                if is_last:
                    self._evaluate(epoch)
                turns.done(finished=is_last and epoch == self._training.epochs - 1)
        return True

    def _batches(self, epoch: int) -> list[Tensor]:
        """Sample indices of each full batch of an epoch, in an order that the seed fixes.

        A last, smaller batch is left out: its other shape would recompile.
        """
        seed = self._training.seed * EPOCH_SEED_STRIDE + epoch
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self._train_split), generator=generator).to(self._device)
        size = self._training.batch_size
        return [order[start : start + size] for start in range(0, len(order) - size + 1, size)]

    def _train_block(
        self, epoch: int, batches: list[Tensor], turn: Turn, turns: TurnSource
    ) -> bool:
        """One block; False if it was left early because somebody asked to stop."""
        compiled: list[bool] = []
        self._memory.reset()
        self._clock.start()
        for index, batch in enumerate(batches):
            if turns.stop_requested:
                break
            loss = self._step(self._train_split.batch(batch))
            # A copy, because a captured CUDA graph overwrites its outputs at the next replay.
            self._losses[index].copy_(loss)
            self._clock.mark()
            compiled.append(self._observer.compiled_since_last_asked())
            self._observer.step += 1
        self._record(epoch, turn, self._clock.read(), compiled)
        return len(compiled) == len(batches)

    def _record(self, epoch: int, turn: Turn, seconds: list[float], compiled: list[bool]) -> None:
        first_step = self._observer.step - len(compiled)
        losses = self._losses[: len(compiled)].tolist()
        for offset, (loss, duration) in enumerate(zip(losses, seconds, strict=True)):
            self._log.append(
                "step",
                step=first_step + offset,
                epoch=epoch,
                round=turn.round,
                loss=loss,
                seconds=duration,
                compiled=compiled[offset],
            )
        self._log.append(
            "block",
            round=turn.round,
            position=turn.position,
            first_step=first_step,
            num_steps=len(compiled),
            seconds=sum(seconds),
            compiled=any(compiled),
            peak_memory_bytes=self._memory.read(),
            reserved_memory_bytes=self._memory.read_reserved(),
        )
        self._observer.report()
        self._log.flush()

    def _evaluate(self, epoch: int) -> None:
        self._log.append("phase", phase="evaluating")
        self._log.flush()
        result = evaluate(
            self._model,
            self._evaluation_split,
            self._training.batch_size,
            self._precision.autocast,
        )
        self._log.append("evaluation", epoch=epoch, step=self._observer.step, **result)
        self._log.append("phase", phase="training")
        self._log.flush(durable=True)
