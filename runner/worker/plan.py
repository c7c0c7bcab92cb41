"""Which steps make a block, and after which the model is evaluated."""

from collections.abc import Iterator
from dataclasses import dataclass

from runner.spec import ExperimentSpec
from runner.training_spec import EvaluationPoint


@dataclass(frozen=True, kw_only=True)
class Block:
    """Consecutive steps of one epoch, timed without interruption."""

    first_step: int
    num_steps: int
    epoch: int
    evaluate: bool
    """Whether held-out samples are evaluated when the block is over."""

    @property
    def end(self) -> int:
        return self.first_step + self.num_steps


def plan_blocks(experiment: ExperimentSpec) -> Iterator[Block]:
    """All blocks of a run in their order.

    A block is as long as the experiment says, or shorter where an epoch, the training or the steps
    to the next evaluation end.
    """
    evaluation = experiment.evaluation
    first, last = 0, experiment.num_steps
    while first < last:
        epoch = first // experiment.steps_per_epoch
        end = min(first + experiment.block_steps, (epoch + 1) * experiment.steps_per_epoch, last)
        if evaluation.when == "steps":
            end = min(end, (first // evaluation.every + 1) * evaluation.every)
        evaluate = end == last and evaluation.when != "never"
        evaluate |= _is_due(evaluation.when, evaluation.every, end, experiment)
        yield Block(first_step=first, num_steps=end - first, epoch=epoch, evaluate=evaluate)
        first = end


def _is_due(point: EvaluationPoint, every: int, step: int, experiment: ExperimentSpec) -> bool:
    match point:
        case "steps":
            return step % every == 0
        case "epochs":
            return step % (every * experiment.steps_per_epoch) == 0
        case _:
            return False
