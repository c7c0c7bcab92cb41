"""Opens the store of a data folder: its own, or a team's where the settings name one."""

from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.settings import read_settings
from breakeven.storage.index.store import Store
from breakeven.storage.team.address import team_address


def open_store(data_dir: DataDir, examples: Path | None = None) -> Store:
    """Raises what `Store.open` does, `SettingsUnusable`, and for a team's store
    `TeamStoreUnusable`."""
    address = team_address(read_settings(data_dir.path).store)
    if address is None:
        return Store.open(data_dir, examples)
    # DuckDB's extensions are looked for only where somebody wants them.
    from breakeven.storage.team.store import TeamStore

    return TeamStore.at(address, data_dir, examples)
