"""Whether a training script of a person's own can be measured, as far as reading it tells."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from breakeven.runner.checks.user_code import allowed, locate
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.experiment import ExperimentSpec

TELLS_STEPS = re.compile(
    r"\b(breakeven|accelerate|lightning|pytorch_lightning|Trainer|Seq2SeqTrainer|trl)\b"
)
"""What a script mentions that says where its steps end, or has a library train that does."""
OURS = "breakeven"
"""Loaded already when a script begins."""
SAME_NAME = (
    f"lies beside a module called {OURS!r}: `import {OURS}` would give the script Breakeven's. "
    "Rename yours, or keep the script elsewhere"
)
MAX_FILES = 2000
"""Python files of the script's folder that are looked into."""
NO_STEPS = (
    "says nowhere where a step ends, nor does a file beside it: say `import breakeven`, "
    "`model = breakeven.compile(model)`, and `breakeven.step(loss)` behind optimizer.step(); "
    "scripts that train with transformers.Trainer, accelerate or lightning need no change"
)


def check_script(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for what is no Python, or could not be told where a step ends, and
    `CodeNotAllowed` for what may not run here."""
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
            yield "breakeven"  # nobody knows: the run itself will say
        try:
            yield other.read_text(errors="replace")
        except OSError:
            continue
