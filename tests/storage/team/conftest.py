"""Stores of a team: in SQLite, which needs nothing, and in PostgreSQL where that is installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.storage.team.store_address import Address
from tests.helpers.team.postgres import Postgres, postgres_server
from tests.helpers.team.stores import sqlite_store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """An empty store of each kind."""
    if request.param == "sqlite":
        return sqlite_store(tmp_path)
    server = request.getfixturevalue("postgres")
    return Address("postgres", server.new_database(), str(tmp_path / "rows"))
