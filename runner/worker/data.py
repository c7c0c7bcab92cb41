"""Labelled samples: chosen, split, encoded as tensors. Only the chosen ones are tokenized."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runner.errors import WorkloadError
from runner.spec import DataSpec, ModelSpec
from runner.worker.reviews import generate_reviews

FILE_LOADERS = {".csv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
VOCABULARY_SIZE = 8192
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, kw_only=True)
class Split:
    """Encoded samples: model inputs by name, each with the samples first, and labels (samples,)."""

    inputs: dict[str, Tensor]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Split":
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return Split(inputs=inputs, labels=self.labels.to(device))

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """The samples at `indices`, as keyword arguments of the model."""
        batch = {name: tensor[indices] for name, tensor in self.inputs.items()}
        return {**batch, "labels": self.labels[indices]}


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Training and held-out samples; `labels` holds the name of each class."""

    train: Split
    evaluation: Split
    labels: tuple[str, ...]
    vocabulary_size: int | None
    """Tokens that the tokenizer knows; None for images."""

    @property
    def majority_share(self) -> float:
        """Accuracy on the held-out samples of always guessing their most frequent label."""
        return torch.bincount(self.evaluation.labels).max().item() / len(self.evaluation)

    @property
    def sha256(self) -> str:
        """Hash of all encoded samples, in their order."""
        digest = hashlib.sha256()
        for split in (self.train, self.evaluation):
            for tensor in (*split.inputs.values(), split.labels):
                digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Chosen samples before encoding: what they are (texts or an image tensor) and their labels."""

    train: Any
    train_labels: Sequence[str]
    evaluation: Any
    evaluation_labels: Sequence[str]


def load_dataset(data: DataSpec, model: ModelSpec, seed: int) -> Dataset:
    """Loads, selects and encodes; raises `WorkloadError` for data that cannot be used as asked."""
    if data.source == "builtin:digits":
        return _encode_images(_digits(data, seed))
    return _encode_texts(_text_rows(data, seed), data, model)


def _text_rows(data: DataSpec, seed: int) -> _Rows:
    if data.source == "builtin:reviews":
        total = data.num_train_samples + data.num_eval_samples
        texts, labels = generate_reviews(total, seed)
        return _divide(texts, labels, data.num_train_samples)
    return _file_rows(data, seed) if data.is_file else _hub_rows(data, seed)


def _divide(samples: Any, labels: Sequence[str], num_train: int) -> _Rows:
    return _Rows(
        train=samples[:num_train],
        train_labels=labels[:num_train],
        evaluation=samples[num_train:],
        evaluation_labels=labels[num_train:],
    )


def _file_rows(data: DataSpec, seed: int) -> _Rows:
    import datasets  # takes seconds, and built-in data does without

    path = Path(data.source).expanduser()
    if not path.is_file():
        raise WorkloadError(f"data.source = {data.source!r}: no such file")
    loader = FILE_LOADERS.get(path.suffix)
    if loader is None:
        known = ", ".join(FILE_LOADERS)
        raise WorkloadError(f"data.source = {data.source!r}: the file's name must end in {known}")
    try:
        table = datasets.load_dataset(loader, data_files=str(path), split="train")
    except Exception as error:
        cause = error.__cause__ or error
        raise WorkloadError(f"{path} cannot be read as {path.suffix[1:]}: {cause}") from error
    total = data.num_train_samples + data.num_eval_samples
    samples, labels = _choose(table, data, total, seed, str(path))
    return _divide(samples, labels, data.num_train_samples)


def _hub_rows(data: DataSpec, seed: int) -> _Rows:
    import datasets  # takes seconds, and built-in data does without

    chosen = []
    for split, count in (
        (data.train_split, data.num_train_samples),
        (data.eval_split, data.num_eval_samples),
    ):
        try:
            table = datasets.load_dataset(data.source, split=split)
        except Exception as error:
            raise WorkloadError(
                f"data.source = {data.source!r}, split {split!r}: the hub has no such data set, or "
                f"cannot be reached and no copy is cached here. For a file give a path that ends "
                f"in .csv, .jsonl or .parquet. ({type(error).__name__}: {error})"
            ) from error
        chosen.append(_choose(table, data, count, seed, f"{data.source}, split {split!r}"))
    (train, train_labels), (evaluation, evaluation_labels) = chosen
    return _Rows(
        train=train,
        train_labels=train_labels,
        evaluation=evaluation,
        evaluation_labels=evaluation_labels,
    )


def _choose(
    table: Any, data: DataSpec, count: int, seed: int, where: str
) -> tuple[list[str], list[str]]:
    """Shuffles a table and takes the first `count` texts and labels."""
    for column in (data.text_column, data.label_column):
        if column not in table.column_names:
            columns = ", ".join(table.column_names)
            raise WorkloadError(f"{where} has no column {column!r}; it has {columns}")
    if len(table) < count:
        raise WorkloadError(
            f"{where} has {len(table)} samples, but {count} were asked for; "
            "lower data.num_train_samples or data.num_eval_samples"
        )
    rows = table.shuffle(seed=seed).select(range(count))
    feature = table.features[data.label_column]
    name_of = getattr(feature, "int2str", str)
    labels = rows[data.label_column]
    if any(label is None for label in labels):
        raise WorkloadError(f"{where}: column {data.label_column!r} has rows without a label")
    texts = ["" if text is None else str(text) for text in rows[data.text_column]]
    return texts, [str(name_of(label)) for label in labels]


def _encode_labels(rows: _Rows) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    names = tuple(sorted(set(rows.train_labels)))
    if len(names) < 2:
        raise WorkloadError(
            f"the training samples have one label only ({names[0]!r}): nothing can be learned. "
            "Take more samples or another label column"
        )
    unseen = sorted(set(rows.evaluation_labels) - set(names))
    if unseen:
        raise WorkloadError(
            f"the evaluation samples have labels that no training sample has: {', '.join(unseen)}. "
            f"The training samples have {', '.join(names)}. Take more training samples, or check "
            "data.label_column"
        )
    number = {name: index for index, name in enumerate(names)}
    train, evaluation = (
        torch.tensor([number[label] for label in labels])
        for labels in (rows.train_labels, rows.evaluation_labels)
    )
    return train, evaluation, names


def _encode_texts(rows: _Rows, data: DataSpec, model: ModelSpec) -> Dataset:
    tokenizer = _tokenizer(model, rows.train)
    train_labels, evaluation_labels, names = _encode_labels(rows)

    def encode(texts: Sequence[str], labels: Tensor) -> Split:
        inputs = tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=data.sequence_length,
            return_tensors="pt",
        )
        return Split(inputs=dict(inputs), labels=labels)

    return Dataset(
        train=encode(rows.train, train_labels),
        evaluation=encode(rows.evaluation, evaluation_labels),
        labels=names,
        vocabulary_size=len(tokenizer),
    )


def _tokenizer(model: ModelSpec, texts: Sequence[str]) -> Any:
    """The pretrained model's own tokenizer, or a WordPiece trained on the training texts."""
    from transformers import AutoTokenizer

    if not model.is_builtin:
        try:
            return AutoTokenizer.from_pretrained(model.source)
        except Exception as error:
            raise WorkloadError(
                f"model.source = {model.source!r}: no tokenizer; {hub_advice(model.source, error)}"
            ) from error
    return _train_tokenizer(texts)


def _train_tokenizer(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    def make_tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    normalizer = normalizers.BertNormalizer(lowercase=True)
    # The trainer numbers the pieces that continue a word in the order of a hash table, another one
    # in each process, and breaks ties by these numbers. Naming them first fixes the numbers.
    alphabet = sorted({letter for text in texts for letter in normalizer.normalize_str(text)})
    pieces = [f"##{letter}" for letter in alphabet if not letter.isspace()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY_SIZE, special_tokens=[*SPECIAL_TOKENS, *pieces], show_progress=False
    )
    draft = make_tokenizer({})
    draft.train_from_iterator(texts, trainer)
    # A fresh tokenizer, because the draft takes those pieces for special tokens.
    tokenizer = make_tokenizer(draft.get_vocab())
    separator, start = SPECIAL_TOKENS.index("[SEP]"), SPECIAL_TOKENS.index("[CLS]")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", separator), ("[CLS]", start))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def _digits(data: DataSpec, seed: int) -> _Rows:
    from sklearn.datasets import load_digits

    digits = load_digits()
    total = data.num_train_samples + data.num_eval_samples
    if total > len(digits.target):
        raise WorkloadError(
            f"builtin:digits has {len(digits.target)} samples, but {total} were asked for; "
            "lower data.num_train_samples or data.num_eval_samples"
        )
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(seed))
    chosen = order[:total].numpy()
    # Pixels come as 0 to 16; centred to -1 to 1, with one channel, as a ViT takes them.
    pixels = torch.tensor(digits.images[chosen], dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = [str(label) for label in digits.target[chosen]]
    return _divide(pixels, labels, data.num_train_samples)


def _encode_images(rows: _Rows) -> Dataset:
    train_labels, evaluation_labels, names = _encode_labels(rows)
    return Dataset(
        train=Split(inputs={"pixel_values": rows.train}, labels=train_labels),
        evaluation=Split(inputs={"pixel_values": rows.evaluation}, labels=evaluation_labels),
        labels=names,
        vocabulary_size=None,
    )


def hub_advice(source: str, error: Exception) -> str:
    """What to do when a model could not be loaded."""
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return (
        "neither a local folder nor a name that the hub offers, or the hub cannot be reached and "
        "no copy is cached here. Give a local folder, or one of the built-in models. "
        f"({type(error).__name__}: {first_line})"
    )
