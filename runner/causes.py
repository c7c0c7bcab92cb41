"""What an exception says went wrong, in one line: its class and its most telling line.

Compilers wrap what failed: a backend's exception stands in Dynamo's, a C++ compiler's output in
Inductor's, another process's traceback in both.
"""

import re
from collections.abc import Sequence

from breakeven.runner.errors import OWN_ERRORS
from breakeven.runner.texts import printable

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
