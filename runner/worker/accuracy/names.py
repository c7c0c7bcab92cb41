"""How the tensors of a check are called."""

from typing import Literal, NamedTuple

from torch import Tensor


class Name(NamedTuple):
    """Which tensor of an outcome it is."""

    quantity: Literal["activation", "output", "loss", "gradient", "parameter", "buffer"]
    tensor: str


Outcome = dict[Name, Tensor]
"""What a trial leaves behind, on the device."""
