"""Language models' targets: the tokens that follow, and the words that are hidden."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.data.splits import IGNORE, Split
from breakeven.runner.worker.tasks.masked_lm import hide_tokens
from tests.helpers.workloads import load, texts_file


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


def test_the_targets_of_a_causal_model_are_all_tokens_but_the_first_and_padding(
    tmp_path: Path,
) -> None:
    texts = ["the cat sat", "a mat"] * 4
    loaded = load("causal_lm", None, texts_file(tmp_path, texts), num_train_samples=6,
                  num_eval_samples=2, num_test_samples=0, sequence_length=6)  # fmt: skip
    train = loaded.data.train
    lengths = train.inputs["attention_mask"].sum(1).tolist()
    assert set(lengths) == {5, 4}  # [CLS] the cat sat [SEP], and [CLS] a mat [SEP]
    assert train.num_targets.tolist() == [length - 1 for length in lengths]
    for tokens, labels, length in zip(
        train.inputs["input_ids"].tolist(), train.labels.tolist(), lengths, strict=True
    ):
        assert labels == [IGNORE, *tokens[1:length], *[IGNORE] * (6 - length)]
    assert train.num_targets.device.type == "cpu" and train.num_targets.dtype == torch.int64


def test_a_causal_models_loss_is_the_mean_over_its_targets() -> None:
    loaded = load("causal_lm")
    split, model = loaded.data.train, loaded.model.eval()

    def loss(*indices: int) -> float:
        return model(**split.batch(torch.tensor(indices))).loss.item()

    first, second = int(split.num_targets[0]), int(split.num_targets[1])
    mean = (first * loss(0) + second * loss(1)) / (first + second)
    assert loss(0, 1) == pytest.approx(mean, rel=1e-5)


def test_language_models_pass_over_blank_texts_and_need_no_labels(tmp_path: Path) -> None:
    texts = ["the cat sat", "", None, "  ", "a mat", "and slept"]
    sizes = {"num_train_samples": 2, "num_eval_samples": 1, "num_test_samples": 0}
    for task in ("causal_lm", "masked_lm"):
        loaded = load(task, None, texts_file(tmp_path, texts), **sizes)
        assert (loaded.data.train.num_targets > 0).all() and loaded.data.labels == ()
    with pytest.raises(WorkloadError, match="has 3 usable samples, but 4 are requested"):
        load("causal_lm", None, texts_file(tmp_path, texts), **{**sizes, "num_eval_samples": 2})


def texts(num_samples: int, num_tokens: int) -> dict[str, Tensor]:
    """Tokens 10 to 99 behind a start (1), before an end (2) and one of padding (0)."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(10, 100, (num_samples, num_tokens), generator=generator)
    start, end, padding = (torch.full((num_samples, 1), token) for token in (1, 2, 0))
    tokens = torch.cat([start, words, end, padding], dim=1)
    return {"input_ids": tokens, "attention_mask": (tokens > 0).long()}


def hidden_in(inputs: dict[str, Tensor], seed: int) -> Split:
    return hide_tokens(inputs, inputs["input_ids"] < 3, 4, 100, seed)


def test_a_share_of_the_words_is_hidden_as_in_bert() -> None:
    inputs = texts(200, 500)
    split = hidden_in(inputs, seed=3)
    tokens, shown = inputs["input_ids"], split.inputs["input_ids"]
    chosen = split.labels != IGNORE
    assert torch.equal(split.labels[chosen], tokens[chosen])
    assert torch.equal(shown[~chosen], tokens[~chosen])
    assert not (chosen & (tokens < 3)).any()
    assert torch.equal(split.num_targets, chosen.sum(1))
    # 100,000 words: the standard error of the shares is at most 0.4 %.
    assert chosen.sum().item() / 100_000 == pytest.approx(0.15, abs=0.005)
    hidden, kept = (shown == 4)[chosen], (shown == tokens)[chosen]
    assert hidden.float().mean().item() == pytest.approx(0.8, abs=0.015)
    # One in 100 of the replaced tenth is the word itself by chance.
    assert kept.float().mean().item() == pytest.approx(0.1 + 0.1 / 100, abs=0.015)
    replaced = shown[chosen & (shown != 4) & (shown != tokens)]
    assert replaced.min() < 3 and replaced.max() > 95  # any token of the vocabulary


def test_every_text_has_a_hidden_word_however_short() -> None:
    assert hidden_in(texts(300, 1), seed=0).num_targets.tolist() == [1] * 300


def test_every_epoch_hides_other_words_and_the_seed_says_which() -> None:
    loaded = load("masked_lm")
    first, again, other = (loaded.data.train.for_epoch(seed) for seed in (1, 1, 2))
    assert torch.equal(first.inputs["input_ids"], again.inputs["input_ids"])
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.labels, other.labels)
    assert first.num_targets.tolist() == (first.labels != IGNORE).sum(1).tolist()
    # An epoch starts from the words, not from what the epoch before it has left of them.
    after_another = other.for_epoch(1)
    assert torch.equal(first.inputs["input_ids"], after_another.inputs["input_ids"])
    words = torch.where(first.labels == IGNORE, first.inputs["input_ids"], first.labels)
    others = torch.where(other.labels == IGNORE, other.inputs["input_ids"], other.labels)
    assert torch.equal(words, others)


def test_held_out_texts_are_hidden_in_once_for_all() -> None:
    validation = load("masked_lm").data.validation
    assert validation.for_epoch(5) is validation


def test_a_split_on_a_device_keeps_hiding_words() -> None:
    train = load("masked_lm").data.train.to(torch.device("meta"))
    epoch = train.for_epoch(1)
    assert epoch.labels.device.type == epoch.inputs["input_ids"].device.type == "meta"
    assert epoch.num_targets.device.type == "cpu"
