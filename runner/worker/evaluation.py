"""Loss and accuracy on held-out samples, of the weights as they are, without a compiler."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from runner.worker.data import Split


@torch.no_grad()
def evaluate(
    model: nn.Module,
    split: Split,
    batch_size: int,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> dict[str, Any]:
    """Mean loss per sample, share of right answers, number of samples, and seconds it took.

    The random state of training is not touched: dropout is off and nothing is drawn.
    """
    started = time.perf_counter()
    model.eval()
    total_loss = torch.zeros((), device=split.labels.device)
    num_right = torch.zeros((), device=split.labels.device, dtype=torch.long)
    order = torch.arange(len(split), device=split.labels.device)
    for indices in torch.split(order, batch_size):
        batch = split.batch(indices)
        with autocast():
            output = model(**batch)
        total_loss += output.loss.float() * len(indices)
        num_right += (output.logits.argmax(-1) == batch["labels"]).sum()
    model.train()
    return {
        "loss": total_loss.item() / len(split),
        "accuracy": num_right.item() / len(split),
        "num_samples": len(split),
        "seconds": time.perf_counter() - started,
    }
