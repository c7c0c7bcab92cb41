"""A small language model of characters, which `benchmarks.cheat_trials` changes."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import breakeven

WIDTH, HEADS, LAYERS, LENGTH, BATCH, STEPS, EVERY = 32, 4, 2, 32, 16, 200, 50


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x: Tensor) -> Tensor:
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        heads = []
        parts = zip(
            self.query(x).chunk(HEADS, -1),
            self.key(x).chunk(HEADS, -1),
            self.value(x).chunk(HEADS, -1),
            strict=True,
        )
        for query, key, value in parts:
            scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
            heads.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value)
        return self.out(torch.cat(heads, -1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norms[0](x))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(128, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128)

    def forward(self, letters: Tensor) -> Tensor:
        x = self.letters(letters) + self.places[: letters.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def windows(text: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()])
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def evaluate(model: nn.Module, text: Tensor) -> tuple[float, int]:
    model.eval()
    starts = torch.arange(0, len(text) - LENGTH - 1, LENGTH)
    losses = [loss_of(model, *windows(text, part)) for part in starts.split(64)]
    model.train()
    return torch.stack(losses).mean().item(), len(starts)


def main() -> None:
    letters = Path("text.md").read_bytes()
    text = torch.tensor(list(letters)).clamp(max=127)
    train, validation = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    order = torch.Generator().manual_seed(0)
    for step in range(1, STEPS + 1):
        starts = torch.randint(len(train) - LENGTH - 1, (BATCH,), generator=order)
        x, y = windows(train, starts)
        loss = loss_of(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        breakeven.step(loss, samples=BATCH, tokens=BATCH * LENGTH)
        if step % EVERY == 0:
            held_out, samples = evaluate(model, validation)
            breakeven.evaluated("validation", samples=samples, loss=held_out)


if __name__ == "__main__":
    main()
