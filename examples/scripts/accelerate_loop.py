"""A loop of Accelerate's, with gradients accumulated: a small network learns a checkerboard.

Nothing is changed; what an evaluation found is only known where the script says it.

python accelerate_loop.py --epochs 2        as ever
breakeven run --backends inductor examples/scripts/accelerate_loop.py --epochs 2
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def checkerboard(count: int, seed: int) -> TensorDataset:
    places = 4 * torch.rand(count, 2, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(places, places.long().sum(1) % 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=options.accumulate)
    model = nn.Sequential(
        nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(checkerboard(640, seed=1), batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(options.epochs):
        total = 0.0
        for places, colours in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(places), colours)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        accelerator.print(f"epoch {epoch}: mean loss {total / len(loader)}")
    accelerator.save_model(model, "out")


if __name__ == "__main__":
    main()
