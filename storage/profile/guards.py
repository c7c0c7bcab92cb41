"""What changed where compiled code no longer held and was compiled again, from torch's reasons."""

import re
from typing import Literal

Change = Literal[
    "size",
    "optimizer setting",
    "optimizer state",
    "hook",
    "gradient",
    "mode",
    "type",
    "training",
    "number",
    "object",
    "unknown",
]
PATTERNS: tuple[tuple[Change, str], ...] = (
    ("optimizer state", r"self\.state\b|\.state\["),
    ("optimizer setting", r"param_groups'?\]?\[\d+\]\['(?P<name>\w+)'\]"),
    ("hook", r"(?P<name>_\w*hooks\w*)"),
    ("size", r"(size|rank|stride) mismatch|\.size\(\)|\.shape\b|Eq\(|L\['\w+'\]\.size"),
    ("gradient", r"requires_grad mismatch"),
    ("mode", r"GLOBAL_STATE changed: (?P<name>\w+)|grad_mode|autocast"),
    ("type", r"dtype mismatch|device mismatch|dispatch key set mismatch"),
    ("training", r"\.training\b"),
    ("number", r"(?P<name>[A-Za-z_][\w.]*) == -?[\d.]"),
    ("object", r"check_(type|obj)_id|\bis (not )?\w+|check_weakref"),
)
"""For each kind of change, a pattern of torch's reason; the first that matches counts."""


def change_in(reason: str) -> tuple[Change, str | None]:
    """The kind of the change that made a guard fail, and the changed setting, hook or number."""
    guard = guard_in(reason)
    for kind, pattern in PATTERNS:
        if match := re.search(pattern, guard):
            return kind, match.groupdict().get("name")
    return "unknown", None


def guard_in(reason: str) -> str:
    """The guard that failed, without the number of the compilation and torch's comments."""
    guard = reason.partition("\n")[0].partition("  #")[0].strip()
    return re.sub(r"^\d+/\d+: ", "", guard)
