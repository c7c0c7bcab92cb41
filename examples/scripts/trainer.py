"""transformers.Trainer teaches a small BERT which of two words comes first. Nothing is changed.

python trainer.py --steps 40                as ever
breakeven run --backends inductor examples/scripts/trainer.py --steps 40
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

WORDS = 50
LENGTH = 16


class Texts(Dataset):
    """Texts of numbers; the label says whether the first is larger than the last."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.texts = torch.randint(WORDS, (count, LENGTH), generator=generator)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        text = self.texts[place]
        return {"input_ids": text, "labels": (text[0] > text[-1]).long()}


def accuracy(predicted) -> dict[str, float]:
    return {"accuracy": float((predicted.predictions.argmax(1) == predicted.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--accumulate", type=int, default=2)
    options = parser.parse_args()

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir="out",
            max_steps=options.steps,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=options.accumulate,
            learning_rate=1e-3,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=10,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Texts(1000, seed=1),
        eval_dataset=Texts(100, seed=2),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model("out")
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
