"""Where a team's store is, as the settings say it."""

from pathlib import Path

import pytest

from breakeven.runner.settings import TeamStoreSettings
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.team.store_address import Address, team_address


def test_without_an_address_everybody_has_a_store_of_their_own() -> None:
    assert team_address(TeamStoreSettings()) is None
    assert team_address(TeamStoreSettings(address="  ")) is None


def test_what_follows_postgres_goes_to_libpq_as_it_is() -> None:
    text = "ducklake:postgres:host=db port=5433 dbname=breakeven"
    expected = Address("postgres", "host=db port=5433 dbname=breakeven", "s3://bucket/rows")
    assert team_address(TeamStoreSettings(address=text, data="s3://bucket/rows")) == expected
    uri = "postgresql://me@db:5433/breakeven?sslmode=require"
    assert team_address(TeamStoreSettings(address=f"ducklake:postgres:{uri}")) == Address(
        "postgres", uri, None
    )


def test_a_folder_is_the_same_wherever_it_is_said_from() -> None:
    address = team_address(TeamStoreSettings(address="ducklake:sqlite:store.sqlite", data="rows"))
    assert address == Address("sqlite", str(Path.cwd() / "store.sqlite"), str(Path.cwd() / "rows"))


@pytest.mark.parametrize(
    "text",
    [
        "postgres:host=db",
        "ducklake:",
        "ducklake:mysql:host=db",
        "ducklake:postgres: ",
        "team.duckdb",
        "postgresql://me:hunter2@db/breakeven",
    ],
)
def test_what_is_no_address_is_refused_with_what_one_is(text: str) -> None:
    said = "ducklake:postgres: and how libpq reaches"
    with pytest.raises(TeamStoreUnusable, match=said) as refused:
        team_address(TeamStoreSettings(address=text))
    assert "hunter2" not in str(refused.value)


def test_rows_that_not_every_machine_could_reach_are_refused() -> None:
    with pytest.raises(TeamStoreUnusable, match="under s3://bucket/prefix"):
        data = "https://me:hunter2@example.org/rows"
        team_address(TeamStoreSettings(address="ducklake:sqlite:x", data=data))


@pytest.mark.parametrize(
    "place",
    [
        "host=db password=hunter2 user=me",
        "host=db Password = 'hunter2'",
        r"host=db password='hunter2\' dbname=x'",
        "postgresql://me:hunter2@db/breakeven",
        "postgresql://me:hun@ter2@db/breakeven",
        "postgresql://db/breakeven?user=me&password=hunter2",
    ],
)
def test_a_password_is_never_shown(place: str) -> None:
    address = Address("postgres", place, None)
    quoting = f'IO Error: Unable to connect to Postgres at "{place}": no password supplied'
    for shown in (address.masked, address.without_secrets(quoting)):
        assert "hunter2" not in shown
        assert "ter2" not in shown
        assert "db" in shown
