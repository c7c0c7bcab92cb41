"""A team's shared store: the tables of the embedded store in DuckLake, written by many machines."""

from pathlib import Path

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import read_settings
from breakeven.storage.index.store import Store
from breakeven.storage.team.store_address import team_address


def open_store(data_dir: DataDir, examples: Path | None = None) -> Store:
    """Opens the data folder's own store, or a team's store if the settings name one. Raises the
    errors of `Store.open`, `SettingsUnusable`, and for a team's store `TeamStoreUnusable`."""
    address = team_address(read_settings(data_dir.path).store)
    if address is None:
        return Store.open(data_dir, examples)
    # Only a team's store needs DuckDB's extensions.
    from breakeven.storage.team.team_store import TeamStore

    return TeamStore.at(address, data_dir, examples)
