import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.worker.data.samples import choose_texts, generate_reviews
from breakeven.runner.worker.data.splits import IGNORE, Dataset, Split, make_split
from breakeven.runner.worker.model.workload import load_workload

VIT = ModelSpec(source="builtin:vit-small")


def load(
    data: DataSpec, seed: int = 0, task: str = "text_classification", model: ModelSpec | None = None
) -> Dataset:
    training = TrainingSpec(seed=seed, batch_size=1)
    model = model or ModelSpec()
    return load_workload(
        ExperimentSpec(name="x", task=task, model=model, data=data, training=training)
    ).data


def write(path: Path, texts: Sequence[Any], labels: Sequence[Any]) -> Path:
    table = pd.DataFrame({"text": texts, "label": labels})
    match path.suffix:
        case ".csv":
            table.to_csv(path, index=False)
        case ".jsonl":
            table.to_json(path, orient="records", lines=True)
        case ".parquet":
            table.to_parquet(path)
    return path


def spec(path: Path | str, train: int = 6, validation: int = 2, test: int = 0) -> DataSpec:
    return DataSpec(
        source=str(path),
        num_train_samples=train,
        num_eval_samples=validation,
        num_test_samples=test,
        sequence_length=8,
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_is_divided_into_parts_that_share_no_sample(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"data{suffix}", list("abcdefghijk"), [0, 1] * 5 + [0])
    samples = choose_texts(spec(path, 6, 2, 3), seed=0)
    parts = [samples[name].samples for name in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [6, 2, 3]
    assert sorted(chain(*parts)) == list("abcdefghijk")
    # Letters at even places have label 0: labels stay with their texts.
    for part in samples.values():
        assert list(part.labels) == [str("abcdefghijk".index(t) % 2) for t in part.samples]


def test_a_file_becomes_tensors_of_each_part(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", ["a b"] * 11, [0, 1] * 5 + [0])
    data = load(spec(path, 6, 2, 3))
    assert [len(split) for split in data.splits.values()] == [6, 2, 3]
    assert data.labels == ("0", "1")
    assert load(spec(path, 6, 2, 0)).test is None


def test_parts_that_name_one_split_of_a_data_set_share_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a network, `datasets` takes a folder for a data set of the hub.
    (tmp_path / "letters").mkdir()
    write(tmp_path / "letters" / "train.csv", list("abcdefgh"), [0, 1] * 4)
    write(tmp_path / "letters" / "test.csv", list("stuvwxyz"), [0, 1] * 4)
    monkeypatch.chdir(tmp_path)

    def chosen(**splits: str) -> list[set[str]]:
        samples = choose_texts(replace(spec("letters", 3, 2, 2), **splits), seed=0)
        return [set(samples[name].samples) for name in ("train", "validation", "test")]

    train, validation, test = chosen()  # validation and test from the split `test`
    assert train < set("abcdefgh") and validation | test < set("stuvwxyz")
    assert (len(validation), len(test)) == (2, 2) and not validation & test
    train, validation, test = chosen(eval_split="train", test_split="train")
    assert len(train | validation | test) == 7 and train | validation | test < set("abcdefgh")
    train, validation, test = chosen(eval_split="train", test_split="test")
    assert len(train | validation) == 5 and test < set("stuvwxyz")


def test_texts_are_padded_to_the_asked_length(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", ["a b c"] * 8, [0, 1] * 4)
    data = load(spec(path))
    assert data.train.inputs["input_ids"].shape == (6, 8)
    # [CLS] a b c [SEP] and three of padding
    assert data.train.inputs["attention_mask"][0].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_a_missing_text_counts_as_empty(tmp_path: Path) -> None:
    path = write(tmp_path / "data.parquet", ["a", None] * 4, [0, 1] * 4)
    data = load(spec(path))
    lengths = {mask.sum().item() for mask in data.train.inputs["attention_mask"]}
    assert lengths == {2, 3}  # [CLS] [SEP], and [CLS] a [SEP]


def test_the_seed_chooses_and_orders_the_samples(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", [f"word{n}" for n in range(40)], [0, 1] * 20)
    hashes = [load(spec(path, 20, 4), seed).sha256 for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text_column": "body"}, "has no column 'body'; it has text, label"),
        ({"label_column": "stars"}, "has no column 'stars'"),
        ({"num_train_samples": 7}, "has 8 samples, but 9 are requested"),
        ({"source": "{folder}/absent.csv"}, "absent.csv': no such file"),
        ({"source": "{folder}/data.txt"}, "must end in .csv, .jsonl"),
        ({"source": "{folder}/broken.parquet"}, "cannot be read as parquet"),
    ],
)
def test_data_that_cannot_be_used_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "data.csv", list("abcdefgh"), [0, 1] * 4)
    (tmp_path / "data.txt").write_text("hello")
    (tmp_path / "broken.parquet").write_text("not parquet")
    if "source" in change:
        change = {"source": change["source"].format(folder=tmp_path)}
    with pytest.raises(WorkloadError) as caught:
        load(replace(spec(path), **change))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([f"class{n}" for n in range(8)], "labels that no training sample has: class"),
        ([3] * 8, "one label only"),
        (["x", None] * 4, "rows without a label"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(
    tmp_path: Path, labels: list[Any], message: str
) -> None:
    path = write(tmp_path / "data.jsonl", list("abcdefgh"), labels)
    with pytest.raises(WorkloadError, match=message):
        load(spec(path))


def test_a_hub_name_without_network_says_what_to_do() -> None:
    data = DataSpec(source="yelp_review_full", num_train_samples=6, num_eval_samples=2)
    with pytest.raises(WorkloadError, match=r"HF_HUB_OFFLINE is set.*give a path"):
        load(data)


def test_a_pretrained_model_without_network_says_what_to_do() -> None:
    data = DataSpec(num_train_samples=50, num_eval_samples=2)
    with pytest.raises(WorkloadError, match=r"bert-base-cased.*HF_HUB_OFFLINE is set.*built-in"):
        load(data, model=ModelSpec(source="bert-base-cased"))


def digits(train: int, validation: int, test: int = 0) -> DataSpec:
    return spec("builtin:digits", train, validation, test)


def test_digits_are_images_between_minus_one_and_one() -> None:
    data = load(digits(1300, 297, 200), task="image_classification", model=VIT)
    pixels = data.train.inputs["pixel_values"]
    assert pixels.shape == (1300, 1, 8, 8)
    assert (pixels.min().item(), pixels.max().item()) == (-1, 1)
    assert data.labels == tuple("0123456789")
    assert data.vocabulary_size is None and data.padding_share is None
    # All 1,797 scans were asked for, and no two are alike.
    every = torch.cat([split.inputs["pixel_values"] for split in data.splits.values()])
    assert len(every.flatten(1).unique(dim=0)) == 1797


def test_more_digits_than_there_are_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"has 1797 samples, but 1798 are requested"):
        load(digits(1600, 98, 100), task="image_classification", model=VIT)


def with_validation(labels: torch.Tensor) -> Dataset:
    split = make_split({"x": torch.zeros(len(labels), 1)}, labels)
    return Dataset(train=split, validation=split, labels=(), vocabulary_size=None)


def test_the_majority_share_is_the_accuracy_of_always_guessing_the_commonest() -> None:
    assert with_validation(torch.tensor([0, 1, 1, 2])).majority_share == 0.5  # two of four
    # Of tokens only targets count: three, of which two are 7.
    tokens = torch.tensor([[IGNORE, 7, 7], [3, IGNORE, IGNORE]])
    assert with_validation(tokens).majority_share == pytest.approx(2 / 3)
    assert with_validation(torch.tensor([0.5, 0.5])).majority_share is None


def test_the_padding_share_counts_tokens_of_the_training_samples(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", ["a b"] * 8, [0, 1] * 4)
    assert load(spec(path)).padding_share == 0.5  # [CLS] a b [SEP], and four of padding


def test_the_hash_of_the_data_depends_on_samples_and_their_order_alone() -> None:
    labels = torch.tensor([0, 1])
    data = with_validation(labels)
    counted = replace(data.train, num_targets=torch.tensor([5, 5]))
    assert replace(data, train=counted).sha256 == data.sha256
    assert with_validation(labels.flip(0)).sha256 != data.sha256
    # In each split `x`, two float32 zeros, then two int64 labels.
    content = torch.zeros(2).numpy().tobytes() + labels.numpy().tobytes()
    assert data.sha256 == hashlib.sha256(content * 2).hexdigest()
    assert replace(data, test=data.train).sha256 == hashlib.sha256(content * 3).hexdigest()


def split_of_four() -> Split:
    return make_split({"x": torch.arange(8.0).reshape(4, 2)}, torch.tensor([0, 1, 2, 1]))


def test_a_batch_holds_the_samples_asked_for() -> None:
    batch = split_of_four().batch(torch.tensor([2, 0]))
    assert batch["x"].tolist() == [[4, 5], [0, 1]] and batch["labels"].tolist() == [2, 0]


def test_fillers_of_a_batch_lose_their_labels_and_leave_the_split_alone() -> None:
    split = split_of_four()
    batch = split.batch(torch.tensor([3, 0, 0]), num_real=1)
    assert batch["labels"].tolist() == [1, IGNORE, IGNORE]
    assert split.labels.tolist() == [0, 1, 2, 1]
    assert split.can_pad
    assert not make_split({"x": torch.zeros(2, 1)}, torch.tensor([0.5, 1.0])).can_pad


def test_targets_are_counted_for_each_sample() -> None:
    def counted(labels: list[Any]) -> list[int]:
        split = make_split({}, torch.tensor(labels))
        assert split.num_targets.dtype == torch.int64
        return split.num_targets.tolist()

    assert counted([0, 1, IGNORE]) == [1, 1, 0]
    assert counted([[IGNORE, 4, 5], [IGNORE, 6, IGNORE]]) == [2, 1]
    assert counted([0.5, 1.5]) == [1, 1]
    assert counted([[0.5, 1.5, 2.5]]) == [3]


def test_most_tasks_train_on_the_same_samples_in_every_epoch() -> None:
    split = split_of_four()
    assert split.for_epoch(1) is split


def test_reviews_are_the_same_for_the_same_seed_and_use_all_stars() -> None:
    texts, labels = generate_reviews(200, seed=1)
    assert (texts, labels) == generate_reviews(200, seed=1)
    assert texts != generate_reviews(200, seed=2)[0]
    assert set(labels) == set("12345")
    assert json.dumps(texts).isascii()
