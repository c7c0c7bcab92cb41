"""Names what Dynamo could not trace: the operator, and the line of the user's code."""

import re
from collections.abc import Sequence
from functools import wraps
from traceback import FrameSummary
from typing import Any

from torch._dynamo import exc

Stack = Sequence[FrameSummary]
UNTOLD = ("step_unsupported", "generic_jump")
"""Beginnings of torch's own reasons for a graph break that name no cause; another exception did."""
OPERATORS = (
    (re.compile(r"\b(aten\.\w+)"), r"\1"),
    (re.compile(r"Operator `(\w+\.\w+)"), r"\1"),
    (re.compile(r"(?i)^data-dependent branching|^generic_jump"), "if, on a tensor"),
    (re.compile(r"\bTensor\.(\w+)"), r"Tensor.\1()"),
    (re.compile(r"call_method (?:\w*Tensor\w*)\([^)]*\) (\w+)"), r"Tensor.\1()"),
    (re.compile(r"wrap RNN, GRU, or LSTM[\s\S]*context: (\w+)\("), r"\1"),
    (re.compile(r"builtin operator `(\w+)|builtin: (\w+)"), r"\1\2()"),
    (re.compile(r"^Skip inlining `(torch\.compiler\.disable)"), r"\1"),
    (re.compile(r"method `(\w+)` of class `(\w+)`"), r"\2.\1()"),
    (re.compile(r"module: (?:builtins|_?torch[\w.]*), qualname: ([\w.]+)"), r"\1()"),
    (re.compile(r"module: ([\w.]+), qualname: ([\w.]+)"), r"\1.\2()"),
)
"""Patterns of torch's messages, and the operator as users know it."""


def operator_in(reason: str) -> str | None:
    """The operator or function that a message of Dynamo is about; None if it names none."""
    for pattern, name in OPERATORS:
        if match := pattern.search(reason):
            return match.expand(name)
    return None


class Refusals:
    """Remembers why Dynamo could not trace a line, from its construction on; replaces any earlier
    object.

    Torch reports some graph breaks without a reason, and of a function that it gave up on the
    innermost line alone. Both are in the exception, which torch catches.
    """

    def __init__(self) -> None:
        self._by_line: dict[tuple[str, int | None], tuple[str, Stack]] = {}
        by_line = self._by_line
        make = getattr(exc.Unsupported.__init__, "__wrapped__", exc.Unsupported.__init__)

        @wraps(make)
        def init(error: exc.Unsupported, *args: Any, **named: Any) -> None:
            make(error, *args, **named)
            stack = [*(getattr(error, "real_stack", None) or ())]
            if stack:
                by_line[stack[-1].filename, stack[-1].lineno] = str(error.msg), stack

        exc.Unsupported.__init__ = init  # type: ignore[assignment, method-assign]

    def find_stack(self, file: str, line: int | None) -> Stack:
        """The frames of the user's code that lead to a line; only this line if nothing is known."""
        _, stack = self._by_line.get((file, line), ("", [FrameSummary(file, line, "")]))
        return stack

    def reason(self, given: str, stack: Stack) -> str:
        """Torch's reason for a graph break, or that of the exception if torch gives none."""
        if not given.startswith(UNTOLD) or not stack:
            return given
        return self._by_line.get((stack[-1].filename, stack[-1].lineno), (given, stack))[0]
