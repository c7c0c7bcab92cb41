"""What an index holds."""

from breakeven.storage.index.ingest import EVENT_TABLES
from breakeven.storage.index.store import Store


def content(store: Store) -> dict[str, list[str]]:
    """All rows as text, in which NaN equals NaN, but for those that say when something was taken
    in, and in which order."""
    rows_by_table = {}
    for (table,) in store.rows("SHOW TABLES"):
        if table not in ("meta", "experiments"):
            columns = "* EXCLUDE (revision)" if table in ("progress", "labels") else "*"
            is_numbered = table in ("runs", *EVENT_TABLES.values())
            columns = "* EXCLUDE (experiment)" if is_numbered else columns
            rows_by_table[table] = sorted(map(str, store.rows(f"SELECT {columns} FROM {table}")))
    return rows_by_table
