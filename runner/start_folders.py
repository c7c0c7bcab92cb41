"""The folder in which a script starts: the person's, as without Breakeven, but for folders that
hold much more than a project."""

import os
import tempfile
from pathlib import Path

LEFT_OUT = {"__pycache__", "node_modules", "venv", "env"}
"""Folders that no copy has, like hidden folders such as `.git`: no script reads them by path."""
IN_ENVIRONMENT = "bin/python"
MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
"""Files and folders at the top of a project."""


def is_broad(folder: Path) -> bool:
    """Whether a folder holds much more than a project: the home folder, that of temporary files,
    and the folders around them."""
    broad = [Path.home(), Path(tempfile.gettempdir()).resolve()]
    return any(other.is_relative_to(folder) for other in broad)


def project_of(folder: Path) -> Path:
    """The nearest folder around `folder`, or itself, that looks like the top of a project;
    `folder` if there is none."""
    for parent in (folder, *folder.parents):
        if is_broad(parent):
            break
        if any((parent / mark).exists() for mark in MARKS):
            return parent
    return folder


def executable(python: str, typed: Path) -> Path:
    """The full path of a Python that is given as a file or by the folder of its environment, from
    the folder in which it is typed. Links are kept: Python finds its packages by this path."""
    path = Path(os.path.abspath(typed / Path(python).expanduser()))
    return path / IN_ENVIRONMENT if path.is_dir() else path


def start_folder(file: Path, *, is_module: bool) -> str:
    """`ScriptSpec.folder` for a command that was typed here: this folder, or an empty text if this
    is the script's own. In a broad folder only modules start that lie there."""
    here = Path.cwd()
    if is_broad(here):
        return str(here) if is_module and file.is_relative_to(here) else ""
    return "" if here == file.parent and not is_module else str(here)


def path_from(argument: str, start: Path, *, typed: Path) -> str:
    """An argument with a path that a run finds from its start folder: absolute if it exists in the
    folder in which the argument was typed, and the copy of the start folder does not have it."""
    name, equals, value = argument.rpartition("=")
    path = Path(value)
    if not value or path.is_absolute() or not os.path.exists(typed / path):
        return argument
    is_left_out = any(part.startswith(".") or part in LEFT_OUT for part in path.parts)
    if os.path.exists(start / path) and not is_left_out:
        return argument
    return f"{name}{equals}{(typed / path).resolve()}"
