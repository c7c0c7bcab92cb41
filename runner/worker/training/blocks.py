"""Plans the blocks of a run: consecutive steps that are timed without interruption."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from breakeven.runner.specs.experiment import ExperimentSpec


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


def _due_every(experiment: ExperimentSpec) -> Iterator[int]:
    """Numbers of steps after which an evaluation or a checkpoint is due, at the end of a block."""
    if experiment.evaluates == "steps":
        yield experiment.evaluation.every
    if experiment.checkpoints.every is not None and experiment.checkpoints.unit == "steps":
        yield experiment.checkpoints.every
