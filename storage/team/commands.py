"""Runs `breakeven team ACTION` on the store in the settings."""

import argparse
import sys
import time
from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.settings import FILE_NAME, read_settings
from breakeven.storage.errors import StoreError, TeamStoreUnusable
from breakeven.storage.team.address import Address, team_address
from breakeven.storage.team.feed import data_folder_id
from breakeven.storage.team.lake import Lake
from breakeven.storage.team.store import TeamStore
from breakeven.storage.team.upkeep import forget_folder, reset, size, upkeep

PAUSE_SECONDS, PAUSE_SHARE = 2.0, 10.0
"""Shortest pause between two ticks, and the pause as a multiple of the last tick's duration: if
many machines wait for each other, all write less often and more rows at once."""


def run(data_dir: DataDir, options: argparse.Namespace, examples: Path) -> int:
    """Runs an action; raises `StoreError`."""
    address = team_address(read_settings(data_dir.path).store)
    if address is None:
        file = data_dir.path / FILE_NAME
        raise StoreError(f"store.address of {file} names no store (docs/operating.md)")
    if options.action == "ingest":
        return _ingest(address, data_dir, examples, goes_on=options.watch)
    if options.action == "reset" and not options.yes:
        raise StoreError(
            "reset forgets every run whose folder no machine has any more; say it again with --yes"
        )
    lake = Lake(address, check=options.action != "reset")
    try:
        if options.action == "status":
            _say(_status(lake))
        elif options.action == "upkeep":
            _keep_up(lake, options.days)
        elif options.action == "reset":
            reset(lake)
            _say("the store is empty; each machine takes its run folders in again by itself")
        else:
            count = forget_folder(lake, data_folder_id(data_dir))
            _say(f"forgot {count} runs of {data_dir.path}")
    finally:
        lake.close()
    return _ingest(address, data_dir, examples) if options.action == "rebuild" else 0


def _ingest(address: Address, data_dir: DataDir, examples: Path, *, goes_on: bool = False) -> int:
    with TeamStore.at(address, data_dir, examples) as store:
        while True:
            begun = time.monotonic()
            try:
                num_rows = store.ingest_all()
            except TeamStoreUnusable as error:
                if not goes_on:
                    raise
                _say(str(error))
                num_rows = 0
            if num_rows or not goes_on:
                _say(f"took in {num_rows} rows")
            if not store.feeds:
                raise StoreError(f"another process takes in {data_dir.path} already")
            if not goes_on:
                return 0
            time.sleep(max(PAUSE_SECONDS, PAUSE_SHARE * (time.monotonic() - begun)))


def _keep_up(lake: Lake, days: float) -> None:
    before = size(lake)
    for part in upkeep(lake, days):
        _say(part)
    after = size(lake)
    _say(
        f"files {before.files} -> {after.files}, bytes {before.bytes} -> {after.bytes}, "
        f"rows that wait in the database {before.rows_in_database} -> {after.rows_in_database}"
    )


def _status(lake: Lake) -> str:
    with lake.reading() as cursor:
        folders = cursor.execute("""
            SELECT host, path, count(run_id), max(coalesce(ended, claimed))
            FROM (SELECT DISTINCT data_folder, host, path FROM data_folders)
                LEFT JOIN progress USING (data_folder)
            GROUP BY data_folder, host, path ORDER BY host, path""").fetchall()
        (experiments,) = cursor.execute(
            "SELECT count(DISTINCT experiment_id) FROM runs"
        ).fetchone() or (0,)
    held = size(lake)
    lines = [
        lake.address.masked,
        f"{experiments} experiments; {held.files} files, {held.bytes} bytes; "
        f"{held.rows_in_database} rows wait in the database for upkeep",
    ]
    for host, path, runs, latest in folders:
        when = "never" if latest is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(latest))
        lines.append(f"  {host}:{path}  {runs} runs, the latest claimed or ended {when} UTC")
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
