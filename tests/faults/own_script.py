"""A person's script that trains `relu_net`, in which faults show; called with what drops out."""

import sys

import torch
from relu_net import ReluNet, samples
from torch import Tensor, nn

import breakeven

BATCH, STEPS = 16, 80
model = ReluNet()
data = samples()["train"]
for module in model.modules():
    if isinstance(module, nn.Dropout):
        module.p = float(sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@breakeven.compile
def loss_of(batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["labels"])


for first in range(0, STEPS * BATCH, BATCH):
    loss = loss_of({name: tensor[first : first + BATCH] for name, tensor in data.items()})
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss, samples=BATCH)
