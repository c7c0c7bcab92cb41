"""Blocks of steps: where they end, their times, and the rows that record them."""

import gc
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.callback import callback_handler

from breakeven.runner.experiments.added_rounds import steps_measured
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.callbacks import OwnValue
from breakeven.runner.worker.compiler.observer import CompileObserver, not_compiled
from breakeven.runner.worker.context import ALONE, RankGroup, RunContext, full_tensor
from breakeven.runner.worker.device.base import MemoryUse
from breakeven.runner.worker.device.monitor import DeviceMonitor
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.step.stepping import StepResult


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive steps of one epoch, timed without interruption."""

    first_step: int
    num_steps: int
    epoch: int
    window: int
    """Place of the first step in its epoch."""
    evaluate: bool
    """Whether the model is evaluated when the block is over."""
    ends_epoch: bool
    warm_up: bool
    """Whether the block is left out of all results."""
    is_last: bool = False
    """Whether no block follows; always False for a script, because this is unknown."""

    @property
    def end(self) -> int:
        return self.first_step + self.num_steps


def plan_blocks(
    experiment: ExperimentSpec, first_step: int = 0, most_steps: Callable[[], int | None] = int
) -> Iterator[Block]:
    """All blocks of a run from `first_step` on, in their order.

    A block has the experiment's `block_steps` steps, or fewer before the end of an epoch or of the
    training, an evaluation or a checkpoint. The scenario `speed` has no epochs, and its first
    blocks from `first_step` on are a warm-up. `most_steps`: called before each block; 0 or None for
    no further limit.
    """
    evaluation = experiment.evaluation
    when = experiment.evaluates
    first, last = first_step, experiment.num_steps
    times_steps = experiment.kind.cycles_batches
    steps_per_epoch = last if times_steps else experiment.steps_per_epoch
    for number in count():
        if first >= last:
            return
        epoch = first // steps_per_epoch
        length = min(experiment.block_steps, most_steps() or experiment.block_steps)
        end = min(first + length, (epoch + 1) * steps_per_epoch, last)
        for every in _due_every(experiment):
            end = min(end, (first // every + 1) * every)
        due = evaluation.every * (experiment.steps_per_epoch if when == "epochs" else 1)
        evaluate = end == last and when != "never"
        evaluate |= when in ("steps", "epochs") and end % due == 0
        yield Block(
            first_step=first,
            num_steps=end - first,
            epoch=epoch,
            window=first % steps_per_epoch,
            evaluate=evaluate,
            ends_epoch=end % steps_per_epoch == 0,
            is_last=end == last,
            warm_up=times_steps and number < experiment.speed.warm_up_blocks,
        )
        first = end


def added_blocks(context: RunContext) -> Iterator[Block]:
    """The blocks of a run that adds rounds: repeats the blocks of the training, with step numbers
    from the last measured step on and without evaluations, until a stopping rule ends them."""
    done = steps_measured(context.run)
    context.log.append("resumed", step=done, attempt=context.run.attempt)
    while True:
        for block in plan_blocks(context.work):
            yield replace(block, first_step=done + block.first_step, evaluate=False, is_last=False)
        done += context.work.num_steps


def _due_every(experiment: ExperimentSpec) -> Iterator[int]:
    """Numbers of steps after which an evaluation or a checkpoint is due, at the end of a block."""
    if experiment.evaluates == "steps":
        yield experiment.evaluation.every
    if experiment.checkpoints.every is not None and experiment.checkpoints.unit == "steps":
        yield experiment.checkpoints.every


@dataclass
class Steps:
    """The steps of a block so far. Their results stay on the device until the block is over;
    forward passes record only whether they compiled."""

    losses: list[Tensor | None] = field(default_factory=list)
    terms: list[Tensor] = field(default_factory=list)
    gradient_norms: list[Tensor] = field(default_factory=list)
    learning_rates: list[float | Tensor | None] = field(default_factory=list)
    compiled: list[bool] = field(default_factory=list)
    samples: list[int | None] = field(default_factory=list)
    """Samples of each step that a script reports, or None."""
    tokens: list[int | None] = field(default_factory=list)
    """Tokens of each step that a script reports, or None."""
    loading: list[float] = field(default_factory=list)
    """Seconds of each step of a script in which it waited for its data loaders."""

    def add(self, result: StepResult, learning_rate: float, *, copy: bool) -> None:
        """Adds a step's results; `copy` if the next step overwrites them in place."""
        self.losses.append(result.loss.clone() if copy else result.loss)
        if result.terms is not None:
            self.terms.append(result.terms.clone() if copy else result.terms)
        if result.gradient_norm is not None:
            norm = result.gradient_norm
            self.gradient_norms.append(norm.clone() if copy else norm)
        self.learning_rates.append(learning_rate)

    def __len__(self) -> int:
        return len(self.compiled)


@dataclass(frozen=True, kw_only=True)
class BlockCost:
    """Measurements of a block by clock and allocator."""

    seconds: list[float]
    memory: MemoryUse
    cpu_seconds: float = 0.0
    """CPU time of all threads of this process."""


class BlockRecorder:
    """Records blocks when they are over."""

    def __init__(
        self,
        log: EventLog,
        loss_names: tuple[str, ...] = (),
        values: list[OwnValue] | None = None,
        group: RankGroup = ALONE,
        *,
        with_steps: bool = True,
    ) -> None:
        """Callbacks append numbers to `values`; writing empties it. Each rank of `group` has a
        part of every loss. `with_steps`: whether to record single steps, too."""
        self._group = group
        self._with_steps = with_steps
        self._log = log
        self._loss_names = loss_names
        self._values = [] if values is None else values

    def write(self, block: Block, turn: Turn, steps: Steps, cost: BlockCost) -> None:
        if not len(steps):
            return
        rows = self._rows(block, steps, cost) if self._with_steps else []
        self._write_ranks(block, turn, cost)
        self._log.extend("step", rows, epoch=block.epoch, round=turn.round)
        self._log.append(
            "block",
            round=turn.round,
            position=turn.position,
            first_step=block.first_step,
            num_steps=len(steps),
            seconds=sum(cost.seconds),
            compiled=any(steps.compiled),
            warm_up=block.warm_up,
            peak_memory_bytes=cost.memory.peak_bytes,
            reserved_memory_bytes=cost.memory.reserved_bytes,
            samples=_sum(steps.samples),
            tokens=_sum(steps.tokens),
            loading_seconds=_sum(steps.loading),
        )
        self.write_values()

    def _write_ranks(self, block: Block, turn: Turn, cost: BlockCost) -> None:
        """Records the block by each rank's own clock and allocator."""
        if self._group.size == 1:
            return
        own_fields = {
            "seconds": sum(cost.seconds),
            "cpu_seconds": cost.cpu_seconds,
            "peak_memory_bytes": cost.memory.peak_bytes,
            "reserved_memory_bytes": cost.memory.reserved_bytes,
        }
        rows = [
            {"rank": rank, **rank_fields}
            for rank, rank_fields in enumerate(self._group.gather(own_fields))
        ]
        self._log.extend("rank_block", rows, round=turn.round, first_step=block.first_step)

    def write_values(self) -> None:
        """Writes the numbers that callbacks recorded since the last call."""
        for step, name, value in self._values:
            self._log.append("value", step=step, name=name, value=float(value))
        self._values.clear()

    def _rows(self, block: Block, steps: Steps, cost: BlockCost) -> list[dict[str, Any]]:
        """The fields of the steps' events."""
        unknown = [None] * len(steps)
        columns = zip(
            self._group.averaged(_read(steps.losses)) or unknown,
            cost.seconds,
            steps.compiled,
            [None if rate is None else float(rate) for rate in steps.learning_rates] or unknown,
            _read(steps.gradient_norms) or unknown,
            strict=True,
        )
        rows: list[dict[str, Any]] = [
            {
                "step": step,
                "loss": loss,
                "seconds": seconds,
                "compiled": compiled,
                "learning_rate": rate,
                "gradient_norm": norm,
            }
            for step, (loss, seconds, compiled, rate, norm) in enumerate(columns, block.first_step)
        ]
        if steps.terms:
            by_step = torch.stack(steps.terms).tolist()
            for row, terms in zip(rows, map(self._group.averaged, by_step), strict=True):
                row["losses"] = dict(zip(self._loss_names, terms, strict=True))
        return rows


def _sum(counts: Sequence[float | None]) -> float | None:
    """The sum; None unless all counts are known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _read(tensors: Sequence[Tensor | None]) -> list[float | None]:
    """The values of all tensors; waits for the device once."""
    known = [full_tensor(tensor) for tensor in tensors if tensor is not None]
    if len({(tensor.device, tensor.dtype) for tensor in known}) > 1:  # a script's losses may differ
        known = [tensor.to(known[0].device, torch.float32) for tensor in known]
    values = iter(torch.stack(known).tolist() if known else [])
    return [None if tensor is None else next(values) for tensor in tensors]


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
        `NoMoreSteps` to end the block without this step."""
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
                steps.compiled.append(self._observer.compiled_since_last_call())
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
