"""Loss and metrics on a split, of the weights as they are."""

import time
from typing import Any

import torch

from breakeven.runner.specs.training import Precision, SplitName
from breakeven.runner.worker.data.splits import Split
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.metrics import Scores
from breakeven.runner.worker.model.workload import Workload
from breakeven.runner.worker.ranks.group import ALONE, Group
from breakeven.runner.worker.step.inference import Answer, Inference, Question
from breakeven.runner.worker.step.paired_answers import PairedAnswers


class _Tally:
    """Loss and metrics of one form of the model, compiled or not."""

    def __init__(
        self, workload: Workload, objective: Objective, split: Split, group: Group, compiled: bool
    ) -> None:
        self.compiled = compiled
        self._objective = objective
        self._group = group
        device = split.labels.device
        self._scores = Scores(workload, device, group)
        self._total, self._num_targets = torch.zeros((), device=device), 0
        self._seconds = 0.0

    def ask(self, question: Question) -> Answer:
        """The model's answer, which is taken into account."""
        started = time.perf_counter()
        answer = question.answer(compiled=self.compiled)
        loss, _ = self._objective(answer.output, answer.labels)
        if answer.num_targets:  # else a rank has no sample left, and the mean is no number
            self._total += loss.float() * answer.num_targets
        self._num_targets += answer.num_targets
        self._scores.update(answer.logits, answer.labels[: len(answer.logits)])
        self._total.item()  # waits for the device: the next form's time is its own
        self._seconds += time.perf_counter() - started
        return answer

    def told(self) -> dict[str, Any]:
        """The same on every rank."""
        started = time.perf_counter()
        metrics = self._group.share(self._scores.compute())
        totals = self._group.gather((self._total.item(), self._num_targets))
        return {
            "compiled": self.compiled,
            "loss": sum(loss for loss, _ in totals) / sum(count for _, count in totals),
            "metrics": metrics,
            "accuracy": metrics.get("accuracy"),
            "seconds": self._seconds + time.perf_counter() - started,
        }


@torch.no_grad()
def evaluate(
    inference: Inference,
    workload: Workload,
    objective: Objective,
    name: SplitName,
    split: Split,
    *,
    precision: Precision,
    compiled: bool,
    group: Group = ALONE,
) -> list[dict[str, Any]]:
    """Fields of `evaluation` events: mean loss per target, metrics, samples, and seconds.

    First without a compiler; with `compiled` also of the model under its backend, batch by batch
    beside it, and how far its answers are from those (`PairedAnswers`). `split` is on the model's
    device. Each rank of `group` answers its part; all are given the same, of every sample once.
    """
    forms = (False, True) if compiled else (False,)
    tallies = [_Tally(workload, objective, split, group, form) for form in forms]
    pairs = PairedAnswers(workload.align, precision, group)
    for question in inference.questions(split):
        answers = [tally.ask(question) for tally in tallies]
        if compiled:
            pairs.add(question, *answers)
    found = [{"split": name, **tally.told(), "num_samples": len(split)} for tally in tallies]
    if compiled:
        found[-1]["answers"] = pairs.told()
    return found
