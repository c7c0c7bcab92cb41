"""Tokenizers: the pretrained model's own, or a WordPiece trained on the training samples."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ModelSpec
from breakeven.runner.worker.data.hub import from_pretrained

VOCABULARY_SIZE = 8192
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def make_tokenizer(model: ModelSpec, texts: Sequence[str]) -> Any:
    """The pretrained model's own tokenizer, or a WordPiece trained on the training texts."""
    from transformers import AutoTokenizer

    if model.is_builtin:
        return _train_tokenizer(texts)
    tokenizer = from_pretrained(AutoTokenizer, model.source, "no tokenizer; ")
    if tokenizer.pad_token is None:
        # Generative models rarely have one. The attention mask marks the padding.
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise WorkloadError(
            f"model.source = {model.source!r}: its tokenizer has no token for padding nor for the "
            "end of a text; set its pad_token, save it, and name the folder"
        )
    return tokenizer


def tokenize(
    tokenizer: Any, texts: Sequence[str], length: int, **options: Any
) -> dict[str, Tensor]:
    """The texts as model inputs by name, each (texts, length): cut, or padded on the right."""
    encoded = tokenizer(
        list(texts),
        padding="max_length",
        truncation=True,
        max_length=length,
        return_tensors="pt",
        **options,
    )
    return dict(encoded)


def _train_tokenizer(texts: Sequence[str]) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    def build(vocabulary: dict[str, int]) -> Tokenizer:
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    normalizer = normalizers.BertNormalizer(lowercase=True)
    # The trainer numbers the pieces within words in the order of a hash table, which depends on the
    # process, and breaks ties by these numbers. Naming the pieces first fixes the numbers.
    alphabet = sorted({letter for text in texts for letter in normalizer.normalize_str(text)})
    pieces = [f"##{letter}" for letter in alphabet if not letter.isspace()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY_SIZE, special_tokens=[*SPECIAL_TOKENS, *pieces], show_progress=False
    )
    draft = build({})
    draft.train_from_iterator(texts, trainer)
    # A new tokenizer, because the draft treats these pieces as special tokens.
    tokenizer = build(draft.get_vocab())
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
