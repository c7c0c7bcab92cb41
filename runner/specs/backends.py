"""Reads a backend with its settings into an arm, and gives it a label.

It is written as its name, or with settings behind a colon:

    inductor
    inductor:mode=max-autotune
    inductor:scope=forward+dynamic=true
    inductor:epilogue_fusion=false          any other name is an Inductor configuration
    inductor:mode=max-autotune+triton.cudagraphs=false
                                            options override those of the mode
    inductor:fullgraph=false                a script's own fullgraph=True does not count
    inductor:optimizer=fused
    none:optimizer=fused                    settings without a compiler
    thunder.dynamo:ThunderCompiler          a function or class of a package, or path.py:name
    thunder.dynamo:ThunderCompiler:scope=forward
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePath
from typing import Any, get_args

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.arm_fields import (
    ARM_SETTINGS,
    LABEL,
    MAX_LABEL_BYTES,
    NO_COMPILER,
    NO_DDP_MODE,
    RESERVED_LABELS,
    Arm,
    DdpMode,
    Mode,
    OptimizerForm,
    Scope,
)
from breakeven.runner.specs.fields import require
from breakeven.runner.specs.values import BY_PATH, parse_settings

LONGEST_DERIVED = 100
"""Longest derived label in characters; repeats append their number."""
DIGEST_DIGITS = 6


def parse_backend(text: str) -> Arm:
    """Reads a backend such as `inductor:mode=max-autotune`.

    Raises `InvalidSpec` for the field `backends`.
    """
    name, settings = parse_settings(text, "backends", dotted=True)
    rule = "must be the name of a Dynamo backend (letters, digits, '.', '_', '-'), or its path, "
    rule += "package.module:attribute"
    is_name = re.fullmatch(r"[A-Za-z0-9_][\w.-]*", name) or BY_PATH.fullmatch(name)
    require(bool(is_name), "backends", text, rule)
    known: dict[str, Any] = {
        key: settings.pop(key) for key in list(settings) if key in ARM_SETTINGS
    }
    given = {**known, **settings}
    known["allows_breaks"] = known.get("fullgraph") is False
    rule = "names a mode that DistributedDataParallel does not support; choose "
    rule += "optimize_ddp=python_reducer"
    require(known.get("optimize_ddp") != NO_DDP_MODE, "backends", text, rule)
    try:
        backend = None if name == NO_COMPILER else name
        return Arm(
            label=_label(name, given), role="backend", backend=backend, options=settings, **known
        )
    except InvalidSpec as error:
        if error.field == "backends":
            raise
        raise InvalidSpec("backends", text, f"{error.field} {error.rule}") from None


def parse_backends(texts: Sequence[str]) -> list[Arm]:
    """Reads several backends; different backends never share a label."""
    by_label: dict[str, Arm] = {}
    arms = []
    for text in texts:
        arm = parse_backend(text)
        if by_label.setdefault(arm.label, arm) != arm:
            arm = replace(arm, label=_marked(arm.label, text))
        arms.append(arm)
    return arms


def _label(name: str, settings: dict[str, Any]) -> str:
    """`inductor-max-autotune-forward`: well-known values alone, other values with their names. In
    an invalid label other characters are replaced, and a digest is appended."""
    words = [PurePath(name).name.replace(".py:", ":").replace(":", ".").lstrip("_.-")]
    for key, value in settings.items():
        speaks = value in (
            get_args(Scope) + get_args(Mode) + get_args(DdpMode) + get_args(OptimizerForm)
        )
        words.append(str(value) if speaks else f"{key}_{str(value).lower()}")
    label = "-".join(words)
    if RESERVED_LABELS.fullmatch(label):
        return f"backend-{label}"
    is_valid = len(label.encode()) <= MAX_LABEL_BYTES and LABEL.fullmatch(label)
    return label if is_valid else _marked(label, label)


def _marked(label: str, text: str) -> str:
    """A valid, unique label, with a digest of `text`."""
    clean = re.sub(r"[^A-Za-z0-9.-]+", "_", label).strip("_.-")[:LONGEST_DERIVED]
    return f"{clean or 'backend'}-{sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]}"
