"""Team stores for tests, and their content."""

import os
import shutil
from pathlib import Path
from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.storage.index.ingest import EVENT_TABLES
from breakeven.storage.index.store import Store
from breakeven.storage.team.store_address import Address

OWN = ("experiment", "revision", "data_folder")
"""Columns that differ between stores of the same runs."""


def data_folder(place: Path) -> DataDir:
    """An empty store."""
    folder = DataDir(place)
    folder.runs.mkdir(parents=True)
    return folder


def sqlite_store(place: Path) -> Address:
    """The address of a store that needs no server."""
    return Address("sqlite", str(place / "store.sqlite"), str(place / "rows"))


def contents(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of runs and events, sorted."""
    for (experiment_id,) in store.rows("SELECT DISTINCT experiment_id FROM runs"):
        store.number_of(experiment_id)
    return {
        table: _rows(store, table)
        for table in ("runs", "progress", "labels", *EVENT_TABLES.values())
    }


def _rows(store: Store, table: str) -> list[tuple[Any, ...]]:
    columns = [name for name in store.query(f"FROM {table} LIMIT 0").columns if name not in OWN]
    # As texts, because a loss that is not a number equals none.
    return sorted(
        tuple(map(str, row)) for row in store.rows(f"SELECT {', '.join(columns)} FROM {table}")
    )


def grow(source: DataDir, target: DataDir, share: float) -> None:
    """Copies the first part of each journal of another data folder into a data folder."""
    for run in source.run_dirs():
        copy = RunDir(target.runs / run.run_id)
        if not copy.path.exists():
            shutil.copytree(run.path, copy.path)
            copy.events_file.write_bytes(b"")
        journal, have = run.events_file.read_bytes(), copy.events_file.stat().st_size
        with copy.events_file.open("ab") as grown:
            grown.write(journal[have : int(len(journal) * share)])
    os.utime(target.runs)
