"""What the sources say about each field of a specification: the text beneath it."""

import ast
import inspect
from functools import cache
from textwrap import dedent
from typing import Any

from breakeven.runner.specs.validation import Spec


@cache
def field_texts(kind: type[Spec]) -> dict[str, str]:
    """The documented fields of a specification with their texts, on one line each; those that it
    has from another specification first."""
    classes = [one for one in reversed(kind.__mro__) if one not in (Spec, object)]
    return {name: text for one in classes for name, text in _own_texts(one).items()}


def _own_texts(kind: Any) -> dict[str, str]:
    (definition,) = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
