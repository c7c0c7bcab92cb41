"""Samples from files, from the hub and built-in ones: how they are divided, and what is refused."""

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
from breakeven.runner.specs.experiment import DataSpec, TrainingSpec
from breakeven.runner.worker.data.generated_reviews import generate_reviews
from breakeven.runner.worker.data.samples import choose_texts
from breakeven.runner.worker.data.splits import Dataset
from breakeven.runner.worker.model.loaded_workload import load_workload
from tests.helpers import workloads

HALVES = [0, 1] * 4


def load(data: DataSpec, seed: int = 0, task: str = "text_classification", **model: str) -> Dataset:
    training = TrainingSpec(seed=seed, batch_size=1)
    spec = replace(workloads.spec(task), data=data, training=training)
    return load_workload(replace(spec, model=replace(spec.model, **model))).data


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


def test_parts_that_name_one_split_of_a_data_set_share_no_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a network, `datasets` takes a folder for a data set of the hub.
    (tmp_path / "letters").mkdir()
    write(tmp_path / "letters" / "train.csv", list("abcdefgh"), HALVES)
    write(tmp_path / "letters" / "test.csv", list("stuvwxyz"), HALVES)
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


def test_texts_are_padded_to_the_requested_length_and_a_missing_one_counts_as_empty(
    tmp_path: Path,
) -> None:
    data = load(spec(write(tmp_path / "data.csv", ["a b c"] * 8, HALVES)))
    assert data.train.inputs["input_ids"].shape == (6, 8) and data.test is None
    # [CLS] a b c [SEP] and three of padding
    assert data.train.inputs["attention_mask"][0].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    assert data.padding_share == 3 / 8 and data.labels == ("0", "1")
    data = load(spec(write(tmp_path / "data.parquet", ["a", None] * 4, HALVES)))
    lengths = {mask.sum().item() for mask in data.train.inputs["attention_mask"]}
    assert lengths == {2, 3}  # [CLS] [SEP], and [CLS] a [SEP]


def test_the_seed_chooses_and_orders_the_samples(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", [f"word{n}" for n in range(40)], [0, 1] * 20)
    hashes = [load(spec(path, 20, 4), seed).sha256 for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("labels", "change", "message"),
    [
        (HALVES, {"text_column": "body"}, "has no column 'body'; it has text, label"),
        (HALVES, {"label_column": "stars"}, "has no column 'stars'"),
        (HALVES, {"num_train_samples": 7}, "has 8 samples, but 9 are requested"),
        (HALVES, {"source": "absent.csv"}, "absent.csv': no such file"),
        (HALVES, {"source": "data.txt"}, "must end in .csv, .jsonl"),
        (HALVES, {"source": "broken.parquet"}, "cannot be read as parquet"),
        ([f"class{n}" for n in range(8)], {}, "labels that no training sample has: class"),
        ([3] * 8, {}, "one label only"),
        (["x", None] * 4, {}, "rows without a label"),
    ],
)
def test_data_that_cannot_be_used_is_refused(
    tmp_path: Path, labels: list[Any], change: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "data.jsonl", list("abcdefgh"), labels)
    (tmp_path / "data.txt").write_text("hello")
    (tmp_path / "broken.parquet").write_text("not parquet")
    if "source" in change:
        change = {"source": str(tmp_path / change["source"])}
    with pytest.raises(WorkloadError) as caught:
        load(replace(spec(path), **change))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        ("yelp_review_full", "builtin:bert-tiny", r"HF_HUB_OFFLINE is set.*give a path"),
        ("builtin:reviews", "bert-base-cased", r"bert-base-cased.*HF_HUB_OFFLINE is set.*built-in"),
    ],
)
def test_a_hub_name_without_network_says_what_to_do(data: str, model: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        load(spec(data, 50), source=model)


def test_digits_are_images_between_minus_one_and_one_and_no_more_than_there_are() -> None:
    data = load(spec("builtin:digits", 1300, 297, 200), task="image_classification")
    pixels = data.train.inputs["pixel_values"]
    assert pixels.shape == (1300, 1, 8, 8)
    assert (pixels.min().item(), pixels.max().item()) == (-1, 1)
    assert data.labels == tuple("0123456789")
    assert data.vocabulary_size is None and data.padding_share is None
    # All 1,797 scans were asked for, and no two are alike.
    every = torch.cat([split.inputs["pixel_values"] for split in data.splits.values()])
    assert len(every.flatten(1).unique(dim=0)) == 1797
    with pytest.raises(WorkloadError, match=r"has 1797 samples, but 1798 are requested"):
        load(spec("builtin:digits", 1600, 98, 100), task="image_classification")


def test_reviews_are_the_same_for_the_same_seed_and_use_all_stars() -> None:
    texts, labels = generate_reviews(200, seed=1)
    assert (texts, labels) == generate_reviews(200, seed=1)
    assert texts != generate_reviews(200, seed=2)[0]
    assert set(labels) == set("12345")
    assert json.dumps(texts).isascii()
