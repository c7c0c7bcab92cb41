"""Settings of a data folder, in its `breakeven.toml`: keys, types, defaults (docs/settings.md).

    [serving]
    hostnames = ["bench.example.org"]
    others = "launch"

An environment variable, where a setting has one, overrides the file.
"""

import difflib
import math
import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from breakeven.runner.errors import SettingsUnusable, shown

FILE_NAME = "breakeven.toml"
HOST_VARIABLE, PORT_VARIABLE = "BREAKEVEN_HOST", "BREAKEVEN_PORT"
OTHERS_VARIABLE = "BREAKEVEN_OTHERS"
VARIABLES = (HOST_VARIABLE, PORT_VARIABLE, OTHERS_VARIABLE)
MAX_BYTES = 1_000_000
MAX_PORT = 65_535
EVERYBODY = "*"
NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
"""What an error calls a type."""


def _from_variable(default: Any, variable: str) -> Any:
    return field(default=default, metadata={"variable": variable})


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Whom the dashboard serves."""

    host: str = _from_variable("127.0.0.1", HOST_VARIABLE)
    """The address to listen on; `0.0.0.0` is all of the machine's. A path is that of a Unix socket,
    on which a proxy that has people sign in is listened to."""
    port: int = _from_variable(8501, PORT_VARIABLE)
    hostnames: tuple[str, ...] = ()
    """Names under which others reach the dashboard, as through a proxy."""
    others: Literal["view", "launch"] = _from_variable("view", OTHERS_VARIABLE)
    """The rights of other people where there is no sign-in."""
    files: tuple[str, ...] = ()
    """Folders whose data files and models others may use by path."""

    def __post_init__(self) -> None:
        if not 0 < self.port <= MAX_PORT:
            raise ValueError(f"port = {shown(self.port)}: must be from 1 to {MAX_PORT}")


@dataclass(frozen=True, kw_only=True)
class Members:
    """People who have a role."""

    members: tuple[str, ...] = ()
    """Verified addresses, in any case of the letters A to Z; subjects, which hold no `@`."""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Team:
    """Who may do what, where people sign in (docs/operating.md)."""

    claim: str = "groups"
    """Of the ID token, with groups; a point leads into an object: `realm_access.roles`."""
    trust_emails: bool = False
    """Whether an address counts of which the provider does not say whether it is verified."""
    blocked: tuple[str, ...] = ()
    operators: Members = Members()
    viewers: Members = Members()
    """`*` is everybody who can sign in."""

    def __post_init__(self) -> None:
        if EVERYBODY in self.operators.members + self.operators.groups:
            raise ValueError("operators are named one by one, or by a group; '*' is for viewers")


@dataclass(frozen=True, kw_only=True)
class TeamStoreSettings:
    """The index that a team shares (docs/operating.md)."""

    address: str = ""
    """`ducklake:postgres:` and how libpq reaches it, or `ducklake:sqlite:` and a file."""
    data: str = ""
    """The folder, or the `s3://` address, of its rows: for the machine that makes the store."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a planned training costs. 0 is unknown, and nothing is shown of it."""

    currency: str = ""
    device_hour: float = 0.0
    """Of one device, in the currency."""
    kwh: float = 0.0
    """Of electric energy, in the currency."""
    co2_grams_per_kwh: float = 0.0

    def __post_init__(self) -> None:
        for name in ("device_hour", "kwh", "co2_grams_per_kwh"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)}: must be 0 or more, and finite")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `breakeven.toml` says, or the defaults."""

    serving: Serving = Serving()
    team: Team = Team()
    store: TeamStoreSettings = TeamStoreSettings()
    prices: Prices = Prices()
    addresses: Mapping[str, str] = field(default_factory=dict)
    """By the host name of a machine: under which address further machines of a run find it."""


def read_settings(folder: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a data folder. Raises `SettingsUnusable` for a file that cannot be read, that
    other accounts may write, or that holds an unknown key, a wrong type or a wrong value."""
    file = folder / FILE_NAME
    version: tuple[int, ...] = ()
    with suppress(OSError):  # Reading says what is wrong.
        found = file.stat()
        version = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)
    variables = [(name, environment.get(name, "")) for name in VARIABLES]
    return _of_version(file, version, tuple(variables))


@lru_cache(maxsize=4)
def _of_version(
    file: Path, version: tuple[int, ...], variables: tuple[tuple[str, str], ...]
) -> Settings:
    """Each request reads settings: a file is parsed once for each of its versions."""
    settings: Settings = _section(Settings, _read(file), f"{file}: ", dict(variables))
    return settings


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            content = tomllib.loads(opened.read(MAX_BYTES).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsUnusable(f"{file} cannot be read: {error}") from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SettingsUnusable(f"{file} can be written by other accounts: chmod 600 {file}")
    return content


def _section(
    kind: Any, table: Mapping[str, Any], place: str, environment: Mapping[str, str]
) -> Any:
    """A table as its dataclass; `place` comes before the name of a key in errors."""
    known = get_type_hints(kind)
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise SettingsUnusable(f"{place}{name} is no setting; {hint}")
    values = {name: _value(known[name], given, f"{place}{name}", environment)
              for name, given in table.items()}  # fmt: skip
    for one in fields(kind):
        hint = known[one.name]
        if is_dataclass(hint) and one.name not in values:
            values[one.name] = _section(hint, {}, f"{place}{one.name}.", environment)
        variable = one.metadata.get("variable")
        if variable is not None and environment.get(variable):
            values[one.name] = _value(hint, _parsed(hint, environment[variable]), variable, {})
    try:
        return kind(**values)
    except ValueError as error:
        raise SettingsUnusable(f"{place}{error}") from None


def _parsed(hint: Any, text: str) -> object:
    """A variable's text as a file would hold it."""
    return int(text) if hint is int and text.isdecimal() and text.isascii() else text


def _value(hint: Any, given: object, place: str, environment: Mapping[str, str]) -> Any:
    if is_dataclass(hint):
        if not isinstance(given, dict):
            raise SettingsUnusable(f"{place} = {shown(given)}: must be a table")
        return _section(hint, given, f"{place}.", environment)
    origin = get_origin(hint)
    if origin is Literal:
        is_right, rule = given in get_args(hint), " or ".join(map(repr, get_args(hint)))
    elif origin is tuple:
        is_right, rule = isinstance(given, list) and _are_texts(given), "a list of texts"
    elif origin is Mapping:
        is_right = isinstance(given, dict) and _are_texts(given.values())
        rule = "a table of texts"
    else:
        accepted = (int, float) if hint is float else (hint,)
        is_right, rule = type(given) in accepted, NAMES[hint]
    if not is_right:
        raise SettingsUnusable(f"{place} = {shown(given)}: must be {rule}")
    return tuple(given) if isinstance(given, list) else given


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(one, str) for one in values)
