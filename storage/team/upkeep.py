"""Keeps a team's store fast and small while it is used: to be run daily by one machine.

Rows that lie in the database become files, small files of an experiment one, what was taken back
goes, and so do states that nobody reads any more with the files that only they need.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from breakeven.storage.team.actions import DAYS
from breakeven.storage.team.lake import ALL_TABLES, LAKE, Lake, Overtaken
from breakeven.storage.team.results import forget_gone

ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of a store."""

    files: int
    bytes: int
    rows_in_database: int


def upkeep(lake: Lake, days: float = DAYS) -> Iterator[str]:
    """Does it table by table, so that those who write wait a moment each time; yields what is being
    done. May be broken off anywhere. Raises `TeamStoreUnusable`."""
    lake.speed_up()
    for table in ALL_TABLES:
        yield table
        for function in ("flush_inlined_data", "rewrite_data_files", "merge_adjacent_files"):
            named = f"table_name => '{table}'" if function.startswith("flush") else f"'{table}'"
            _call(lake, f"{function}('{LAKE}', {named})")
    if lake.address.catalog == "postgres":
        yield "kept results"
        forget_gone(lake)
    yield "earlier states"
    old = f"older_than => now() - INTERVAL '{round(days * 86400)} seconds'"
    _call(lake, f"expire_snapshots('{LAKE}', {old})")
    _call(lake, f"cleanup_old_files('{LAKE}', {old})")
    _call(lake, f"delete_orphaned_files('{LAKE}', {old})")


def _call(lake: Lake, function: str) -> None:
    for _ in range(ATTEMPTS):
        try:
            lake.execute(f"CALL ducklake_{function}")
            return
        except Overtaken:  # Only somebody without the lock can have been.
            continue


def size(lake: Lake) -> Size:
    """What the store holds; raises `TeamStoreUnusable`."""
    with lake.reading() as cursor:
        row = cursor.execute(
            f"SELECT coalesce(sum(file_count), 0), coalesce(sum(file_size_bytes), 0) "
            f"FROM ducklake_table_info('{LAKE}')"
        ).fetchone()
        assert row is not None
        return Size(files=int(row[0]), bytes=int(row[1]), rows_in_database=_inlined(lake))


def _inlined(lake: Lake) -> int:
    """Rows that await upkeep."""
    with lake.connection.cursor() as cursor:
        catalog = f"__ducklake_metadata_{LAKE}"
        query = f"SELECT DISTINCT table_name FROM {catalog}.ducklake_inlined_data_tables"
        counts = [
            f'SELECT count(*) AS n FROM {catalog}."{table}" WHERE end_snapshot IS NULL'
            for (table,) in cursor.execute(query).fetchall()
        ]
        if not counts:
            return 0
        row = cursor.execute(f"SELECT sum(n) FROM ({' UNION ALL '.join(counts)})").fetchone()
        return int(row[0] or 0) if row else 0
