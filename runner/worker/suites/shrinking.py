"""Smaller configurations of transformers' models, for trials on small machines."""

from collections.abc import Callable
from typing import Any

LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
    "num_decoder_layers",
)  # fmt: skip
HEADS = (
    "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
    "decoder_attention_heads", "attention_heads",
)  # fmt: skip
WIDTHS = (
    "hidden_size", "n_embd", "dim", "d_model", "embedding_size", "word_embed_proj_dim",
    "intermediate_size", "hidden_dim", "d_ff", "d_inner", "encoder_ffn_dim", "decoder_ffn_dim",
    "ffn_dim", "cross_attention_hidden_size",
)  # fmt: skip
SMALLEST_VOCABULARY = 100
"""Room for the special tokens of every model."""


def shrink(config: Any, divisor: int) -> None:
    """Divides the sizes of a configuration, rounding down to 1 at least.

    The widths shrink as the attention heads do, so that a head keeps its size. The lengths that a
    model can read stay.
    """
    if divisor == 1:
        return
    heads = next((value for name in HEADS if (value := _own(config, name))), divisor)
    fewer = max(1, heads // divisor)
    _cut_lists_by_layer(config, divisor)
    for name in LAYERS:
        _divide(config, name, lambda value: max(1, value // divisor))
    for name in HEADS:
        _divide(config, name, lambda value: max(1, value * fewer // heads))
    for name in WIDTHS:
        _divide(config, name, lambda value: value * fewer // heads)
    _divide(config, "vocab_size", lambda value: max(SMALLEST_VOCABULARY, value // divisor))


def _cut_lists_by_layer(config: Any, divisor: int) -> None:
    """Keeps the first entries of what a configuration says of each layer."""
    layers = next((value for name in LAYERS if (value := _own(config, name))), None)
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == layers:
            setattr(config, name, value[: max(1, layers // divisor)])


def _own(config: Any, name: str) -> int | None:
    """A size under the name that the configuration itself has for it; None if it has none.

    transformers knows common names as well, which stand for those: no size may be divided twice.
    """
    is_alias = name in config.attribute_map
    value = None if is_alias else getattr(config, name, None)
    return value if isinstance(value, int) else None


def _divide(config: Any, name: str, divide: Callable[[int], int]) -> None:
    value = _own(config, name)
    if value is not None:
        setattr(config, name, divide(value))
