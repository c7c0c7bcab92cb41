"""What the source of a script says: whether it marks its steps, and which variables it names."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import breakeven


def marks_steps(folder: Path) -> bool:
    """Whether the script, or a module from its working `folder` or its package, uses
    `breakeven.step`."""
    return any(map(_uses_step, _modules(folder)))


def named_in_source(names: Iterable[str], folder: Path) -> list[str]:
    """Those of the names that a module of the script has in quotation marks."""
    texts = [_source(module) for module in _modules(folder)]
    return [
        name for name in names if any(f'"{name}"' in text or f"'{name}'" in text for text in texts)
    ]


def _modules(folder: Path) -> Iterator[ModuleType]:
    """The script, and all loaded modules from its working folder or its package."""
    main = sys.modules["__main__"]
    package = (getattr(main, "__package__", None) or "").partition(".")[0]
    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        is_scripts = module is main or is_within(file, folder)
        is_scripts |= bool(package) and name.partition(".")[0] == package
        if is_scripts and file.endswith(".py"):
            yield module


def is_within(file: str, folder: Path) -> bool:
    """Whether a module's file lies in a folder. Thousands of modules are asked, so no `Path` is
    made of each."""
    return file.startswith(f"{folder}{os.sep}")


def _uses_step(module: ModuleType) -> bool:
    return any(
        value is breakeven.step
        or (value is breakeven and re.search(rf"\b{re.escape(name)}\.step\b", _source(module)))
        for name, value in list(vars(module).items())
    )


def _source(module: ModuleType) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8", errors="replace")
