"""Settings of a data folder, in its `breakeven.toml`: keys, types, defaults (docs/operating.md).

    [serving]
    hostnames = ["bench.example.org"]
    port = 8600

An environment variable, where a setting has one, overrides the file.
"""

import math
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from breakeven.runner.errors import InvalidSpec, SettingsUnusable, shown
from breakeven.runner.specs.fields import Bounds, Spec

FILE_NAME = "breakeven.toml"
HOST_VARIABLE, PORT_VARIABLE = "BREAKEVEN_HOST", "BREAKEVEN_PORT"
VARIABLES = {HOST_VARIABLE: "host", PORT_VARIABLE: "port"}
"""The field of `Serving` that each variable overrides."""
MAX_BYTES = 1_000_000
PRICE = Bounds(0, math.inf, "")


@dataclass(frozen=True, kw_only=True)
class Serving(Spec):
    """Whom the dashboard serves."""

    host: str = "127.0.0.1"
    """The address to listen on; `0.0.0.0` is all of the machine's."""
    port: Annotated[int, Bounds(1, 65_535, "TCP has no more ports")] = 8501
    hostnames: tuple[str, ...] = ()
    """Names under which others reach the dashboard, as through a proxy."""
    files: tuple[str, ...] = ()
    """Folders whose data files and models others may use by path."""


@dataclass(frozen=True, kw_only=True)
class TeamStoreSettings(Spec):
    """The index that a team shares (docs/operating.md)."""

    address: str = ""
    """`ducklake:postgres:` and how libpq reaches it, or `ducklake:sqlite:` and a file."""
    data: str = ""
    """The folder, or the `s3://` address, of its rows: for the machine that makes the store."""


@dataclass(frozen=True, kw_only=True)
class Prices(Spec):
    """What a planned training costs. 0 is unknown, and nothing is shown of it."""

    currency: str = ""
    device_hour: Annotated[float, PRICE] = 0.0
    """Of one device, in the currency."""
    kwh: Annotated[float, PRICE] = 0.0
    """Of electric energy, in the currency."""
    co2_grams_per_kwh: Annotated[float, PRICE] = 0.0


@dataclass(frozen=True, kw_only=True)
class Settings(Spec):
    """What `breakeven.toml` says, or the defaults."""

    serving: Serving = Serving()
    store: TeamStoreSettings = TeamStoreSettings()
    prices: Prices = Prices()
    addresses: dict[str, str] = field(default_factory=dict)
    """By the host name of a machine: under which address further machines of a run find it."""


def read_settings(folder: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a data folder. Raises `SettingsUnusable` for a file that cannot be read, that
    other accounts may write, or that holds an unknown key, a wrong type or a wrong value."""
    file = folder / FILE_NAME
    version: tuple[int, ...] = ()
    with suppress(OSError):  # Reading says what is wrong.
        status = file.stat()
        version = (
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_size,
            status.st_ino,
            status.st_mode,
        )
    variables = [(name, environment.get(name, "")) for name in VARIABLES]
    return _of_version(file, version, tuple(variables))


@lru_cache(maxsize=4)
def _of_version(
    file: Path, version: tuple[int, ...], variables: tuple[tuple[str, str], ...]
) -> Settings:
    """Each request reads settings: a file is parsed once for each of its versions."""
    try:
        settings = Settings.from_dict(_read(file))
    except InvalidSpec as error:
        raise SettingsUnusable(f"{file}: {error}") from None
    for variable, text in variables:
        if text:
            # As a file would hold it.
            value = int(text) if variable == PORT_VARIABLE and text.isdecimal() else text
            settings = _overridden(settings, variable, value)
    return settings


def _overridden(settings: Settings, variable: str, value: Any) -> Settings:
    try:
        serving = replace(settings.serving, **{VARIABLES[variable]: value})
    except InvalidSpec as error:
        raise SettingsUnusable(f"{variable} = {shown(value)}: {error.rule}") from None
    return replace(settings, serving=serving)


def _read(file: Path) -> dict[str, Any]:
    import tomllib  # absent in Python 3.10, which runs may have

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
