"""A plain training loop: a small network learns to tell points of a spiral apart.

python plain_loop.py --epochs 2          as ever
breakeven run --backends inductor examples/scripts/plain_loop.py --epochs 2
"""

import argparse
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import breakeven

CLASSES = 3


def spiral(points: int) -> TensorDataset:
    radius = torch.rand(points, CLASSES).sqrt()
    turn = torch.arange(CLASSES) * 2 * math.pi / CLASSES
    angle = turn + 4 * radius + 0.2 * torch.randn(points, CLASSES)
    places = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)
    labels = torch.arange(CLASSES).expand(points, CLASSES)
    return TensorDataset(places.reshape(-1, 2), labels.reshape(-1))


def evaluate(model: nn.Module, loader: DataLoader, device: str) -> None:
    model.eval()
    hits = loss = count = 0
    with torch.no_grad():
        for places, labels in loader:
            places, labels = places.to(device), labels.to(device)
            logits = model(places)
            hits += (logits.argmax(1) == labels).sum().item()
            loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            count += len(labels)
    model.train()
    print(f"loss {loss / count:.4f}, accuracy {hits / count:.3f}")
    breakeven.evaluated("validation", samples=count, loss=loss / count, accuracy=hits / count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    options = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    train = DataLoader(spiral(2000), batch_size=options.batch, shuffle=True, drop_last=True)
    held_out = DataLoader(spiral(300), batch_size=options.batch)
    width = options.width
    model = nn.Sequential(
        nn.Linear(2, width),
        nn.GELU(),
        nn.Linear(width, width),
        nn.GELU(),
        nn.Linear(width, CLASSES),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    model = breakeven.compile(model)
    for _ in range(options.epochs):
        for places, labels in train:
            places, labels = places.to(device), labels.to(device)
            loss = nn.functional.cross_entropy(model(places), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            breakeven.step(loss, samples=len(labels))
        evaluate(model, held_out, device)
    torch.save(model.state_dict(), "spiral.pt")


if __name__ == "__main__":
    main()
