"""Loss and metrics on a split, of the weights as they are."""

import time
from typing import Any

import torch

from runner.specs.training import SplitName
from runner.worker.data.splits import Split
from runner.worker.model.losses import Objective
from runner.worker.model.metrics import Scores
from runner.worker.model.workload import Workload
from runner.worker.ranks.group import ALONE, Group
from runner.worker.step.inference import Inference


@torch.no_grad()
def evaluate(
    inference: Inference,
    workload: Workload,
    objective: Objective,
    name: SplitName,
    split: Split,
    *,
    compiled: bool,
    group: Group = ALONE,
) -> dict[str, Any]:
    """Fields of the `evaluation` event: mean loss per target, metrics, samples, and seconds.

    `split` is on the model's device; `compiled` asks for the model under its backend. Each rank of
    `group` answers its part; all are given the same, that of every sample once.
    """
    started = time.perf_counter()
    device = split.labels.device
    scores = Scores(workload, device, group)
    total, num_targets = torch.zeros((), device=device), 0
    for answer in inference.answers(split, compiled=compiled):
        loss, _ = objective(answer.output, answer.labels)
        if answer.num_targets:  # else a rank has no sample left, and the mean is no number
            total += loss.float() * answer.num_targets
        num_targets += answer.num_targets
        scores.update(answer.logits, answer.labels[: len(answer.logits)])
    metrics = group.share(scores.compute())
    totals = group.gather((total.item(), num_targets))
    return {
        "split": name,
        "compiled": compiled,
        "loss": sum(loss for loss, _ in totals) / sum(count for _, count in totals),
        "metrics": metrics,
        "accuracy": metrics.get("accuracy"),
        "num_samples": len(split),
        "seconds": time.perf_counter() - started,
    }
