"""Declarations of the fields of a specification, and everything that is derived from them.

    batch_size: Annotated[
        int, Bounds(1, 1_000_000, "the device holds it at once"), Prompt(help="Samples of a step.")
    ] = 8

Command line, form, documents and errors read the declarations through `fields_of`. `Spec` checks
every value on construction, and reads and writes JSON. An invalid or missing value raises
`InvalidSpec`, which names the field, the value, the allowed values and, for a mistyped word, the
nearest valid one.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache, cached_property
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.python310 import Self, StrEnum
from breakeven.runner.specs.values import (
    check_plain,
    nearest,
    parse_options,
    read_number,
    read_truth,
    read_whole_number,
    split_at_commas,
    split_words,
    write_options,
)
from breakeven.runner.texts import read_json

MAX_STEPS = 100_000_000
EVERY_STEP_IS_KEPT = "the run's journal has a line for every step, and more would take over 20 GB"
FLOAT32_MAX = 3.4e38
NO_LARGER_FLOAT = "float32 holds no larger number"
UNKNOWN_FIELD = "is not a field of"


@dataclass(frozen=True)
class Bounds:
    """The range of a field: `Annotated[int, Bounds(1, 9, "each repeat takes an hour")]`."""

    least: float
    most: float
    why: str
    """The reason for `most`, shown after a colon."""
    above: bool = False
    """Whether `least` itself is out of range."""
    unit: str = ""
    """Symbol of the unit; empty for a count."""

    def check(self, name: str, value: float | None) -> None:
        """Raises `InvalidSpec` for a value out of range; None has no range."""
        if value is None:
            return
        if value < self.least or (self.above and value == self.least):
            beyond = "above" if self.above else "at least"
            raise InvalidSpec(name, value, f"must be {beyond} {self._written(self.least)}")
        if value > self.most:
            rule = f"must be at most {self._written(self.most)}: {self.why}"
            raise InvalidSpec(name, value, rule)

    @property
    def text(self) -> str:
        """The range in words."""
        first = "above" if self.above else "from"
        return f"{first} {self._written(self.least)} to {self._written(self.most)}"

    def _written(self, number: float) -> str:
        """`100,000`, `0.5`, `3.4e+38`, `86,400 s`."""
        is_whole = float(number).is_integer() and abs(number) < 1e15
        return " ".join(filter(None, [f"{number:,.0f}" if is_whole else f"{number:g}", self.unit]))


@dataclass(frozen=True)
class Prompt:
    """Label and text of a field in forms and help."""

    label: str = ""
    """Label of the widget in the form, where the name of the field is not enough."""
    flag: str = ""
    """Option of the command line."""
    empty: str = ""
    """Meaning of an empty field."""
    usual: str = ""
    """Default of the commands, if it depends on the machine."""
    rare: bool = False
    """Whether the field has no option of its own in `compare`, which sets it by `--set`."""
    several: bool = False
    """Whether the option is repeated for each entry of a list, because entries may have commas."""
    words: bool = False
    """Whether a list is written as the words of a shell command."""
    hidden: bool = False
    """Whether only code sets the field."""
    help: str = ""
    """Description in one or two sentences; backticks mark words to type."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A declared field."""

    section: str
    """Part of the experiment that has the field; empty for a field of the experiment itself."""
    name: str
    kind: Any
    """Its type, without None."""
    default: Any
    may_be_none: bool
    bounds: Bounds | None
    prompt: Prompt

    @property
    def path(self) -> str:
        """Name in error messages: `training.batch_size`."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def flag(self) -> str:
        """Option of the command line; a rare field has none."""
        return self.prompt.flag or "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """Name in the form's address: that of the option, or the path of a rare field."""
        name = self.path if self.prompt.rare else self.flag.removeprefix("--")
        return name.replace("-", "_").replace(".", "_")

    @property
    def usage(self) -> str:
        """How the command line sets the field."""
        return f"--set {self.path}" if self.prompt.rare else self.flag

    @property
    def label(self) -> str:
        """Label in the form, with the unit."""
        label = self.prompt.label or self.name.replace("_", " ").capitalize()
        return f"{label} ({self.bounds.unit})" if self.bounds and self.bounds.unit else label

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """Allowed words of the field, or of each entry of a list; empty if any text is allowed."""
        kind = get_args(self.kind)[0] if self.is_list else self.kind
        return get_args(kind) if get_origin(kind) is Literal else ()

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) is tuple

    @property
    def is_options(self) -> bool:
        """Whether the field holds keyword arguments."""
        return get_origin(self.kind) is dict

    @property
    def allowed(self) -> str:
        """Type and range in words."""
        kind = _type_name(self.kind)
        return f"{kind}, {self.bounds.text}" if self.bounds else kind

    def read(self, text: str) -> Any:
        """The value of a text; raises `ValueError` for an invalid text."""
        if self.may_be_none and text.lower() == "none":
            return None
        if self.prompt.words:
            return split_words(text)
        if self.is_list:
            values = (text,) if text else ()
            return values if self.prompt.several else tuple(split_at_commas(text))
        if self.is_options:
            return parse_options(text)
        return READERS[self.kind](text) if self.kind in READERS else text

    def written(self, value: Any) -> str:
        """The text that `read` reads."""
        if value is None:
            return "none"
        if self.kind is bool:
            return "yes" if value else "no"
        if self.prompt.words:
            return shlex.join(value)
        if self.is_options:
            return write_options(value)
        return ",".join(value) if self.is_list else str(value)

    def value_in(self, spec: Any) -> Any:
        """The value of the field in an experiment."""
        return getattr(getattr(spec, self.section) if self.section else spec, self.name)

    def put_in(self, values: dict[str, Any], value: Any) -> None:
        """Sets the field in an experiment that is given as plain values."""
        (values.setdefault(self.section, {}) if self.section else values)[self.name] = value


READERS: dict[Any, Callable[[str], Any]] = {
    int: read_whole_number,
    float: read_number,
    bool: read_truth,
}
"""Readers of typed text, by the type of the field."""


class Spec:
    """Base of all specifications: checks types, ranges and rules on construction, reads and writes
    JSON.

    A part of an experiment declares the prefix of its field names: `class DataSpec(Spec,
    path="data.")`.
    """

    _path = ""

    def __init_subclass__(cls, path: str = "") -> None:
        cls._path = path

    def __post_init__(self) -> None:
        for name, (hint, bounds, _) in _notes(type(self)).items():  # type: ignore[arg-type]
            _check_type(self._path + name, getattr(self, name), hint)
            if bounds is not None:
                bounds.check(self._path + name, getattr(self, name))
        self.check_rules()

    def check_rules(self) -> None:
        """Raises `InvalidSpec` for the first field whose value breaks its rule."""

    def require(self, name: str, condition: bool, rule: str) -> None:
        """Raises `InvalidSpec` for the field `name` unless the condition holds."""
        if not condition:
            raise InvalidSpec(self._path + name, attrgetter(name)(self), rule)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; raises `InvalidSpec` for anything else."""
        try:
            content = read_json(text)
        except ValueError as error:  # not JSON, or a whole number of thousands of digits
            raise InvalidSpec(cls.__name__, text[:80], f"is not valid JSON: {error}") from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Any, path: str = "") -> Self:
        """Builds the specification from plain values; fields left out take their defaults."""
        if not isinstance(content, Mapping):
            where = path.rstrip(".") or cls.__name__
            raise InvalidSpec(where, content, "must be an object of named fields")
        hints = {name: hint for name, (hint, _, _) in _notes(cls).items()}  # type: ignore[arg-type]
        unknown = set(content) - set(hints)
        if unknown:
            name = min(unknown)
            rule = f"{UNKNOWN_FIELD} {cls.__name__}; its fields are {', '.join(hints)}"
            raise InvalidSpec(path + name, content[name], rule + nearest(name, hints))
        for name in _required(cls):  # type: ignore[arg-type]
            require(name in content, path + name, None, "is required")
        try:
            return cls(
                **{
                    name: _from_plain(value, hints[name], name, path)
                    for name, value in content.items()
                }
            )
        except InvalidSpec as error:
            if path and not error.field.startswith(path):
                raise InvalidSpec(path + error.field, error.value, error.rule) from None
            raise


@cache
def fields_of(kind: Any) -> tuple[Field, ...]:
    """Every field that users can set: first those of the specification, then of its parts."""
    parts = [(name, hint) for name, (hint, _, _) in _notes(kind).items() if _is_spec(hint)]
    sections = [("", kind), *parts]
    return tuple(field for section, part in sections for field in _declared(section, part))


def _declared(section: str, kind: Any) -> Iterator[Field]:
    for field in fields(kind):
        hint, bounds, prompt = _notes(kind)[field.name]
        if _is_spec(hint) or prompt.hidden:
            continue
        makes = field.default_factory
        yield Field(
            section=section,
            name=field.name,
            kind=_without_none(hint),
            default=field.default if makes is MISSING else makes(),
            may_be_none=_without_none(hint) != hint,
            bounds=bounds,
            prompt=prompt,
        )


@cache
def _notes(kind: Any) -> dict[str, tuple[Any, Bounds | None, Prompt]]:
    """Type, range and prompt by field name. Cached, because finding them takes longer than reading
    a specification."""
    notes_by_name = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        is_annotated = get_origin(hint) is Annotated
        bare, *notes = get_args(hint) if is_annotated else (hint,)
        bounds = next((note for note in notes if isinstance(note, Bounds)), None)
        prompt = next((note for note in notes if isinstance(note, Prompt)), Prompt())
        notes_by_name[name] = (bare, bounds, prompt)
    return notes_by_name


@cache
def _required(kind: Any) -> list[str]:
    """Names of the fields without a default."""
    return [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]


def _from_plain(value: Any, hint: Any, name: str, path: str) -> Any:
    if _is_spec(hint):
        return value if isinstance(value, hint) else hint.from_dict(value, path=f"{name}.")
    if isinstance(hint, type) and issubclass(hint, StrEnum) and value in list(hint):
        return hint(value)
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        inner = get_args(hint)[0]
        return tuple(_from_plain(entry, inner, name, path) for entry in value)
    if get_origin(hint) in (UnionType, Union) and isinstance(value, list):
        return tuple(value)
    if get_origin(hint) is dict and isinstance(value, Mapping):
        inner = get_args(hint)[1]
        return {key: _from_plain(entry, inner, name, path) for key, entry in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        check_plain(path + name, value)  # a float holds no number of 400 digits
        return float(value)
    return value


def _check_type(name: str, value: Any, hint: Any) -> None:
    if not _has_type(value, hint):
        known = get_args(hint) if get_origin(hint) is Literal else ()
        raise InvalidSpec(name, value, f"must be {_type_name(hint)}{nearest(value, known)}")
    check_plain(name, value)


def _has_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (UnionType, Union):
        return any(_has_type(value, option) for option in get_args(hint))
    if origin is tuple:
        inner = get_args(hint)[0]
        return isinstance(value, tuple) and all(_has_type(entry, inner) for entry in value)
    if origin is dict:
        _, inner = get_args(hint)
        return isinstance(value, dict) and all(
            isinstance(key, str) and _has_type(entry, inner) for key, entry in value.items()
        )
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


def _type_name(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin in (UnionType, Union):
        return " or ".join(map(_type_name, get_args(hint)))
    if origin is tuple:
        return f"a list of {_type_name(get_args(hint)[0])}"
    if origin is dict:
        return f"named values, each {_type_name(get_args(hint)[1])}"
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return "null" if hint is NoneType else names.get(hint, hint.__name__)


def _is_spec(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Spec)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (UnionType, Union):
        kinds = [option for option in get_args(hint) if option is not NoneType]
        return kinds[0] if len(kinds) == 1 else hint
    return hint


def require(condition: bool, name: str, value: Any, rule: str) -> None:
    """Raises `InvalidSpec` for the field `name` unless the condition holds."""
    if not condition:
        raise InvalidSpec(name, value, rule)
