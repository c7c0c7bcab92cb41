"""Errors a user can do something about.

    RunnerError
    ├── InvalidSpec         a field of a specification breaks its rule (also a ValueError)
    ├── InvalidRunFolder    a run folder holds something that cannot be read
    ├── UnknownExperiment   no experiment has this id
    ├── NotEnoughDisk       the data folder has no room for another experiment
    ├── NotWritable         the data folder cannot be written
    ├── ProbeFailed         torch did not report the devices of this machine
    ├── UnusableData        a file of data is not there or cannot be read
    ├── SettingsUnusable    `breakeven.toml` holds something that is no setting
    ├── CodeNotAllowed      a Python file of one's own may not run here
    ├── Refused             what was checked with torch while the runs loaded cannot run here
    └── WorkloadError       the specified model, data or device cannot be used
        └── NotLoaded       the model, the tokenizer or the data, which all runs share

Every message says what was wrong, with which value, and what to do.

`cause_of` puts any exception's message into one line. Compilers wrap what failed: a backend's
exception stands in Dynamo's, a C++ compiler's output in Inductor's, another process's traceback in
both.
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
        field = printable(field)  # a stranger's name of a field
        super().__init__(f"{field} = {shown(value)}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


def shown(value: Any) -> str:
    """A value as messages quote it: a number of 400 digits or a long text by its beginning."""
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN_BITS:
        return f"a whole number of {value.bit_length():,} bits"
    written = repr(value)
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]} ..."


class InvalidRunFolder(RunnerError):
    """A file of a run folder is missing or cannot be read."""


class UnknownExperiment(RunnerError):
    """No experiment with this id is in the data folder."""


class NotEnoughDisk(RunnerError):
    """Less free disk space than an experiment needs to record itself."""


class NotWritable(RunnerError):
    """Something in the data folder cannot be written; says what, why, and what to do."""

    def __init__(self, folder: Path, error: OSError) -> None:
        what = printable(error.filename or folder)
        super().__init__(
            f"{what} cannot be written: {error.strerror or error}. Make {printable(folder)} "
            "writable, free some space, or choose another data folder (--data-folder, or the "
            "environment variable BREAKEVEN_DATA)"
        )


class ProbeFailed(RunnerError):
    """The subprocess that asks torch about this machine gave no answer."""


class UnusableData(RunnerError):
    """A file of data cannot be used; says why, to go on after the field and its value."""


class SettingsUnusable(RunnerError):
    """A setting of `breakeven.toml`, or of a variable that overrides the file, is wrong."""


class CodeNotAllowed(RunnerError):
    """A specification names a Python file that may not run here."""


class Refused(RunnerError):
    """An experiment of the queue that the check with torch refuses: the message of that error."""


class WorkloadError(RunnerError):
    """The model, data or device of a specification cannot be used."""


class NotLoaded(WorkloadError):
    """Loading what all runs of an experiment share failed: the model, the tokenizer or the data."""


OWN_ERRORS = frozenset(
    kind.__name__
    for kind in [*globals().values()]
    if isinstance(kind, type) and issubclass(kind, RunnerError)
)
"""Names of the classes above, as journals have them: their messages need no traceback."""


OF_COMPILERS = ("BackendCompilerFailed", "InductorError", "SubprocException")
"""Classes that say no more than that compiling failed."""
WRAPPING = re.compile(r"backend=.* raised:|An exception occurred in a subprocess:")
"""First lines of such messages."""
RAISED = re.compile(r"(?:\w+\.)*([A-Z]\w*):(?: (.*))?")
"""`torch._inductor.exc.InductorError: why`, as the last line of a traceback begins."""
ADVICE = ("Set TORCHDYNAMO_VERBOSE", "Set TORCH_LOGS", "You can suppress this exception")
MOST_WRAPPED = 5
"""Exceptions within each other; a journal from elsewhere may hold any text."""
TRACEBACK = "Traceback (most recent call last):"
TOOL_OUTPUT = "Output:"
"""Stands before what a C++ compiler wrote."""
TOOL_ERROR = re.compile(r"\berror:|undefined reference|cannot find", re.IGNORECASE)
TRITON_PLACE = re.compile(r"at \d+:\d+:")
"""Begins Triton's `CompilationError`; lines of the kernel and the reason follow."""


def cause_of(error: str, message: str) -> str:
    """`ValueError: no label 11`; `compiling failed: CppCompileError: x.cpp:7: error: no such file`.

    `error` is the name of the exception's class; the runner's own messages need none.
    """
    if error in OWN_ERRORS:
        return printable(" ".join(message.split()))
    lines = [line for line in message.splitlines()
             if line.strip() and not line.strip().startswith(ADVICE)]  # fmt: skip
    begin = "compiling failed: " if error in OF_COMPILERS else ""
    for _ in range(MOST_WRAPPED):
        error, lines = _wrapped(error, lines) or (error, lines)
    return printable(begin + ": ".join(filter(None, (error, _telling(lines)))))


def _wrapped(error: str, lines: Sequence[str]) -> tuple[str, list[str]] | None:
    """The exception that a message repeats, if that is what it does: class and message."""
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
    """The line of a message that says why."""
    if not lines:
        return ""
    if TRITON_PLACE.match(lines[0]):
        return next(line for line in reversed(lines) if set(line) - set(" ^~")).strip()
    if TOOL_OUTPUT in lines:
        output = lines[lines.index(TOOL_OUTPUT) + 1 :] or lines[:1]
        return next(filter(TOOL_ERROR.search, output), output[0]).strip()
    is_cut = lines[0].rstrip().endswith(":") and len(lines) > 1
    return " ".join(line.strip() for line in lines[: 2 if is_cut else 1])
