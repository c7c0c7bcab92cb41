"""Names with settings, as specifications write them: `name:setting=value+setting=value`."""

from collections.abc import Callable
from typing import Any

from runner.validation import Options, require


def parse_settings(text: str, field: str) -> tuple[str, Options]:
    """Name and settings; raises `InvalidSpec` for the field if a setting is not `name=value`."""
    name, _, settings = text.partition(":")
    options: Options = {}
    for setting in filter(None, settings.split("+")):
        key, equals, value = setting.partition("=")
        rule = f"the setting {setting!r} must read name=value; several are joined by '+'"
        require(bool(key.isidentifier() and equals and value), field, text, rule)
        options[key] = _value(value)
    return name, options


def _value(text: str) -> bool | int | float | str | tuple[float, ...]:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("(") and text.endswith(")"):
        parts = [_number(part.strip()) for part in text[1:-1].split(",") if part.strip()]
        if parts and all(part is not None for part in parts):
            return tuple(part for part in parts if part is not None)
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> int | float | None:
    kinds: tuple[Callable[[Any], int | float], ...] = (int, float)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return None
