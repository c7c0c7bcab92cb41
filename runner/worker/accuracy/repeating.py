"""Operations that give the same twice, to the last bit, where torch has such."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class CannotRepeat(Exception):
    """An operation was asked to repeat itself, and says that it cannot."""


def prepare() -> None:
    """Gives matrix products the memory with which they repeat themselves: before the first of the
    process, later it is not looked at."""
    os.environ.setdefault(*CUBLAS)


@contextmanager
def repeatable(*, strictly: bool) -> Iterator[None]:
    """Has torch choose operations that repeat themselves. Strictly, what cannot is an error; else
    it is let through, and so are attention's fused kernels as they are fastest."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=not strictly)
    try:
        with warnings.catch_warnings():
            # What cannot repeat itself is seen in the baseline.
            warnings.filterwarnings("ignore", message=".*deterministic")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


def require_repeatable(error: Exception) -> None:
    """Raises `CannotRepeat` for the error of an operation that was strictly asked to repeat itself;
    of any other error nothing comes."""
    is_strict = (
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled()
    )
    if is_strict and "deterministic" in str(error):
        what, _, _ = str(error).partition(", but you set")
        raise CannotRepeat(what) from error
