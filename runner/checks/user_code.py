"""Python files of users: the administrator decides which may run, and a training script must show
where its steps end.

A specification is data and may come from anybody; `path.py:name` in it is code. A run executes it
only from the folders that the environment of its supervisor lists in `BREAKEVEN_CODE`.
"""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from breakeven.runner.errors import CodeNotAllowed, InvalidSpec
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import USER_CODE

CODE_VARIABLE = "BREAKEVEN_CODE"
"""Environment variable with the folders whose Python files may run, separated like `PATH`."""


def locate(source: str) -> tuple[Path, str]:
    """The file, resolved, and the name behind the colon of `path.py:name`, empty for a script.

    Raises `CodeNotAllowed` unless the file lies in a folder that `BREAKEVEN_CODE` lists.
    """
    path, _, name = source.rpartition(":") if USER_CODE.fullmatch(source) else (source, "", "")
    return allowed(source, Path(path)), name


def allowed(source: str, path: Path) -> Path:
    """The path, resolved; raises `CodeNotAllowed` unless it lies in a folder that `BREAKEVEN_CODE`
    lists. `source` is what the error calls it."""
    file = path.expanduser().resolve()
    folders = [Path(entry).expanduser().resolve() for entry in allowed_folders()]
    if any(file.is_relative_to(folder) for folder in folders):
        return file
    listed = os.pathsep.join(map(str, folders)) or "empty"
    wanted = file if file.is_dir() else file.parent
    raise CodeNotAllowed(
        f"{source!r}: {file} may not run here. Start the supervisor (or the dashboard) with "
        f"{CODE_VARIABLE}={wanted}, which is {listed} now, if you trust what is there"
    )


def allowed_folders() -> list[str]:
    """The entries of `BREAKEVEN_CODE`."""
    return [entry for entry in os.environ.get(CODE_VARIABLE, "").split(os.pathsep) if entry]


TELLS_STEPS = re.compile(
    r"\b(breakeven|accelerate|lightning|pytorch_lightning|Trainer|Seq2SeqTrainer|trl)\b"
)
"""What a script mentions that says where its steps end, or has a library train that does."""
OURS = "breakeven"
"""Loaded already when a script begins."""
SAME_NAME = (
    f"lies in one folder with a module called {OURS!r}: `import {OURS}` would give the script "
    "Breakeven's. Rename yours, or move the script to another folder"
)
MAX_FILES = 2000
"""Python files of the script's folder that are looked into."""
NO_STEPS = (
    "shows nowhere where a step ends, nor does a file of its folder: add `import breakeven`, "
    "`model = breakeven.compile(model)`, and `breakeven.step(loss)` behind optimizer.step(); "
    "scripts that train with transformers.Trainer, accelerate or lightning need no change"
)


def check_script(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a script that is no Python or has no marked step, and
    `CodeNotAllowed` for a script that may not run here."""
    source, path = spec.model.source, spec.model.script
    assert path is not None
    file, _ = locate(path)
    if not file.is_file():
        raise InvalidSpec("model.source", source, f"there is no file {file}")
    folder = Path(spec.script.folder or file.parent)
    allowed(str(folder), folder)
    if not folder.is_dir():
        raise InvalidSpec("script.folder", str(folder), "is no folder")
    _check_python(file, source)
    if (file.parent / OURS).is_dir() or (file.parent / f"{OURS}.py").is_file():
        raise InvalidSpec("model.source", source, SAME_NAME)
    if not any(TELLS_STEPS.search(text) for text in _texts(file)):
        raise InvalidSpec("model.source", source, NO_STEPS)


def _check_python(file: Path, source: str) -> None:
    try:
        ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        rule = f"is no Python: line {error.lineno}: {error.msg}"
        raise InvalidSpec("model.source", source, rule) from None
    except (OSError, ValueError) as error:
        raise InvalidSpec("model.source", source, f"cannot be read: {error}") from None


def _texts(file: Path) -> Iterator[str]:
    """The script, and the files that it may import."""
    yield file.read_text(errors="replace")
    for number, other in enumerate(file.parent.rglob("*.py")):
        if number == MAX_FILES:
            yield "breakeven"  # unknown: the run itself will find out
        try:
            yield other.read_text(errors="replace")
        except OSError:
            continue
