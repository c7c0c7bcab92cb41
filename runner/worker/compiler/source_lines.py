"""Where in whose code something happened: paths that travel, and the line one can change."""

import sysconfig
from collections.abc import Sequence
from pathlib import Path
from traceback import FrameSummary

import torch

from breakeven.runner.project import PACKAGE, PROJECT_ROOT

RUNNER = f"{PACKAGE / 'runner'}/"
TORCH = f"{Path(torch.__file__).parent}/"
PACKAGES = f"{Path(torch.__file__).parent.parent}/"
STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}/"


def users_line(stack: Sequence[FrameSummary]) -> str | None:
    """`file:line` of the innermost frame that a person wrote.

    Where none did, of a library such as transformers, which holds the model; and where nothing but
    torch and this runner took part, of the innermost frame. None for an empty stack.
    """
    if not stack:
        return None
    inwards = sorted(stack, key=lambda frame: _ownership(frame.filename))  # keeps the order
    return line_of(inwards[-1])


def innermost_line(stack: Sequence[FrameSummary]) -> str | None:
    """`file:line` of the innermost frame, whoever wrote it."""
    return line_of(stack[-1]) if stack else None


def line_of(frame: FrameSummary) -> str:
    return f"{short_path(frame.filename)}:{frame.lineno}"


def short_path(path: str) -> str:
    """A file of this project or of a package relative to where those lie: run folders travel."""
    for folder in (PACKAGES, f"{PACKAGE}/", f"{PROJECT_ROOT}/"):
        path = path.removeprefix(folder)
    return path


def _ownership(file: str) -> int:
    """2 for a person's own code, 1 for a library's, 0 for torch's and this runner's."""
    if file.startswith((RUNNER, TORCH)):
        return 0
    return 1 if file.startswith((PACKAGES, STANDARD_LIBRARY)) else 2
