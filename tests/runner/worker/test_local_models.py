"""Pretrained models in local folders, of every kind."""

from pathlib import Path

import pandas as pd
import PIL.Image
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from breakeven.runner.errors import WorkloadError
from breakeven.runner.worker.data.splits import IGNORE
from tests.helpers.workloads import SMALL, load, texts_file

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "slept")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hf")


def tokenizer(**special: str) -> transformers.PreTrainedTokenizerFast:
    names = ["<end>", "<pad>", "<mask>", "<unknown>"]
    vocabulary = {word: number for number, word in enumerate([*names, *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unknown>", **special
    )


@pytest.fixture
def gpt(tmp_path: Path) -> Path:
    """A local model that writes text, with no token for padding."""
    folder = tmp_path / "gpt"
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=16, **size)).save_pretrained(
        folder
    )
    tokenizer(eos_token="<end>").save_pretrained(folder)
    return folder


def test_a_local_causal_model_pads_with_the_end_of_a_text_and_needs_two_tokens_of_each(
    tmp_path: Path, gpt: Path
) -> None:
    data = texts_file(tmp_path, ["the cat sat"] * 8)
    loaded = load("causal_lm", gpt, data, **SMALL)
    # the cat sat <end> <end> <end> <end> <end>: the first word is no target, nor is padding.
    assert loaded.data.train.inputs["input_ids"][0].tolist() == [4, 5, 6, 0, 0, 0, 0, 0]
    assert loaded.data.train.labels[0].tolist() == [IGNORE, 5, 6] + [IGNORE] * 5
    assert loaded.data.padding_share == 5 / 8
    assert loaded.model.config.vocab_size == 16 and loaded.data.vocabulary_size == 12
    batch = loaded.data.train.batch(torch.arange(2))
    assert loaded.model(**batch).loss.isfinite()
    short = texts_file(tmp_path, ["mat"] * 8)
    with pytest.raises(WorkloadError, match="6 of the 6 train samples, the first at position 0"):
        load("causal_lm", gpt, short, **SMALL)


def test_a_model_that_writes_text_can_classify_it(tmp_path: Path, gpt: Path) -> None:
    """The folder's configuration knows of two classes; the data has three."""
    frame = pd.DataFrame({"text": ["the cat sat", "a mat"] * 6, "label": [0, 1, 2] * 4})
    frame.to_csv(tmp_path / "data.csv", index=False)
    sizes = {**SMALL, "num_train_samples": 9, "num_eval_samples": 3}
    loaded = load("text_classification", gpt, tmp_path / "data.csv", **sizes)
    batch = loaded.data.train.batch(torch.arange(4))
    assert loaded.model(**batch).logits.shape == (4, 3)


def test_a_local_masked_model(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=12, intermediate_size=16, **size)
    ).save_pretrained(folder)
    data = texts_file(tmp_path, ["the cat sat on a mat"] * 8)
    tokenizer(pad_token="<pad>").save_pretrained(folder)
    with pytest.raises(WorkloadError, match="no token that masks others"):
        load("masked_lm", folder, data, **SMALL)
    tokenizer(pad_token="<pad>", mask_token="<mask>").save_pretrained(folder)
    loaded = load("masked_lm", folder, data, **SMALL)
    assert loaded.model(**loaded.data.train.batch(torch.arange(2))).loss.isfinite()


def image_folder(folder: Path) -> Path:
    """Grey and coloured images of several sizes, black and white ones by folder."""
    for label, level in (("black", 0), ("white", 255)):
        (folder / label).mkdir(parents=True)
        for number in range(6):
            mode, color = (("L", level), ("RGB", (level,) * 3))[number % 2]
            image = PIL.Image.new(mode, (20 + number, 24), color)
            image.save(folder / label / f"{number}.png")
    return folder


def test_a_local_image_model_on_a_folder_of_images_or_their_paths_in_a_table(
    tmp_path: Path,
) -> None:
    vit, photos = tmp_path / "vit", image_folder(tmp_path / "photos")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
    )
    transformers.ViTForImageClassification(config).save_pretrained(vit)
    size = {"height": 16, "width": 16}
    transformers.ViTImageProcessorPil(size=size).save_pretrained(vit)
    loaded = load(
        "image_classification", vit, photos, text_column="image", **{**SMALL, "num_test_samples": 2}
    )
    train = loaded.data.train
    pixels = train.inputs["pixel_values"]
    assert pixels.shape == (6, 3, 16, 16)
    # The processor takes 0 to 255 to -1 to 1.
    assert pixels.mean((1, 2, 3)).tolist() == pytest.approx((train.labels * 2 - 1).tolist())
    assert loaded.data.labels == ("black", "white")
    assert loaded.model(**train.batch(torch.arange(2))).logits.shape == (2, 2)
    files = sorted(photos.glob("*/*.png"))
    rows = {"photo": list(map(str, files)), "label": [file.parent.name for file in files]}
    table = tmp_path / "photos.csv"
    pd.DataFrame(rows).to_csv(table, index=False)
    loaded = load("image_classification", vit, table, text_column="photo", **SMALL)
    assert loaded.data.train.inputs["pixel_values"].shape == (6, 3, 16, 16)
    with pytest.raises(WorkloadError, match="column 'label' does not hold images"):
        load("image_classification", vit, table, text_column="label", **SMALL)
