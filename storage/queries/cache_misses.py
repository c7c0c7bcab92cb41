"""Says what differs between the keys under which two processes looked for compiled graphs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from breakeven.runner.texts import printable

LAYERS = {"aot_autograd": "AOTAutograd", "fx_graph": "Inductor", "triton": "Triton"}
"""Whose cache a layer is."""
SETTING = re.compile(r"inductor_config(_comms)?\[(?P<name>[\w.]+)\]")
INPUT = re.compile(r"example_inputs\[(?P<number>\d+)\]")
TENSOR = re.compile(
    r"TensorMetadata\(dtype=torch\.(?P<dtype>\w+), shape=torch\.Size\(\[(?P<shape>[^\]]*)\]\)"
    r".*?(device\(type='(?P<device>\w+)'|$)"
)
PARTS = {
    "gm": "the graph (code or constants of the model or of the step)",
    "torch_version": "the version of torch",
    "cpp_runtime_thread_count": "the number of CPU threads",
    "default_dtype": "torch's default dtype",
    "deterministic_algorithms_settings": "torch's deterministic algorithms",
    "cuda_matmul_settings": "the precision of matrix products",
    "provenance_tracking_level": "torch's tracing",
    "user_defined_triton_source": "the source of a Triton kernel",
    "cache_key_tag": "the tag of the cache (torch.compiler.config.cache_key_tag)",
    "system_info": "the device, its driver or CUDA",
    "example_inputs": "the number of the graph's inputs",
}
"""What a part of a key is; others are called by torch's name."""
NOT_STORED = "it was looked for under the same key, and nothing usable was stored"
OF_AUTOGRAD = "only what AOTAutograd looks at changed (its settings, or those of autograd)"


@dataclass(frozen=True)
class CacheKey:
    """A look-up in a compile cache."""

    layer: str
    key: str | None
    """None if torch does not cache the graph."""
    reason: str | None
    """Why it does not."""
    parts: Mapping[str, str]
    """By torch's name, the hash of each part and a space with its value."""


def keys_of(rows: pd.DataFrame) -> list[CacheKey]:
    """The look-ups of a process. A row has only those settings that differ from the rows before."""
    keys, settings = [], dict[str, str]()
    for row in rows.itertuples():
        parts = {str(name): str(value) for name, value in dict(row.parts or {}).items()}
        settings |= {name: part for name, part in parts.items() if SETTING.fullmatch(name)}
        key, reason = (None if pd.isna(value) else str(value) for value in (row.key, row.reason))
        keys.append(CacheKey(str(row.layer), key, reason, {**settings, **parts}))
    return keys


def why_missed(first: Sequence[CacheKey], later: Sequence[CacheKey]) -> list[str]:
    """Why a later process did not find what the first one stored: what changed in the keys, the
    most telling first; empty if all its keys are the first one's."""
    known = {key.key for key in first}
    missed = [key for key in later if key.key not in known]
    reasons = [f"torch does not cache it: {key.reason}" for key in later if key.key is None]
    for layer in LAYERS:
        before = [key for key in first if key.layer == layer and key.key]
        after = [key for key in later if key.layer == layer and key.key]
        for earlier, key in zip(before, after, strict=False):
            if key in missed:
                reasons += _changes(earlier.parts, key.parts)
    reasons = list(dict.fromkeys(map(printable, reasons)))
    return reasons or [OF_AUTOGRAD if missed else NOT_STORED]


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    # Two parts are equal if their hashes are: a value may show an address.
    names = [
        name for name in {**before, **after} if _hash(before.get(name)) != _hash(after.get(name))
    ]
    # A graph of other inputs has other code, too.
    for name in sorted(names, key=lambda name: (name == "gm", name not in PARTS)):
        yield _change(name, before.get(name), after.get(name))


def _change(name: str, before: str | None, after: str | None) -> str:
    """`Inductor's setting max_autotune (False, then True)`."""
    setting, given = SETTING.fullmatch(name), INPUT.fullmatch(name)
    what = PARTS.get(name) or PARTS.get(name.partition("[")[0]) or name
    if setting:
        what = f"Inductor's setting {setting['name']}"
    elif given:
        what = f"input {int(given['number']) + 1} of the graph"
    values = [_value(part) for part in (before, after)]
    if not all(values) or values[0] == values[1]:
        return what
    return f"{what} ({values[0]}, then {values[1]})"


def _hash(part: str | None) -> str:
    return (part or "").partition(" ")[0]


def _value(part: str | None) -> str:
    text = "" if part is None else part.partition(" ")[2]
    if tensor := TENSOR.search(text):
        shape = " x ".join(tensor["shape"].split(", ")) or "a number"
        return f"{tensor['dtype']} {shape} on {tensor['device'] or 'its device'}"
    return text
