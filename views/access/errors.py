"""Errors in the words of the page: fields by their labels, commands as code."""

import re

from breakeven.runner.errors import InvalidSpec, shown
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import fields_of
from breakeven.runner.specs.workload import SCRIPT_PREFIX
from breakeven.views.access import permissions
from breakeven.views.shared.inert import Markdown, code, inert, prose

LABELS = {field.path: field.label for field in fields_of(ExperimentSpec)}
"""Label by path of the field."""
PATHS = re.compile(r"(?<![\w.])[a-z]+\.[a-z_]+(?![\w.])")
"""What may be the path of a field; fields of the experiment itself are words of the language."""


def error_words(error: object, label: Markdown = "", place: Markdown = "") -> Markdown:
    """The sentence of an error, with the label of the field at fault, or the label and the place
    that the form gives it, and its value. Viewers see no paths of this machine."""
    if not isinstance(error, InvalidSpec) or not (label or error.field in LABELS):
        return prose(_with_labels(permissions.redacted(error)))
    rule = prose(_with_labels(permissions.redacted(error.rule)))
    subject = f"**{label or inert(LABELS[error.field])}**{place}"
    if error.value in (None, "", ()):
        return f"{subject} {rule}"
    if error.rule.startswith(shown(error.value)):
        return f"{subject}: {rule}"
    value = error.value if isinstance(error.value, str) else shown(error.value)
    return f"{subject}, {code(permissions.redacted(value.removeprefix(SCRIPT_PREFIX)))}: {rule}"


def _with_labels(text: str) -> str:
    """The text with the labels of fields in place of their paths."""
    return PATHS.sub(lambda path: f"“{LABELS[path[0]]}”" if path[0] in LABELS else path[0], text)
