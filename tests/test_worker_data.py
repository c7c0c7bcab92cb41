import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from runner.errors import WorkloadError
from runner.queue import PROJECT_ROOT
from runner.spec import DataSpec, ModelSpec
from runner.worker.data import load_dataset
from runner.worker.reviews import generate_reviews

TINY = ModelSpec()
HASH_OF_DATA = """
from runner.spec import DataSpec, ModelSpec
from runner.worker.data import load_dataset
data = DataSpec(num_train_samples=300, num_eval_samples=20, sequence_length=32)
print(load_dataset(data, ModelSpec(), seed=3).sha256)
"""


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


def spec(path: Path, train: int = 6, evaluation: int = 2) -> DataSpec:
    return DataSpec(
        source=str(path),
        num_train_samples=train,
        num_eval_samples=evaluation,
        sequence_length=8,
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_file_is_divided_into_training_and_held_out_samples(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"data{suffix}", list("abcdefgh"), [0, 1] * 4)
    data = load_dataset(spec(path), TINY, seed=0)
    assert (len(data.train), len(data.evaluation)) == (6, 2)
    assert data.labels == ("0", "1")
    # Every text is one letter, so [CLS] letter [SEP]: no letter may occur in both parts.
    letters = [
        set(split.inputs["input_ids"][:, 1].tolist()) for split in (data.train, data.evaluation)
    ]
    assert letters[0] & letters[1] <= {1}  # 1 is [UNK], for a letter that training never saw
    assert len(letters[0]) == 6


def test_texts_are_padded_to_the_asked_length(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", ["a b c"] * 8, [0, 1] * 4)
    data = load_dataset(spec(path), TINY, seed=0)
    assert data.train.inputs["input_ids"].shape == (6, 8)
    # [CLS] a b c [SEP] and three of padding
    assert data.train.inputs["attention_mask"][0].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_a_missing_text_counts_as_empty(tmp_path: Path) -> None:
    path = write(tmp_path / "data.parquet", ["a", None] * 4, [0, 1] * 4)
    data = load_dataset(spec(path), TINY, seed=0)
    lengths = {mask.sum().item() for mask in data.train.inputs["attention_mask"]}
    assert lengths == {2, 3}  # [CLS] [SEP], and [CLS] a [SEP]


def test_the_seed_chooses_and_orders_the_samples(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", [f"word{n}" for n in range(40)], [0, 1] * 20)
    hashes = [load_dataset(spec(path, 20, 4), TINY, seed=seed).sha256 for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_two_processes_see_the_same_tokens() -> None:
    # The trainer of vocabularies iterates over hash tables that differ between processes.
    hashes = {
        subprocess.run(
            [sys.executable, "-c", HASH_OF_DATA],
            cwd=PROJECT_ROOT,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(3)
    }
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text_column": "body"}, "has no column 'body'; it has text, label"),
        ({"label_column": "stars"}, "has no column 'stars'"),
        ({"num_train_samples": 7}, "has 8 samples, but 9 were asked for"),
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
        load_dataset(replace(spec(path), **change), TINY, seed=0)
    assert message in str(caught.value)


def test_a_label_that_only_the_evaluation_part_has_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", list("abcdefgh"), [f"class{n}" for n in range(8)])
    with pytest.raises(WorkloadError, match="labels that no training sample has: class"):
        load_dataset(spec(path), TINY, seed=0)


def test_one_label_alone_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "data.csv", list("abcdefgh"), [3] * 8)
    with pytest.raises(WorkloadError, match="one label only"):
        load_dataset(spec(path), TINY, seed=0)


def test_rows_without_a_label_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", list("abcdefgh"), ["x", None] * 4)
    with pytest.raises(WorkloadError, match="rows without a label"):
        load_dataset(spec(path), TINY, seed=0)


def test_a_hub_name_without_network_says_what_to_do() -> None:
    data = DataSpec(source="yelp_review_full", num_train_samples=6, num_eval_samples=2)
    with pytest.raises(WorkloadError, match=r"cannot be reached.*give a path"):
        load_dataset(data, TINY, seed=0)


def test_a_pretrained_model_without_network_says_what_to_do() -> None:
    data = DataSpec(num_train_samples=50, num_eval_samples=2)
    with pytest.raises(WorkloadError, match=r"bert-base-cased.*cannot be reached.*built-in"):
        load_dataset(data, ModelSpec(source="bert-base-cased"), seed=0)


def test_digits_are_images_between_minus_one_and_one() -> None:
    data = load_dataset(
        DataSpec(source="builtin:digits", num_train_samples=1500, num_eval_samples=297), TINY, 0
    )
    pixels = data.train.inputs["pixel_values"]
    assert pixels.shape == (1500, 1, 8, 8)
    assert (pixels.min().item(), pixels.max().item()) == (-1, 1)
    assert data.labels == tuple("0123456789")
    assert data.vocabulary_size is None


def test_more_digits_than_there_are_is_refused() -> None:
    data = DataSpec(source="builtin:digits", num_train_samples=1700, num_eval_samples=98)
    with pytest.raises(WorkloadError, match=r"has 1797 samples, but 1798 were asked for"):
        load_dataset(data, TINY, seed=0)


def test_the_majority_share_is_the_accuracy_of_always_guessing_the_commonest() -> None:
    data = load_dataset(DataSpec(num_train_samples=50, num_eval_samples=4), TINY, seed=0)
    fixed = replace(data, evaluation=replace(data.evaluation, labels=torch.tensor([0, 1, 1, 2])))
    assert fixed.majority_share == 0.5  # two of four


def test_reviews_are_the_same_for_the_same_seed_and_use_all_stars() -> None:
    texts, labels = generate_reviews(200, seed=1)
    assert (texts, labels) == generate_reviews(200, seed=1)
    assert texts != generate_reviews(200, seed=2)[0]
    assert set(labels) == set("12345")
    assert json.dumps(texts).isascii()
