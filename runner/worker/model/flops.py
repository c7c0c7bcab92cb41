"""Floating-point operations of a step, counted without a compiler."""

import copy

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from breakeven.runner.worker.data.splits import Split
from breakeven.runner.worker.model.losses import Objective

NUM_SAMPLES = 2
"""Enough for layers that normalize over the batch."""


def count_flops_per_sample(
    model: nn.Module, objective: Objective, split: Split, device: torch.device, *, backward: bool
) -> float:
    """Operations of forward, and backward if asked for, for one sample, by
    `torch.utils.flop_counter`.

    It counts matrix products, convolutions and attention, an addition and a multiplication as two.
    The model is on the device; a copy of it runs, so that nothing of it changes. Attention goes
    through plain matrix products, which the counter knows on every device.
    """
    trial = copy.deepcopy(model).train()
    inputs = split.batch(torch.arange(min(NUM_SAMPLES, len(split))))
    batch = {name: tensor.to(device) for name, tensor in inputs.items()}
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        loss, _ = objective(trial(**batch), batch["labels"])
        if backward:
            loss.backward()  # type: ignore[no-untyped-call]
    total: int = counter.get_total_flops()
    return total / len(batch["labels"])
