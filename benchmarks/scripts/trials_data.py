"""Data and a model for trials of training scripts that others wrote, made without a network.

Run from the root: `.venv/bin/python -m benchmarks.scripts.trials_data FOLDER [HIDDEN LAYERS]`

Scripts ask the hub for a model and for data by name, and take a folder of that name where they are
started instead. Writes into FOLDER what two of them ask for (docs/own-script.md says how they are
called): `bert-base-cased`, a small BERT of random weights (2 layers of 128) with a tokenizer;
`nyu-mll/glue`, pairs of texts, of the same sentences or not; and `train.csv` and `dev.csv`, reviews
and their stars.
"""

import csv
import random
import sys
from collections.abc import Iterable
from pathlib import Path

from runner.specs.workload import ModelSpec
from runner.worker.data.reviews import generate_reviews
from runner.worker.data.tokenizing import make_tokenizer

SIZES = {"train": 1600, "dev": 200}
"""Samples of each file."""
SIZE = (128, 2)
NAME = "bert-base-cased"
CARD = """---
configs:
- config_name: mrpc
  data_files:
  - split: train
    path: train.csv
  - split: validation
    path: dev.csv
---
"""


def main() -> None:
    folder = Path(sys.argv[1])
    hidden, layers = map(int, sys.argv[2:]) if len(sys.argv) > 2 else SIZE
    glue = folder / "nyu-mll" / "glue"
    glue.mkdir(parents=True, exist_ok=True)
    (glue / "README.md").write_text(CARD)
    texts: list[str] = []
    for seed, (name, size) in enumerate(SIZES.items()):
        texts, stars = generate_reviews(size, seed)
        _write(folder / f"{name}.csv", ("sentence", "label"), zip(texts, stars, strict=True))
        _write(
            glue / f"{name}.csv", ("sentence1", "sentence2", "label", "idx"), _pairs(texts, seed)
        )
    _write_model(folder / NAME, generate_reviews(SIZES["train"], 0)[0], hidden, layers)


def _pairs(texts: list[str], seed: int) -> Iterable[tuple[str, str, int, int]]:
    """Each review beside its own sentences in another order, or those of another one."""
    rng = random.Random(seed)
    for number, text in enumerate(texts):
        is_same = rng.random() < 0.5
        other = text if is_same else rng.choice(texts)
        sentences = other.removesuffix(".").split(". ")
        rng.shuffle(sentences)
        yield text, ". ".join(sentences) + ".", int(is_same), number


def _write(file: Path, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(columns)
        writer.writerows(rows)


def _write_model(folder: Path, texts: list[str], hidden: int, layers: int) -> None:
    import torch
    from transformers import BertConfig, BertModel

    tokenizer = make_tokenizer(ModelSpec(), texts)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 64, intermediate_size=4 * hidden,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)


if __name__ == "__main__":
    main()
