"""Errors that a user can fix.

Every message names the error, the value, and a remedy.

`short_cause` reduces any exception's message to one line. Compilers wrap errors: Dynamo's exception
contains the backend's, Inductor's the output of a C++ compiler, and both the traceback of another
process.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from breakeven.runner.texts import printable

LONGEST_SHOWN = 300
LONGEST_SHOWN_BITS = 200


class RunnerError(Exception):
    """Base of all errors that the runner raises on purpose."""


class InvalidSpec(RunnerError, ValueError):
    """A specification breaks a rule; names the field, the value and the rule."""

    def __init__(self, field: str, value: Any, rule: str) -> None:
        field = printable(field)  # untrusted
        super().__init__(f"{field} = {shown(value)}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


def shown(value: Any) -> str:
    """A value as quoted in messages: a huge number by its size, a long text by its beginning."""
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN_BITS:
        return f"a whole number of {value.bit_length():,} bits"
    written = repr(value)
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]} ..."


class InvalidRunFolder(RunnerError):
    """A file of a run folder is missing or cannot be read."""


class UnknownExperiment(RunnerError):
    """No experiment with this id is in the data folder."""


class NotEnoughDisk(RunnerError):
    """The disk has less free space than an experiment needs for its records."""


class NotWritable(RunnerError):
    """A file in the data folder cannot be written; names the file, the reason and a remedy."""

    def __init__(self, folder: Path, error: OSError) -> None:
        path = printable(error.filename or folder)
        super().__init__(
            f"{path} cannot be written: {error.strerror or error}. Make {printable(folder)} "
            "writable, free some space, or choose another data folder (--data-folder, or the "
            "environment variable BREAKEVEN_DATA)"
        )


class ProbeFailed(RunnerError):
    """The subprocess that queries torch for this machine's devices failed."""


class UnusableData(RunnerError):
    """A data file cannot be used; the message continues after the field and its value."""


class SettingsUnusable(RunnerError):
    """A setting of `breakeven.toml`, or of a variable that overrides the file, is wrong."""


class CodeNotAllowed(RunnerError):
    """A specification names a Python file that may not run here."""


class Refused(RunnerError):
    """The check with torch refused a queued experiment; has the message of that error."""


class WorkloadError(RunnerError):
    """The model, data or device of a specification cannot be used."""


class NotLoaded(WorkloadError):
    """The model, tokenizer or data, which all runs of an experiment share, cannot be loaded."""


OWN_ERRORS = frozenset(
    kind.__name__
    for kind in [*globals().values()]
    if isinstance(kind, type) and issubclass(kind, RunnerError)
)
"""Names of the classes above, as in journals: their messages need no traceback."""


OF_COMPILERS = ("BackendCompilerFailed", "InductorError", "SubprocException")
"""Exceptions that only tell that a compilation failed."""
WRAPPING = re.compile(r"backend=.* raised:|An exception occurred in a subprocess:")
"""First lines of messages of these exceptions."""
RAISED = re.compile(r"(?:\w+\.)*([A-Z]\w*):(?: (.*))?")
"""`torch._inductor.exc.InductorError: why`: the last line of a traceback."""
ADVICE = ("Set TORCHDYNAMO_VERBOSE", "Set TORCH_LOGS", "You can suppress this exception")
MOST_WRAPPED = 5
"""Nested exceptions to unwrap; a journal may contain any text."""
TRACEBACK = "Traceback (most recent call last):"
TOOL_OUTPUT = "Output:"
"""Precedes the output of a C++ compiler."""
TOOL_ERROR = re.compile(r"\berror:|undefined reference|cannot find", re.IGNORECASE)
TRITON_PLACE = re.compile(r"at \d+:\d+:")
"""Begins Triton's `CompilationError`; lines of the kernel and the reason follow."""


def short_cause(error: str, message: str) -> str:
    """`ValueError: no label 11`; `compiling failed: CppCompileError: x.cpp:7: error: no such file`.

    `error`: name of the exception's class, which the result omits for the runner's own errors.
    """
    if error in OWN_ERRORS:
        return printable(" ".join(message.split()))
    lines = [
        line
        for line in message.splitlines()
        if line.strip() and not line.strip().startswith(ADVICE)
    ]
    begin = "compiling failed: " if error in OF_COMPILERS else ""
    for _ in range(MOST_WRAPPED):
        error, lines = _wrapped(error, lines) or (error, lines)
    return printable(begin + ": ".join(filter(None, (error, _telling(lines)))))


def _wrapped(error: str, lines: Sequence[str]) -> tuple[str, list[str]] | None:
    """Class and message lines of the exception that a message wraps; None without one."""
    places = range(0)
    if TRACEBACK in lines:
        places = range(len(lines) - 1, lines.index(TRACEBACK), -1)
    elif error in OF_COMPILERS and lines:
        is_wrapping = bool(WRAPPING.fullmatch(lines[0]))
        places = range(len(lines))[is_wrapping:][:1]
    for number in places:
        if raised := RAISED.fullmatch(lines[number]):
            return raised[1], [*filter(None, [raised[2]]), *lines[number + 1 :]]
    return None


def _telling(lines: Sequence[str]) -> str:
    """The line of a message with the reason."""
    if not lines:
        return ""
    if TRITON_PLACE.match(lines[0]):
        return next(line for line in reversed(lines) if set(line) - set(" ^~")).strip()
    if TOOL_OUTPUT in lines:
        output = lines[lines.index(TOOL_OUTPUT) + 1 :] or lines[:1]
        return next(filter(TOOL_ERROR.search, output), output[0]).strip()
    is_cut = lines[0].rstrip().endswith(":") and len(lines) > 1
    return " ".join(line.strip() for line in lines[: 2 if is_cut else 1])
