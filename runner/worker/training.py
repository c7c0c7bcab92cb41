"""The training loop: one block of steps a turn, everything measured and written down."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from runner.events import EventLog
from runner.spec import RunSpec
from runner.turns import Turn
from runner.worker.compiling import CompileObserver, compile_blocks, make_compiler
from runner.worker.data import Dataset
from runner.worker.evaluation import evaluate
from runner.worker.measuring import PeakMemory, make_clock
from runner.worker.plan import Block, plan_blocks
from runner.worker.schedules import LearningRate
from runner.worker.stepping import Batch, MixedPrecision, make_optimizer, make_step
from runner.worker.turn_source import TurnSource

EPOCH_SEED_STRIDE = 1_000_003
"""Keeps the orders of all epochs apart for neighbouring seeds."""


class Trainer:
    """Trains one model on one data set under one backend.

    Losses and gradient norms stay on the device until their block is over, so nothing waits for
    the device inside a block.
    """

    def __init__(
        self, spec: RunSpec, model: nn.Module, data: Dataset, device: torch.device, log: EventLog
    ) -> None:
        self._experiment = spec.experiment
        self._training = spec.experiment.training
        self._model = model.to(device).train()
        self._train_split = data.train.to(device)
        self._evaluation_split = data.evaluation.to(device)
        self._device = device
        self._log = log
        self._observer = CompileObserver(log)
        self._clock = make_clock(device)
        self._memory = PeakMemory(device)
        block_steps = spec.experiment.block_steps
        self._losses = torch.empty(block_steps, device=device)
        self._gradient_norms = torch.empty(block_steps, device=device)
        self._precision = MixedPrecision(self._training, device)
        optimizer = make_optimizer(self._training, self._model, device)
        self._rate = LearningRate(self._training, spec.experiment.num_steps, optimizer)
        self._replays_graphs = spec.variant.captures_cuda_graphs
        compile = make_compiler(spec.variant)
        if spec.variant.scope == "blocks":
            compile_blocks(self._model, spec.variant)
        self._step = make_step(
            self._model, optimizer, self._precision, self._training, spec.variant.scope, compile
        )

    def train(self, turns: TurnSource) -> bool:
        """Trains to the end of the plan (True) or until somebody asks to stop (False)."""
        # From here on every run of an experiment draws the same random numbers.
        torch.manual_seed(self._training.seed)
        windows: Iterator[list[Tensor]] = iter(())
        epoch = -1
        for block in plan_blocks(self._experiment):
            turn = turns.wait()
            if turn is None:
                return False
            if block.epoch != epoch:
                epoch, windows = block.epoch, self._windows(block.epoch)
            if not self._train_block(block, windows, turn, turns):
                return False
            if block.evaluate:
                self._evaluate(block)
            turns.done(finished=block.end == self._experiment.num_steps)
        return True

    def _windows(self, epoch: int) -> Iterator[list[Tensor]]:
        """Sample indices of the micro-batches of each step, in an order that the seed fixes.

        A last, smaller batch is left out: its other shape would recompile. A last, smaller window
        of full batches is not.
        """
        seed = self._training.seed * EPOCH_SEED_STRIDE + epoch
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self._train_split), generator=generator).to(self._device)
        size, window = self._training.batch_size, self._training.gradient_accumulation
        batches = [order[start : start + size] for start in range(0, len(order) - size + 1, size)]
        return (batches[start : start + window] for start in range(0, len(batches), window))

    def _train_block(
        self, block: Block, windows: Iterator[list[Tensor]], turn: Turn, turns: TurnSource
    ) -> bool:
        """One block; False if it was left early because somebody asked to stop."""
        compiled: list[bool] = []
        rates: list[float] = []
        self._memory.reset()
        self._clock.start()
        while len(compiled) < block.num_steps and not turns.stop_requested:
            index = len(compiled)
            if self._replays_graphs:
                # Tells the compiler that the last step's results may be overwritten.
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            loss, norm = self._step(self._fetch(next(windows)))
            # Copies, because a captured CUDA graph overwrites its outputs at the next replay.
            self._losses[index].copy_(loss)
            if norm is not None:
                self._gradient_norms[index].copy_(norm)
            rates.append(self._rate.current)
            self._rate.step_done()
            self._clock.mark()
            compiled.append(self._observer.compiled_since_last_asked())
            self._observer.step += 1
        self._record(block, turn, self._clock.read(), compiled, rates)
        return len(compiled) == block.num_steps

    def _fetch(self, window: list[Tensor]) -> list[Batch]:
        return [self._train_split.batch(indices) for indices in window]

    def _record(
        self,
        block: Block,
        turn: Turn,
        seconds: list[float],
        compiled: list[bool],
        rates: list[float],
    ) -> None:
        losses = self._losses[: len(compiled)].tolist()
        norms = self._gradient_norms[: len(compiled)].tolist() if self._records_norms else None
        for index, loss in enumerate(losses):
            self._log.append(
                "step",
                step=block.first_step + index,
                epoch=block.epoch,
                round=turn.round,
                loss=loss,
                seconds=seconds[index],
                compiled=compiled[index],
                learning_rate=rates[index],
                gradient_norm=None if norms is None else norms[index],
            )
        self._log.append(
            "block",
            round=turn.round,
            position=turn.position,
            first_step=block.first_step,
            num_steps=len(compiled),
            seconds=sum(seconds),
            compiled=any(compiled),
            peak_memory_bytes=self._memory.read(),
            reserved_memory_bytes=self._memory.read_reserved(),
        )
        self._observer.report()
        self._log.flush()

    @property
    def _records_norms(self) -> bool:
        return self._training.clip_norm is not None or self._training.record_gradient_norm

    def _evaluate(self, block: Block) -> None:
        self._log.append("phase", phase="evaluating")
        self._log.flush()
        # Blocks that were compiled in place would otherwise compile anew for evaluation.
        with torch.compiler.set_stance("force_eager"):
            result = evaluate(
                self._model,
                self._evaluation_split,
                self._training.batch_size,
                self._precision.autocast,
            )
        self._rate.evaluated(result["loss"])
        self._log.append("evaluation", epoch=block.epoch, step=block.end, **result)
        self._log.append("phase", phase="training")
        self._log.flush(durable=True)
