"""Where a team's store is, as `store.address` of the settings says it; read here and nowhere else.

    ducklake:postgres:host=db.example.org dbname=breakeven user=breakeven
    ducklake:postgres:postgresql://breakeven@db.example.org/breakeven
    ducklake:sqlite:/folder/store.sqlite

What follows `postgres:` goes to libpq as it is, which also knows `PGPASSWORD` and `~/.pgpass`. The
rows lie as Parquet files in the folder, or under the `s3://` address, that `store.data` names when
the store is made; later the store itself knows.
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
"""What comes before a password, and the password, in the two forms that libpq reads."""


@dataclass(frozen=True)
class Address:
    """Where a team's store is."""

    catalog: str
    """One of `CATALOGS`."""
    place: str
    """What libpq connects to, or the path of a file. May hold a password: show `masked`."""
    data: str | None
    """A folder or an `s3://` address; None where only the store knows."""

    @property
    def masked(self) -> str:
        """As it may be shown."""
        return masked(f"ducklake:{self.catalog}:{self.place}")

    def without_secrets(self, text: object) -> str:
        """A message about this store, which may quote how it was reached."""
        hidden = printable(text)
        for found in (match for secret in SECRETS for match in secret.finditer(self.place)):
            hidden = hidden.replace(found[2], MASK).replace(found[2].strip("'"), MASK)
        return masked(hidden)


def masked(text: str) -> str:
    for secret in SECRETS:
        text = secret.sub(rf"\g<1>{MASK}", text)
    return text


def team_address(settings: TeamStoreSettings) -> Address | None:
    """Where the team's store is; None where everybody has their own. Raises `TeamStoreUnusable`."""
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
