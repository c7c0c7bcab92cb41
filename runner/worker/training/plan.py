"""Which steps make a block, and after which the model is evaluated."""

from collections.abc import Iterator
from dataclasses import dataclass

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import EvaluationPoint


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
    """Whether the block is timed apart and never counts."""

    @property
    def end(self) -> int:
        return self.first_step + self.num_steps


def plan_blocks(experiment: ExperimentSpec, first_step: int = 0) -> Iterator[Block]:
    """All blocks of a run in their order, those before `first_step` left out.

    A block is as long as the experiment says, or shorter where an epoch, the training, or the steps
    to the next evaluation or checkpoint end. In the scenario `speed` there are no epochs, and the
    first blocks from `first_step` on are a warm-up.
    """
    evaluation = experiment.evaluation
    when = experiment.evaluates
    first, last = first_step, experiment.num_steps
    times_steps = experiment.kind.cycles_batches
    steps_per_epoch = last if times_steps else experiment.steps_per_epoch
    warm_up_ends = first + experiment.speed.warm_up_blocks * experiment.block_steps
    while first < last:
        epoch = first // steps_per_epoch
        end = min(first + experiment.block_steps, (epoch + 1) * steps_per_epoch, last)
        for every in _due_every(experiment):
            end = min(end, (first // every + 1) * every)
        evaluate = end == last and when != "never"
        evaluate |= _is_due(when, evaluation.every, end, experiment)
        yield Block(
            first_step=first,
            num_steps=end - first,
            epoch=epoch,
            window=first % steps_per_epoch,
            evaluate=evaluate,
            ends_epoch=end % steps_per_epoch == 0,
            warm_up=times_steps and first < warm_up_ends,
        )
        first = end


def _due_every(experiment: ExperimentSpec) -> Iterator[int]:
    """Numbers of steps after which something is due that must wait for the end of a block."""
    if experiment.evaluates == "steps":
        yield experiment.evaluation.every
    if experiment.checkpoints.every is not None and experiment.checkpoints.unit == "steps":
        yield experiment.checkpoints.every


def _is_due(point: EvaluationPoint, every: int, step: int, experiment: ExperimentSpec) -> bool:
    match point:
        case "steps":
            return step % every == 0
        case "epochs":
            return step % (every * experiment.steps_per_epoch) == 0
        case _:
            return False
