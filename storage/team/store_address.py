"""Parses the address of a team's store, `store.address` of the settings.

    ducklake:postgres:host=db.example.org dbname=breakeven user=breakeven
    ducklake:postgres:postgresql://breakeven@db.example.org/breakeven
    ducklake:sqlite:/folder/store.sqlite

libpq receives the text after `postgres:` unchanged; it also reads `PGPASSWORD` and `~/.pgpass`. The
rows are Parquet files in the folder or under the `s3://` address of `store.data`. This setting
matters only when the store is created; then the store contains it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from breakeven.runner.settings import TeamStoreSettings
from breakeven.runner.texts import printable
from breakeven.storage.errors import TeamStoreUnusable

CATALOGS = ("postgres", "sqlite")
S3 = "s3://"
MASK = "***"
SECRETS = (
    re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s'\"]+)", re.IGNORECASE),
    re.compile(r"(://[^/\s:@]*:)([^\s]*)(?=@)"),
)
"""Patterns for the text before a password, and the password, in libpq's two formats."""


@dataclass(frozen=True)
class Address:
    """The address of a team's store."""

    catalog: str
    """One of `CATALOGS`."""
    place: str
    """Connection string for libpq, or path of a file. May contain a password: show `masked`."""
    data: str | None
    """A folder or an `s3://` address; None if only the store knows it."""

    @property
    def masked(self) -> str:
        """The address without its password, for display."""
        return masked(f"ducklake:{self.catalog}:{self.place}")

    def without_secrets(self, text: object) -> str:
        """A message about this store without passwords; it may quote the address."""
        hidden = printable(text)
        for secret in SECRETS:
            for match in secret.finditer(self.place):
                hidden = hidden.replace(match[2], MASK).replace(match[2].strip("'"), MASK)
        return masked(hidden)


def masked(text: str) -> str:
    for secret in SECRETS:
        text = secret.sub(rf"\g<1>{MASK}", text)
    return text


def team_address(settings: TeamStoreSettings) -> Address | None:
    """The address of the team's store; None without one. Raises `TeamStoreUnusable`."""
    text = settings.address.strip()
    if not text:
        return None
    kind, _, rest = text.partition(":")
    catalog, _, place = rest.partition(":")
    if kind != "ducklake" or catalog not in CATALOGS or not place.strip():
        raise TeamStoreUnusable(
            f"store.address is {printable(masked(text))!r}, which is no address of a "
            "store: it is ducklake:postgres: and how libpq reaches the database (host=... "
            "dbname=... user=..., or postgresql://...), or ducklake:sqlite: and a file "
            "(docs/operating.md)"
        )
    if catalog == "sqlite":
        place = str(Path(place).expanduser().absolute())
    return Address(catalog, place, _data(settings.data.strip()))


def _data(text: str) -> str | None:
    if not text or text.startswith(S3):
        return text or None
    if "://" in text:
        raise TeamStoreUnusable(
            f"store.data is {printable(masked(text))!r}: rows can lie in a folder that every "
            f"machine reaches under this path, or under {S3}bucket/prefix"
        )
    return str(Path(text).expanduser().absolute())
